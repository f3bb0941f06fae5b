"""Find a gateway's limit: a pure function of what was sent, what was taken and what was refused. No clock, no thread.

Two kinds of limits need two methods. A *rate* (a token bucket of any size, a count in any one second or in a calendar
second, a minimum spacing) is bracketed: the highest rate that held for a while, and the lowest one that was refused;
the finder tries a rate between the two, waits longer before each further try, and settles just under the lower one. A
*quota* (a count per minute or per hour) shows as refusals that last: the finder waits until the quota opens, learns how
many were taken from one opening to the next, and spreads that over the window. If the gateway then takes more than the
quota would have let through, it was only closed for a while, and the finder continues as before.

Limits that it can't tell apart need no telling apart: each gets the evenly spaced rate at which nothing is refused.
"""

from __future__ import annotations

import math
from collections import deque

from batchpay.outcome import Finding
from batchpay.sending.quota import COUNT_LEAST, FIRST_PAUSE_S, Quota
from batchpay.settings import RATE_LEAST, RATE_MOST

SEEK_RATE = 20.0
"""Where the search begins without a ceiling; doubled every second until the first refusal."""
WINDOW_SHARE = 0.98
"""The share used of what a gateway took in a second, since networks bunch requests that left evenly."""
SAME_COUNT = 0.025
"""Counts per second that differ by no more than this share are equal."""

PAUSE_REQUESTS = 2
"""Pause after a refusal that names none: the first pause, or the time that this many requests take; doubled while
refusals continue."""
PAUSE_S_MOST_FIRST = 2.0
"""If the first pause was too short, the pause after the next refusal is as long as was needed, up to this."""

QUICK_S = 8.0
"""A rate that is refused this soon was far too high: by STEP at least, doubled while refusals stay quick."""
STEP = 0.03
STEP_MOST = 0.4
SETTLED_STEP = 0.015
"""A rate that held for longer is lowered by this share."""
SERIES_S = 1.5
"""Once a series of quick refusals lasts this long, what was taken in it is a better measure than a step."""

FIRST_HOLD_S = 40.0
HOLD_S = 4.0
"""A rate that was taken for this long holds, and the next higher one is tried; the very first one is given longer,
since a try that fails costs a pause."""
HOLD_S_MOST = 80.0
"""After each try that fails, the next one waits twice as long, up to this."""
CLOSE_SHARE = 0.025
"""When the rate that holds and the one that was refused are this close, there is nothing left to find."""
SETTLED_S = 45.0
"""Then the rate stays there for this long before the finder checks whether the limit was raised."""
HOLD_PAUSES, HOLD_PAUSES_MOST = 4.0, 16.0
"""If a gateway asks for a long pause, a rate is held for this many times that pause before a higher one is tried:
doubled after each try that fails."""
PAUSE_STEP = 0.004
"""Each second of that pause makes the first step down larger by this share: another refusal would cost as much."""
PROBE_STEP = 0.02
"""A probe raises the rate by this share, doubled as long as that holds."""

ANNOUNCED_S = 60.0
"""A limit that a gateway announces is followed upward only after it has announced no lower one for this long: the
servers of a gateway need not all announce the same limit."""


class LimitFinder:
    """The rate allowed now, and how long a pause lasts, from the requests that left and what became of them.

    Times are seconds on one clock. The caller makes one call at a time.
    """

    def __init__(
        self, ceiling: float | None, now: float, *, wait_s_max: float = 60.0, start: Finding | None = None
    ) -> None:
        """`ceiling` is a rate that is never exceeded, None for none; `wait_s_max` bounds a pause.

        `start` is what an earlier run found: this one begins there, and checks it again.
        """
        self.ceiling = self._most = RATE_MOST if ceiling is None else ceiling
        self._announced = (math.inf, now)
        """The lowest limit that the gateway announced recently, and since when that is counted."""
        self.rate = SEEK_RATE if ceiling is None else ceiling
        self.paused_until = now
        self.alone = False
        """Whether one request goes alone, to find out whether the gateway takes requests again."""
        self._wait_s_max = wait_s_max
        self._seeking = ceiling is None
        self._grown_at = now
        # The requests that left and what became of them
        self._left: deque[float] = deque()
        """When each request of the last seconds left."""
        self._left_since_pause = 0
        self._taken = 0
        self._cut_at = -math.inf
        """When the rate was last lowered: requests that left before then say nothing new."""
        self._refused_at: float | None = None
        """When the last request that was refused had left, of those that count."""
        self._refused_alone = 0
        self._first_pause_s = FIRST_PAUSE_S
        self._series: tuple[float, int] | None = None
        """The first of a series of quick refusals: when it left, and how many had been taken in all by then."""
        self._counted = (0, 0.0)
        """Requests in the second before the last refusal, and the rate then."""
        # The bracket
        self._held: float | None = None
        """The highest rate that held."""
        self._failed: float | None = None
        """The lowest rate that was refused."""
        self._is_confirmed = False
        """Whether it was refused more than once, the run before included."""
        self._since = now
        """When the current rate was set."""
        self._hold_s = FIRST_HOLD_S
        self._hold_after_failure_s = HOLD_S * 2.4
        self._quick = 0
        """Quick refusals one after another."""
        self._step = STEP
        self._cost_s = 0.0
        """The last pause, if the gateway asked for a long one and kept its word."""
        self._hold_pauses = HOLD_PAUSES
        self._probing = False
        self._probe_step = PROBE_STEP
        self._before: tuple[float, float | None, float | None, float, bool] = (
            self.rate, None, None, self._hold_s, False,
        )  # fmt: skip
        """The rate and its bracket before the last refusal."""
        self._quota = Quota(now)
        if start is not None and start.rate < self.ceiling:
            self._set(start.rate, failed=start.rate)
            self._hold_s, self._probing = SETTLED_S, True

    @property
    def was_refused(self) -> bool:
        """Whether the gateway has refused anything so far."""
        return self._series is not None

    def finding(self) -> Finding | None:
        """Return what was found; None while nothing was refused, or refusals lasted and it is not yet known why.

        Also None if a higher rate than the refused one has held since: the limit was raised, and the new one is not
        reached yet. And None until the gateway has refused again near the rate that it refused first: it may refuse a
        single request for any reason, and the rate of that moment is no limit.
        """
        return self._found() if self._quota.window_s is not None or self._is_confirmed else None

    def _found(self) -> Finding | None:
        if self._quota.window_s is not None:
            return Finding(self._quota.rate, self._quota.window_s)
        if self._quota.is_asked:
            return None
        if self._failed is None or not self.was_refused or self._went_above() is not None:
            return None
        return Finding(min(self.rate, self._failed))

    def to_remember(self) -> Finding | None:
        """Return where the next run should begin; None if this run learned nothing new for it.

        A single refusal is enough: to begin there costs little, and it is tried again.
        A run that goes far above what was refused, and is not refused again, finds no limit: without this the old one
        would stay.
        """
        return self._found() or self._went_above()

    def _went_above(self) -> Finding | None:
        """Return the rate that holds if it is above the lowest that was refused, in this run or the one before."""
        held, failed = self._held, self._failed
        return Finding(held) if held is not None and failed is not None and held > failed else None

    def left(self, now: float) -> None:
        """Record that a request leaves."""
        self._left.append(now)
        self._left_since_pause += 1
        while self._left[0] < now - 2.0:
            self._left.popleft()

    def taken(self, sent_at: float, now: float) -> None:
        """Record that a request that left at `sent_at` was not refused."""
        self._taken += 1
        if self.alone and sent_at >= self._cut_at:
            self._reopened(sent_at, now)
        self._quota.taken += 1
        if self._quota.disproved():
            self._restore(now)
        if self._seeking:
            self.rate = min(self.ceiling, self.rate * 2.0 ** min(1.0, max(0.0, now - self._grown_at)))
        elif self._failed is not None and sent_at - self._since >= max(self._hold_s, self._hold_pauses * self._cost_s):
            self._holds(now)
        self._grown_at = now

    def refused(self, sent_at: float, now: float, asked_s: float | None) -> None:
        """Record that a request that left at `sent_at` was refused; `asked_s`: how long the gateway asks to wait."""
        if sent_at < self._cut_at:
            if asked_s is not None:
                self._pause(asked_s, now)
            return
        first_pause_s = max(self._first_pause_s, min(1.0, PAUSE_REQUESTS / self.rate))
        patience_s = first_pause_s * 2.0 ** min(self._refused_alone, 16)
        self._refused_alone += 1
        if self.alone:  # the rate was already lowered
            self._pause(max(asked_s or 0.0, min(patience_s, self._quota.patience_s(now))), now)
            self._quota.still_closed(sent_at)
        else:
            self._before = (self.rate, self._held, self._failed, self._hold_s, self._is_confirmed)
            self._quota.close(sent_at, self.rate, asked_s)
            self._lower(sent_at)
            self._pause(patience_s if asked_s is None else asked_s, now)
            self._refused_at = sent_at
        self.alone = True
        self._cut_at = self._grown_at = now

    def limit_to(self, rate: float, now: float) -> None:
        """Follow a limit that the gateway announces: a lower one immediately, a higher one after ANNOUNCED_S."""
        lowest, since = self._announced
        lowest = min(lowest, rate)
        is_over = now - since >= ANNOUNCED_S
        self._announced = (rate, now) if is_over else (lowest, since)
        if not is_over and lowest >= self.ceiling:
            return
        was, self.ceiling = self.ceiling, max(RATE_LEAST, min(self._most, lowest))
        is_free = self._seeking or self.rate >= was
        self.rate = self.ceiling if is_free else min(self.rate, self.ceiling)
        self._seeking = False

    def _pause(self, seconds: float, now: float) -> None:
        self.paused_until = max(self.paused_until, now + min(seconds, self._wait_s_max))

    def _lower(self, sent_at: float) -> None:
        """Take a lower rate after a refusal: as low as the observations require, and no lower."""
        rate, last_second = self.rate, sum(1 for at in self._left if sent_at - 1.0 <= at < sent_at)
        if self._series is None:
            self._series = (sent_at, self._taken)
        counted, self._counted = self._counted, (last_second, rate)
        self._is_confirmed = self._is_confirmed or self._failed is not None
        if self._failed is None:
            self._first_rate(rate, last_second)
        elif self._is_same(counted, last_second, rate):  # the same count in a second at any rate: that is the limit
            limit = min(counted[0], last_second, rate)
            self._set(limit * WINDOW_SHARE, failed=limit)
            self._held, self._hold_s = self.rate, SETTLED_S
        else:
            self._set(self._lower_rate(sent_at, rate), failed=rate)
            self._held = min(self._held, self.rate) if self._held is not None else None

    def _first_rate(self, rate: float, last_second: int) -> None:
        """Continue after the very first refusal, or after the second if the first came far above the limit."""
        if not self._taken:  # closed before this run began: that says nothing of a rate; the search has yet to begin
            self.rate, self._seeking = min(rate, SEEK_RATE), True
            return
        if last_second < rate / 2 and self._held is None:
            # What it took in that short time measures nothing: seek again, from below.
            self._held = 0.0
            self._seeking = True
            self.rate = max(RATE_LEAST, min(rate / 4, last_second * 0.7))
            return
        self._held = None
        lower = last_second * WINDOW_SHARE if last_second >= COUNT_LEAST else rate * 0.6
        self._set(min(lower, rate * (1 - STEP)), failed=rate)

    def _lower_rate(self, sent_at: float, rate: float) -> float:
        """Return the rate to continue with after a further refusal."""
        assert self._series is not None
        assert self._refused_at is not None or self._failed is not None
        held_for_s = sent_at - self._since
        since_s = sent_at - (self._since if self._refused_at is None else self._refused_at)
        if held_for_s < QUICK_S:
            self._quick += 1
            first = max(STEP, min(STEP_MOST / 2, PAUSE_STEP * self._cost_s))
            self._step = first if self._quick == 1 else min(STEP_MOST, self._step * 2)
        else:
            self._quick, self._step = 0, SETTLED_STEP
            self._series = (sent_at, self._taken)
        lower = rate * (1 - self._step)
        series_s = sent_at - self._series[0]
        if self._held is not None and rate > self._held:  # a try that failed: back to what held
            lower, self._hold_s = self._held, self._hold_after_failure_s
            self._hold_after_failure_s = min(HOLD_S_MOST, self._hold_after_failure_s * 2)
            self._hold_pauses = min(HOLD_PAUSES_MOST, self._hold_pauses * 2)
        elif held_for_s < 1.0 and self._left_since_pause >= COUNT_LEAST:
            # Within a second of the pause: a bucket gave what flowed in since it was empty, a window what it holds.
            given = self._left_since_pause / since_s
            given = given if since_s < 1.0 else math.sqrt(given * self._left_since_pause)
            lower, self._hold_s = min(lower, given * WINDOW_SHARE), HOLD_S
        elif series_s >= SERIES_S:  # only quick ones: any other starts a new series
            # Between two times at which a bucket is empty it gives its rate, or less if a pause let it overflow.
            given = (self._taken - self._series[1]) / series_s
            lower, self._hold_s = min(lower, math.sqrt(rate * max(rate / 3, given))), HOLD_S
        return lower

    @staticmethod
    def _is_same(before: tuple[int, float], count: int, rate: float) -> bool:
        """Return whether two refusals came after equally many requests in a second, at different rates."""
        equal = abs(before[0] - count) <= SAME_COUNT * count
        return equal and count >= COUNT_LEAST and abs(before[1] - rate) > 2 * SAME_COUNT * rate

    def _set(self, rate: float, failed: float) -> None:
        self._seeking = False
        self._failed = failed
        self._probing, self._probe_step = False, PROBE_STEP
        self.rate = min(self.ceiling, max(RATE_LEAST, rate))

    def _holds(self, now: float) -> None:
        """Record that the rate holds, and try one between it and the lowest that was refused, or a little above."""
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
        """Resume: a request that went alone was taken."""
        self.alone = False
        self._left_since_pause = 0
        if self._refused_alone > 1 and self._refused_at is not None:
            needed_s = (sent_at - self._refused_at) * 0.75
            self._first_pause_s = min(PAUSE_S_MOST_FIRST, max(self._first_pause_s, needed_s))
        self._refused_alone = 0
        self._since = now
        rate = self._quota.reopen(sent_at)
        self._cost_s = self._quota.kept_s(sent_at)
        if rate is not None:
            self._set(rate, failed=rate * 1.1)
            self._held, self._hold_s = None, HOLD_S_MOST

    def _restore(self, now: float) -> None:
        """Restore the earlier bracket: no quota, only closed for a while, which says nothing of the gateway's rate."""
        self.rate, self._held, self._failed, self._hold_s, self._is_confirmed = self._before
        self._seeking = self._failed is None and self.rate < self.ceiling
        self._since = self._grown_at = now
