"""The alarm that another ledger paid a file: results at the place where ours would go, of a batch that nobody knows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import polars as pl

from batchpay.errors import FileRefused
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment
from batchpay.reconciliation.sheet_reader import read_sheet

_PARQUET = (".parquet", ".pq")


def refuse_paid_elsewhere(ledger: Ledger, results: Path | None, environment: Environment) -> None:
    """Raise FileRefused where results lie that name, for this environment, a batch which this ledger does not know.

    Results of an earlier version name no environment: they count for each.
    """
    found = _first_row(results) if results is not None and results.is_file() else {}
    batch = found.get("batch", "")
    if not batch or found.get("environment", environment) not in ("", environment):
        return
    if batch not in {known.batch for known in ledger.batches()}:
        raise FileRefused(
            f"{results} holds the results of batch {batch}, which this ledger does not know: another ledger may have "
            "paid this file. Look there first; if it did not, submit with --paid-elsewhere-checked --reason TEXT"
        )


def _first_row(path: Path) -> dict[str, str]:
    """Read the first row of what may be results, by its header; empty where it is another kind of file."""
    try:
        if path.suffix.lower() in _PARQUET:
            rows = pl.scan_parquet(path, glob=False).head(1).collect().rows(named=True)
            return {name: str(value or "") for name, value in rows[0].items()} if rows else {}
        (_, header), (_, cells) = islice(read_sheet(path), 2)
    except (FileRefused, ValueError, OSError, pl.exceptions.PolarsError):
        return {}
    return dict(zip(header, cells, strict=False))
