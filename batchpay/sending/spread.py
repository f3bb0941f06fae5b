"""Lets requests leave one after another when all would leave, and be answered, at the same time.

The threads of a process take turns at Python's lock, call by call. So when many answers come together, nearly all are
processed before the first next request leaves; then all of these leave together, and are answered together: each row
waits for all others, again and again. Requests that leave evenly are answered evenly, and none waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

SHARE = 0.9
"""Share used of the spacing at which the requests of all workers would fill the time that the gateway takes."""
FEW = 3
"""This many requests may leave together: to wake a thread once more costs more than they cost each other."""
DELAY_S_MAX = 0.03
"""No request is held up longer than this."""
CROWDED_S, SPARSE_S = 0.0002, 0.001
"""With closer spacing there are more requests than a processor can handle, so there is nothing to spread; with wider
spacing a row loses little by waiting for the others, and a commit of many rows is cheaper."""
FORGET = 1.001
"""The gateway's time is that of the quickest answer; each further answer raises it by this factor."""


class Spread:
    """Delays requests briefly right before they leave; shared by all threads of a run."""

    def __init__(
        self,
        workers: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`workers` is how many requests are in flight at most."""
        self._workers = workers
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._quickest_s = math.inf
        self._distance_s = 0.0
        self._last = -math.inf

    @property
    def is_on(self) -> bool:
        """Return whether requests are spread: then a commit must not wait for others, or it would bunch them again."""
        return bool(self._distance_s)

    def wait(self) -> None:
        """Wait until the next request may leave, DELAY_S_MAX at most."""
        if not (distance_s := self._distance_s):
            return
        with self._lock:
            now = self._clock()
            self._last = min(max(now, self._last + distance_s), now + DELAY_S_MAX)
            wait_s = self._last - now
        if wait_s > FEW * distance_s:
            self._sleep(wait_s)

    def learn(self, exchange_s: float) -> None:
        """Record how long an exchange took, from its first byte to its answer: an estimate, so without the lock."""
        quickest_s = self._quickest_s = min(exchange_s, self._quickest_s * FORGET)
        apart_s = quickest_s / self._workers
        self._distance_s = apart_s * SHARE if CROWDED_S <= apart_s <= SPARSE_S else 0.0
