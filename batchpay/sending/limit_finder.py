"""Find a gateway's limit: a pure function of what was sent, what was taken and what was refused. No clock, no thread.

A refused rate is lowered, further each time while refusals come quickly, and what holds is raised again to just under
the rate that was refused. Two kinds of refusals need something else. Those that last are a *quota* (a count per minute
or hour): what was taken from one opening to the next, over all of that time, is its rate. And *noise* has nothing to do
with the rate: if far more was taken than the rate that is refused now would allow, over a time longer than any burst, a
lower rate helps nobody. Then the rate goes back up, and only the pauses that the gateway asks for are kept. Where a
much higher rate was taken before, it is tried again for some seconds: a limit refuses it soon, and noise does not.
"""

from __future__ import annotations

import math
from collections import deque

from batchpay.outcome import Finding
from batchpay.settings import RATE_LEAST, RATE_MOST

SEEK_RATE = 20.0
"""Where the search begins without a ceiling; doubled every second until the first refusal."""
SHARE = 0.98
"""The share used of what a gateway took, since networks bunch requests that left evenly."""
PAUSE_S = 0.25
CLOSED_SHARE = 0.2
"""Pause after a refusal that asks for none: PAUSE_S, doubled up to a second while refusals are quick; while a gateway
stays closed one request tries again after this share of that time."""
QUOTA_S = 3.0
"""Refusals that last longer than this mean a quota."""
QUICK_S = 8.0
STEP, STEP_MOST = 0.05, 0.4
"""A rate refused this soon is lowered by STEP, doubled up to STEP_MOST while refusals stay quick."""
SETTLED_STEP = 0.015
HOLD_S, SETTLED_S, HOLD_S_MOST = 4.0, 45.0, 80.0
"""A rate that was taken for HOLD_S holds, and one between it and the refused one is tried; when the two are CLOSE the
limit is known, and checked again after SETTLED_S. After each try that fails the next one waits twice as long."""
CLOSE = 0.03
COUNT_LEAST = 10
"""Fewer requests measure nothing."""
BURST_S = 10.0
"""No limit on a rate saves up, or remembers, more than this."""
SERIES_S = 60.0
"""Refusals farther apart are not held against each other."""
PROOF = 1.3
NOISE_COUNT = 8
TRY_COUNT, TRY_SHARE = 4, 0.6
"""After this many refusals, one at this share of what was once taken, or less, lets that be tried again."""
TRY_REFUSALS = 2
"""A try fails with this many refusals and no more taken than a limit would allow."""
ANNOUNCED_S = 60.0
"""A limit that a gateway announces is followed upward only after it has announced no lower one for this long: the
servers of a gateway need not all announce the same limit."""


class LimitFinder:
    """The rate allowed now, and how long a pause lasts. Times are seconds on one clock; one call at a time."""

    def __init__(
        self, ceiling: float | None, now: float, *, wait_s_max: float = 60.0, start: Finding | None = None
    ) -> None:
        """`ceiling` is a rate that is never exceeded, None for none; `wait_s_max` bounds a pause.

        `start` is what an earlier run found: this one begins there, and checks it again.
        """
        self._most = RATE_MOST if ceiling is None else ceiling
        self._announced, self._announced_before = (math.inf, now), math.inf
        """The lowest limit that the gateway announced lately, since when that is counted, and the one before."""
        self.runs = 1
        """How many runs share the rate; what is kept here is this one's part."""
        self.rate = SEEK_RATE if ceiling is None else ceiling
        self.paused_until = now
        self.alone = False
        """Whether one request goes alone, to find out whether the gateway takes requests again."""
        self.refusals = self.taken_count = 0
        self.noise: float | None = None
        """How many requests the gateway takes for each that it refuses whatever the rate; None if it does not."""
        self.closed_at: float | None = None
        """Since when the gateway has refused everything."""
        self._wait_s_max = wait_s_max
        self._starts = start is not None and start.rate < self._most
        self._seeking, self._is_first = ceiling is None and not self._starts, not self._starts
        self._left: deque[float] = deque()
        self._grown_at = self._cut_at = self._since = self._resumed = self._opened = self._refused_at = now
        self._since_pause = self._in_window = self._quick = self._tries = self._try_from = 0
        self._held, self._failed, self._met = 0.0, math.inf, math.inf
        """The highest rate that held, the one that was refused above it, and the last one that was refused at all."""
        self._hold_s, self._retry_s, self._probe = HOLD_S, 2 * HOLD_S, 0.01
        self._top, self._tried = 0.0, 0.0
        """The highest rate that was taken for a second or longer; while it is tried again, the rate before that."""
        self._window_s: float | None = None
        self._series: list[tuple[float, int, float]] = []
        """Refusals one after another: when, how many had been taken by then, and the rate."""
        if start is not None and self._starts:
            self.rate, self._hold_s = start.rate, SETTLED_S

    @property
    def ceiling(self) -> float:
        """The most that all runs together may send."""
        return max(RATE_LEAST, min(self._most, self._announced[0], self._announced_before))

    def left(self, now: float) -> None:
        """Record that a request leaves."""
        self._left.append(now)
        while self._left[0] < now - 2.0:
            self._left.popleft()

    def taken(self, sent_at: float, now: float) -> None:
        """Record that a request that left at `sent_at` was not refused."""
        if self.alone and sent_at >= self._cut_at:
            self._reopen(sent_at)
        self.taken_count, self._since_pause, self._in_window = (
            self.taken_count + 1, self._since_pause + 1, self._in_window + 1,
        )  # fmt: skip
        if self._seeking:
            self._set(self.rate * 2.0 ** min(1.0, max(0.0, now - self._grown_at)))
        elif sent_at - self._since >= self._hold_s:
            self._hold(now)
        self._grown_at = now

    def refused(self, sent_at: float, now: float, asked_s: float | None) -> None:
        """Record that a request that left at `sent_at` was refused; `asked_s`: how long the gateway asks to wait."""
        self.refusals += 1
        pause_s = asked_s or 0.0
        if sent_at >= self._cut_at:  # what left before says nothing new
            if not self.alone:
                self.closed_at, self._tries = sent_at, 0
                self._lower(sent_at)
            assert self.closed_at is not None
            own_s = min(1.0, PAUSE_S * 2.0 ** min(8, self._tries + self._quick))
            if self._tries or (asked_s is None and self.noise is None):
                pause_s = max(pause_s, own_s, CLOSED_SHARE * (now - self.closed_at))
            self._tries += 1
            self.alone, self._cut_at, self._grown_at = True, now, now
        self.pause(pause_s, now)

    def pause(self, seconds: float, now: float) -> None:
        """Let nothing leave for that long, which the gateway asked of this run or another."""
        self.paused_until = max(self.paused_until, now + min(seconds, self._wait_s_max))

    def share(self, runs: int) -> None:
        """Leave to each run that sends now the same part of the rate."""
        part, self.runs = self.runs / runs, runs
        self._held, self._failed, self._met = self._held * part, self._failed * part, self._met * part
        self._top, self._tried = self._top * part, self._tried * part
        self._set(self.rate * part)

    def limit_to(self, rate: float, now: float) -> None:
        """Follow a limit that the gateway announces: a lower one immediately, a higher one after ANNOUNCED_S."""
        was, (lowest, since) = self.ceiling, self._announced
        follows = self._seeking or self.rate * self.runs >= was
        if now - since >= ANNOUNCED_S:
            self._announced, self._announced_before = (rate, now), min(lowest, rate)
        else:
            self._announced, self._announced_before = (min(lowest, rate), since), self._announced_before
        self._seeking = self._seeking and self.ceiling >= self._most
        self._set(self.ceiling / self.runs if follows and not self._seeking else self.rate)

    def finding(self) -> Finding | None:
        """Return what was found of the gateway's limit; None while it is not known, or refused nothing twice."""
        if self.noise is not None:
            return Finding(self.rate * self.runs, refused_share=1 / (1 + self.noise))
        is_known = self.rate <= 1.1 * self._met < math.inf  # else it may have been raised since
        if self._window_s is None and (self.alone or self.refusals + self._starts < 2 or not is_known):
            return None
        return Finding(min(self.rate, self._met) * self.runs, self._window_s)

    def to_remember(self) -> Finding | None:
        """Return where the next run should begin; None if this one learned nothing about that."""
        if self.noise is not None or self._is_closed() or not (self._starts or self.refusals) or not self.taken_count:
            return None
        return Finding((self._tried or self.rate) * self.runs, self._window_s)

    def _is_closed(self) -> bool:
        return self.alone and self._tries > 1

    def _set(self, rate: float) -> None:
        self.rate = min(self.ceiling / self.runs, max(RATE_LEAST / self.runs, rate))

    def _hold(self, now: float) -> None:
        """Record that the rate holds, and try one between it and the refused one, or a little above."""
        is_new, self._held, self._quick, self._since = self.rate > self._held, self.rate, 0, now
        if CLOSE * self._failed < self._failed - self.rate < math.inf:
            self._set(math.sqrt(self.rate * self._failed))
            self._hold_s = HOLD_S
        elif is_new and self._failed < math.inf:
            self._hold_s, self._failed, self._probe = max(SETTLED_S, self._retry_s), math.inf, 0.02
        else:
            self._set(self.rate * (1 + self._probe))
            self._hold_s, self._probe = HOLD_S, min(1.0, 2 * self._probe)

    def _reopen(self, sent_at: float) -> None:
        """Resume: a request that went alone was taken. After a long time a quota has opened."""
        assert self.closed_at is not None
        if sent_at - self.closed_at >= QUOTA_S:
            self._set(self._tried or self.rate)
            if self._in_window >= COUNT_LEAST:  # of fewer, others had used up the quota
                is_quota, before, cycle_s = self._window_s is not None, self.rate, sent_at - self._opened
                self._window_s = cycle_s
                self._set(self._in_window / cycle_s * SHARE)
                self._failed = self.rate * 1.1 if is_quota else max(before, self.rate * 1.1)
                self._hold_s = 20.0 if is_quota else 1.1 * cycle_s
                self._held, self._seeking, self._quick = self.rate, False, 0
            self._opened, self._in_window, self._series, self._tried = sent_at, 0, [], 0.0
        self.alone, self.closed_at = False, None
        self._since, self._resumed, self._since_pause = sent_at, sent_at, 0

    def _lower(self, sent_at: float) -> None:
        """Take a lower rate after a refusal, unless it is noise."""
        lasted_s = sent_at - self._resumed
        begin = max(sent_at - 1.0, self._resumed)
        counted, gap_s = sum(begin <= at < sent_at for at in self._left), sent_at - self._refused_at
        self._refused_at, self._seeking = sent_at, False
        if not self.taken_count:  # closed before this run began: that says nothing of a rate
            self._set(min(self.rate, SEEK_RATE / self.runs))
            self._seeking = True
            return
        if self._since_pause >= COUNT_LEAST:
            self._top = max(self._top, min(self.rate, self._since_pause / max(1.0, lasted_s)))
        if self._is_noise(sent_at) or self._tries_higher(sent_at):
            return
        rate = self.rate
        is_quick, is_first, was_tried = sent_at - self._since < QUICK_S, self._is_first, 0 < self._held < rate
        self._quick, self._is_first = self._quick + 1 if is_quick else 0, False
        self._failed, self._met, self._hold_s = rate, rate, HOLD_S
        if is_first and counted < rate / 2:  # far above: what it took in that short time measures nothing
            self._set(min(rate / 4, counted * 0.7))
            self._seeking, self._failed = True, math.inf
        elif was_tried:
            self._set(self._held)
            if rate <= 1.1 * self.rate:
                self._hold_s = self._retry_s = min(HOLD_S_MOST, 2 * self._retry_s)
        elif lasted_s < 1.0 and self._opened != self._resumed:
            # Until then a count in any second gave what it holds, and a bucket what flowed in since it was empty.
            given = counted * SHARE if self._quick <= 2 and counted >= COUNT_LEAST else self._since_pause / gap_s
            self._set(min(rate * (1 - STEP), max(given, rate * (1 - STEP_MOST))))
        else:
            step = min(STEP_MOST, STEP * 2.0 ** (self._quick - 1)) if is_quick else SETTLED_STEP
            self._set(rate * max(lasted_s / (lasted_s + 1.0), 1 - step))  # a bucket of a second holds no more
        self._held, self._since = (self._held if was_tried else 0.0), sent_at

    def _is_noise(self, sent_at: float) -> bool:
        """Return whether a refusal has nothing to do with the rate."""
        series = self._series
        if self.noise is None and series and sent_at - series[-1][0] > SERIES_S:
            series.clear()
            self._tried = 0.0
        series.append((sent_at, self.taken_count, self.rate))
        if self.noise is not None:
            if len(series) <= NOISE_COUNT or self.taken_count - series[-1 - NOISE_COUNT][1] > 2 * self.noise:
                return True
            # NOISE_COUNT refusals came four times as often as before: there is a limit as well.
            self.noise, self._top = None, 0.0
            del series[:-1]
            return False
        if not any(sent_at - at >= BURST_S and self._took_too_much(at, count) for at, count, _ in series[:-2]):
            return False
        self.noise = (self.taken_count - series[0][1]) / (len(series) - 1)
        self._set(max(rate for _, _, rate in series))
        self._held, self._failed, self._hold_s, self._quick, self._tried = 0.0, math.inf, HOLD_S, 0, 0.0
        return True

    def _tries_higher(self, sent_at: float) -> bool:
        """Return whether the highest rate that was ever taken is tried: a limit refuses it soon, and noise does not."""
        series = self._series
        if self._tried:
            (at, count, _), refusals = series[self._try_from], len(series) - 1 - self._try_from
            if refusals < TRY_REFUSALS or self.taken_count - count > PROOF * self._tried * (sent_at - at):
                return True
            self._set(self._tried)
            self._tried, self._held, self._since = 0.0, 0.0, sent_at
            return False
        if self.rate > TRY_SHARE * self._top or len(series) < TRY_COUNT or self._window_s is not None:
            return False
        self._tried, self._try_from = self.rate, len(series) - 1
        self._set(self._top)
        self._held, self._failed, self._hold_s, self._since = 0.0, math.inf, BURST_S, sent_at
        return True

    def _took_too_much(self, since: float, count: int) -> bool:
        """Return whether more was taken from a refusal to a later one than a limit that refuses this rate allows."""
        rate = self._tried or self.rate
        return any(
            at - since >= BURST_S and taken - count > PROOF * rate * (at - since) for at, taken, _ in self._series
        )
