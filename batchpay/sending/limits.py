"""What ends a run early: a person, a limit given with the command, or answers that prove nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.settings import SubmitSettings
from batchpay.text import local_time, row_count

_LOOK_S = 1.0
"""The clock is read this often: somebody may set it."""
_PENDING = State.PENDING


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
        return self.reason is not None


@dataclass(slots=True)
class Limits:
    """What ends a call early on purpose, over all files that it sends."""

    rows_max: int | None = None
    until: float | None = None
    """Unix time after which no further row is begun."""
    started: int = 0
    """Rows begun so far."""

    def allow_row(self) -> bool:
        """Count one more row, unless the limit is reached; return whether it may be begun."""
        if self.rows_max is not None and self.started >= self.rows_max:
            return False
        self.started += 1
        return True

    def stop_if_too_late(self, stop: StopRequest) -> bool:
        """Set `stop` if the time is over; return whether it is."""
        if self.until is None or time.time() < self.until:
            return False
        moment = local_time(datetime.fromtimestamp(self.until, UTC))  # with its date: it may have been yesterday's
        stop.ask(f"the time given by --until, {moment}, is reached")
        return True

    @contextlib.contextmanager
    def watched(self, stop: StopRequest) -> Iterator[None]:
        """Wrap the sending: set `stop` when the time is over, even if all workers wait a minute for the gateway."""
        if (until := self.until) is None:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(min(_LOOK_S, max(0.0, until - time.time()))):
                if self.stop_if_too_late(stop):
                    return

        watcher = threading.Thread(target=watch, name="until", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


class CircuitBreaker:
    """Stops a run whose answers prove nothing, before many rows are in doubt; shared by all threads of a run.

    One row in doubt is enough while the gateway has never given a recognized answer; after that, the numbers in a row
    and in all that the settings give.
    """

    def __init__(self, settings: SubmitSettings) -> None:
        self._in_a_row_max = settings.max_in_doubt_in_a_row
        self._in_all_max = settings.max_in_doubt
        self._lock = threading.Lock()
        self._in_a_row = self._in_all = 0
        self.ever_recognized = False
        """Whether the gateway has given an answer that the profile knows: then more than one row may be in flight."""

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
