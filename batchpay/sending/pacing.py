"""The pace of a run: no request leaves faster than the ceiling, nor faster than the gateway shows that it allows.

Requests are spaced evenly (GCRA with a burst of one): however a gateway counts a second, it sees no more than the rate.
Time lost to thread wake-ups is caught up within CATCH_UP_S, but never to more than the rate in any one second.

The limit finder decides that rate, and how long a refusal (429, or 503 with Retry-After) pauses the whole run. After a
pause one request goes alone: while it is refused as well, no other is spent.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from batchpay.outcome import Finding, Pace
from batchpay.sending.limit_finder import LimitFinder
from batchpay.settings import SubmitSettings, parse_rate

CATCH_UP_S = 0.05
"""At most this much lost time is made up."""
WINDOW_MARGIN = 1.0065
"""Requests of one second are spread over this many seconds, since a network bunches what leaves evenly."""
LEAVE_MARGIN = 1.003
"""The same at departure: less, so that requests held up once return to their own slots in the following seconds."""
LEAVE_S_MAX = 1.0
"""A request that may leave waits no longer than this for those that were held up before it."""
ALONE_S_MAX = 2.0
"""A request that goes alone holds up the others no longer than this."""
LATE_S = 0.001
"""A request that leaves later than it was to by more than this counts from when it left."""
LOOK_AGAIN_S = 0.001
"""How often to check for an answer that must come first."""
LATE_SHARE = 1.5
"""Two requests keep their spacing, less this multiple of how late a thread wakes up on average: lost time is made up,
but not by two requests at the same time, which some gateways refuse."""
LATE_WEIGHT = 0.05
"""Weight of one more wake-up in that average."""
FIRST_REQUESTS = 3
FIRST_SHARE = 1.7
FIRST_S_MAX = 1.0
"""A run begins with this many requests, and each answer lets FIRST_SHARE more leave, for a second at most: one that
begins far above the limit would have dozens refused before the first answer is back."""
ANNOUNCED_SHARE = 0.98
"""The share used of a limit that the gateway announces in its headers."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """What a progress line shows."""

    rate: float
    """Requests a second allowed now."""
    paused_s: float
    """Seconds until requests resume; 0 when not paused."""


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
    ) -> None:
        """`rate` is the ceiling, None for `auto`; `wait_s_max` bounds a pause; `start` is an earlier run's finding.

        `sleep` waits some seconds and returns true when the run is to stop, as `threading.Event.wait` does.
        """
        self._clock = clock
        self._sleep = sleep
        self._stopped = stopped
        self._turnstile = threading.Lock()
        self._lock = threading.Lock()
        now = clock()
        self._finder = LimitFinder(rate, now, wait_s_max=wait_s_max, start=start)
        self._began = now
        self._next = now
        """When the next request may leave by its rate alone."""
        self._rate = self._finder.rate
        self._catches_up = True
        self._last = -math.inf
        self._departures: deque[float] = deque()
        self._left: deque[float] = deque()
        self._sent = 0
        self._answered = 0
        self._alone_since: float | None = None
        self._late_s = 0.0
        """How late a thread wakes up on average."""
        self._waited_until: float | None = None

    @classmethod
    def from_settings(cls, settings: SubmitSettings, stop: threading.Event) -> Throttle:
        """Build a run's throttle, which stops waiting when `stop` is set; raises SettingsNotUsable."""
        rate = parse_rate(settings.rate)
        return cls(rate, wait_s_max=settings.wait_s_max, sleep=stop.wait, stopped=stop.is_set)

    def acquire(self) -> bool:
        """Wait until a request may leave; return False when the run is to stop.

        One thread at a time waits for the next slot, with the others queued behind it: so a pause or a new rate applies
        to all of them immediately.
        """
        with self._turnstile:
            if self._stopped():
                return False
            while True:
                with self._lock:
                    wait_s = self._take(self._clock())
                if wait_s <= 0:
                    return True
                if self._sleep(wait_s):
                    return False

    def leave(self) -> None:
        """Wait briefly, if needed, right before the first byte.

        Between `acquire` and here a request waits for the ledger's commit. One slow write holds up all requests that
        wait for it, and they would leave bunched: more than the rate in some second.
        """
        with self._lock:
            now = self._clock()
            moment = min(max(now, self._may_leave_at()), now + LEAVE_S_MAX)
            self._left.append(moment)
            if moment <= now:
                self._note_departure(moment, now)
                return
        self._sleep(moment - now)
        with self._lock:
            self._note_departure(moment, self._clock())

    def _note_departure(self, planned_at: float, left_at: float) -> None:
        """Record when a request really leaves: a thread may wake up late, and others must keep clear of that moment."""
        if left_at > planned_at + LATE_S:
            with suppress(ValueError):  # more than a second's worth may have left since
                self._left[self._left.index(planned_at)] = left_at

    def _may_leave_at(self) -> float:
        """Return when the second ends in which as many left as the rate allows."""
        rate = self._finder.rate
        return _second_ends(self._left, rate, LEAVE_MARGIN) if len(self._left) >= rate else -math.inf

    def learn(self, pace: Pace | None, sent_at: float) -> None:
        """Record an answer: what it says about the limit, if anything, and when its request left (on the clock).

        To be called for every answer, including those that say nothing (`pace` None), but not when no answer came.
        """
        with self._lock:
            now = self._clock()
            self._answered += 1
            if pace is not None and pace.refused:
                asked_s = pace.reset_s if pace.retry_after_s is None else pace.retry_after_s
                self._finder.refused(sent_at, now, asked_s)
            else:
                self._finder.taken(sent_at, now)
            if pace is not None and pace.limit is not None and pace.window_s is not None:
                self._finder.limit_to(pace.limit / pace.window_s * ANNOUNCED_SHARE, now)

    def state(self) -> ThrottleState:
        """Return the rate allowed now, and how long a pause lasts."""
        with self._lock:
            return ThrottleState(self._finder.rate, max(0.0, self._finder.paused_until - self._clock()))

    def finding(self) -> Finding | None:
        """Return what was found out about the gateway's limit; None while it refused nothing."""
        with self._lock:
            return self._finder.finding()

    def to_remember(self) -> Finding | None:
        """Return where the next run should begin; None if this one learned nothing about that."""
        with self._lock:
            return self._finder.to_remember()

    def _take(self, now: float) -> float:
        """Take the next slot if it has come and return 0, else return the seconds until it comes."""
        finder = self._finder
        held_up_s = self._held_up_s(now)
        if held_up_s > 0:
            self._catches_up = not finder.was_refused
            return held_up_s
        rate = finder.rate
        if rate > self._rate or not self._catches_up:  # lost time is made up only at the rate at which it was lost
            self._next = max(self._next, now)
        self._rate, self._catches_up = rate, True
        allowed_at = self._next
        if finder.was_refused:
            allowed_at = max(allowed_at, self._last + 1 / rate - LATE_SHARE * self._late_s)
        if len(self._departures) >= rate:
            allowed_at = max(allowed_at, _second_ends(self._departures, rate, WINDOW_MARGIN))
        if allowed_at > now:
            self._waited_until = allowed_at
            return allowed_at - now
        if self._waited_until is not None:
            self._late_s += (now - self._waited_until - self._late_s) * LATE_WEIGHT
            self._waited_until = None
        self._next = max(self._next, now - CATCH_UP_S) + 1 / rate
        self._last = now
        self._departures.append(now)
        finder.left(now)
        self._alone_since = now if finder.alone else None
        self._sent += 1
        return 0.0

    def _held_up_s(self, now: float) -> float:
        """Return the seconds until the next check, if nothing may leave now: a pause, or a request that goes alone."""
        finder = self._finder
        if now < finder.paused_until:
            self._alone_since = None
            return finder.paused_until - now
        if finder.alone and self._alone_since is not None and now - self._alone_since < ALONE_S_MAX:
            return LOOK_AGAIN_S
        if self._sent - FIRST_SHARE * self._answered >= FIRST_REQUESTS and now - self._began < FIRST_S_MAX:
            return LOOK_AGAIN_S
        return 0.0


def _second_ends(moments: deque[float], rate: float, margin: float) -> float:
    """Return when the second ends in which as many left as a rate allows, spread by a margin; forget those before it.

    There must be at least as many moments as the rate.
    """
    a_second = max(1, math.ceil(rate))
    while len(moments) > a_second:
        moments.popleft()
    return moments[0] + a_second / rate * margin
