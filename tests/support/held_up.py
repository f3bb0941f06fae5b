"""The command `batchpay`, held where a request is about to leave: its commit has returned, no byte of it has left.

`python -m tests.support.held_up LEAVE HOLD ARGUMENTS…`: the first LEAVE requests leave immediately, those after them
are held until the run is asked to stop, at the point where the throttle lets them leave. When HOLD of them are held, it
says so on standard error, and how many runs share the rate.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

from batchpay.cli.main import main
from batchpay.ledger.contract import SharedRate
from batchpay.ledger.records import Lease
from batchpay.sending.limits import StopRequest
from batchpay.sending.shared_rate import SharedThrottle

SIGN = "held up"
SHARED = f"{SIGN}, with 2 runs at one rate"


class Gate:
    """Counts the requests that pass."""

    def __init__(self, leave: int, hold: int, reached: Callable[[], None] = lambda: None) -> None:
        self._leave, self._last, self._reached = leave, leave + hold, reached
        self._count = 0
        self._lock = threading.Lock()
        self.opened = threading.Event()
        self.sharers = 1

    def wait(self) -> None:
        """Hold a request, unless it is one of the first."""
        with self._lock:
            self._count += 1
            number = self._count
        if number == self._last:
            self._reached()
            print(SIGN if self.sharers == 1 else f"{SIGN}, with {self.sharers} runs at one rate", file=sys.stderr)
            sys.stderr.flush()
        if number > self._leave:
            self.opened.wait()


def main_held_up(gate: Gate) -> None:
    """Run the command; any request to stop opens the gate."""
    ask, begin, leave = StopRequest.ask, SharedThrottle.__init__, SharedThrottle.leave

    def ask_and_open(stop: StopRequest, reason: str) -> None:
        ask(stop, reason)
        gate.opened.set()

    def begin_and_note(throttle: SharedThrottle, rate: float | None, source: SharedRate, **how: Any) -> None:
        begin(throttle, rate, source, **how)
        lease = source.lease

        def lease_and_note(rate: float, paused_s: float) -> Lease | None:
            leased = lease(rate, paused_s)
            gate.sharers = leased.sharers if leased else gate.sharers
            return leased

        mock.patch.object(source, "lease", lease_and_note).start()

    def leave_or_wait(throttle: SharedThrottle) -> None:
        leave(throttle)
        gate.wait()

    with (
        mock.patch.object(SharedThrottle, "leave", leave_or_wait),
        mock.patch.object(SharedThrottle, "__init__", begin_and_note),
        mock.patch.object(StopRequest, "ask", ask_and_open),
    ):
        main()


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored by everything that nohup starts, including these tests
    _, leave, hold, *arguments = sys.argv
    sys.argv[1:] = arguments
    main_held_up(Gate(int(leave), int(hold)))
