"""A quota, a number of requests per window of the gateway's clock: seen from refusals that last and waits asked for.

No clock, no thread: this is part of limit_finder.py.
"""

from __future__ import annotations

import math

FIRST_PAUSE_S = 0.2
COUNT_LEAST = 10
"""Fewer requests measure nothing."""
QUOTA_S = 3.0
"""Refusals that last longer than this mean a quota."""
ROUNDED_S = 1.0
"""Retry-After is in whole seconds: the wait asked for ends at most this long after the window."""
SHORT_WINDOW = 4.0
"""If the same wait is asked for twice, it may still be a quota whose window is shorter than this many such waits."""
QUOTA_SHARE = 0.99
QUOTA_AHEAD = 1.5
"""Until its window is known, use this multiple of the pace that the first one allowed: it must be used up once more."""
MORE = 1.1
"""A quota that lets this many times as much through is not the one that was used up."""
WINDOWS_S = (10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 86_400.0)
"""Windows that gateways use: if one fits what was measured, it is that one."""
ASK_AGAIN_S = 1.0
CLOSED_SHARE = 0.25
"""While a quota is used up, one request tries again after this share of the time it has been used up so far, or after
ASK_AGAIN_S if that is longer."""


class Quota:
    """Requests per window of the gateway's clock: recognized by refusals that last, learned from two openings."""

    def __init__(self, now: float) -> None:
        self.taken = 0
        """Requests taken since the window opened."""
        self.window_s: float | None = None
        self.rate = math.inf
        self._opened = (now, now)
        """The current window opened between these two times."""
        self._openings = 0
        self._closed_at: float | None = None
        self._last_refused = now
        self._rate_before = 0.0
        self._asked_s: float | None = None
        """The Retry-After of the last refusal, and the last one that the gateway kept to."""
        self._kept_s: float | None = None
        self._most = math.inf
        """More than this many taken since an opening disprove a quota."""
        self._is_guess = False
        """Whether the rate since then is a guess."""
        self.is_asked = False
        """Whether refusals lasted, and it is not yet known why."""

    def close(self, sent_at: float, rate: float, asked_s: float | None = None) -> None:
        """Record that a request was refused, the first of possibly many."""
        self._closed_at, self._last_refused, self._rate_before = sent_at, sent_at, rate
        self._asked_s, self._most, self._is_guess = asked_s, math.inf, False

    def disproved(self) -> bool:
        """Return whether more was taken than the quota behind a guessed rate would have allowed; true only once."""
        if self.taken <= self._most:
            return False
        self._most, self.is_asked = math.inf, False
        was_guess, self._is_guess = self._is_guess, False
        return was_guess

    def still_closed(self, sent_at: float) -> None:
        """Record that a request that went alone was refused as well."""
        assert self._closed_at is not None
        self._last_refused = sent_at
        self.is_asked = self.is_asked or sent_at - self._closed_at >= QUOTA_S

    def patience_s(self, now: float) -> float:
        """Return the seconds until the next try: soon if a usual window would end, else a share of the time so far."""
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

    def kept_s(self, sent_at: float) -> float:
        """Return how long the gateway was closed, if it asked for that long and kept its word; 0 otherwise."""
        assert self._closed_at is not None
        closed_s = sent_at - self._closed_at
        kept = self._asked_s is not None and self._last_refused == self._closed_at and closed_s >= QUOTA_S
        return closed_s if kept else 0.0

    def reopen(self, sent_at: float) -> float | None:
        """Record that requests are taken again; return the rate to use if it was a quota, None if not, or maybe not."""
        assert self._closed_at is not None
        if self.kept_s(sent_at):
            return self._reopen_as_asked(sent_at)
        self.is_asked = self._last_refused - self._closed_at >= QUOTA_S
        if not self.is_asked:
            return None
        used, shortest, longest = self._opening(self._last_refused, sent_at)
        if self._openings == 1:  # if hardly any were taken before, others had used it up: that measures nothing
            if used < COUNT_LEAST:
                return None
            self._most, self._is_guess = used * MORE, True
            return min(self._rate_before, QUOTA_AHEAD * used / longest)
        return self._learn(used, _usual_window(shortest, longest) or (shortest + longest) / 2)

    def _reopen_as_asked(self, sent_at: float) -> float | None:
        """Do the same after one refusal that said how long to wait.

        Some gateways ask for the same long wait whatever is refused: that shows no quota. One that reports when its
        window ends asks for a different wait each time, and from one opening to the next it is a usual window.
        """
        before_s, self._kept_s = self._kept_s, self._asked_s
        assert self._kept_s is not None
        used, shortest, longest = self._opening(sent_at - ROUNDED_S, sent_at)
        is_same = before_s is not None and abs(self._kept_s - before_s) <= ROUNDED_S
        window_s = _usual_window(shortest, longest)
        self.is_asked = not is_same or (window_s is not None and window_s < SHORT_WINDOW * self._kept_s)
        if is_same or self._openings == 1 or window_s is None:
            self._most = used * MORE
            return None
        return self._learn(used, window_s)

    def _opening(self, earliest: float, latest: float) -> tuple[int, float, float]:
        """Begin a window; return the requests taken in the one before, and its shortest and longest possible length."""
        shortest, longest = earliest - self._opened[1], latest - self._opened[0]
        used, self.taken = self.taken, 0
        self._opened, self._openings = (earliest, latest), self._openings + 1
        return used, shortest, longest

    def _learn(self, used: int, window_s: float) -> float:
        self.window_s = window_s
        self.rate = used / window_s
        return self.rate * QUOTA_SHARE


def _usual_window(shortest: float, longest: float) -> float | None:
    return next((each for each in WINDOWS_S if shortest <= each <= longest), None)
