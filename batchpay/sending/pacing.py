"""The pace of a run: no request leaves faster than the ceiling, nor faster than the gateway shows that it allows.

Requests are spaced evenly (GCRA with a burst of one): a gateway that counts a second in whatever way sees no more than
the rate. What thread wake-ups lose is caught up within CATCH_UP_S, but never to more than the rate in any one second.

Refusals (429, or 503 with Retry-After) pause the whole run and lower the rate, once for each congestion: requests that
were under way at the time tell nothing new. Afterwards the rate returns by itself. Without a ceiling (`auto`) the rate
doubles every second until the first refusal. Between two refusals the gateway's own allowance was used up: so the
number of requests it took in between, over the time between, is its limit, and the rate goes just below that.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from batchpay.errors import SettingsNotUsable
from batchpay.payment import Pace
from batchpay.settings import SubmitSettings

AUTO = "auto"
CATCH_UP_S = 0.05
"""So much of lost time is made up for."""
WINDOW_MARGIN = 1.0065
"""Requests of one second are spread over so many seconds, since a network bunches what leaves evenly."""
LEAVE_MARGIN = 1.003
"""The same where they leave: less, so that those held up once come back to their own moments in the seconds after."""
LEAVE_S_MAX = 1.0
"""A request that may leave waits no longer than this for those that were held up before it."""
SEEK_RATE = 20.0
"""Where `auto` begins."""
RATE_LEAST = 0.1
RATE_MOST = 20_000.0
PAUSE_S = 0.2
"""Pause after a refusal that names none; doubled while nothing but refusals come."""
RETURN_SHARE = 0.9
RETURN_S = 3.0
"""After a refusal the rate begins at this share of what the gateway seems to allow, and is back there so much later."""
PROBE_S = 90.0
"""Seconds on the plateau until the rate is 5 % above it."""
SETTLED_S = 10.0
"""Refusals further apart than this say the same by each measure."""
WINDOW_SHARE = 0.965
"""So much of what a gateway took in the second before it refused is used: a busy machine or network bunches what
leaves evenly by a few hundredths of a second, and a refusal costs more than the share left over."""
STEP_DOWN = 0.985
"""Share of a rate that was taken for a while which is used after it was refused once."""
SAME_COUNT = 0.055
"""Counts of a second that differ by this share are alike."""
COUNT_LEAST = 10
"""Fewer requests in a second measure nothing."""
ANNOUNCED_SHARE = 0.98
"""Share of a limit that the gateway announces in its headers which is used."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """What a progress line shows."""

    rate: float
    """Requests a second allowed now."""
    paused_s: float
    """Seconds until requests go on; 0 when they do."""


def parse_rate(text: str) -> float | None:
    """Read the setting submit.rate: requests a second, or None for `auto`; raises SettingsNotUsable."""
    if text.strip().lower() == AUTO:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not RATE_LEAST <= rate <= RATE_MOST:
        raise SettingsNotUsable(f"submit.rate must be a number from {RATE_LEAST:g} to {RATE_MOST:g}, or {AUTO}")
    return rate


@dataclass(frozen=True, slots=True)
class _Return:
    """The rate's way back after a refusal: soon to the plateau, long there, then up ever faster (as TCP CUBIC's)."""

    plateau: float
    start: float
    since: float

    def rate_at(self, now: float) -> float:
        elapsed_s = max(0.0, now - self.since)
        if elapsed_s < RETURN_S:
            return self.plateau - (self.plateau - self.start) * (1 - elapsed_s / RETURN_S) ** 3
        return self.plateau * (1 + 0.05 * ((elapsed_s - RETURN_S) / PROBE_S) ** 3)


class Throttle:
    """Gives out the moments at which requests may leave; shared by all threads of a run."""

    def __init__(
        self,
        rate: float | None,
        *,
        wait_s_max: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], bool | None] = time.sleep,
    ) -> None:
        """`rate` is the ceiling, None for `auto`; `wait_s_max` bounds a pause, whatever the gateway asks.

        `sleep` waits some seconds and returns true when the run is to stop: `threading.Event.wait` does just that.
        """
        self._ceiling = RATE_MOST if rate is None else rate
        self._rate = SEEK_RATE if rate is None else rate
        self._seeking = rate is None
        self._wait_s_max = wait_s_max
        self._clock = clock
        self._sleep = sleep
        self._turnstile = threading.Lock()
        self._lock = threading.Lock()
        now = clock()
        self._next = now
        self._paused_until = now
        self._departures: deque[float] = deque()
        self._left: deque[float] = deque()
        self._return: _Return | None = None
        """How the rate comes back from the last refusal; None before the first."""
        self._congested_at = -math.inf
        self._counting_since = now
        self._taken = 0
        self._saves_up = False
        """Whether the gateway may be one that saves up unused allowance."""
        self._counted = 0
        """Requests in the second before the last refusal."""
        self._refusals_alone = 0
        self._grown_at = now

    @classmethod
    def from_settings(cls, settings: SubmitSettings, stop: threading.Event) -> Throttle:
        """Build a run's throttle, which gives way when `stop` is set; raises SettingsNotUsable."""
        return cls(parse_rate(settings.rate), wait_s_max=settings.wait_s_max, sleep=stop.wait)

    def acquire(self) -> bool:
        """Wait until a request may leave; False when the run is to stop.

        One thread at a time waits for the next moment, the others behind it: so a pause or a new rate holds for all of
        them at once.
        """
        with self._turnstile:
            if self._sleep(0.0):
                return False
            while True:
                with self._lock:
                    wait_s = self._take(self._clock())
                if wait_s <= 0:
                    return True
                if self._sleep(wait_s):
                    return False

    def leave(self) -> None:
        """Wait a moment, if need be, right before the first byte.

        Between `acquire` and here a request waits for the ledger's commit. A disk that is slow for once holds up all
        that wait for it, and they would leave bunched: in some second more than the rate.
        """
        with self._lock:
            now = self._clock()
            a_second = max(1, math.ceil(self._rate))
            while len(self._left) > a_second:
                self._left.popleft()
            moment = now
            if len(self._left) == a_second:
                spread = self._left[0] + a_second / self._rate * LEAVE_MARGIN
                moment = min(max(now, spread), now + LEAVE_S_MAX)
            self._left.append(moment)
        if moment > now:
            self._sleep(moment - now)

    def learn(self, pace: Pace | None, sent_at: float) -> None:
        """Take in an answer: what it says about the limit, if anything, and when its request left (on the clock).

        To be called for every answer, the plain ones too (`pace` None), and not where no answer came.
        """
        with self._lock:
            now = self._clock()
            if pace is not None and pace.refused:
                self._refused(pace, sent_at, now)
            else:
                self._taken += 1
                self._refusals_alone = 0
                self._grow(now)
            if pace is not None:
                self._heed(pace)

    def state(self) -> ThrottleState:
        """Tell the rate allowed now, and how long a pause lasts."""
        with self._lock:
            return ThrottleState(self._rate, max(0.0, self._paused_until - self._clock()))

    def _take(self, now: float) -> float:
        """Take the next moment if it has come and return 0, else return the seconds until it comes."""
        if now < self._paused_until:
            return self._paused_until - now
        a_second = max(1, math.ceil(self._rate))
        while len(self._departures) > a_second:
            self._departures.popleft()
        allowed_at = self._next
        if len(self._departures) == a_second:
            allowed_at = max(allowed_at, self._departures[0] + a_second / self._rate * WINDOW_MARGIN)
        if allowed_at > now:
            return allowed_at - now
        self._next = max(self._next, now - CATCH_UP_S) + 1 / self._rate
        self._departures.append(now)
        return 0.0

    def _refused(self, pace: Pace, sent_at: float, now: float) -> None:
        """Pause, and lower the rate unless this request was under way when it was lowered last."""
        asked_s = pace.reset_s if pace.retry_after_s is None else pace.retry_after_s
        if sent_at <= self._congested_at:
            if asked_s is not None:
                self._pause(asked_s, now)
            return
        self._refusals_alone += 1
        patience_s = PAUSE_S * 2.0 ** min(self._refusals_alone - 1, 16)
        if asked_s is None or self._refusals_alone > 1:
            asked_s = max(asked_s or 0.0, patience_s)
        self._pause(asked_s, now)
        plateau = min(self._ceiling, max(self._estimate(sent_at, now), self._rate / 2, RATE_LEAST))
        self._return = _Return(plateau, max(RATE_LEAST, plateau * RETURN_SHARE), self._paused_until)
        self._rate = self._return.rate_at(now)
        self._seeking = False
        self._congested_at = self._counting_since = now
        self._taken = 0

    def _estimate(self, sent_at: float, now: float) -> float:
        """Requests a second that the gateway seems to allow, a little below.

        What left in the second before the refused request was one too many for a gateway that counts seconds; it is the
        same each time, whatever the rate. A gateway that saves up unused allowance took some of it from there, and
        refuses what is below that on the way back; over the whole time since the last refusal, when it had none left
        either, no more than its limit can have been taken. Soon after a refusal the two differ, and the truth is
        between them; later they are alike. A gateway that refuses a rate which it took for a while has seen requests
        bunched: a step down is enough.
        """
        last_second = sum(1 for departure in self._departures if sent_at - 1.0 <= departure < sent_at)
        if last_second < COUNT_LEAST:
            return self._rate * 0.75
        alike = abs(last_second - self._counted) <= SAME_COUNT * last_second
        self._counted = last_second
        since_s = now - self._counting_since
        if self._return is None:
            return last_second * WINDOW_SHARE
        if since_s >= SETTLED_S:
            self._saves_up = False
            return max(last_second * WINDOW_SHARE, self._return.plateau * STEP_DOWN)
        if not self._saves_up and self._rate >= self._return.plateau * 0.99:
            self._saves_up = True  # if that does not help for a while
            return self._return.plateau * STEP_DOWN
        self._saves_up = not alike
        if alike:
            return last_second * WINDOW_SHARE
        return math.sqrt(last_second * self._taken / max(since_s, 1e-3)) * 0.97

    def _pause(self, seconds: float, now: float) -> None:
        self._paused_until = max(self._paused_until, now + min(seconds, self._wait_s_max))

    def _grow(self, now: float) -> None:
        """Raise the rate for the time gone by: doubling every second while seeking, else on the way of return."""
        if self._seeking:
            self._rate = min(self._ceiling, self._rate * 2.0 ** (now - self._grown_at))
        elif self._return is not None:
            self._rate = min(self._ceiling, self._return.rate_at(now))
        self._grown_at = now

    def _heed(self, pace: Pace) -> None:
        """Go by a limit that the gateway announces."""
        if pace.limit is not None and pace.window_s is not None:
            self._ceiling = max(RATE_LEAST, min(self._ceiling, pace.limit / pace.window_s * ANNOUNCED_SHARE))
            self._rate = self._ceiling if self._seeking else min(self._rate, self._ceiling)
            self._seeking = False
