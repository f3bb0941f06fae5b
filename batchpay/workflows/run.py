"""One run over a registered batch: ask the gateway, send what is pending, write the results.

The sending half's order of steps, used by `submit` and `resume` alike; `resume` needs no payment file. It imports
neither polars nor pandera.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Protocol

from batchpay.approval.approvals import FileLimits
from batchpay.errors import (
    BatchHeld,
    BatchpayError,
    LedgerBehind,
    LedgerNotUsable,
    RunStopped,
    SettingsNotUsable,
    WaitingForPerson,
    WrongUse,
    once_sent,
    place_of,
)
from batchpay.gateway.accounts import Preflight
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.origin import environment_of
from batchpay.gateway.payments import PaymentsClient
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import ledger_if_any, open_ledger
from batchpay.ledger.records import BatchSummary, PendingPayment
from batchpay.operations.logs import is_logging, log
from batchpay.operations.notify import notify_run, notify_wait
from batchpay.payment import Actor, RunWork, State, Totals
from batchpay.reports.results import told_more, write_results
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.pacing import PaceKept, Throttle
from batchpay.sending.sender import Attempts, Sender, Tally
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import counted, money, printable, row_count, totals_apart, write_ranges
from batchpay.workflows.earlier_payments import clock_note
from batchpay.workflows.held_back import (
    Fails,
    HeldBack,
    Midnight,
    any_of,
    due_before,
    fails_today,
    find_held_back,
    is_stale,
    stale,
    untouched_days,
)
from batchpay.workflows.move_gateway import follow_settings, refuse_other_gateway
from batchpay.workflows.policy import policy_in_force, settle_policy
from batchpay.workflows.status import add_in_doubt_elsewhere
from batchpay.writing.atomic import standing, stem_and_ending


class Progress(Protocol):
    """What a run reports while it goes on; the command line displays it."""

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Report that sending starts: this many rows and cents of the batch."""

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Report that some rows were sent, or some time passed."""

    def say(self, text: str) -> None:
        """Show one line that a person should see."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """How far a run may go, and where its results are written."""

    results: Path | None
    limits: Limits = field(default_factory=Limits)
    preflight: Preflight | None = None
    """What to check at the gateway before sending; None checks nothing."""
    stop: StopRequest = field(default_factory=StopRequest)
    """What stopped one file of a call stops those after it: one object for all of them."""
    approvals: int | None = None
    """How many people approved exactly what this run sends, if a plan lets it: that is sent, or nothing.

    What the ledger knows of the batch counts as well."""
    fails: Fails | None = None
    """Which pending rows fail today's rules and are held back; None if none can."""
    day: date = field(default_factory=lambda: datetime.now().astimezone().date())
    """The day on which this run was requested, by this machine's clock."""
    why: str | None = None
    """Why this run was requested, if a person had to say it."""
    clock_is_right: bool = False
    """Whether that person says that rows are due by the clock: another reason is none for that."""


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
    The run's day is the one on which `batch` was found: what is asked before it is asked of the same rows. Raises
    LedgerNotUsable only if nothing was sent, and WaitingForPerson before anything.
    """
    refuse_other_gateway(ledger, batch, settings)
    if (followed := follow_settings(ledger, batch, settings, actor)) is not None:
        progress.say(followed)
        batch = replace(ledger.find(batch.batch), today=batch.today)
    _refuse_a_ledger_brought_back(ledger, batch, request.results)
    _require_approval(ledger, batch, settings, request)
    if not request.clock_is_right:
        _require_certain_day(ledger, batch)
    if (clock := clock_note(ledger, settings.policy)) is not None:
        progress.say(clock)
        log("clock is ahead", level=logging.WARNING, reason=clock)
    doubted = _rows_in_doubt(ledger, batch)
    request.stop.begin()
    run = _BatchRun(ledger, batch, settings, request, actor, progress)
    with run.ending():
        run.send(credentials)
    finished = replace(run.finished(), clock_note=clock)
    _log_end(ledger, finished, doubted)
    if (problem := notify_run(settings, batch, finished)) is not None:
        progress.say(problem)
    return _with_results(ledger, finished, request.results)


_ROWS_NAMED = 20


class _BatchRun:
    """One run from its start to its end in the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        batch: BatchSummary,
        settings: Settings,
        request: RunRequest,
        actor: Actor,
        progress: Progress,
    ) -> None:
        self._ledger, self._settings, self._request, self._progress = ledger, settings, request, progress
        self._before = batch
        results = None if request.results is None else str(request.results.absolute())
        api_id, is_unique = settings.gateway.api_id, settings.gateway.reference_is_unique
        self._day = batch.today
        self._run = ledger.start(
            batch.batch,
            str(actor),
            request.why,
            results=results,
            api_id=api_id,
            reference_is_unique=is_unique,
            day=self._day,
            limits=FileLimits.from_settings(settings.limits).of_day,
        )
        if self._run.recovered:
            progress.say(f"{row_count(self._run.recovered)} being sent when an earlier run ended: now in doubt")
        for late in self._run.late:
            progress.say(late)
            log("late answer", level=logging.WARNING, batch=batch.batch, reason=late)
        log("run started", batch=batch.batch, environment=str(batch.environment), file=batch.file)
        self._batch = batch
        self._held_back = HeldBack()
        asked_on = min(request.day, self._day) if settings.policy.refuses_past_start else None
        self._midnight = Midnight(asked_on, ledger.zone())
        self._sender: Sender | None = None
        self._pace: PaceKept | None = None

    @contextmanager
    def ending(self) -> Iterator[None]:
        """End the run, whatever ends what it does; raises what did, unless the batch can tell of it."""
        stop = self._request.stop
        try:
            try:
                self._batch = _refuse_what_changed(self._ledger, self._before, self._settings, self._request)
                yield
                # A signal that came while the last row was in flight has stopped nothing of this batch.
                left = self._now().due - self._held_back.totals
                stopped = (stop.reason or self._over_day(left)) if left.rows else None
            except RunStopped as error:
                stop.ask(str(error))
                stopped = stop.reason
            self._run.finish(stopped, self._held_back.totals)
            self._batch = self._with_work(self._now())
        except LedgerNotUsable as error:
            self._run.close()
            if self._sender is None:
                raise
            self._batch = _after_ledger_failed(self._ledger, self._before, error, stop)
        except BatchpayError as error:  # settings that do not fit, or a person must approve: nothing was sent
            self._run.finish(printable(str(error)), self._held_back.totals)
            raise
        except BaseException:
            self._run.close()
            raise

    def send(self, credentials: Credentials) -> None:
        """Ask the gateway, and send what is pending and not held back."""
        self._hold_back()
        now = self._now()
        if not (to_send := now.due - self._held_back.totals).rows:
            later = f"; {now.scheduled_told}" if now.scheduled.rows else ""
            self._progress.say(f"batch {self._before.batch}: nothing is left to send{later}")
            return
        if now.overdue.rows:
            self._progress.say(f"{row_count(now.overdue.rows)} overdue since {min(now.by_day):%m/%d/%Y}")
        self._progress.begin(self._before, to_send)
        if self._request.preflight is not None and self._ask_gateway(self._request.preflight):
            self._hold_back()
        self._send_pending(credentials)
        if self._midnight.has_passed:
            before = self._held_back.totals.rows
            self._hold_back()
            if missed := self._held_back.totals.rows - before:
                self._progress.say(f"{row_count(missed)} held back since midnight: the first day has passed")

    def finished(self) -> BatchSummary:
        """Return the batch as it is after the run, with what is known only here."""
        batch = replace(self._batch, late_answers=tuple(self._run.late))
        if (pace := self._pace) is None or pace.concluded is None:
            return batch
        return replace(batch, rate_found=pace.limit, pace_told=str(pace))

    def _with_work(self, now: BatchSummary) -> BatchSummary:
        """Add what the run did: which rows it brought into which state, and its requests."""
        tally = self._sender.tally if self._sender else Tally()
        moved = {state: now.by_state[state] - self._batch.by_state[state] for state in RunWork.STATES}
        seconds = (now.finished_at - now.started_at).total_seconds() if now.finished_at and now.started_at else 0.0
        return replace(now, work=RunWork(moved, tally.attempts, tally.refusals, seconds))

    def _holds_back(self, payment: PendingPayment) -> bool:
        """Return whether a row stays pending: it fails today's rules, or has no room in the day's limits."""
        is_held = payment.row in self._held_back or self._midnight.missed_by(payment)
        return is_held or self._run.sending.is_over(payment)

    def _over_day(self, left: Totals) -> str | None:
        """Return which limits of the day let rows wait, if any did."""
        day = self._run.sending
        if not day.reached:
            return None
        limits = " and ".join(f"limits.{name} ({money(getattr(day.limits, name))})" for name in sorted(day.reached))
        sent = self._ledger.sent_on(self._before.environment, day.date)
        sums = " and ".join(f"{money(cents)} of {word.lower()}s" for word, cents in sent.items() if cents)
        told, never = f"{limits}: {sums or 'nothing'} sent on {day.date:%m/%d/%Y}, or in doubt", self._too_large()
        if (others := left - sum(never.values(), Totals())).rows:
            told += f"; {row_count(others.rows)}, {money(others.cents)}, wait for another day"
        if never:
            rows = ",".join(map(str, list(never)[:_ROWS_NAMED]))
            told += f"; no day has room for {row_count(len(never))}, each above the limit by itself: raise the limit, "
            told += f"or batchpay cancel {self._before.batch} --rows {rows} --reason TEXT"
        return told

    def _too_large(self) -> dict[int, Totals]:
        """Return which due rows exceed a limit of the day by themselves: they would wait for ever."""
        limits = self._run.sending.limits
        most = min(one for one in (limits.max_per_day, limits.max_per_payee_day) if one is not None)
        columns = self._ledger.row_columns(self._before.batch, [State.PENDING], due=self._day)
        return {
            row: Totals(1, cents)
            for some in columns
            for row, cents in zip(some.rows, some.amounts_cents, strict=True)
            if cents > most and row not in self._held_back
        }

    def _hold_back(self) -> None:
        """Find the pending rows that fail today's rules, or whose first day has passed since."""
        looks = [] if self._request.fails is None else [self._request.fails]
        if self._midnight.has_passed:
            looks.append(self._midnight.missed)
        self._held_back = find_held_back(self._ledger, self._before.batch, any_of(looks), self._day)

    def _now(self) -> BatchSummary:
        """Return the batch as it is now, which the run's start may have changed, on the run's own day."""
        return replace(self._ledger.find(self._before.batch), today=self._day)

    def _ask_gateway(self, preflight: Preflight) -> bool:
        """Stop unless the gateway accepts our credentials; reject pending rows of accounts no payment can go through.

        Returns whether there were any.
        """
        preflight.check_connection()
        refused = preflight.refused(self._before.options.get("gateway_ids", ()))
        rows: dict[str, list[int]] = {}
        found = self._ledger.row_columns(self._before.batch, [State.PENDING], due=self._day) if refused else ()
        for columns in found:
            for row, details in zip(columns.rows, columns.read_details(), strict=True):
                if (code := refused.get(details["gatewayId"])) is not None:
                    rows.setdefault(code, []).append(row)
        for code, numbers in rows.items():
            self._run.reject(numbers, f"gatewayId.{code}")
            self._progress.say(f"rejected, gatewayId.{code}: {row_count(len(numbers))}")
        return bool(rows)

    def _send_pending(self, credentials: Credentials) -> None:
        """Send under the throttle until nothing is left or the run must stop; remember the gateway's limit, if met."""
        settings, stop = self._settings, self._request.stop
        with closing(PaymentsClient(settings.gateway, credentials)) as client:
            shared = self._ledger.shared_pace(self._before.environment, self._before.origin)
            throttle = Throttle.from_settings(settings.submit, stop, shared, start := shared.found())
            if start is not None and throttle.state().rate == start.rate:
                self._progress.say(f"starting at {start}, the pace at which an earlier run ended")
            if (now := shared.look()) is not None and now.paused_s >= 1:
                self._progress.say(f"the gateway asked another run to wait: sending begins in {now.paused_s:.0f} s")
            attempts = Attempts(settings.submit, stop)
            self._sender = Sender(self._run, client.pay, throttle, attempts, settings.submit, stop)
            try:
                self._sender.send_all(
                    self._request.limits,
                    lambda tally: self._progress.update(tally, throttle),
                    self._holds_back,
                    self._progress.say,
                )
            finally:
                self._pace = pace = throttle.told()
                log("pace", batch=self._before.batch, rate=f"{pace.rate:.3g}", reason=pace.concluded)
                if (known := throttle.to_remember()) is not None:
                    shared.remember(known)
                shared.close()


def _refuse_a_ledger_brought_back(ledger: Ledger, batch: BatchSummary, results: Path | None) -> None:
    """Refuse to send if existing results show more than the ledger knows.

    Ledger, key and witness were then all restored from an earlier time, so that they agree.
    """
    if results is None or not batch.due.rows:
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
                "batchpay ledger accept --rows-in-doubt --reason TEXT puts in doubt what it would send"
            )


def _require_certain_day(ledger: Ledger, batch: BatchSummary) -> None:
    """Raise WaitingForPerson if rows are due only by a clock that may be ahead."""
    today, certain = batch.today, ledger.certain_today()
    if (early := batch.due.rows - batch.due_by(certain).rows) > 0:
        raise WaitingForPerson(
            f"batch {batch.batch}: {row_count(early)} due by the clock of this machine, which shows {today:%m/%d/%Y}, "
            f"and which no time server keeps; certainly it is {certain:%m/%d/%Y} or later. Nothing was sent: let a "
            f"time server keep the clock, or if it is right: batchpay resume {batch.batch} --stale --reason TEXT"
        )


def _require_approval(ledger: Ledger, batch: BatchSummary, settings: Settings, request: RunRequest) -> None:
    """Raise WaitingForPerson, and tell `notify.url`, if fewer people than the policy requires approved what is due."""
    policy = policy_in_force(ledger, settings).approvals
    if policy.asks and batch.due.rows:
        approvals = max(request.approvals or 0, ledger.approvers(batch.batch))
        try:
            policy.require(batch.file, batch.sendable.cents, approvals)
        except WaitingForPerson:
            notify_wait(settings, batch)
            raise


def _refuse_what_changed(ledger: Ledger, batch: BatchSummary, settings: Settings, request: RunRequest) -> BatchSummary:
    """Return the batch as the run's start left it; raises WaitingForPerson if rows are pending that nobody approved.

    An answer that was set aside may put a row back. Nobody had looked at it before: it was not pending. Raises
    BatchHeld if the batch went to another gateway since it was found.
    """
    now = ledger.find(batch.batch)
    if now.origin != batch.origin:
        raise BatchHeld(f"batch {batch.batch} was moved to {now.origin} meanwhile; nothing was sent: run it again")
    more = now.by_state[State.PENDING].rows - batch.by_state[State.PENDING].rows
    if more > 0 and request.approvals is not None:
        raise WaitingForPerson(
            f"{printable(batch.file)}: answers that were set aside put {row_count(more)} back to be sent that the plan "
            "does not have; nothing was sent. Prepare a new plan"
        )
    if more > 0:
        _require_approval(ledger, now, settings, request)
    return now


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


def _rows_in_doubt(ledger: Ledger, batch: BatchSummary) -> list[tuple[int, str | None]]:
    """Return the rows in doubt with their reasons, if they are to be logged."""
    if not is_logging() or not batch.by_state[State.IN_DOUBT].rows:
        return []
    found = ledger.row_columns(batch.batch, [State.IN_DOUBT])
    return [one for columns in found for one in zip(columns.rows, columns.reasons, strict=True)]


def _log_end(ledger: Ledger, finished: BatchSummary, doubted: list[tuple[int, str | None]]) -> None:
    """Log how the run ended, and every row that a person must look at: in full where it was not in doubt before."""
    try:
        now = _rows_in_doubt(ledger, finished)
    except LedgerNotUsable as error:  # how the run ended is in the summary anyway
        log("rows in doubt not listed", level=logging.WARNING, batch=finished.batch, reason=once_sent(error))
    else:
        for row, reason in now:
            if (row, reason) not in doubted:
                log("row in doubt", level=logging.WARNING, batch=finished.batch, row=row, reason=reason)
        if known := [row for row, reason in now if (row, reason) in doubted]:
            ranges = write_ranges(known)
            log("still in doubt", level=logging.WARNING, batch=finished.batch, rows=len(known), row_ranges=ranges)
    if (held := finished.held_back).rows:
        log("rows held back", level=logging.WARNING, batch=finished.batch, rows=held.rows, cents=held.cents)
    work = finished.work
    log(
        "run stopped" if finished.stopped else "run ended",
        level=logging.WARNING if finished.stopped else logging.INFO,
        batch=finished.batch,
        rows=work.total.rows,
        cents=work.total.cents,
        **{str(state): totals.rows for state, totals in work.by_state.items()},
        pending=finished.by_state[State.PENDING].rows,
        attempts=work.attempts,
        refusals=work.refusals,
        duration_s=round(work.seconds, 3),
        stopped=finished.stopped,
    )


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
    is_named: bool = True,
) -> Summary:
    """Send what is pending of a batch, the latest if none is named, and write its results where `output_path` says.

    Recurring payments whose start date has passed and payments above today's limit are held back. `stale_reason` says
    why rows are sent that nobody has touched for `policy.stale_days`; without it, they are held back, and if there is
    nothing else to send, that raises WrongUse, or WaitingForPerson where no person named the batch (`is_named`).
    """
    with closing(open_ledger(settings.ledger)) as ledger:
        found = ledger.find(reference, environment_of(settings.gateway))
        ledger.take_over(found.digest, str(actor), progress.say)
        with ledger.lock(found.digest):
            found = ledger.find(found.batch)  # until it was held, others may have changed it
            settle_policy(ledger, settings, actor, progress.say)
            fails = fails_today(ledger, found, settings)
            if stale_reason is None and (old := _hold_stale(ledger, found, settings, progress, is_named=is_named)):
                fails = any_of([old, fails]) if fails else old
            says = stale_reason is not None
            request = replace(request, results=output_path(found), why=stale_reason, clock_is_right=says, fails=fails)
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


def due_batches(settings: Settings) -> list[str]:
    """Name the batches that this gateway pays with rows whose day has come, the oldest first; those held are left out.

    Raises LedgerNotUsable.
    """
    with ledger_if_any(settings.ledger) as ledger:
        batches = reversed(ledger.batches()) if ledger is not None else ()
        return [batch.batch for batch in batches if ledger is not None and _is_due(ledger, batch, settings)]


def _is_due(ledger: Ledger, batch: BatchSummary, settings: Settings) -> bool:
    if not any(day <= batch.today for day in batch.by_day) or ledger.is_held(batch.digest):
        return False
    try:
        refuse_other_gateway(ledger, batch, settings)
    except SettingsNotUsable:  # a call with the settings of that gateway, or that account there, sends it
        return False
    return True


def _others_waiting(ledger: Ledger, latest: BatchSummary, stale_days: int) -> list[str]:
    """Name the other batches with rows to send: whoever names none may mean the one that stopped, not the latest."""
    waiting = [
        batch
        for batch in ledger.batches()
        if batch.environment is latest.environment and batch.batch != latest.batch
        if batch.due.rows and not ledger.is_held(batch.digest)
    ]
    return [
        f"batch {batch.batch} of {batch.file} has {row_count(batch.due.rows)} to be sent as well, "
        f"{totals_apart([batch.due_apart_by(batch.today)])}: batchpay resume {batch.batch}"
        f"{' --stale --reason TEXT' if is_stale(ledger, batch, stale_days) else ''}"
        for batch in waiting[:_OTHERS_NAMED]
    ]


def _hold_stale(
    ledger: Ledger, batch: BatchSummary, settings: Settings, progress: Progress, *, is_named: bool
) -> Fails | None:
    """Return which rows nobody has touched for long, and say so: they may have been paid some other way since.

    Raises WrongUse, or WaitingForPerson, if there is nothing else to send.
    """
    stale_days = settings.policy.stale_days
    if not (old := stale(ledger, batch, stale_days)).rows:
        return None
    told = (
        f"batch {batch.batch} has had no activity for {counted(untouched_days(ledger, batch.batch), 'day')}; if the "
        f"pending rows ({row_count(old.rows)}) are still to be paid: batchpay resume {batch.batch} --stale --reason "
        "TEXT"
    )
    if old == batch.due:
        raise WrongUse(told) if is_named else WaitingForPerson(told)
    progress.say(f"held back: {told}")
    return due_before(ledger, batch, batch.today - timedelta(days=stale_days))
