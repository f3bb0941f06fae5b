"""Where batches stand: all of them, or one."""

from __future__ import annotations

from contextlib import closing

from batchpay.ledger.open import open_ledger
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch


def batch_status(reference: str, settings: Settings) -> Summary:
    """Give one batch's summary; `reference` is its name or the unique beginning of it."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return summary_of_batch(ledger.find(reference))


def all_batches(settings: Settings) -> list[Summary]:
    """Give every batch's summary, the latest first."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return [summary_of_batch(found) for found in ledger.batches()]
