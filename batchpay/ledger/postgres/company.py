"""The other runs of a batch, as one of them sees them: its own heartbeats, and which show no progress for too long.

No other machine's clock counts, and no time in which this machine could not write itself: what stops all of them, such
as a database that is unreachable, makes none of them dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchpay.ledger.hosts import Shared

LEASE_S = 30.0
"""How long another run sees no progress of a run before it shuts that run out."""
BEAT_S = 5.0
"""A run that has nothing to commit shows this often that it is alive, and checks the others."""


class Observer:
    """How long other runs have shown no progress, by this machine's own clock."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._looked_at: float | None = None
        self._seen: dict[int, tuple[int, float]] = {}

    def look(self, beats: Mapping[int, int]) -> list[tuple[int, int]]:
        """Record others' counters, right after this run's own heartbeat; return which are dead, and at which count.

        Of a long time without a check only two heartbeat intervals count: this machine itself may have been suspended.
        """
        now = time.monotonic() if self._clock is None else self._clock()
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, 2 * BEAT_S)
        self._looked_at = now
        before = self._seen
        self._seen = {
            run: (count, before[run][1] + passed if run in before and before[run][0] == count else 0.0)
            for run, count in beats.items()
        }
        return [(run, count) for run, (count, stood_s) in self._seen.items() if stood_s >= LEASE_S]

    def fail(self) -> None:
        """Leave out the time since the latest check: a heartbeat of this run's own failed in it."""
        self._looked_at = None


class RunCompany:
    """See contract.Company: what one run tells the others of its batch, and learns from them."""

    def __init__(self, *, leads: bool, beat: Callable[[bool], None], at_work: Callable[[], bool]) -> None:
        self.leads = leads
        self.shared = Shared()
        self.beat_every_s = BEAT_S
        self.others_busy = True
        self.observer = Observer()
        self._beat = beat
        self._at_work = at_work
        self._when_idle: dict[int, int] = {}
        """The counters that idle others had when this run no longer had a row in progress."""
        self._stop: str | None = None
        self._shares = False

    def share(self) -> None:
        """Let others claim rows, from the next commit or heartbeat on."""
        self._shares = True

    def tell(self, stop: str) -> None:
        """Make all runs of the batch stop, from the next commit or heartbeat on."""
        self._stop = self._stop or stop

    def take(self) -> tuple[str | None, bool]:
        """Return what is to be told to the others, once."""
        told = self._stop, self._shares
        self._stop, self._shares = None, False
        return told

    def at_work(self) -> bool:
        """See contract.Company."""
        return self.others_busy or self._at_work()

    def work(self, rows: Sequence[int]) -> None:
        """Record rows in progress: idle others must show a new heartbeat before this run leaves them."""
        if rows:
            self._when_idle.clear()

    def look(self, others: Sequence[tuple[int, int, bool]], *, is_idle: bool) -> list[tuple[int, int]]:
        """Record the others' counters, and whether they are idle; return which are dead, and at which count.

        One that is idle counts as busy until its counter has moved while this run was idle too: it may be dead.
        """
        known = self._when_idle
        self._when_idle = {
            run: known.get(run, beats) for run, beats, idle in others if idle and (is_idle or run in known)
        }
        self.others_busy = any(beats == self._when_idle.get(run, beats) for run, beats, _ in others)
        return self.observer.look({run: beats for run, beats, _ in others})

    def hear(self, shared: tuple[Any, ...] | None) -> None:
        """Record what the batch's row says."""
        if shared is not None:
            self.shared = Shared(*shared)

    def beat(self, *, is_idle: bool = False) -> None:
        """See contract.Company."""
        self._beat(is_idle)
