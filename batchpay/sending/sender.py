"""The right half: claim rows in file order, send each once, record what was proved.

Three kinds of threads meet here. Workers send; one recorder writes to the ledger and commits what waits in groups;
the calling thread feeds rows and watches for reasons to stop. A worker sends only after the recorder's commit of
`sending` has returned, and the recorder is the only thread that writes to the ledger. Plain Python: it imports neither
polars nor pandera and can be killed at any instruction.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.contract import Run
from batchpay.ledger.records import PendingPayment
from batchpay.payment import Outcome, State
from batchpay.sending.pacing import Throttle
from batchpay.sending.retry import Attempts
from batchpay.settings import SubmitSettings

Pay = Callable[[bytes, Callable[[], None]], Outcome]
"""One exchange: body, what to do before the first byte -> what it proved (gateway/payments.py)."""

_GROUP_LEAST = 10
_GROUP_SHARE = 4
"""A commit takes a quarter of what waits. Rows of one commit are sent together, answered together and wait together for
the next one: with all that waits in every commit, 64 workers came in two or three waves with idle time between them."""
_FEED_ROWS = 500
_TICK_S = 0.2
_COMPANY_S = 0.001
"""So long an outcome waits for the next intent: with few workers each row then costs one commit instead of two."""


class ClaimRefused(Exception):
    """The ledger did not grant this row to this run: it must not be sent. Stays inside this module."""


class StopRequest:
    """Why a run must end early; the first reason stays. Shared by threads and signal handlers."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason: str | None = None

    def ask(self, reason: str) -> None:
        """Ask every thread to finish what is in flight and begin nothing new."""
        if self.reason is None:
            self.reason = reason
        self.event.set()

    def __bool__(self) -> bool:
        return self.event.is_set()


@dataclass(slots=True)
class Tally:
    """What a run has done so far, by state; a snapshot for progress and for the summary."""

    outcomes: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    attempts: int = 0

    @property
    def finished(self) -> int:
        """Rows that got a state which stays."""
        return sum(self.outcomes[state] for state in (State.ACCEPTED, State.DECLINED, State.IN_DOUBT))


@dataclass(slots=True)
class Limits:
    """What ends a call early on purpose, over all files that it sends."""

    rows_max: int | None = None
    until: float | None = None
    """Unix time after which no further row is begun."""
    begun: int = 0
    """Rows begun so far."""

    def allow_row(self) -> bool:
        """Count one more row in, unless there were enough."""
        if self.rows_max is not None and self.begun >= self.rows_max:
            return False
        self.begun += 1
        return True

    def is_too_late(self) -> bool:
        """Whether the time is over."""
        return self.until is not None and time.time() >= self.until


class _Intent:
    """A worker's wait for the commit of `sending`."""

    __slots__ = ("done", "error", "granted", "row")

    def __init__(self, row: int) -> None:
        self.row = row
        self.done = threading.Lock()  # held until the commit has returned: a third of what an Event costs
        self.done.acquire()
        self.granted = False
        self.error: LedgerNotUsable | None = None


_Item = _Intent | tuple[int, Outcome] | None
"""What the recorder is handed: an intent, an outcome, or the end."""


class Recorder:
    """The only writer to the ledger during a run: commits what waits in groups (group commit)."""

    def __init__(self, run: Run, stop: StopRequest) -> None:
        self._run = run
        self._stop = stop
        self._waiting: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._taken: list[_Item] = []
        self._failed: LedgerNotUsable | None = None
        self._thread = threading.Thread(target=self._loop, name="recorder", daemon=True)
        self._thread.start()

    def intend(self, row: int) -> None:
        """Return once `sending` of the row is durable; raises where it must not be sent."""
        intent = _Intent(row)
        self._waiting.put(intent)
        intent.done.acquire()
        if intent.error is not None:
            raise intent.error
        if not intent.granted:
            raise ClaimRefused

    def record(self, row: int, outcome: Outcome) -> None:
        """Hand over an outcome; it is durable when `close` has returned, or before."""
        self._waiting.put((row, outcome))

    def close(self) -> None:
        """Write what waits and end; raises LedgerNotUsable if the ledger failed on the way."""
        self._waiting.put(None)
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _loop(self) -> None:
        ended = False
        while not ended:
            group = self._next_group()
            ended = None in group
            intents = [item for item in group if isinstance(item, _Intent)]
            outcomes = [item for item in group if isinstance(item, tuple)]
            self._commit(intents, outcomes)

    def _next_group(self) -> list[_Item]:
        """Take the first of what waits. Nobody waits for an outcome's commit: one alone waits a moment for company."""
        taken = self._taken
        try:
            if not taken:
                taken.append(self._waiting.get())
            if len(taken) == 1 and isinstance(taken[0], tuple):
                taken.append(self._waiting.get(timeout=_COMPANY_S))
            while True:
                taken.append(self._waiting.get_nowait())
        except queue.Empty:
            pass
        size = max(_GROUP_LEAST, len(taken) // _GROUP_SHARE)
        group, self._taken = taken[:size], taken[size:]
        return group

    def _commit(self, intents: list[_Intent], outcomes: list[tuple[int, Outcome]]) -> None:
        """Commit one group and wake its workers. After a failure nothing is granted any more."""
        granted: set[int] = set()
        if self._failed is None and (intents or outcomes):
            try:
                granted = self._run.commit([intent.row for intent in intents], outcomes)
            except LedgerNotUsable as error:
                self._fail(error)
            except Exception as error:  # whatever it was, the ledger is not to be built on; its text may hold a row
                self._fail(LedgerNotUsable(f"the ledger failed with {type(error).__name__}"))
        if self._failed is not None and outcomes:
            self._spill(outcomes)
        for intent in intents:
            intent.granted = intent.row in granted
            intent.error = self._failed
            intent.done.release()

    def _fail(self, error: LedgerNotUsable) -> None:
        self._failed = error
        self._stop.ask(f"the ledger can't be written: {error}")

    def _spill(self, outcomes: list[tuple[int, Outcome]]) -> None:
        try:
            self._run.spill(outcomes)
        except Exception:  # then the rows stay in `sending`, which the next start calls in doubt: safe, if unknowing
            self._stop.ask("the ledger and its spill file can't be written")


class Submission:
    """One run over one batch's pending rows."""

    def __init__(
        self, run: Run, pay: Pay, throttle: Throttle, attempts: Attempts, settings: SubmitSettings, stop: StopRequest
    ) -> None:
        self._run = run
        self._pay = pay
        self._throttle = throttle
        self._attempts = attempts
        self._settings = settings
        self._stop = stop
        self._recorder = Recorder(run, stop)
        self._rows: queue.Queue[PendingPayment | None] = queue.Queue(maxsize=settings.workers)
        self._limits = Limits()
        self._lock = threading.Lock()
        self._in_doubt_in_a_row = 0
        self._ever_recognised = False
        self.tally = Tally()

    def send_all(self, limits: Limits, progress: Callable[[Tally], None] = lambda tally: None) -> None:
        """Send pending rows in file order until none is left or the run must stop; `stop.reason` tells why.

        Raises LedgerNotUsable if the ledger failed: then nothing was sent that it does not know of.
        """
        workers: list[threading.Thread] = []
        limit_reached = False
        self._limits = limits
        try:
            for count, payment in enumerate(self._pending(), start=1):
                limit_reached = not limits.allow_row()
                if self._stop or limit_reached:
                    break
                if count == 1:
                    self._send_canary(payment)
                    continue
                if not workers:
                    workers = self._start_workers()
                self._hand_over(payment, progress)
        finally:
            self._end(workers, progress)
        if limit_reached:  # only now: rows that were handed over before the limit are sent
            self._stop.ask(f"the limit of {limits.rows_max} rows is reached")

    def _pending(self) -> Iterator[PendingPayment]:
        """Rows to send, in file order. A row that an answer put back is repeated by its worker, not fed again."""
        while payments := self._run.claim(_FEED_ROWS):
            yield from payments

    def _send_canary(self, payment: PendingPayment) -> None:
        """Send the first row alone: while its answer is not recognised, no other row is begun."""
        self._send(payment)
        if not self._ever_recognised:
            self._stop.ask("the first row got no recognised answer")

    def _start_workers(self) -> list[threading.Thread]:
        names = [f"worker {number}" for number in range(1, self._settings.workers + 1)]
        workers = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for worker in workers:
            worker.start()
        return workers

    def _hand_over(self, payment: PendingPayment, progress: Callable[[Tally], None]) -> None:
        """Give a row to the next free worker, unless the run must stop before one is free."""
        while not self._stop:
            try:
                self._rows.put(payment, timeout=_TICK_S)
            except queue.Full:
                continue
            finally:
                progress(self.tally)
            return

    def _end(self, workers: list[threading.Thread], progress: Callable[[Tally], None]) -> None:
        """Let every row in flight end within its own deadline, then write what waits."""
        for _ in workers:
            self._rows.put(None)
        for worker in workers:
            while worker.is_alive():
                worker.join(_TICK_S)
                progress(self.tally)
        self._recorder.close()
        progress(self.tally)

    def _work(self) -> None:
        """Send rows until told to end. After a stop the rows that still come are left pending."""
        while (payment := self._rows.get()) is not None:
            if not self._stop:
                self._send(payment)

    def _send(self, payment: PendingPayment) -> None:
        """Bring one row to a state that stays, or leave it pending and stop the run."""
        try:
            outcome = self._attempts.run(lambda: self._attempt(payment))
        except (ClaimRefused, LedgerNotUsable):
            # Nothing of the row was sent: another run has it, or the ledger failed (the recorder says so).
            self._stop.ask("the ledger did not grant a row to this run")
            return
        self._judge(outcome)

    def _attempt(self, payment: PendingPayment) -> Outcome:
        """Wait for a slot, then one exchange; what it proved goes to the ledger before anything else is done."""
        if self._is_over() or not self._throttle.acquire() or self._is_over():
            return Outcome(State.PENDING, "not begun", stop=self._stop.reason or "stopped")
        granted = False

        def before_first_byte() -> None:
            nonlocal granted
            self._recorder.intend(payment.row)
            granted = True
            self._throttle.leave()

        sent_at = time.monotonic()
        try:
            outcome = self._pay(payment.body, before_first_byte)
        except (ClaimRefused, LedgerNotUsable):
            raise
        except Exception as error:  # a fault of ours: bytes may have left
            state = State.IN_DOUBT if granted else State.PENDING
            fault = f"internal error: {type(error).__name__}"
            outcome = Outcome(state, fault, stop=fault)
        if granted:
            self._recorder.record(payment.row, outcome)
        if outcome.answer.http_status is not None:
            self._throttle.learn(outcome.pace, sent_at)
        with self._lock:
            self.tally.attempts += 1
        return outcome

    def _is_over(self) -> bool:
        """Whether nothing more may be begun: asked right before each attempt, since a row may have waited long."""
        if self._limits.is_too_late():
            self._stop.ask("the time given by --until is reached")
        return bool(self._stop)

    def _judge(self, outcome: Outcome) -> None:
        """Count a row's last outcome, and stop the run where it says so: canary, circuit breaker, refusals."""
        with self._lock:
            self.tally.outcomes[outcome.state] += 1
            if outcome.recognised:
                self._ever_recognised = True
                self._in_doubt_in_a_row = 0
            elif outcome.state is State.IN_DOUBT:
                self._in_doubt_in_a_row += 1
            in_a_row, in_all = self._in_doubt_in_a_row, self.tally.outcomes[State.IN_DOUBT]
        if outcome.stop is not None:
            self._stop.ask(outcome.stop)
        elif outcome.state is State.PENDING:
            self._stop.ask(outcome.reason)
        elif outcome.state is State.IN_DOUBT and not self._ever_recognised:
            self._stop.ask(f"the first answer left a row in doubt: {outcome.reason}")
        elif in_a_row >= self._settings.max_in_doubt_in_a_row:
            self._stop.ask(f"{in_a_row} rows in doubt one after another")
        elif in_all >= self._settings.max_in_doubt:
            self._stop.ask(f"{in_all} rows in doubt")
