"""Heartbeats: how a run shows other machines that it is alive, and how one of them finds that it stands still.

No other machine's clock counts, and no time in which this machine could not commit itself: what stops all of them, such
as a database that is unreachable, makes none of them dead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from batchpay.errors import LedgerNotUsable, start_thread
from batchpay.ledger import records

BEAT_S = 5.0
"""A run shows this often that it is alive, also while it has nothing to commit."""
LOOK_S = 0.5
"""A machine that wants a run's batch looks this often at its heartbeat."""


class Heartbeat:
    """Beats from a thread of its own, from a run's start to its end: also while it asks the gateway, or waits."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ledger heartbeat", daemon=True)
        start_thread(self._thread)

    def stop(self) -> None:
        """Beat no more, once a beat in progress is done."""
        self._ended.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._ended.wait(BEAT_S):
            with suppress(LedgerNotUsable):  # the run's next commit says it
                self._beat()


class Observer:
    """How long another run's heartbeat has stood still, by this machine's own clock and its own commits."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._beats: int | None = None
        self.stood_s = 0.0

    def look(self, beats: int) -> bool:
        """Record another run's counter, right after a commit of one's own; return whether it has moved since.

        Of a long time without a look only two intervals count: this machine itself may have been suspended.
        """
        now_s = time.monotonic()
        passed_s = 0.0 if self._looked_at is None else min(now_s - self._looked_at, 2 * LOOK_S)
        has_moved = self._beats is not None and beats != self._beats
        self._looked_at, self._beats = now_s, beats
        self.stood_s = 0.0 if has_moved else self.stood_s + passed_s
        return has_moved

    def fail(self) -> None:
        """Leave out the time since the latest look: a commit of one's own failed in it."""
        self._looked_at = None

    @property
    def is_dead(self) -> bool:
        """Whether the run may be fenced."""
        return self.stood_s >= records.LEASE_S
