"""One rate for all runs that send to a gateway: slots are leased in small groups from a source that all of them share.

Each process keeps its own pace (pacing.py) and looks for the limit as if it were alone; the source spaces what all of
them send by the lowest rate that any of them has found, and passes a pause on to the others with their next lease.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections import deque
from typing import Any

from batchpay.ledger.contract import SharedRate
from batchpay.ledger.records import Lease
from batchpay.outcome import Finding, Pace
from batchpay.sending.pacing import LATE_WEIGHT, LEAVE_S_MAX, WINDOW_MARGIN, Throttle
from batchpay.settings import SubmitSettings, parse_rate

SLOT_S = 0.01
"""A slot further in the past is given up: a process that was suspended must not send all that it missed immediately."""
TURN_S = 0.1
"""All that share a rate lease slots within this time."""
ASK_AGAIN_S = 0.2
"""How long nothing leaves when the source can't be reached."""
LATE_SLOT_S = WINDOW_MARGIN - 1
"""A request that leaves later after its slot than usual, by more than this, comes on top of those a second later."""
LOOK_S_MOST = 1.0
"""A run that is alone checks at least this often whether it still is: one that slept for the ten seconds from request
to request was not noticed by the others, and did not notice them."""


class _Most:
    """The most of the numbers that were noted within the last second."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, int]] = deque()

    @property
    def number(self) -> int:
        """The most, 0 if there is none; `forget` first where time has passed since the last one."""
        return self._kept[0][1] if self._kept else 0

    def add(self, at: float, number: int) -> None:
        """Note a number; a smaller one before it no longer matters."""
        while self._kept and self._kept[-1][1] <= number:
            self._kept.pop()
        self._kept.append((at, number))
        self.forget(at)

    def forget(self, now: float) -> None:
        """Forget what is a second old."""
        while self._kept and self._kept[0][0] <= now - 1.0:
            self._kept.popleft()


class SharedThrottle(Throttle):
    """See Throttle; while others send too, each request needs a leased slot as well."""

    def __init__(self, rate: float | None, source: SharedRate, **how: Any) -> None:
        """`how` is as in Throttle."""
        super().__init__(rate, **how)
        self._source = source
        self._slots: deque[float] = deque()
        self._taken: deque[float] = deque()
        """Slots of the last second that were used."""
        self._most = _Most()
        """By slots that were used: how many slots the second had that ended with each."""
        self._own = threading.local()
        """`slot`: the one that the calling thread's request has."""
        self._usual_wait_s = LEAVE_S_MAX
        """From a slot to its request's departure, nearly the least of late: a wait that all have does no harm."""
        self._late: list[float] = []
        """When requests left late, of the last second or two."""
        self._owed = _Most()
        """By departures: how many slots are owed for the requests that left late together."""
        self._given_up: deque[float] = deque()
        """Of the last second: when a slot was given up."""
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
            self._give_up_slot(now)
        self._make_up_for_late(now)
        while not self._slots:
            lease = self._source.lease(self._finder.rate, max(0.0, self._finder.paused_until - now))
            if lease is None:
                return ASK_AGAIN_S
            now = self._clock()
            self._hear(lease, now)
            if not lease.slots:
                return self._take_alone(now)
        wait_s = self._slots[0] - now
        return wait_s if wait_s > 0 else self._take_slot(now)

    def _hear(self, lease: Lease, now: float) -> None:
        """Take over the slots of a lease, or that this run is alone."""
        shared, self._sharers = self._sharers, lease.sharers
        if not lease.slots:
            if shared > 1:
                self._go_alone(shared, now)
            self._alone_until = now + lease.every_s
            return
        if shared == 1:
            self._join(now)
        self._slots.extend(now + lease.first_s + number * lease.every_s for number in range(lease.slots))
        self._make_up_for_late(now)

    def _take_slot(self, now: float) -> float:
        """Use the slot that has come and return 0, else return the seconds until something may leave."""
        wait_s = super()._take(now)
        if wait_s <= 0:
            self._note(self._slots.popleft())
            for _ in range(self._sharers - 1):
                self._finder.left(now)
        elif self._held_up_s(now) > 0:
            self._give_up_slot(now)
        return wait_s

    def _take_alone(self, now: float) -> float:
        wait_s = super()._take(now)
        if wait_s <= 0:
            self._note(now)
        return min(wait_s, LOOK_S_MOST)

    def _give_up_slot(self, now: float) -> None:
        self._slots.popleft()
        self._given_up.append(now)

    def _make_up_for_late(self, now: float) -> None:
        """Give up as many slots as requests left late together within the last second.

        What a commit held up leaves in seconds that have all their slots: without this, two runs whose ledger's disk
        stands still now and then send more than the rate in each of them.
        """
        while self._given_up and self._given_up[0] <= now - 1.0:
            self._given_up.popleft()
        self._owed.forget(now)
        while self._slots and len(self._given_up) < self._owed.number:
            self._give_up_slot(now)

    def _note_departure(self, planned_at: float, left_at: float) -> None:
        super()._note_departure(planned_at, left_at)
        wait_s = left_at - self._own.slot
        self._usual_wait_s = min(wait_s, self._usual_wait_s + (wait_s - self._usual_wait_s) * LATE_WEIGHT)
        usual_at = self._own.slot + self._usual_wait_s
        if left_at <= usual_at + LATE_SLOT_S:
            return
        self._late.append(left_at)
        if self._late[0] <= left_at - 2.0:
            del self._late[: bisect_right(self._late, left_at - 1.0)]
        self._owed.add(left_at, len(self._late) - bisect_right(self._late, usual_at))

    def _join(self, now: float) -> None:
        """Owe slots for what left closer together than the rate within the last second: others have slots in it."""
        every_s = WINDOW_MARGIN / self._finder.rate
        bunched = (len(self._left) - at - (now - moment) / every_s for at, moment in enumerate(self._left))
        self._owed.add(now, math.floor(max(bunched, default=0)))

    def _note(self, moment: float) -> None:
        self._own.slot = moment
        self._taken.append(moment)
        while self._taken[0] <= moment - 1.0:
            self._taken.popleft()
        self._most.add(moment, len(self._taken))

    def _may_leave_at(self) -> float:
        """See Throttle. No more leave in any second than had their slots in one.

        Runs that write to one ledger wait for each other: what a commit held up would come on top of what others send.
        """
        at, most = super()._may_leave_at(), self._most.number
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
