"""The pace of a run: no request leaves faster than the ceiling, nor faster than the gateway shows that it allows.

Requests are spaced evenly (GCRA with a burst of one): however a gateway counts a second, it sees no more than the rate.
Time lost to thread wake-ups is caught up within CATCH_UP_S, but never to more than the rate in any one second.

The limit finder decides that rate, and how long a refusal (429, or 503 with Retry-After) pauses the whole run. After a
pause one request goes alone: while it is refused as well, no other is spent. Runs of one ledger that send to one
gateway each take the same part of the rate, and a pause that the gateway asks one of them for holds for all.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from batchpay.ledger.contract import SharedPace
from batchpay.outcome import Finding, Pace
from batchpay.sending.limit_finder import LimitFinder
from batchpay.sending.limits import StopRequest
from batchpay.settings import SubmitSettings, parse_rate

LOOK_S = 1.0
"""How often a run looks how many share the rate. One that joins others waits for as long, until all have seen it."""
CATCH_UP_S = 0.05
"""At most this much lost time is made up."""
LATE_SHARE, LATE_WEIGHT = 1.5, 0.05
"""Once the gateway has refused a request, two keep their spacing, less this multiple of how late a thread wakes up on
average (of which one more wake-up has this weight): some gateways refuse two that come close together."""
SPACING = 1.0065
"""Requests of one second are spread over this many seconds, since a network bunches what leaves evenly."""
LEAVE_SPACING = 1.003
"""The same at departure: less, so that requests held up once return to their own slots in the following seconds."""
LEAVE_S_MAX = 1.0
"""A request that may leave waits no longer than this for those that were held up before it."""
ALONE_S_MAX = 2.0
"""A request that goes alone holds up the others no longer than this."""
LATE_S = 0.001
"""A request that leaves later than it was to by more than this counts from when it left."""
LOOK_AGAIN_S = 0.001
"""How often to check for an answer that must come first."""
ANNOUNCED_SHARE = 0.98
"""The share used of a limit that the gateway announces in its headers."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """What a progress line shows."""

    rate: float
    """Requests a second allowed now."""
    paused_s: float
    """Seconds until requests resume; 0 when not paused."""


@dataclass(frozen=True, slots=True)
class PaceKept:
    """What a run's pace was at its end."""

    rate: float
    refusals: int
    """How many requests the gateway refused because too many came."""
    concluded: str | None
    """What they show; None if there were none, or a single one, which may have any reason."""
    limit: float | None
    """Requests a second that the gateway takes, if they show that."""

    def __str__(self) -> str:
        times = "once" if self.refusals == 1 else f"{self.refusals:,} times"
        rate = f"{self.rate:,.0f}" if self.rate >= 100 else f"{self.rate:.3g}"
        return f"the gateway asked {times} for a slower pace, at the end {rate} a second: {self.concluded}"


class Throttle:
    """Decides when requests may leave; shared by all threads of a run."""

    def __init__(
        self,
        rate: float | None,
        *,
        wait_s_max: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], bool | None] = time.sleep,
        stopped: Callable[[], bool] = lambda: False,
        start: Finding | None = None,
        shared: SharedPace | None = None,
    ) -> None:
        """`rate` is the ceiling, None for `auto`; `wait_s_max` bounds a pause; `start` is an earlier run's finding.

        `sleep` waits some seconds and returns true when the run is to stop, as `StopRequest.wait` does.
        """
        self._clock, self._sleep, self._stopped, self._shared = clock, sleep, stopped, shared
        self._turnstile = threading.Lock()
        self._lock = threading.Lock()
        now = clock()
        self._finder = LimitFinder(rate, now, wait_s_max=wait_s_max, start=start)
        self._next = now
        """When the next request may leave by its rate alone."""
        self._last = -math.inf
        self._waited_until: float | None = None
        self._late_s = 0.0
        """How late a thread wakes up on average."""
        self._left: deque[float] = deque()
        """When the requests of the last second left."""
        self._alone_since: float | None = None
        self._looked_at: float | None = None
        self._told_until = now

    @classmethod
    def from_settings(
        cls,
        settings: SubmitSettings,
        stop: StopRequest,
        shared: SharedPace | None = None,
        start: Finding | None = None,
    ) -> Throttle:
        """Build a run's throttle, which stops waiting when `stop` is asked for; raises SettingsNotUsable."""
        rate, wait_s_max = parse_rate(settings.rate), settings.wait_s_max
        return cls(rate, wait_s_max=wait_s_max, sleep=stop.wait, stopped=stop.is_set, start=start, shared=shared)

    def acquire(self) -> bool:
        """Wait until a request may leave; return False when the run is to stop.

        One thread at a time waits for the next slot, with the others queued behind it: so a pause or a new rate applies
        to all of them immediately.
        """
        with self._turnstile:
            while not self._stopped():
                self._look()
                with self._lock:
                    wait_s = self._take(self._clock())
                if wait_s <= 0:
                    return True
                if self._sleep(min(wait_s, LOOK_S)):
                    return False
            return False

    def leave(self) -> None:
        """Wait briefly, if needed, right before the first byte.

        Between `acquire` and here a request waits for the ledger's commit. One slow write holds up all requests that
        wait for it, and they would leave bunched: more than the rate in some second.
        """
        with self._lock:
            now, rate = self._clock(), self._finder.rate
            a_second = max(1, math.ceil(rate))
            while len(self._left) > a_second:
                self._left.popleft()
            free_at = self._left[0] + a_second / rate * LEAVE_SPACING if len(self._left) == a_second else now
            moment = min(max(now, free_at), now + LEAVE_S_MAX)
            self._left.append(moment)
            self._finder.left(moment)
        if moment > now:
            self._sleep(moment - now)
            with self._lock, suppress(ValueError):  # more than a second's worth may have left since
                if (left_at := self._clock()) > moment + LATE_S:
                    self._left[self._left.index(moment)] = left_at

    def learn(self, pace: Pace | None, sent_at: float) -> None:
        """Record an answer: what it says about the limit, if anything, and when its request left (on the clock).

        To be called for every answer, including those that say nothing (`pace` None), but not when no answer came.
        """
        asked_s = 0.0
        with self._lock:
            now = self._clock()
            if pace is not None and pace.refused:
                self._finder.refused(sent_at, now, pace.asked_s)
                if pace.asked_s and self._finder.paused_until > self._told_until + LOOK_S / 2:
                    self._told_until = self._finder.paused_until
                    asked_s = self._told_until - now
            else:
                self._finder.taken(sent_at, now)
            if pace is not None and pace.limit is not None and pace.window_s is not None:
                self._finder.limit_to(pace.limit / pace.window_s * ANNOUNCED_SHARE, now)
        if asked_s > 0 and self._shared is not None:
            self._shared.pause(asked_s)

    def state(self) -> ThrottleState:
        """Return the rate allowed now, and how long a pause lasts."""
        with self._lock:
            return ThrottleState(self._finder.rate, max(0.0, self._finder.paused_until - self._clock()))

    def runs(self) -> int:
        """Return how many runs share the rate, this one included."""
        return self._finder.runs

    def told(self) -> PaceKept:
        """Return what the pace was and what the gateway's refusals show."""
        with self._lock:
            finder, found = self._finder, self._finder.finding()
            if found is None:
                concluded = "that shows no limit" if finder.refusals > 1 else None
                return PaceKept(finder.rate, finder.refusals, concluded, None)
            if found.refused_share is not None:
                return PaceKept(finder.rate, finder.refusals, f"the gateway refused {found}", None)
            faster = f"the gateway refused requests faster than {found}"
            return PaceKept(finder.rate, finder.refusals, faster, round(found.rate, 2))

    def to_remember(self) -> Finding | None:
        """Return where the next run should begin; None if this one learned nothing about that."""
        with self._lock:
            return self._finder.to_remember()

    def _look(self) -> None:
        """Look, about once a second, how many runs share the rate, and whether one was asked to wait."""
        if self._shared is None or (self._looked_at is not None and self._clock() < self._looked_at + LOOK_S):
            return
        seen = self._shared.look()
        with self._lock:
            now, joins, self._looked_at = self._clock(), self._looked_at is None, self._clock()
            if seen is None:
                return
            if seen.paused_s > 0:
                self._told_until = max(self._told_until, now + seen.paused_s)
                self._finder.pause(seen.paused_s, now)
            if seen.runs != self._finder.runs:
                self._finder.share(seen.runs)
                if joins:
                    self._finder.pause(1.2 * LOOK_S, now)

    def _take(self, now: float) -> float:
        """Take the next slot if it has come and return 0, else return the seconds until something may leave."""
        finder = self._finder
        is_lost = self._alone_since is None or now - self._alone_since >= ALONE_S_MAX
        if now < finder.paused_until or (finder.alone and not is_lost):
            self._next, self._waited_until = max(self._next, now), None  # what a pause lost is not made up
            if now >= finder.paused_until:
                return LOOK_AGAIN_S
            self._alone_since = None
            return finder.paused_until - now
        spacing_s = SPACING / finder.rate
        # A slot that was set at a lower rate comes no later than one at this rate would.
        self._next = min(max(self._next, now - CATCH_UP_S), now + spacing_s)
        allowed_at = self._next
        if finder.refusals:
            allowed_at = max(allowed_at, self._last + spacing_s - LATE_SHARE * self._late_s)
        if allowed_at > now:
            self._waited_until = allowed_at
            return allowed_at - now
        if self._waited_until is not None:
            self._late_s += (now - self._waited_until - self._late_s) * LATE_WEIGHT
            self._waited_until = None
        self._next, self._last = self._next + spacing_s, now
        self._alone_since = now if finder.alone else None
        return 0.0
