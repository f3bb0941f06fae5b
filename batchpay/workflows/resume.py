"""Go on with a registered batch; its payment file is no longer needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from batchpay.errors import WrongUse
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Actor, State
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import row_count
from batchpay.workflows.held_back import Fails, above, any_of, start_has_passed
from batchpay.workflows.requests import max_amount_cents
from batchpay.workflows.run import Progress, RunRequest, run_batch
from batchpay.workflows.status import in_doubt

_DAY = timedelta(days=1)


def resume(
    reference: str | None,
    output_path: Callable[[BatchSummary], Path],
    request: RunRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
    *,
    stale_reason: str | None = None,
) -> Summary:
    """Send what is pending of a batch, the latest where none is named, and write its results to `output_path`.

    Recurring payments whose start date has passed are held back, and payments above today's limit. `stale_reason` says
    why a batch is sent that nobody has touched for `policy.stale_days`; without it, that raises WrongUse.
    """
    with closing(open_ledger(settings.ledger)) as ledger:
        found = ledger.find(reference, None if reference else environment_of(settings.gateway))
        request = replace(request, results=output_path(found), why=stale_reason, fails=fails_today(found, settings))
        with ledger.lock(found.digest):
            if stale_reason is None:
                _refuse_stale(ledger, ledger.find(found.batch), settings.policy.stale_days)
            finished = run_batch(ledger, found, settings, credentials, request, actor, progress)
        summary = summary_of_batch(finished)
        summary.in_doubt_elsewhere = in_doubt(ledger, finished.environment, but=finished.batch)
    return summary


def is_stale(ledger: Ledger, batch: str, stale_days: int) -> bool:
    """Tell whether nobody has touched a batch for so long that a person must say whether it is still to be paid."""
    return _untouched_days(ledger, batch) >= stale_days


def _untouched_days(ledger: Ledger, batch: str) -> int:
    return (datetime.now(UTC) - ledger.last_event_at(batch)) // _DAY


def _refuse_stale(ledger: Ledger, batch: BatchSummary, stale_days: int) -> None:
    """Refuse to send what nobody has touched for long: the payments may have been made in another way since."""
    pending = batch.by_state[State.PENDING].rows
    if pending and is_stale(ledger, batch.batch, stale_days):
        raise WrongUse(
            f"nothing has happened to batch {batch.batch} for {_untouched_days(ledger, batch.batch)} days; if what is "
            f"pending, {row_count(pending)}, is still to be paid: batchpay resume --stale --reason TEXT"
        )


def fails_today(batch: BatchSummary, settings: Settings) -> Fails | None:
    """Give the rules of today that can be asked without the file: its start date, and the limit of a payment."""
    looks = []
    if settings.policy.past_start and batch.options.get("has_recurring", True):
        looks.append(start_has_passed(datetime.now().astimezone().date()))
    if (most := max_amount_cents(settings)) is not None:
        looks.append(above(most))
    return any_of(looks)
