"""Finding a gateway's limit: a pure function of what left, what was taken and what was refused. No clock, no thread.

Two kinds of limits need two ways. A *rate* (a token bucket of any size, so many in any second or in a second of the
clock, a least distance) is bracketed: the highest rate that held for a while, and the lowest one that was refused; the
finder tries a rate between the two, waits longer before each further try, and settles just under the lower one. A
*quota* (so many a minute or an hour) shows by refusals that last: there it waits until the quota opens, learns how much
was taken from one opening to the next, and spreads that over the window.

What it can't tell apart it need not: each kind gets the evenly spaced rate under which it refuses nothing.
"""

from __future__ import annotations

import math
from collections import deque

from batchpay.outcome import Finding
from batchpay.settings import RATE_LEAST, RATE_MOST

SEEK_RATE = 20.0
"""Where the search begins without a ceiling; doubled every second until the first refusal."""
WINDOW_SHARE = 0.98
"""So much of what a gateway took in a second is used, since networks bunch what left evenly."""
COUNT_LEAST = 10
"""Fewer requests in a second measure nothing."""
SAME_COUNT = 0.025
"""Counts of a second that differ by this share are equal."""

FIRST_PAUSE_S = 0.2
PAUSE_REQUESTS = 2
"""Pause after a refusal that names none: so long, or as long as so many requests take; doubled while refusals go on."""
PAUSE_S_MOST_FIRST = 2.0
"""Where the first pause was too short, the next refusal's is as long as was needed, up to this."""

QUICK_S = 8.0
"""A rate that is refused so soon was well too high: by STEP at least, doubled while refusals stay quick."""
STEP = 0.03
STEP_MOST = 0.4
SETTLED_STEP = 0.015
"""A rate that held for longer is left by this share."""
SERIES_S = 1.5
"""From so long a series of quick refusals on, what was taken in it says more than a step."""

FIRST_HOLD_S = 40.0
HOLD_S = 4.0
"""A rate that was taken for so long holds, and the next higher one is tried; the very first one is given longer, since
a try that fails costs a pause."""
HOLD_S_MOST = 80.0
"""After each try that fails the next one waits twice as long, up to this."""
CLOSE_SHARE = 0.025
"""Where the rate that holds and the one that was refused are as near as this, there is nothing left to find."""
SETTLED_S = 45.0
"""Then it stays there for so long, and looks whether the limit was raised."""
PROBE_STEP = 0.02
"""It goes up by this share, doubled as long as that holds."""

QUOTA_S = 3.0
"""Refusals that last longer than this mean a quota."""
QUOTA_SHARE = 0.99
QUOTA_AHEAD = 1.5
"""Until its window is known, this multiple of the pace that the first one allowed: it must be used up once more."""
WINDOWS_S = (10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 86_400.0)
"""Windows that gateways have: where one fits what was measured, it is that one."""
ASK_AGAIN_S = 1.0
CLOSED_SHARE = 0.25
"""While a quota is used up, one request asks again after this share of the time it has been so, or so many seconds."""


class LimitFinder:
    """The rate that may be used now, and how long a pause lasts, out of what left and what became of it.

    Times are seconds on one clock. The caller keeps calls in turn.
    """

    def __init__(
        self, ceiling: float | None, now: float, *, wait_s_max: float = 60.0, start: Finding | None = None
    ) -> None:
        """`ceiling` is a rate that is never exceeded, None for none; `wait_s_max` bounds a pause.

        `start` is what an earlier run found: where this one begins, to be found out anew.
        """
        self.ceiling = RATE_MOST if ceiling is None else ceiling
        self.rate = SEEK_RATE if ceiling is None else ceiling
        self.paused_until = now
        self.alone = False
        """Whether one request goes alone, to ask whether the gateway takes requests again."""
        self._wait_s_max = wait_s_max
        self._seeking = ceiling is None
        self._grown_at = now
        # What left and what became of it
        self._left: deque[float] = deque()
        """Moments of the last seconds at which a request left."""
        self._left_since_pause = 0
        self._taken = 0
        self._cut_at = -math.inf
        """When the rate was lowered last: what left before tells nothing new."""
        self._refused_at: float | None = None
        """When the request left that was refused last, of those that count."""
        self._refused_alone = 0
        self._first_pause_s = FIRST_PAUSE_S
        self._series: tuple[float, int] | None = None
        """The first of a series of quick refusals: when it left, and what had been taken in all by then."""
        self._counted = (0, 0.0)
        """Requests in the second before the last refusal, and the rate then."""
        # The bracket
        self._held: float | None = None
        """The highest rate that held."""
        self._failed: float | None = None
        """The lowest rate that was refused."""
        self._since = now
        """When the present rate was taken up."""
        self._hold_s = FIRST_HOLD_S
        self._hold_after_failure_s = HOLD_S * 2.4
        self._quick = 0
        """Quick refusals one after another."""
        self._step = STEP
        self._probing = False
        self._probe_step = PROBE_STEP
        self._quota = _Quota(now)
        if start is not None and start.rate < self.ceiling:
            self._set(start.rate, failed=start.rate)
            self._hold_s = SETTLED_S

    @property
    def was_refused(self) -> bool:
        """Whether the gateway has refused anything so far."""
        return self._series is not None

    def finding(self) -> Finding | None:
        """What was found; None while nothing was refused."""
        if self._quota.window_s is not None:
            return Finding(self._quota.rate, self._quota.window_s)
        return Finding(self.rate) if self.was_refused and self._failed is not None else None

    def left(self, now: float) -> None:
        """A request leaves."""
        self._left.append(now)
        self._left_since_pause += 1
        while self._left[0] < now - 2.0:
            self._left.popleft()

    def taken(self, sent_at: float, now: float) -> None:
        """A request that left at `sent_at` was not refused."""
        self._taken += 1
        if self.alone and sent_at >= self._cut_at:
            self._reopened(sent_at, now)
        self._quota.taken += 1
        if self._seeking:
            self.rate = min(self.ceiling, self.rate * 2.0 ** min(1.0, max(0.0, now - self._grown_at)))
        elif self._failed is not None and sent_at - self._since >= self._hold_s:
            self._holds(now)
        self._grown_at = now

    def refused(self, sent_at: float, now: float, asked_s: float | None) -> None:
        """A request that left at `sent_at` was refused; `asked_s` is how long the gateway asks to wait."""
        if sent_at < self._cut_at:
            if asked_s is not None:
                self._pause(asked_s, now)
            return
        first_pause_s = max(self._first_pause_s, min(1.0, PAUSE_REQUESTS / self.rate))
        patience_s = first_pause_s * 2.0 ** min(self._refused_alone, 16)
        self._refused_alone += 1
        if self.alone:  # the rate is lowered already
            self._pause(max(asked_s or 0.0, min(patience_s, self._quota.patience_s(now))), now)
            self._quota.still_closed(sent_at)
        else:
            self._quota.close(sent_at, self.rate)
            self._lower(sent_at)
            self._pause(patience_s if asked_s is None else asked_s, now)
            self._refused_at = sent_at
        self.alone = True
        self._cut_at = self._grown_at = now

    def limit_to(self, rate: float) -> None:
        """Go by a limit that the gateway announces."""
        self.ceiling = max(RATE_LEAST, min(self.ceiling, rate))
        self.rate = self.ceiling if self._seeking else min(self.rate, self.ceiling)
        self._seeking = False

    def _pause(self, seconds: float, now: float) -> None:
        self.paused_until = max(self.paused_until, now + min(seconds, self._wait_s_max))

    def _lower(self, sent_at: float) -> None:
        """Take a lower rate after a refusal: as low as what was seen says that it must be, and no lower."""
        rate, last_second = self.rate, sum(1 for at in self._left if sent_at - 1.0 <= at < sent_at)
        if self._series is None:
            self._series = (sent_at, self._taken)
        counted, self._counted = self._counted, (last_second, rate)
        if self._failed is None:
            self._first_rate(rate, last_second)
        elif self._is_same(counted, last_second, rate):  # so many in a second, whatever the rate: there is the limit
            limit = min(counted[0], last_second, rate)
            self._set(limit * WINDOW_SHARE, failed=limit)
            self._held, self._hold_s = self.rate, SETTLED_S
        else:
            self._set(self._lower_rate(sent_at, rate), failed=rate)
            self._held = min(self._held, self.rate) if self._held is not None else None

    def _first_rate(self, rate: float, last_second: int) -> None:
        """Go on after the first refusal of all, or after the second where the first came far above the limit."""
        if not self._taken:  # closed before this run began: that says nothing of a rate, so the search is yet to begin
            self.rate, self._seeking = min(rate, SEEK_RATE), True
            return
        if last_second < rate / 2 and self._held is None:
            # What it took in that short time is no measure: seek again, from below.
            self._held = 0.0
            self._seeking = True
            self.rate = max(RATE_LEAST, min(rate / 4, last_second * 0.7))
            return
        self._held = None
        lower = last_second * WINDOW_SHARE if last_second >= COUNT_LEAST else rate * 0.6
        self._set(min(lower, rate * (1 - STEP)), failed=rate)

    def _lower_rate(self, sent_at: float, rate: float) -> float:
        """The rate to go on with after a further refusal."""
        assert self._series is not None
        assert self._refused_at is not None or self._failed is not None
        held_for_s = sent_at - self._since
        since_s = sent_at - (self._since if self._refused_at is None else self._refused_at)
        if held_for_s < QUICK_S:
            self._quick += 1
            self._step = STEP if self._quick == 1 else min(STEP_MOST, self._step * 2)
        else:
            self._quick, self._step = 0, SETTLED_STEP
            self._series = (sent_at, self._taken)
        lower = rate * (1 - self._step)
        series_s = sent_at - self._series[0]
        if self._held is not None and rate > self._held:  # a try that failed: back to what held
            lower, self._hold_s = self._held, self._hold_after_failure_s
            self._hold_after_failure_s = min(HOLD_S_MOST, self._hold_after_failure_s * 2)
        elif held_for_s < 1.0 and self._left_since_pause >= COUNT_LEAST:
            # Within a second of the pause: a bucket gave what came in since it was empty, a window what it holds.
            given = self._left_since_pause / since_s
            given = given if since_s < 1.0 else math.sqrt(given * self._left_since_pause)
            lower, self._hold_s = min(lower, given * WINDOW_SHARE), HOLD_S
        elif series_s >= SERIES_S:  # quick ones alone: any other begins a series anew
            # Between two moments at which a bucket is empty it gives its rate, or less where a pause let it overflow.
            given = (self._taken - self._series[1]) / series_s
            lower, self._hold_s = min(lower, math.sqrt(rate * max(rate / 3, given))), HOLD_S
        return lower

    @staticmethod
    def _is_same(before: tuple[int, float], count: int, rate: float) -> bool:
        """Whether two refusals came after equally many requests in a second, at different rates."""
        equal = abs(before[0] - count) <= SAME_COUNT * count
        return equal and count >= COUNT_LEAST and abs(before[1] - rate) > 2 * SAME_COUNT * rate

    def _set(self, rate: float, failed: float) -> None:
        self._seeking = False
        self._failed = failed
        self._probing, self._probe_step = False, PROBE_STEP
        self.rate = min(self.ceiling, max(RATE_LEAST, rate))

    def _holds(self, now: float) -> None:
        """Note that the rate holds, and try one between it and the lowest that was refused, or a little above."""
        assert self._failed is not None
        self._quick = 0
        self._since = now
        is_close = self._failed - self.rate <= self._failed * CLOSE_SHARE
        was_tried = self._held is None or self.rate > self._held
        self._held = self.rate
        if not self._probing and not is_close:
            self.rate = min(self.ceiling, math.sqrt(self.rate * self._failed))
            self._hold_s = HOLD_S
        elif not self._probing and was_tried:
            self._hold_s = SETTLED_S
        else:
            self.rate = min(self.ceiling, self.rate * (1 + self._probe_step))
            self._probe_step = min(1.0, self._probe_step * 2)
            self._probing, self._hold_s = True, HOLD_S

    def _reopened(self, sent_at: float, now: float) -> None:
        """A request that went alone was taken: go on."""
        self.alone = False
        self._left_since_pause = 0
        if self._refused_alone > 1 and self._refused_at is not None:
            needed_s = (sent_at - self._refused_at) * 0.75
            self._first_pause_s = min(PAUSE_S_MOST_FIRST, max(self._first_pause_s, needed_s))
        self._refused_alone = 0
        self._since = now
        rate = self._quota.reopen(sent_at)
        if rate is not None:
            self._set(rate, failed=rate * 1.1)
            self._held, self._hold_s = None, HOLD_S_MOST


class _Quota:
    """So many requests in a window of the gateway's clock: told by refusals that last, learned from two openings."""

    def __init__(self, now: float) -> None:
        self.taken = 0
        """Requests taken since the window opened."""
        self.window_s: float | None = None
        self.rate = math.inf
        self._opened = (now, now)
        """Between these moments the present window opened."""
        self._openings = 0
        self._closed_at: float | None = None
        self._last_refused = now
        self._rate_before = 0.0

    def close(self, sent_at: float, rate: float) -> None:
        """A request was refused, the first of maybe many."""
        self._closed_at, self._last_refused, self._rate_before = sent_at, sent_at, rate

    def still_closed(self, sent_at: float) -> None:
        """A request that went alone was refused as well."""
        self._last_refused = sent_at

    def patience_s(self, now: float) -> float:
        """Seconds until it is asked again: soon where a usual window would end, else a share of the time gone by."""
        assert self._closed_at is not None
        wait_s = max(ASK_AGAIN_S, (now - self._closed_at) * CLOSED_SHARE)
        if not self._openings:
            return wait_s
        earliest, latest = self._opened
        for window_s in (self.window_s,) if self.window_s else WINDOWS_S:
            if earliest + window_s > now:
                return min(wait_s, max(FIRST_PAUSE_S, earliest + window_s - now))
            if latest + window_s > now:
                return min(wait_s, max(FIRST_PAUSE_S, (latest - earliest) / 5))
        return wait_s

    def reopen(self, sent_at: float) -> float | None:
        """The gateway takes requests again; the rate to use if that was a quota, None if it was not."""
        assert self._closed_at is not None
        if sent_at - self._closed_at < QUOTA_S:
            return None
        opened = (self._last_refused, sent_at)
        shortest, longest = opened[0] - self._opened[1], opened[1] - self._opened[0]
        used, self.taken = self.taken, 0
        self._opened, self._openings = opened, self._openings + 1
        if self._openings == 1:  # where hardly any were taken before, others had used it up: that measures nothing
            if used < COUNT_LEAST:
                return None
            return min(self._rate_before, QUOTA_AHEAD * used / longest)
        self.window_s = next((each for each in WINDOWS_S if shortest <= each <= longest), (shortest + longest) / 2)
        self.rate = used / self.window_s
        return self.rate * QUOTA_SHARE
