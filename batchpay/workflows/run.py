"""One run over a registered batch: ask the gateway, send what is pending, write the results.

The right half's order of steps, used by `submit` and `resume` alike. It imports neither polars nor pandera.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from batchpay.errors import BatchpayError, LedgerNotUsable, RunStopped, SettingsNotUsable
from batchpay.gateway.origin import check_origin
from batchpay.gateway.payments import PaymentsClient
from batchpay.gateway.preflight import Preflight
from batchpay.ledger.contract import Ledger, Run
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Actor, State
from batchpay.reports.results import write_results
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.retry import Attempts
from batchpay.sending.sender import Sender, Tally
from batchpay.settings import Credentials, Settings


class Progress(Protocol):
    """What a run tells while it goes on; the command line draws it."""

    def begin(self, batch: BatchSummary) -> None:
        """Sending starts."""

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Some rows went, or some time passed."""

    def say(self, text: str) -> None:
        """One line that a person should see."""


class ProcessOwner(Protocol):
    """What the owner of the process does around a run: only the owner may touch signals and processors."""

    def running(self, stop: StopRequest) -> AbstractContextManager[None]:
        """Surround a run from taking over its batch to its results: signals may ask `stop`."""

    def sending(self) -> AbstractContextManager[None]:
        """Surround the sending alone."""


class LibraryProcess:
    """The owner of a process that is left as it is."""

    def running(self, stop: StopRequest) -> AbstractContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()

    def sending(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class RunRequest:
    """How far a run may go, and where its results are written."""

    results: Path | None
    limits: Limits = field(default_factory=Limits)
    preflight: Preflight | None = None
    """What to ask the gateway before sending; None asks nothing."""
    stop: StopRequest = field(default_factory=StopRequest)
    """What stopped one file of a call stops those after it: one object for all of them."""
    owner: ProcessOwner = field(default_factory=LibraryProcess)


def run_batch(
    ledger: Ledger,
    batch: BatchSummary,
    settings: Settings,
    credentials: Credentials,
    request: RunRequest,
    actor: Actor,
    progress: Progress,
) -> BatchSummary:
    """Send what is pending of a batch that this process holds, and write its results; returns the batch as it is now.

    Rows that an earlier run left in `sending` become in doubt first, whether or not anything is left to send. What
    stops the run early stands in the returned batch's `stopped`, so that the results are written all the same; so does
    what kept them from being written. Raises LedgerNotUsable only where nothing was sent.
    """
    if check_origin(batch.origin) != check_origin(settings.gateway.base_url):
        raise SettingsNotUsable(
            f"batch {batch.batch} is meant for {batch.origin}, the settings name {settings.gateway.base_url}"
        )
    stop, sending = request.stop, False
    with request.owner.running(stop):
        run = ledger.start(batch.batch, str(actor))
        if run.recovered:
            progress.say(f"{run.recovered} rows were being sent when an earlier run ended: they are in doubt")
        try:
            if _pending_rows(ledger, batch):
                progress.begin(batch)
                if request.preflight is not None:
                    _ask_before_sending(ledger, run, batch, request.preflight, progress)
                sending = True
                _send_pending(run, settings, credentials, request, progress, stop)
            else:
                progress.say(f"batch {batch.batch}: nothing is left to send")
            # A signal that came while the last row was under way has stopped nothing of this batch.
            run.finish(stop.reason if _pending_rows(ledger, batch) else None)
            finished = ledger.find(batch.batch)
        except RunStopped as error:
            stop.ask(str(error))
            run.finish(stop.reason)
            finished = ledger.find(batch.batch)
        except LedgerNotUsable as error:
            run.close()
            if not sending:
                raise
            finished = _after_ledger_failed(ledger, batch, error, stop)
        except BaseException:
            run.close()
            raise
        return _with_results(ledger, finished, request.results)


def _pending_rows(ledger: Ledger, batch: BatchSummary) -> int:
    """Count what is left to send by the ledger as it is now: a run's start may have put rows back."""
    return ledger.find(batch.batch).by_state[State.PENDING].rows


def _after_ledger_failed(
    ledger: Ledger, batch: BatchSummary, error: LedgerNotUsable, stop: StopRequest
) -> BatchSummary:
    """Tell how a batch stands of which rows were sent: exit code 5 would say that none was.

    What the ledger could not take is in the spill file.
    """
    reason = f"{error}; what the gateway answered last is merged by the next run"
    stop.ask(reason)
    try:
        return replace(ledger.find(batch.batch), stopped=reason)
    except LedgerNotUsable:
        raise RunStopped(reason) from None


def _with_results(ledger: Ledger, finished: BatchSummary, path: Path | None) -> BatchSummary:
    """Write the results; where that fails the payments are made all the same, and the next call writes them."""
    if path is None:
        return finished
    try:
        write_results(ledger, finished, path)
    except BatchpayError as error:
        return replace(finished, stopped="; ".join(filter(None, (finished.stopped, str(error)))))
    return finished


def _send_pending(
    run: Run,
    settings: Settings,
    credentials: Credentials,
    request: RunRequest,
    progress: Progress,
    stop: StopRequest,
) -> None:
    """Send under the throttle until nothing is left or the run must stop."""
    with contextlib.closing(PaymentsClient(settings.gateway, credentials)) as client, request.owner.sending():
        throttle = Throttle.from_settings(settings.submit, stop.event)
        attempts = Attempts(settings.submit, stop.event)
        sender = Sender(run, client.pay, throttle, attempts, settings.submit, stop)
        sender.send_all(request.limits, lambda tally: progress.update(tally, throttle))


def _ask_before_sending(
    ledger: Ledger, run: Run, batch: BatchSummary, preflight: Preflight, progress: Progress
) -> None:
    """Stop unless the gateway knows us; reject pending rows whose gateway account no payment can go through."""
    preflight.check_connection()
    refused = preflight.refused(batch.options.get("gateway_ids", ()))
    if not refused:
        return
    rows: dict[str, list[int]] = {}
    for row in ledger.rows(batch.batch, [State.PENDING]):
        code = refused.get(row.details["gatewayId"])
        if code is not None:
            rows.setdefault(code, []).append(row.row)
    for code, numbers in rows.items():
        run.reject(numbers, f"gatewayId.{code}")
        progress.say(f"{len(numbers)} rows are rejected: gatewayId.{code}")
