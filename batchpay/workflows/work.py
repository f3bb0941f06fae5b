"""Help with batches that another machine leads: send the rows that are left to this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from datetime import datetime

from batchpay.errors import (
    BatchHeld,
    BatchpayError,
    LedgerNotUsable,
    RunStopped,
    SettingsNotUsable,
    WrongUse,
    once_sent,
)
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.origin import check_origin, environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Actor
from batchpay.sending.limits import StopRequest
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.workflows.resume import refuse_stale
from batchpay.workflows.run import ProcessOwner, Progress, RunRequest, run_batch
from batchpay.workflows.status import add_in_doubt_elsewhere
from batchpay.workflows.still_due import fails_today

CHECK_EVERY_S = 5.0
"""A helper that runs forever checks this often for a batch to help with."""


class _BothStops(StopRequest):
    """A signal that stops one batch stops the whole call; what stops only the batch does not."""

    def __init__(self, batch: StopRequest, call: StopRequest) -> None:
        super().__init__()
        self._both = (batch, call)

    def ask(self, reason: str) -> None:
        """Stop both."""
        for stop in self._both:
            stop.ask(reason)


@dataclass(frozen=True, slots=True)
class _Owner:
    """See run.ProcessOwner: the call's owner, for one of its batches."""

    owner: ProcessOwner
    call: StopRequest

    def running(self, stop: StopRequest) -> AbstractContextManager[None]:
        """Let signals stop the batch and the call."""
        return self.owner.running(_BothStops(stop, self.call))

    def sending(self, workers: int) -> AbstractContextManager[None]:
        """Wrap the sending as the call's owner does."""
        return self.owner.sending(workers)


def work(
    reference: str | None,
    request: RunRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
) -> list[Summary]:
    """Help with one batch, or with every one that is being worked on; end when nothing is left for this machine."""
    with closing(open_ledger(settings.ledger)) as ledger:
        found: list[Summary] = []
        for batch in _at_work(ledger, settings) if reference is None else [ledger.find(reference)]:
            if request.stop:
                break
            try:
                found.append(help_with(ledger, batch, _for_one(request), settings, credentials, actor, progress))
            except BatchHeld as error:
                progress.say(f"batch {batch.batch}: {error}")
            except LedgerNotUsable as error:
                if not found:
                    raise
                # What was sent of the batches before must be told, and exit code 5 would say that nothing was.
                found[-1].stopped = "; ".join(filter(None, (found[-1].stopped, once_sent(error))))
                break
        return found


def work_forever(
    request: RunRequest, settings: Settings, credentials: Credentials, actor: Actor, progress: Progress
) -> Iterator[Summary]:
    """Wait for batches to help with until a signal comes; raises RunStopped if the ledger fails after one was.

    One whose run began and stopped, or that does not fit the settings, is left alone until it is led anew. Where the
    ledger failed, another process holds it or an approval is missing, it is tried again. Why it waits is said once.
    """
    has_helped = False
    try:
        for summary in _help_on(request, settings, credentials, actor, progress):
            has_helped = True
            yield summary
    except LedgerNotUsable as error:
        if not has_helped:
            raise
        raise RunStopped(once_sent(error)) from None  # exit code 5 would say that nothing was sent


def _help_on(
    request: RunRequest, settings: Settings, credentials: Credentials, actor: Actor, progress: Progress
) -> Iterator[Summary]:
    stopped: set[tuple[str, datetime | None]] = set()
    said: set[str] = set()
    with request.owner.running(request.stop):
        while not request.stop:
            with closing(open_ledger(settings.ledger)) as ledger:
                found = _at_work(ledger, settings)
                stopped &= {_led(batch) for batch in found}
                before, said = said, set()
                for batch in found:
                    if _led(batch) in stopped or request.stop:
                        continue
                    try:
                        summary = help_with(ledger, batch, _for_one(request), settings, credentials, actor, progress)
                    except LedgerNotUsable:
                        raise
                    except BatchpayError as error:
                        if isinstance(error, SettingsNotUsable | WrongUse):
                            stopped.add(_led(batch))
                        said.add(reason := f"batch {batch.batch}: {error}")
                        if reason not in before:
                            progress.say(reason)
                        continue
                    if summary.stopped and not summary.ledger_failed:
                        stopped.add(_led(batch))
                    yield summary
            request.stop.event.wait(CHECK_EVERY_S)


def _led(batch: BatchSummary) -> tuple[str, datetime | None]:
    """Return what distinguishes one time that a batch is led from the next."""
    return batch.batch, batch.started_at


def _for_one(request: RunRequest) -> RunRequest:
    """Return the request for one of the batches, as of today, which ends by itself or with the call."""
    today = datetime.now().astimezone().date()
    return replace(request, stop=StopRequest(), owner=_Owner(request.owner, request.stop), day=today)


def _at_work(ledger: Ledger, settings: Settings) -> list[BatchSummary]:
    """Return the batches of this environment and gateway that machines are working on."""
    gateway = check_origin(settings.gateway.base_url)
    found = ledger.at_work(environment_of(settings.gateway))
    return [batch for batch in found if check_origin(batch.origin) == gateway]


def help_with(
    ledger: Ledger,
    batch: BatchSummary,
    request: RunRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
) -> Summary:
    """Send the rows of a batch that are left to this machine, until no machine has a row in progress.

    The machine that leads has checked the gateway. If that one has died, the last helper finishes the batch. Raises
    BatchHeld if another process of this machine is already working on it.
    """
    with ledger.lock(batch.digest, helps=True):
        batch = ledger.find(batch.batch)  # it was found before those that were helped with first
        refuse_stale(ledger, batch, settings.policy.stale_days)
        request = replace(request, helps=True, preflight=None, fails=fails_today(ledger, batch, settings))
        finished = run_batch(ledger, batch, settings, credentials, request, actor, progress)
    summary = summary_of_batch(finished)
    is_whole = not summary.waiting and not summary.ledger_failed  # then a stop has stopped nothing of it
    summary.stopped = None if is_whole else request.stop.reason
    add_in_doubt_elsewhere(summary, ledger, finished)
    return summary
