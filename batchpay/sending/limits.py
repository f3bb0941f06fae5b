"""What ends a run early: a person, a limit given with the command, or answers that prove nothing."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType

from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.settings import SubmitSettings
from batchpay.text import local_time, row_count

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_S = 0.1
"""Who waits looks this often whether the run must end."""
_PENDING = State.PENDING


class StopRequest:
    """Why a run must end early; the first reason stays. Shared by threads and signal handlers.

    It takes no lock: a second signal may come while the handler of the first one is in the middle of it.
    """

    signalled = False
    """Whether a signal was among those who asked."""

    def __init__(self, until: float | None = None) -> None:
        """`until` is the Unix time after which no further row is begun."""
        self.reason: str | None = None
        self.until = until

    def begin(self) -> None:
        """Record that a run begins, for whoever owns the process: nothing is done here."""

    def ask(self, reason: str) -> None:
        """Ask every thread to finish what is in flight and begin nothing new."""
        if self.reason is None:
            self.reason = reason

    def is_set(self) -> bool:
        """Return whether the run must end, now that it is as late as it is."""
        if self.reason is None and self.until is not None and time.time() >= self.until:
            moment = local_time(datetime.fromtimestamp(self.until, UTC))  # with its date: it may have been yesterday's
            self.ask(f"the time given by --until, {moment}, is reached")
        return self.reason is not None

    __bool__ = is_set

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the run must end; return whether it must."""
        end = time.monotonic() + seconds
        while not self.is_set():
            if (left_s := end - time.monotonic()) <= 0:
                return False
            time.sleep(min(left_s, _LOOK_S))
        return True


class SignalStop(StopRequest):
    """Asked by SIGINT, SIGTERM and SIGHUP from the moment a run begins, unless the caller of the process ignores them.

    Rows in flight finish within their deadline, however often a signal comes. What comes after the run asks as well: it
    must not hide how the run ended. For the owner of a process; the main thread must be the one that runs.
    """

    def begin(self) -> None:
        """Let signals ask for an end from now on."""
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.signalled = True
        self.ask(f"stopped by {signal.Signals(number).name}")


@dataclass(slots=True)
class Limits:
    """What ends a call early on purpose, over all files that it sends."""

    rows_max: int | None = None
    started: int = 0
    """Rows begun so far."""

    def allow_row(self) -> bool:
        """Count one more row, unless the limit is reached; return whether it may be begun."""
        if self.rows_max is not None and self.started >= self.rows_max:
            return False
        self.started += 1
        return True


class CircuitBreaker:
    """Stops a run whose answers prove nothing, before many rows are in doubt; shared by all threads of a run.

    One row in doubt is enough while no answer of this run was recognized, whatever the gateway answered to earlier
    ones; after that, the numbers in a row and in all that the settings give.
    """

    def __init__(self, settings: SubmitSettings) -> None:
        self._in_a_row_max = settings.max_in_doubt_in_a_row
        self._in_all_max = settings.max_in_doubt
        self._lock = threading.Lock()
        self._in_a_row = self._in_all = 0
        self.ever_recognized = False
        """Whether this run was given an answer that the profile knows: then more than one row may be in flight."""

    def reason_to_stop(self, outcome: Outcome) -> str | None:
        """Count a row's last outcome; return why the run must not continue, or None."""
        with self._lock:
            if outcome.recognized:
                self.ever_recognized = True
                self._in_a_row = 0
            elif outcome.state is State.IN_DOUBT:
                self._in_a_row += 1
                self._in_all += 1
            in_a_row, in_all = self._in_a_row, self._in_all
        if outcome.stop is not None:
            return outcome.stop
        if outcome.state is _PENDING:
            return outcome.reason
        if not self.ever_recognized:
            return f"the first answer left a row in doubt: {outcome.reason}"
        if in_a_row >= self._in_a_row_max:
            return f"{row_count(in_a_row)} in doubt in a row"
        return f"{row_count(in_all)} in doubt" if in_all >= self._in_all_max else None
