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
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

from batchpay.errors import LedgerNotUsable
from batchpay.gateway.permission import PERMISSION_S, BeforeFirstByte, since_boot_s
from batchpay.ledger.contract import Run
from batchpay.ledger.records import PendingPayment
from batchpay.payment import Outcome, State
from batchpay.sending.limits import CircuitBreaker, Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.recorder import ClaimRefused, Recorder
from batchpay.sending.retry import Attempts
from batchpay.settings import SubmitSettings
from batchpay.text import row_count

Pay = Callable[[bytes, BeforeFirstByte], Outcome]
"""One exchange: body, what to do before the first byte -> what it proved (gateway/payments.py)."""

_FEED_ROWS = 500
_TICK_S = 0.2


@dataclass(slots=True)
class Tally:
    """What a run has done so far, by state; a snapshot for progress and for the summary."""

    outcomes: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    attempts: int = 0

    @property
    def finished(self) -> int:
        """Rows that got a state which stays."""
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
        self._recorder = Recorder(run, stop)
        self._rows: queue.Queue[PendingPayment | None] = queue.Queue(maxsize=settings.workers)
        self._limits = Limits()
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker(settings)
        self.tally = Tally()

    def send_all(
        self,
        limits: Limits,
        progress: Callable[[Tally], None] = lambda tally: None,
        held_back: Container[int] = frozenset(),
    ) -> None:
        """Send pending rows in file order until none is left or the run must stop; `stop.reason` tells why.

        Rows of `held_back` stay pending.

        Raises LedgerNotUsable if the ledger failed: then nothing was sent that it does not know of.
        """
        workers: list[threading.Thread] = []
        limit_reached = False
        self._limits = limits
        try:
            for count, payment in enumerate(self._pending(held_back), start=1):
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
            self._stop.ask(f"the limit of {row_count(limits.rows_max or 0)} was reached")

    def _pending(self, held_back: Container[int]) -> Iterator[PendingPayment]:
        """Rows to send, in file order. A row that an answer put back is repeated by its worker, not fed again."""
        while payments := self._run.claim(_FEED_ROWS):
            yield from (payment for payment in payments if payment.row not in held_back)

    def _send_canary(self, payment: PendingPayment) -> None:
        """Send the first row alone: while its answer is not recognized, no other row is begun."""
        self._send(payment)
        if not self._breaker.ever_recognized:
            self._stop.ask("the first row got no recognized answer")

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
        reason = self._breaker.reason_to_stop(outcome)
        if reason is not None:
            self._stop.ask(reason)
