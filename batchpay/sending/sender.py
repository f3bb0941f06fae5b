"""The sending half: claim rows in file order, send each once, record what was proved.

Three kinds of threads meet here. Workers take rows in turn and send them; one recorder writes to the ledger and commits
what is queued in groups; the calling thread supervises. A worker sends only after the recorder's commit of `sending`
has returned, and the recorder is the only thread that writes to the ledger. A payment is attempted again only if the
last attempt proved that nothing was applied. Plain Python: it imports neither polars nor pandera and can be killed at
any instruction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import tenacity

from batchpay.errors import LedgerNotUsable, NoThread, start_thread
from batchpay.gateway.transport import PERMISSION_S, BeforeFirstByte, since_boot_s
from batchpay.ledger.contract import Run
from batchpay.ledger.records import PendingPayment
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.sending.limits import CircuitBreaker, Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.recorder import ClaimRefused, Recorder
from batchpay.settings import SubmitSettings
from batchpay.text import row_count

_PENDING = State.PENDING
WAIT_S_FIRST = 0.5
"""Upper bound of the random wait before the second attempt; doubled for each further one."""


def may_repeat(outcome: Outcome) -> bool:
    """Return whether an attempt proved that nothing was applied, and the run may try again."""
    return outcome.state is _PENDING and outcome.stop is None


class Attempts:
    """Repeats a payment while its outcome is pending; shared by all threads of a run.

    At most submit.attempts_max attempts, with waits of at most submit.wait_s_max between them: random, growing, and not
    shorter than the gateway's Retry-After. When `stop` is set, a wait ends early and no further attempt is made.

    A row refused because of too many requests (429) is not given up before it has waited for as long as that many
    attempts may take: when the last minute's quota was used up, a run with one worker ended there within ten seconds.
    """

    def __init__(self, settings: SubmitSettings, stop: StopRequest) -> None:
        self._stop = stop
        self._wait_s_max = settings.wait_s_max
        self._attempts_max = settings.attempts_max
        self._backoff = tenacity.wait_random_exponential(multiplier=WAIT_S_FIRST, max=settings.wait_s_max)
        self._retrying = tenacity.Retrying(
            sleep=stop.wait,  # type: ignore[arg-type]
            retry=tenacity.retry_if_result(may_repeat),
            stop=self._is_enough,
            wait=self._wait_s,
            retry_error_callback=_last_outcome,
        )

    def run(self, attempt: Callable[[], Outcome]) -> Outcome:
        """Return the first outcome that is not to be repeated, or the last one. Exceptions of `attempt` propagate."""
        outcome = attempt()
        if not may_repeat(outcome):
            return outcome
        begun = False

        def next_outcome() -> Outcome:
            nonlocal begun, outcome
            if begun and not self._stop.is_set():
                outcome = attempt()
            begun = True  # tenacity's first call is for the attempt that was already made
            return outcome

        return self._retrying(next_outcome)

    def _is_enough(self, state: tenacity.RetryCallState) -> bool:
        """Return whether no further attempt is made: the run is to stop, or the row is given up."""
        if self._stop.is_set():
            return True
        pace = _last_outcome(state).pace
        waits_s = (self._attempts_max - 1) * self._wait_s_max if pace is not None and pace.refused else 0.0
        return state.attempt_number >= self._attempts_max and state.idle_for >= waits_s

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        """Return the seconds before the next attempt."""
        pace = _last_outcome(state).pace
        asked_s = (pace.retry_after_s or 0.0) if pace is not None else 0.0
        return min(self._wait_s_max, max(asked_s, self._backoff(state)))


def _last_outcome(state: tenacity.RetryCallState) -> Outcome:
    assert state.outcome is not None
    outcome: Outcome = state.outcome.result()
    return outcome


Pay = Callable[[bytes, BeforeFirstByte], Outcome]
"""One exchange: body, what to do before the first byte -> what it proved (gateway/payments.py)."""

HoldsBack = Callable[[PendingPayment], bool]
"""Returns whether a row must stay pending now."""

_CLAIM_ROWS = 500
_TICK_S = 0.2


class _HeldBack(Exception):
    """A row that is to stay pending: the reason to hold it back arose while it waited in a worker."""


@dataclass(slots=True)
class Tally:
    """What a run has done so far, by state; a snapshot for progress and for the summary."""

    outcomes: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    attempts: int = 0
    refusals: int = 0
    """Attempts that the gateway refused because too many came."""

    @property
    def finished(self) -> int:
        """Rows that reached a final state for this run."""
        return sum(self.outcomes[state] for state in (State.ACCEPTED, State.DECLINED, State.IN_DOUBT))


class Sender:
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
        self._limits: Limits
        self._holds_back: HoldsBack
        self._turn = threading.Lock()
        self._payments: Iterator[PendingPayment]
        self._no_more = False
        self._limit_reached = False
        self._failed: Exception | None = None
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker(settings)
        self._recorder = Recorder(run, stop, self._count_repeated)
        self.tally = Tally()

    def send_all(
        self,
        limits: Limits,
        progress: Callable[[Tally], None] = lambda tally: None,
        holds_back: HoldsBack = lambda payment: False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Send pending rows in file order until none is left or the run must stop; `stop.reason` then holds the reason.

        Rows for which `holds_back` is true stay pending; it is called when a row is taken, and right before each
        attempt. `say` shows a line that a person should see. What `progress` raises ends nothing: it is not called
        again.

        Raises LedgerNotUsable if the ledger failed: then nothing was sent that it does not know of.
        """
        workers: list[threading.Thread] = []
        self._limits, self._holds_back, self._payments, self._progress = limits, holds_back, self._pending(), progress
        self._say = say
        try:
            while (first := self._next_payment()) is not None and not self._send_canary(first):
                pass
            if first is not None:
                workers = self._start_workers(say)
            for worker in workers:
                while worker.is_alive():
                    worker.join(_TICK_S)
                    self._show_progress()
        finally:
            self._no_more = True
            for worker in workers:  # each row in flight ends within its own deadline
                worker.join()
            self._recorder.close()
            self._show_progress()
        if self._failed is not None:
            raise self._failed
        if self._limit_reached:  # only now: rows that were taken before the limit are sent
            self._stop.ask(f"the limit of {row_count(limits.rows_max or 0)} was reached")

    def _pending(self) -> Iterator[PendingPayment]:
        """Yield the rows to send, in file order. One that an answer made pending again is left to its worker."""
        while payments := self._run.claim(_CLAIM_ROWS):
            yield from (payment for payment in payments if not self._holds_back(payment))

    def _send_canary(self, payment: PendingPayment) -> bool:
        """Send the first row alone: until its answer is recognized, no other row is begun.

        Returns False if the row was held back at the last moment: then the next row is the first one.
        """
        if not self._send(payment):
            return False
        if not self._breaker.ever_recognized:
            self._stop.ask("the first row got no recognized answer")
        return True

    def _start_workers(self, say: Callable[[str], None]) -> list[threading.Thread]:
        """Start as many workers as there are rows for, and as the system lets run, each with its first row."""
        workers: list[threading.Thread] = []
        while len(workers) < self._settings.workers and (payment := self._next_payment()) is not None:
            name = f"worker {len(workers) + 1}"
            worker = threading.Thread(target=self._work, args=(payment,), name=name, daemon=True)
            try:
                start_thread(worker)
            except NoThread as error:
                if workers:
                    say(f"{len(workers)} of {self._settings.workers} workers run: the system starts no more threads")
                    self._send(payment)
                else:
                    self._stop.ask(str(error))
                break
            workers.append(worker)
        return workers

    def _show_progress(self) -> None:
        try:
            self._progress(self.tally)
        except Exception:  # who watches may not decide what becomes of payments
            self._progress = lambda tally: None

    def _work(self, payment: PendingPayment | None) -> None:
        """Send a row, then others while there are any to begin."""
        try:
            while payment is not None:
                self._send(payment)
                payment = self._next_payment()
        except Exception as error:  # our own fault, outside an exchange: nothing was begun that is not recorded
            self._stop.ask(f"internal error: {type(error).__name__}")

    def _next_payment(self) -> PendingPayment | None:
        """Take the next row in file order; return None when no more may be begun.

        Workers take rows in turn: a thread that gave them out one by one took a tenth of all sending time.
        """
        with self._turn:
            if self._stop or self._no_more:
                return None
            try:
                payment = next(self._payments, None)
            except Exception as error:  # for the calling thread to raise; a generator that has failed yields no more
                self._failed = error
                return None
            if payment is not None and not self._limits.allow_row():
                self._no_more = self._limit_reached = True
                return None
            return payment

    def _send(self, payment: PendingPayment) -> bool:
        """Bring one row to a final state, or leave it pending: held back (returns False), or the run stops."""
        try:
            outcome = self._attempts.run(lambda: self._attempt(payment))
        except (ClaimRefused, LedgerNotUsable):
            # Nothing of the row was sent: it waits for another day, another run has it, or the ledger failed (the
            # recorder reports that).
            if self._run.sending.is_over(payment):
                return False
            self._stop.ask(self._run.refusal or "the ledger did not give this run a row")
        except _HeldBack:
            return False
        else:
            self._judge(outcome)
        return True

    def _attempt(self, payment: PendingPayment) -> Outcome:
        """Wait for a slot, then make one exchange; what it proved goes to the ledger before anything else is done."""
        # Checked right before each attempt, since a row may have waited.
        if self._stop.is_set() or not self._throttle.acquire() or self._stop.is_set():
            return Outcome(State.PENDING, "not begun", stop="stopped")
        if self._holds_back(payment):  # it may have waited for minutes, beyond midnight
            raise _HeldBack
        granted = False

        def before_first_byte() -> float:
            nonlocal granted
            allowed_until = since_boot_s() + PERMISSION_S
            self._recorder.mark_sending(payment.row)
            granted = True
            self._throttle.leave()
            return allowed_until

        sent_at = time.monotonic()
        try:
            outcome = self._pay(payment.body, before_first_byte)
        except (ClaimRefused, LedgerNotUsable):
            raise
        except Exception as error:  # our own fault: bytes may have left
            state = State.IN_DOUBT if granted else State.PENDING
            fault = f"internal error: {type(error).__name__}"
            outcome = Outcome(state, fault, stop=fault)
        if granted:
            self._recorder.record(payment.row, outcome)
        if outcome.answer.http_status is not None:
            self._throttle.learn(outcome.pace, sent_at)
            if outcome.pace is not None and outcome.pace.refused:
                self._tell_long_wait(outcome.pace.asked_s or 0.0)
        with self._lock:
            self.tally.attempts += 1
            self.tally.refusals += outcome.pace is not None and outcome.pace.refused
        return outcome

    def _tell_long_wait(self, asked_s: float) -> None:
        """Say once that a quota is spent, by how long the gateway asks to wait; stop if that is past --until."""
        if asked_s <= self._settings.wait_s_max:
            return
        spent = f"the gateway's quota is spent: it asks to wait {asked_s:,.0f} s"
        if self._stop.until is not None and time.time() + asked_s > self._stop.until:
            self._stop.ask(f"{spent}, past the time given by --until")
        say, self._say = self._say, lambda text: None
        say(spent)

    def _count_repeated(self, rows: int) -> None:
        with self._lock:
            self.tally.outcomes[State.ACCEPTED] -= rows
            self.tally.outcomes[State.IN_DOUBT] += rows

    def _judge(self, outcome: Outcome) -> None:
        """Count a row's last outcome, and stop the run if it requires that: canary, circuit breaker, refusals."""
        with self._lock:
            self.tally.outcomes[outcome.state] += 1
        reason = self._breaker.reason_to_stop(outcome)
        if reason is not None:
            self._stop.ask(reason)
