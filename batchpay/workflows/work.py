"""Help with batches that another machine leads: send what of them is left to this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace

from batchpay.errors import BatchHeld, BatchpayError, LedgerNotUsable, once_sent
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

LOOK_EVERY_S = 5.0
"""Whoever helps for ever looks in this distance for a batch to help with."""


class _BothStops(StopRequest):
    """What is asked of one batch by a signal ends the whole call; what ends the batch alone does not."""

    def __init__(self, batch: StopRequest, call: StopRequest) -> None:
        super().__init__()
        self._both = (batch, call)

    def ask(self, reason: str) -> None:
        """Ask both."""
        for stop in self._both:
            stop.ask(reason)


@dataclass(frozen=True, slots=True)
class _Owner:
    """See run.ProcessOwner: that of the call, for one of its batches."""

    owner: ProcessOwner
    call: StopRequest

    def running(self, stop: StopRequest) -> AbstractContextManager[None]:
        """Let signals end the batch and the call."""
        return self.owner.running(_BothStops(stop, self.call))

    def sending(self, workers: int) -> AbstractContextManager[None]:
        """Surround the sending as the call's owner does."""
        return self.owner.sending(workers)


def work(
    reference: str | None,
    request: RunRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
) -> list[Summary]:
    """Help with one batch, or with every one that is worked on now; ends when nothing is left for this machine."""
    with closing(open_ledger(settings.ledger)) as ledger:
        found: list[Summary] = []
        for batch in _at_work(ledger, settings) if reference is None else [ledger.find(reference)]:
            if request.stop:
                break
            try:
                summary = help_with(ledger, batch, _for_one(request), settings, credentials, actor, progress)
            except LedgerNotUsable as error:
                if not found:
                    raise
                # What was sent of the batches before must be told, and exit code 5 would say that nothing was.
                found[-1].stopped = "; ".join(filter(None, (found[-1].stopped, once_sent(error))))
                break
            if summary is not None:
                found.append(summary)
        return found


def work_forever(
    request: RunRequest, settings: Settings, credentials: Credentials, actor: Actor, progress: Progress
) -> Iterator[Summary]:
    """Wait for batches to help with until a signal comes; a batch that can't be helped with is said once."""
    refused: set[str] = set()
    with request.owner.running(request.stop):
        while not request.stop:
            with closing(open_ledger(settings.ledger)) as ledger:
                found = _at_work(ledger, settings)
                refused &= {batch.batch for batch in found}
                for batch in found:
                    if batch.batch in refused or request.stop:
                        continue
                    try:
                        summary = help_with(ledger, batch, _for_one(request), settings, credentials, actor, progress)
                    except LedgerNotUsable:
                        raise
                    except BatchpayError as error:
                        progress.say(f"batch {batch.batch}: {error}")
                        summary = None
                    if summary is None or summary.stopped:
                        refused.add(batch.batch)
                    if summary is not None:
                        yield summary
            request.stop.event.wait(LOOK_EVERY_S)


def _for_one(request: RunRequest) -> RunRequest:
    """Give the request for one of the batches, which ends by itself or with the call."""
    return replace(request, stop=StopRequest(), owner=_Owner(request.owner, request.stop))


def _at_work(ledger: Ledger, settings: Settings) -> list[BatchSummary]:
    """Give the batches of this environment and gateway that machines work on."""
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
) -> Summary | None:
    """Send what of a batch is left to this machine, until no machine has a row in hand.

    The gateway was asked about itself by the machine that leads. Where that one has died, the last one that helps
    brings the batch to its end. Gives None where another process of this machine works on it already.
    """
    request = replace(request, helps=True, preflight=None, fails=fails_today(ledger, batch, settings))
    try:
        with ledger.lock(batch.digest, helps=True):
            refuse_stale(ledger, ledger.find(batch.batch), settings.policy.stale_days)
            finished = run_batch(ledger, batch, settings, credentials, request, actor, progress)
    except BatchHeld as error:
        progress.say(f"batch {batch.batch}: {error}")
        return None
    summary = summary_of_batch(finished)
    summary.stopped = request.stop.reason
    add_in_doubt_elsewhere(summary, ledger, finished)
    return summary
