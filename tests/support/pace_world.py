"""A gateway with a limit and a run that sends to it, in virtual time: the clock moves only when something sleeps.

The limiters are those that gateways are known to use, each in a few lines, and share nothing with batchpay.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from batchpay.outcome import Pace
from batchpay.sending.pacing import Throttle

NETWORK_S_MOST = 0.01
"""A request is in transit no longer than this (and its bunching); the rest of a latency is the gateway at work."""


class Limiter(Protocol):
    """Decides for each request, when it arrives, whether it is accepted."""

    def allows(self, now: float) -> bool:
        """Return whether one more is accepted."""


class Bucket:
    """A token bucket: allowance comes evenly and is saved up to `size` requests."""

    def __init__(self, rate: float, size: float) -> None:
        self.rate, self.size = rate, size
        self._tokens, self._filled_at = size, 0.0

    def allows(self, now: float) -> bool:
        """Take a token if there is one."""
        self._tokens = min(self.size, self._tokens + self.rate * (now - self._filled_at))
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Sliding:
    """At most so many in any time of this length; `strict` counts refused requests as well."""

    def __init__(self, rate: float, seconds: float = 1.0, *, strict: bool = False) -> None:
        self.rate, self._seconds, self._strict = rate, seconds, strict
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Look back."""
        while self._times and self._times[0] <= now - self._seconds:
            self._times.popleft()
        taken = len(self._times) < self.rate * self._seconds
        if taken or self._strict:
            self._times.append(now)
        return taken


class ClockWindow:
    """A quota for each window of the gateway's clock: a second, a minute, an hour."""

    def __init__(self, rate: float, seconds: float) -> None:
        self.rate, self.seconds = rate, seconds
        self._window, self._used = -1, 0

    def allows(self, now: float) -> bool:
        """Count within the window that this time is in."""
        if int(now / self.seconds) != self._window:
            self._window, self._used = int(now / self.seconds), 0
        self._used += 1
        return self._used <= self.rate * self.seconds


class Concurrent:
    """At most this many requests at the same time; each is busy for as long as its answer takes."""

    def __init__(self, most: int, busy_s: float) -> None:
        self.most, self._busy_s = most, busy_s
        self._ends: list[float] = []

    def allows(self, now: float) -> bool:
        """Release those that are done, then look for a free slot."""
        while self._ends and self._ends[0] <= now:
            heapq.heappop(self._ends)
        if len(self._ends) >= self.most:
            return False
        heapq.heappush(self._ends, now + self._busy_s)
        return True


class Shared:
    """A limit of which another client uses a part, evenly."""

    def __init__(self, limiter: Limiter, other_rate: float) -> None:
        self._limiter, self._gap_s = limiter, 1 / other_rate
        self._next = 0.0

    def allows(self, now: float) -> bool:
        """Count the other client's requests since the last one first."""
        while self._next <= now:
            self._limiter.allows(self._next)
            self._next += self._gap_s
        return self._limiter.allows(now)


class UsedUp:
    """A limit that others have used up: it accepts `left` requests until then, and works normally afterward."""

    def __init__(self, limiter: Limiter, until: float, *, left: int) -> None:
        self._limiter, self._until, self._left = limiter, until, left

    def allows(self, now: float) -> bool:
        """Accept what is left, then nothing, then all."""
        if now >= self._until:
            return self._limiter.allows(now)
        self._left -= 1
        return self._left >= 0


class Closed:
    """A limit of a gateway that refuses everything for a while."""

    def __init__(self, limiter: Limiter, since: float, until: float) -> None:
        self._limiter, self._since, self._until = limiter, since, until

    def allows(self, now: float) -> bool:
        """Refuse what comes in that time."""
        return not self._since <= now < self._until and self._limiter.allows(now)


class Both:
    """Two tiers: a request must pass both."""

    def __init__(self, first: Limiter, second: Limiter) -> None:
        self._first, self._second = first, second

    def allows(self, now: float) -> bool:
        """Ask the second only for what passes the first."""
        return self._first.allows(now) and self._second.allows(now)


class Noise:
    """Refuses a share of the requests at random, whatever the rate; others go on to a limiter, if there is one."""

    def __init__(self, share: float, limiter: Limiter | None = None, seed: int = 3) -> None:
        self._share, self._limiter, self._random = share, limiter, random.Random(seed)

    def allows(self, now: float) -> bool:
        """Throw the dice."""
        return self._random.random() >= self._share and (self._limiter is None or self._limiter.allows(now))


LIMITERS: dict[str, tuple[Callable[[float], Limiter], float]] = {
    "any second": (Sliding, 0.9),
    "any second, refusals counted": (lambda rate: Sliding(rate, strict=True), 0.9),
    "clock second": (lambda rate: ClockWindow(rate, 1), 0.9),
    "bucket of a second": (lambda rate: Bucket(rate, rate), 0.9),
    "bucket of five": (lambda rate: Bucket(rate, 5), 0.9),
    "bucket of one": (lambda rate: Bucket(rate, 1), 0.65),
    "any ten seconds": (lambda rate: Sliding(rate, 10), 0.85),
    "ten seconds of the clock": (lambda rate: ClockWindow(rate, 10), 0.85),
    "two tiers": (lambda rate: Both(Sliding(2 * rate), Sliding(rate, 10)), 0.85),
    "a minute's quota": (lambda rate: ClockWindow(rate, 60), 0.75),
}
"""Every kind of limit, and the least share of it that must be used after 20 s."""
SETTLED_S = 20.0


class World:
    """Workers that send through a throttle to a gateway."""

    def __init__(
        self,
        gateway: Limiter,
        throttle: Callable[[Callable[[], float], Callable[[float], bool]], Throttle],
        *,
        refusal: Pace,
        plain: Pace | None = None,
        latency_s: Callable[[random.Random], float] = lambda chance: 0.02,
        workers: int = 64,
        late_s: float = 0.0005,
        bunched_s: float = 0.002,
        seed: int = 7,
    ) -> None:
        """`late_s` is how late a thread wakes up on average, `bunched_s` the most that a network delays a request."""
        self.now = 0.0
        self.gateway, self.refusal, self.plain = gateway, refusal, plain
        self.throttle = throttle(lambda: self.now, self.sleep)
        self.sent: list[tuple[float, bool]] = []
        self._latency_s, self._late_s, self._bunched_s, self._free = latency_s, late_s, bunched_s, workers
        self._answers: list[tuple[float, int, float, bool]] = []
        self._number: Iterator[int] = itertools.count()
        self._random = random.Random(seed)

    def sleep(self, seconds: float) -> bool:
        """Let time pass; answers arrive meanwhile."""
        if seconds > 0:
            until = self.now + seconds + self._random.random() * self._late_s * 2
            self._take_answers(until)
            self.now = until
        return False

    def run(self, until: float) -> None:
        """Send until then."""
        while self.now < until:
            if not self._free:
                self._take_answers(self._answers[0][0])
            assert self.throttle.acquire()
            self.throttle.leave()
            self._free -= 1
            latency_s = self._latency_s(self._random)
            arrives = self.now + min(latency_s / 2, NETWORK_S_MOST) + self._random.random() * self._bunched_s
            allowed = self.gateway.allows(arrives)
            self.sent.append((arrives, allowed))
            heapq.heappush(self._answers, (self.now + latency_s, next(self._number), self.now, allowed))
            self._take_answers(self.now)

    def used(self, since: float, until: float, limit: float) -> float:
        """Return the share of the limit that was used."""
        return sum(allowed for at, allowed in self.sent if since <= at < until) / limit / (until - since)

    def refused(self, since: float, until: float) -> float:
        """Return the share of requests that were refused."""
        those = [allowed for at, allowed in self.sent if since <= at < until]
        return those.count(False) / len(those) if those else 0.0

    def _take_answers(self, until: float) -> None:
        while self._answers and self._answers[0][0] <= until:
            at, _, sent_at, allowed = heapq.heappop(self._answers)
            self.now = max(self.now, at)
            self._free += 1
            self.throttle.learn(self.plain if allowed else self.refusal, sent_at)
