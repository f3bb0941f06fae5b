"""The alarm that another ledger paid a file: results at the place where ours would go, of a batch that nobody knows."""

from __future__ import annotations

from pathlib import Path

from batchpay.errors import FileRefused
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment
from batchpay.writing.place import first_row


def refuse_paid_elsewhere(ledger: Ledger, results: Path | None, environment: Environment) -> None:
    """Raise FileRefused where results lie that name, for this environment, a batch which this ledger does not know.

    Results of an earlier version name no environment: they count for each.
    """
    found = (first_row(results) if results is not None else None) or {}
    batch = found.get("batch")
    if not batch or (found.get("environment") or environment) != environment:
        return
    if batch not in {known.batch for known in ledger.batches()}:
        raise FileRefused(
            f"{results} holds the results of batch {batch}, which this ledger does not know: another ledger may have "
            "paid this file, or this one before it was brought back from a backup. Look there first; if it was not "
            "paid, submit with --paid-elsewhere-checked --reason TEXT"
        )
