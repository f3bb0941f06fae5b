"""The status of batches: all of them, or one."""

from __future__ import annotations

from contextlib import closing

from batchpay.errors import LedgerNotUsable, once_sent
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.hosts import HostRun
from batchpay.ledger.open import ledger_if_any, open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.operations.ledger_state import BatchDoubts
from batchpay.payment import Environment, Totals
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch


def batch_status(reference: str, settings: Settings) -> Summary:
    """Return one batch's summary; `reference` is its name or a unique beginning of it."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return summary_of_batch(ledger.find(reference))


def runs_of_batch(batch: str, settings: Settings) -> list[HostRun]:
    """Return a batch's runs if several machines may work on it, the first one first."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return ledger.runs(batch)


def in_doubt(ledger: Ledger, environment: Environment, *, but: str | None = None) -> dict[str, dict[str, Totals]]:
    """Return what is in doubt in every batch of an environment by direction, the latest first; `but` is left out."""
    found = {
        batch.batch: dict(BatchDoubts.of(ledger, batch).apart)
        for batch in ledger.batches()
        if batch.environment is environment and batch.batch != but
    }
    return {name: apart for name, apart in found.items() if apart}


def add_in_doubt_elsewhere(summary: Summary, ledger: Ledger, finished: BatchSummary) -> None:
    """Add to the summary of a run what is in doubt in other batches.

    If the ledger can no longer be read, the summary gives that as a reason to run the command again: exit code 5 would
    say that nothing was sent, and what was sent would go unreported.
    """
    try:
        summary.in_doubt_elsewhere = in_doubt(ledger, finished.environment, but=finished.batch)
    except LedgerNotUsable as error:
        reason = f"other rows in doubt could not be checked: {once_sent(error)}"
        summary.stopped = "; ".join(filter(None, (summary.stopped, reason)))


def all_in_doubt(settings: Settings) -> dict[str, dict[str, Totals]]:
    """Return what is in doubt in the environment of these settings; nothing if there is no ledger yet."""
    with ledger_if_any(settings.ledger) as ledger:
        return {} if ledger is None else in_doubt(ledger, environment_of(settings.gateway))


def all_batches(settings: Settings) -> list[Summary]:
    """Return every batch's summary, the latest first."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return [summary_of_batch(found) for found in ledger.batches()]
