"""The status of batches, a batch's results and its page, all read from the ledger; nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from batchpay.errors import LedgerMissing, LedgerNotUsable, WrongUse, once_sent
from batchpay.gateway.origin import environment_of, is_rehearsal
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import location, open_ledger
from batchpay.ledger.records import BatchSummary, HostRun
from batchpay.operations.return_rates import return_rates
from batchpay.payment import Environment, Totals
from batchpay.reports.page import write_batch_page
from batchpay.reports.results import write_results
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import local_time
from batchpay.writing.atomic import Stream


def batch_status(reference: str, settings: Settings) -> Summary:
    """Return one batch's summary; `reference` is its name or a unique beginning of it."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return summary_of_batch(ledger.find(reference))


def runs_of_batch(batch: str, settings: Settings) -> list[HostRun]:
    """Return a batch's runs if several machines may work on it, the first one first."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return ledger.runs(batch)


def status_json(summary: Summary, runs: list[HostRun]) -> dict[str, Any]:
    """Return the object of `status --json` for one batch."""
    return summary.as_json() | ({"runs": [run.as_json() for run in runs]} if runs else {})


def in_doubt(ledger: Ledger, environment: Environment, *, but: str | None = None) -> dict[str, dict[str, Totals]]:
    """Return what is in doubt in every batch of an environment by direction, the latest first; `but` is left out."""
    from batchpay.operations.health import BatchDoubts

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
    """Return what is in doubt in the environment of these settings: nothing before the first call at a test gateway.

    Raises LedgerNotUsable where that is not known: without a ledger if a witness remembers one or the gateway moves
    money, and where a ledger without a row in doubt may not know the latest payments, as when it was restored.
    """
    try:
        ledger = open_ledger(settings.ledger, read_only=True)
    except LedgerMissing:
        if not is_rehearsal(settings.gateway) or location(settings.ledger).witness.exists():
            raise
        return {}
    with closing(ledger):
        found = in_doubt(ledger, environment_of(settings.gateway))
        if not found and ledger.differences:
            raise ledger.differences[0]
        return found


def waits_for_person(settings: Settings) -> str | None:
    """Return why new files wait for a person: the ledger was accepted, and nobody has said what it lost."""
    try:
        ledger = open_ledger(settings.ledger, read_only=True)
    except LedgerNotUsable:  # told by whoever looks for rows in doubt
        return None
    with closing(ledger):
        lost = ledger.lost_window()
        return None if lost is None else lost.waits


def all_batches(settings: Settings) -> list[Summary]:
    """Return every batch's summary, the latest first."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return [summary_of_batch(found) for found in ledger.batches()]


def rates_told(settings: Settings) -> list[str]:
    """Say of each environment how many of its debits came back; nothing where none did."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = {one: return_rates(ledger, ledger.batches(), one) for one in Environment}
        return [f"{one}: {rates}" for one, rates in found.items() if rates.percent]


OutputPath = Callable[[BatchSummary], Path | Stream]
"""Where a file about a batch goes; raises if it can't be written."""


def results_again(reference: str | None, output_path: OutputPath, settings: Settings) -> Summary:
    """Write a batch's results file once more: the latest batch if none is named. Returns its summary."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = _with_details(ledger.find(reference))
        path = write_results(ledger, found, output_path(found))
    return summary_of_batch(replace(found, results=str(path)))


def batch_page(reference: str | None, output_path: OutputPath, settings: Settings) -> tuple[Summary, Path]:
    """Write a page about a batch: the latest one if none is named. Returns its summary, and where the page is."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = _with_details(ledger.find(reference))
        path = output_path(found)
        write_batch_page(ledger, found, path)
    return summary_of_batch(found), Path(str(path))


def monitoring_record(since: date, output_path: Callable[[], Path], settings: Settings) -> dict[str, Any]:
    """Return what was flagged and decided since a day, and write it as a page where `output_path` says."""
    from batchpay.reports.monitoring import monitoring, write_monitoring

    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = monitoring(ledger, environment_of(settings.gateway), since)
    write_monitoring(found, path := output_path())
    return {**found, "report": str(path)}


def _with_details(batch: BatchSummary) -> BatchSummary:
    """Refuse a batch whose names the ledger no longer has: the file written in time must not be replaced."""
    if batch.purged_at is not None:
        raise WrongUse(
            f"the ledger no longer has names, details and messages of batch {batch.batch}; they were purged"
            f" {local_time(batch.purged_at)}; what is left: batchpay status, batchpay reconcile"
        )
    return batch
