"""The command `batchpay`, held where a request is about to leave: its commit has returned, no byte of it has left.

`python -m tests.support.held_up LEAVE HOLD ARGUMENTS…`: the first LEAVE requests leave at once, those after them are
held up until the run is asked to stop. When HOLD of them are, it says so on standard error.
"""

from __future__ import annotations

import signal
import sys
import threading
from unittest import mock

from batchpay.cli.main import main
from batchpay.sending.limits import StopRequest
from batchpay.sending.spread import Spread

SIGN = "held up"


class _Gate:
    """Counts the requests that come by."""

    def __init__(self, leave: int, hold: int) -> None:
        self._leave, self._last = leave, leave + hold
        self._count = 0
        self._lock = threading.Lock()
        self.opened = threading.Event()

    def wait(self) -> None:
        """Hold a request up, unless it is one of the first."""
        with self._lock:
            self._count += 1
            number = self._count
        if number == self._last:
            print(SIGN, file=sys.stderr, flush=True)
        if number > self._leave:
            self.opened.wait()


def main_held_up(gate: _Gate) -> None:
    """Run the command; whatever asks it to stop opens the gate."""
    ask = StopRequest.ask

    def ask_and_open(stop: StopRequest, reason: str) -> None:
        ask(stop, reason)
        gate.opened.set()

    with mock.patch.object(Spread, "wait", gate.wait), mock.patch.object(StopRequest, "ask", ask_and_open):
        main()


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored by all that a nohup starts, these tests for one
    _, leave, hold, *arguments = sys.argv
    sys.argv[1:] = arguments
    main_held_up(_Gate(int(leave), int(hold)))
