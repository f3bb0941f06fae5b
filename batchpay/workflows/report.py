"""A batch's results file and its page, written from the ledger; nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from batchpay.errors import WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.reports.page import write_batch_page
from batchpay.reports.results import write_results
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import local_time
from batchpay.writing.atomic import Stream

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


def _with_details(batch: BatchSummary) -> BatchSummary:
    """Refuse a batch whose names the ledger no longer has: the file written in time must not be replaced."""
    if batch.purged_at is not None:
        raise WrongUse(
            f"the ledger no longer has names, details and messages of batch {batch.batch}; they were purged"
            f" {local_time(batch.purged_at)}; what is left: batchpay status, batchpay reconcile"
        )
    return batch
