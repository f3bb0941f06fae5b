"""One rate for all runs that send to a gateway: slots are leased in small groups from a source that all of them share.

Each process keeps its own pace (pacing.py) and looks for the limit as if it were alone; the source spaces what all of
them send by the lowest rate that any of them has found, and passes a pause on to the others with their next lease.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any

from batchpay.ledger.contract import SharedRate
from batchpay.outcome import Finding, Pace
from batchpay.sending.pacing import Throttle
from batchpay.settings import SubmitSettings, parse_rate

SLOT_S = 0.01
"""A slot further in the past is given up: a process that was suspended must not send all that it missed immediately."""
TURN_S = 0.1
"""All that share a rate lease slots within this time."""
ASK_AGAIN_S = 0.2
"""How long nothing leaves when the source can't be reached."""
LOOK_S_MOST = 1.0
"""A run that is alone checks at least this often whether it still is: one that slept for the ten seconds from request
to request was not noticed by the others, and did not notice them."""


class SharedThrottle(Throttle):
    """See Throttle; while others send too, each request needs a leased slot as well."""

    def __init__(self, rate: float | None, source: SharedRate, **how: Any) -> None:
        """`how` is as in Throttle."""
        super().__init__(rate, **how)
        self._source = source
        self._slots: deque[float] = deque()
        self._taken: deque[float] = deque()
        """Slots of the last second that were used."""
        self._most: deque[tuple[float, int]] = deque()
        """Within the last second: the last slot of a second, and how many slots that second had; the most first."""
        self._sharers = 1
        self._alone_until = -math.inf

    @classmethod
    def over(
        cls, source: SharedRate, settings: SubmitSettings, stop: threading.Event, start: Finding | None = None
    ) -> SharedThrottle:
        """Build a run's throttle over a source; see Throttle.from_settings."""
        rate, wait_s_max = parse_rate(settings.rate), settings.wait_s_max
        return cls(rate, source, wait_s_max=wait_s_max, sleep=stop.wait, stopped=stop.is_set, start=start)

    def learn(self, pace: Pace | None, sent_at: float) -> None:
        """See Throttle. One answer counts for what the others got too: the finder measures the whole gateway."""
        super().learn(pace, sent_at)
        if self._sharers > 1 and (pace is None or not pace.refused):
            with self._lock:
                for _ in range(self._sharers - 1):
                    self._finder.taken(sent_at, self._clock())

    def _take(self, now: float) -> float:
        if now < self._alone_until:
            return self._take_alone(now)
        while self._slots and self._slots[0] < now - SLOT_S:
            self._slots.popleft()
        if not self._slots:
            lease = self._source.lease(self._finder.rate, max(0.0, self._finder.paused_until - now))
            if lease is None:
                return ASK_AGAIN_S
            now, shared = self._clock(), self._sharers
            self._sharers = lease.sharers
            if not lease.slots:
                if shared > 1:
                    self._go_alone(shared, now)
                self._alone_until = now + lease.every_s
                return self._take_alone(now)
            self._slots.extend(now + lease.first_s + number * lease.every_s for number in range(lease.slots))
        slot = self._slots[0]
        wait_s = slot - now
        if wait_s <= 0:
            wait_s = super()._take(now)
            if wait_s <= 0 or self._held_up_s(now) > 0:  # a slot in which nothing may leave is lost
                self._slots.popleft()
        if wait_s <= 0:
            self._note(slot)
            for _ in range(self._sharers - 1):
                self._finder.left(now)
        return wait_s

    def _take_alone(self, now: float) -> float:
        wait_s = super()._take(now)
        if wait_s <= 0:
            self._note(now)
        return min(wait_s, LOOK_S_MOST)

    def _note(self, moment: float) -> None:
        self._taken.append(moment)
        while self._taken[0] <= moment - 1.0:
            self._taken.popleft()
        while self._most and self._most[-1][1] <= len(self._taken):
            self._most.pop()
        self._most.append((moment, len(self._taken)))
        while self._most[0][0] <= moment - 1.0:
            self._most.popleft()

    def _may_leave_at(self) -> float:
        """See Throttle. No more leave in any second than had their slots in one.

        Runs that write to one ledger wait for each other: what a commit held up would come on top of what others send.
        """
        at, (_, most) = super()._may_leave_at(), self._most[0]
        return max(at, self._left[-most] + 1.0) if self._sharers > 1 and most <= len(self._left) else at

    def _go_alone(self, shared: int, now: float) -> None:
        """Count what the others sent in the last second as well, and make up for no slot that was theirs.

        Slots are leased a few at a time: those of the others are assumed to be as late as they can have been.
        """
        for moments in (self._departures, self._left):
            others = [min(at + TURN_S, now) for at in moments] * (shared - 1)
            together = sorted([*moments, *others])
            moments.clear()
            moments.extend(together)
        self._catches_up = False
