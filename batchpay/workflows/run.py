"""One run over a registered batch: ask the gateway, send what is pending, write the results.

The sending half's order of steps, used by `submit` and `resume` alike. It imports neither polars nor pandera.
"""

from __future__ import annotations

import contextlib
import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Protocol

from batchpay.approval.approvals import Policy
from batchpay.errors import (
    BatchHeld,
    BatchpayError,
    LedgerBehind,
    LedgerNotUsable,
    RunStopped,
    WaitingForPerson,
    once_sent,
    place_of,
)
from batchpay.gateway.accounts import Preflight
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient
from batchpay.ledger.contract import Ledger, Run
from batchpay.ledger.records import BatchSummary
from batchpay.operations.logs import is_logging, log
from batchpay.outcome import Finding
from batchpay.payment import Actor, State, Totals
from batchpay.reports.results import told_more, write_results
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.one_core import on_one_core as on_one_core  # for the owner of a process
from batchpay.sending.pacing import Throttle
from batchpay.sending.retry import Attempts
from batchpay.sending.sender import Sender, Tally
from batchpay.sending.shared_rate import SharedThrottle
from batchpay.settings import Settings
from batchpay.text import printable, row_count
from batchpay.workflows.held_back import Fails, HeldBack, Midnight, any_of, find_held_back
from batchpay.workflows.move_gateway import follow_settings, refuse_other_gateway
from batchpay.writing.place import standing, stem_and_ending


class Progress(Protocol):
    """What a run reports while it goes on; the command line displays it."""

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Report that sending starts: this many rows and cents of the batch."""

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Report that some rows were sent, or some time passed."""

    def say(self, text: str) -> None:
        """Show one line that a person should see."""


class ProcessOwner(Protocol):
    """What the owner of the process does around a run: only the owner may touch signals and processors."""

    def running(self, stop: StopRequest) -> AbstractContextManager[None]:
        """Wrap a run from taking over its batch to its results: signals may set `stop`."""

    def sending(self, workers: int) -> AbstractContextManager[None]:
        """Wrap only the sending, done by this thread and the `workers` threads that it starts."""


class LibraryProcess:
    """The owner of a process that is left as is."""

    def running(self, stop: StopRequest) -> AbstractContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()

    def sending(self, workers: int) -> AbstractContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class RunRequest:
    """How far a run may go, and where its results are written."""

    results: Path | None
    limits: Limits = field(default_factory=Limits)
    preflight: Preflight | None = None
    """What to check at the gateway before sending; None checks nothing."""
    stop: StopRequest = field(default_factory=StopRequest)
    """What stopped one file of a call stops those after it: one object for all of them."""
    owner: ProcessOwner = field(default_factory=LibraryProcess)
    approvals: int | None = None
    """How many people approved exactly what this run sends, if a plan lets it: that is sent, or nothing.

    What the ledger knows of the batch counts as well."""
    fails: Fails | None = None
    """Which pending rows fail today's rules and are held back; None if none can."""
    day: date = field(default_factory=lambda: datetime.now().astimezone().date())
    """The day on which this run was requested, by this machine's clock."""
    why: str | None = None
    """Why this run was requested, if a person had to say it."""


def run_batch(
    ledger: Ledger,
    batch: BatchSummary,
    settings: Settings,
    credentials: Credentials,
    request: RunRequest,
    actor: Actor,
    progress: Progress,
) -> BatchSummary:
    """Send what is pending of a batch that this process holds, and write its results; return the batch as it is now.

    Rows that an earlier run left in `sending` become in doubt first, whether or not anything is left to send. Rows
    that fail today's rules (`request.fails`) stay pending, and are counted in the batch's `held_back`; so do recurring
    payments whose first day passes during the run, under the setting `policy.past_start`. What stops the run early is
    in the returned batch's `stopped`, so that the results are written anyway; so is what kept them from being written.
    Raises LedgerNotUsable only if nothing was sent, and WaitingForPerson before anything.
    """
    refuse_other_gateway(ledger, batch, settings)
    if (followed := follow_settings(ledger, batch, settings, actor)) is not None:
        progress.say(followed)
        batch = ledger.find(batch.batch)
    _refuse_a_ledger_brought_back(ledger, batch, request.results)
    _require_approval(ledger, batch, settings, request)
    stop, sending = request.stop, False
    ahead_days = _clock_ahead_days(ledger, settings, progress)
    with request.owner.running(stop):
        results = None if request.results is None else str(request.results.absolute())
        api_id, is_unique = settings.gateway.api_id, settings.gateway.reference_is_unique
        run = ledger.start(
            batch.batch, str(actor), request.why, results=results, api_id=api_id, reference_is_unique=is_unique
        )
        _tell_start(batch, run, progress)
        held_back, found = HeldBack(), None
        midnight = Midnight(request.day if settings.policy.refuses_past_start else None)
        try:
            _refuse_what_changed(ledger, batch, settings, request)
            held_back = _held_back(ledger, batch, request, midnight)
            if (to_send := _to_send(ledger, batch, held_back)).rows:
                progress.begin(batch, to_send)
                if request.preflight is not None and _ask_before_sending(
                    ledger, run, batch, request.preflight, progress
                ):
                    held_back = _held_back(ledger, batch, request, midnight)
                sending = True
                found = _send_pending(ledger, run, batch, settings, credentials, request, held_back, midnight, progress)
                if midnight.has_passed:
                    before, held_back = held_back, _held_back(ledger, batch, request, midnight)
                    if missed := held_back.totals.rows - before.totals.rows:
                        progress.say(f"{row_count(missed)} held back since midnight: the first day has passed")
            else:
                progress.say(f"batch {batch.batch}: nothing is left to send")
            # A signal that came while the last row was in flight has stopped nothing of this batch.
            run.finish(stop.reason if _to_send(ledger, batch, held_back).rows else None, held_back.totals)
            finished = ledger.find(batch.batch)
        except RunStopped as error:
            stop.ask(str(error))
            run.finish(stop.reason, held_back.totals)
            finished = ledger.find(batch.batch)
        except LedgerNotUsable as error:
            run.close()
            if not sending:
                raise
            finished = _after_ledger_failed(ledger, batch, error, stop)
        except BatchpayError as error:  # settings that do not fit, or a person must approve: nothing was sent
            run.finish(printable(str(error)), held_back.totals)
            raise
        except BaseException:
            run.close()
            raise
        if found is not None:
            finished = replace(finished, rate_found=round(found.rate, 2), limit_found=str(found))
        finished = replace(finished, clock_ahead_days=ahead_days, late_answers=tuple(run.late))
        _log_end(ledger, finished)
        return _with_results(ledger, finished, request.results)


def _tell_start(batch: BatchSummary, run: Run, progress: Progress) -> None:
    """Report what a run's start found."""
    if run.recovered:
        progress.say(f"{row_count(run.recovered)} being sent when an earlier run ended: now in doubt")
    for late in run.late:
        progress.say(late)
        log("late answer", level=logging.WARNING, batch=batch.batch, reason=late)
    log("run started", batch=batch.batch, environment=str(batch.environment), file=batch.file)


def _clock_ahead_days(ledger: Ledger, settings: Settings, progress: Progress) -> int:
    """Return how many days the clock is past the ledger's last event, and warn, if that is too long; else 0."""
    days = int(ledger.opened_after_s // 86_400)
    if days <= settings.policy.clock_ahead_days:
        return 0
    progress.say(f"the clock is {days} days after the ledger's last event: is the date correct?")
    log("clock is ahead", level=logging.WARNING, reason=f"{days} days after the ledger's last event")
    return days


def _refuse_a_ledger_brought_back(ledger: Ledger, batch: BatchSummary, results: Path | None) -> None:
    """Refuse to send if existing results show more than the ledger knows.

    Ledger, key and witness were then all restored from an earlier time, so that they agree.
    """
    if results is None or not batch.by_state[State.PENDING].rows:
        return
    stem, _ = stem_and_ending(batch.file)
    names = [f"{name}.results.csv" for name in (stem, batch.batch)]  # those of `submit` and `resume`
    noted = [*ledger.results_of_runs(batch.batch), batch.options.get("results", results)]  # registered, or a run began
    named = {results, *map(Path, noted)}
    beside = {folder / name for folder in {Path(batch.file).parent, *(one.parent for one in named)} for name in names}
    for path in (path for place in sorted(named | beside) for path in standing(place)):
        if told := told_more(ledger, batch.batch, path):
            raise LedgerBehind(
                f"{path} shows {told}, so this ledger is an older copy. Restore the latest one; if there is none, "
                "batchpay ledger check --accept-witness --reason TEXT puts in doubt what it would send"
            )


def _require_approval(ledger: Ledger, batch: BatchSummary, settings: Settings, request: RunRequest) -> None:
    """Raise WaitingForPerson if pending rows were approved by fewer people than the policy requires today."""
    policy = Policy.from_settings(settings.policy)
    if policy.asks and batch.by_state[State.PENDING].rows:
        approvals = max(request.approvals or 0, ledger.approvers(batch.batch))
        policy.require(batch.file, batch.sendable.cents, approvals)


def _refuse_what_changed(ledger: Ledger, batch: BatchSummary, settings: Settings, request: RunRequest) -> None:
    """Raise WaitingForPerson if the run's start made rows pending that nobody has approved.

    An answer that was set aside may put a row back. Nobody had looked at it before: it was not pending. Raises
    BatchHeld if the batch went to another gateway since it was found.
    """
    now = ledger.find(batch.batch)
    if now.origin != batch.origin:
        raise BatchHeld(f"batch {batch.batch} was moved to {now.origin} meanwhile; nothing was sent: run it again")
    more = now.by_state[State.PENDING].rows - batch.by_state[State.PENDING].rows
    if more <= 0:
        return
    if request.approvals is not None:
        raise WaitingForPerson(
            f"{printable(batch.file)}: answers that were set aside put {row_count(more)} back to be sent that the plan "
            "does not have; nothing was sent. Prepare a new plan"
        )
    _require_approval(ledger, now, settings, request)


def _held_back(ledger: Ledger, batch: BatchSummary, request: RunRequest, midnight: Midnight) -> HeldBack:
    """Find the pending rows that fail today's rules, or whose first day has passed since."""
    looks = [] if request.fails is None else [request.fails]
    if midnight.has_passed:
        looks.append(midnight.missed)
    return find_held_back(ledger, batch.batch, any_of(looks))


def _to_send(ledger: Ledger, batch: BatchSummary, held_back: HeldBack) -> Totals:
    """Count what is left to send by the ledger as it is now: a run's start may have put rows back."""
    return ledger.find(batch.batch).by_state[State.PENDING] - held_back.totals


def _after_ledger_failed(
    ledger: Ledger, batch: BatchSummary, error: LedgerNotUsable, stop: StopRequest
) -> BatchSummary:
    """Return the status of a batch of which rows were sent: exit code 5 would say that none was.

    What the ledger could not take is in the spill file.
    """
    reason = f"{once_sent(error)}; what the gateway answered last is merged by the next run"
    stop.ask(reason)
    try:
        return replace(ledger.find(batch.batch), stopped=reason, ledger_failed=True)
    except LedgerNotUsable:
        raise RunStopped(reason) from None


def _log_end(ledger: Ledger, finished: BatchSummary) -> None:
    """Log how the run ended, and every row of the batch that a person must look at."""
    try:
        _log_doubts(ledger, finished)
    except LedgerNotUsable as error:  # how the run ended is in the summary anyway
        log("rows in doubt not listed", level=logging.WARNING, batch=finished.batch, reason=once_sent(error))
    if (held := finished.held_back).rows:
        log("rows held back", level=logging.WARNING, batch=finished.batch, rows=held.rows, cents=held.cents)
    if finished.stopped:
        log("run stopped", level=logging.WARNING, batch=finished.batch, stopped=finished.stopped)
    else:
        log("run ended", batch=finished.batch, rows=finished.total.rows)


def _log_doubts(ledger: Ledger, finished: BatchSummary) -> None:
    for columns in ledger.row_columns(finished.batch, [State.IN_DOUBT]) if is_logging() else ():
        for row, reason in zip(columns.rows, columns.reasons, strict=True):
            log("row in doubt", level=logging.WARNING, batch=finished.batch, row=row, reason=reason)


def _with_results(ledger: Ledger, finished: BatchSummary, path: Path | None) -> BatchSummary:
    """Write the results; if that fails, whatever the reason, the payments are made: `batchpay results` writes them."""
    if path is None or finished.purged_at is not None:  # results without names must not replace those written in time
        return finished
    try:
        written = write_results(ledger, finished, path)
        log("results written", batch=finished.batch, path=str(written))
        return replace(finished, results=str(written))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of polars is no Exception
        why = once_sent(error) if isinstance(error, BatchpayError) else f"internal error: {place_of(error)}"
        paid = "everything was paid" if finished.by_state[State.ACCEPTED] == finished.sendable else None
        told = f"the results file could not be written: {why}", f"run batchpay results {finished.batch}"
        return replace(finished, stopped="; ".join(filter(None, (finished.stopped, paid, *told))), results_missing=True)


def _send_pending(
    ledger: Ledger,
    run: Run,
    batch: BatchSummary,
    settings: Settings,
    credentials: Credentials,
    request: RunRequest,
    held_back: HeldBack,
    midnight: Midnight,
    progress: Progress,
) -> Finding | None:
    """Send under the throttle until nothing is left or the run must stop; return the gateway's limit, if reached."""
    gateway = f"{batch.environment} {batch.origin}"
    stop, workers = request.stop, settings.submit.workers
    with contextlib.closing(PaymentsClient(settings.gateway, credentials)) as client, request.owner.sending(workers):
        shared = ledger.shared_rate(gateway)
        if shared is None:
            throttle = Throttle.from_settings(settings.submit, stop.event)
        else:
            throttle = SharedThrottle.over(shared, settings.submit, stop.event, start := shared.found())
            if start is not None and throttle.state().rate == start.rate:
                progress.say(f"starting at {start}, the pace at which an earlier run ended")
        attempts = Attempts(settings.submit, stop.event)
        sender = Sender(run, client.pay, throttle, attempts, settings.submit, stop)
        try:
            with request.limits.watched(stop):
                sender.send_all(
                    request.limits,
                    lambda tally: progress.update(tally, throttle),
                    lambda payment: payment.row in held_back or midnight.missed_by(payment),
                )
        finally:
            if (found := throttle.finding()) is not None:
                log("limit found", batch=batch.batch, rate=str(found))
            if shared is not None:
                if (known := throttle.to_remember()) is not None:
                    shared.remember(known)
                shared.close()
    return found


def _ask_before_sending(
    ledger: Ledger, run: Run, batch: BatchSummary, preflight: Preflight, progress: Progress
) -> bool:
    """Stop unless the gateway accepts our credentials; reject pending rows whose account no payment can go through.

    Returns whether there were any.
    """
    preflight.check_connection()
    refused = preflight.refused(batch.options.get("gateway_ids", ()))
    rows: dict[str, list[int]] = {}
    for row in ledger.rows(batch.batch, [State.PENDING]) if refused else ():
        code = refused.get(row.details["gatewayId"])
        if code is not None:
            rows.setdefault(code, []).append(row.row)
    for code, numbers in rows.items():
        run.reject(numbers, f"gatewayId.{code}")
        progress.say(f"rejected, gatewayId.{code}: {row_count(len(numbers))}")
    return bool(rows)
