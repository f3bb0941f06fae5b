"""Resume a registered batch; its payment file is no longer needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from batchpay.errors import LedgerNotUsable, WrongUse
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import ledger_if_any, open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Actor, State
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import counted, row_count, totals_apart
from batchpay.workflows.run import Progress, RunRequest, run_batch
from batchpay.workflows.status import add_in_doubt_elsewhere
from batchpay.workflows.still_due import fails_today, is_stale, untouched_days

_OTHERS_NAMED = 3


def resume(
    reference: str | None,
    output_path: Callable[[BatchSummary], Path | None],
    request: RunRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
    *,
    stale_reason: str | None = None,
) -> Summary:
    """Send what is pending of a batch, the latest if none is named, and write its results where `output_path` says.

    Recurring payments whose start date has passed and payments above today's limit are held back. `stale_reason` says
    why a batch is sent that nobody has touched for `policy.stale_days`; without it, that raises WrongUse.
    """
    with closing(open_ledger(settings.ledger)) as ledger:
        found = ledger.find(reference, environment_of(settings.gateway))
        ledger.take_over(found.digest, str(actor), progress.say)
        with ledger.lock(found.digest):
            found = ledger.find(found.batch)  # until it was held, others may have changed it
            if stale_reason is None:
                refuse_stale(ledger, found, settings.policy.stale_days)
            fails = fails_today(ledger, found, settings)
            request = replace(request, results=output_path(found), why=stale_reason, fails=fails)
            finished = run_batch(ledger, found, settings, credentials, request, actor, progress)
        summary = summary_of_batch(finished)
        add_in_doubt_elsewhere(summary, ledger, finished)
        if reference is None:
            summary.notes += _others_waiting(ledger, finished, settings.policy.stale_days)
    return summary


def left_behind(settings: Settings) -> list[str]:
    """Name the batches whose machines may be dead, which `resume` then finds out; none if the ledger can't be read."""
    try:
        with ledger_if_any(settings.ledger) as ledger:
            return [] if ledger is None else ledger.left_behind(environment_of(settings.gateway))
    except LedgerNotUsable:  # each file's own submission says it
        return []


def _others_waiting(ledger: Ledger, latest: BatchSummary, stale_days: int) -> list[str]:
    """Name the other batches with rows to send: whoever names none may mean the one that stopped, not the latest."""
    waiting = [
        batch
        for batch in ledger.batches()
        if batch.environment is latest.environment and batch.batch != latest.batch
        if batch.by_state[State.PENDING].rows and not ledger.is_held(batch.digest)
    ]
    return [
        f"batch {batch.batch} of {batch.file} has {row_count(batch.by_state[State.PENDING].rows)} to be sent as well, "
        f"{totals_apart([batch.apart[State.PENDING]])}: batchpay resume {batch.batch}"
        f"{' --stale --reason TEXT' if is_stale(ledger, batch.batch, stale_days) else ''}"
        for batch in waiting[:_OTHERS_NAMED]
    ]


def refuse_stale(ledger: Ledger, batch: BatchSummary, stale_days: int) -> None:
    """Refuse to send a batch that nobody has touched for long: it may have been paid some other way since."""
    pending = batch.by_state[State.PENDING].rows
    if pending and is_stale(ledger, batch.batch, stale_days):
        days = untouched_days(ledger, batch.batch)
        raise WrongUse(
            f"batch {batch.batch} has had no activity for {counted(days, 'day')}; if the pending rows "
            f"({row_count(pending)}) are still to be paid: batchpay resume {batch.batch} --stale --reason TEXT"
        )
