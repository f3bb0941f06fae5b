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
from unittest import mock

from batchpay.cli.main import main
from batchpay.sending.limits import StopRequest
from batchpay.sending.pacing import Throttle

SIGN = "held up"
SHARED = f"{SIGN}, with 2 runs at one rate"


class Gate:
    """Counts the requests that pass."""

    def __init__(self, leave: int, hold: int, reached: Callable[[], None] = lambda: None) -> None:
        self._leave, self._last, self._reached = leave, leave + hold, reached
        self._count = 0
        self._lock = threading.Lock()
        self.opened = threading.Event()
        self.runs = 1

    def wait(self) -> None:
        """Hold a request, unless it is one of the first."""
        with self._lock:
            self._count += 1
            number = self._count
        if number == self._last:
            self._reached()
            print(SIGN if self.runs == 1 else f"{SIGN}, with {self.runs} runs at one rate", file=sys.stderr)
            sys.stderr.flush()
        if number > self._leave:
            self.opened.wait()


def main_held_up(gate: Gate) -> None:
    """Run the command; any request to stop opens the gate."""
    ask, leave = StopRequest.ask, Throttle.leave

    def ask_and_open(stop: StopRequest, reason: str) -> None:
        ask(stop, reason)
        gate.opened.set()

    def leave_or_wait(throttle: Throttle) -> None:
        leave(throttle)
        gate.runs = throttle.runs()
        gate.wait()

    with (
        mock.patch.object(Throttle, "leave", leave_or_wait),
        mock.patch.object(StopRequest, "ask", ask_and_open),
    ):
        main()


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored by everything that nohup starts, including these tests
    _, leave, hold, *arguments = sys.argv
    sys.argv[1:] = arguments
    main_held_up(Gate(int(leave), int(hold)))
