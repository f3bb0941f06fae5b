"""What of a batch may still be sent without its file: not where nobody touched it for long, nor what fails today."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.settings import Settings
from batchpay.workflows.held_back import Fails, above, any_of, start_has_passed
from batchpay.workflows.requests import max_amount_cents

_DAY = timedelta(days=1)


def untouched_days(ledger: Ledger, batch: str) -> int:
    """Count the whole days since the last event of a batch."""
    return (datetime.now(UTC) - ledger.last_event_at(batch)) // _DAY


def is_stale(ledger: Ledger, batch: str, stale_days: int) -> bool:
    """Tell whether nobody has touched a batch for so long that a person must say whether it is still to be paid."""
    return untouched_days(ledger, batch) >= stale_days


def fails_today(batch: BatchSummary, settings: Settings) -> Fails | None:
    """Give the rules of today that can be asked without the file: its start date, and the limit of a payment."""
    looks = []
    if settings.policy.past_start and batch.options.get("has_recurring", True):
        looks.append(start_has_passed(datetime.now().astimezone().date()))
    if (most := max_amount_cents(settings)) is not None:
        looks.append(above(most))
    return any_of(looks)
