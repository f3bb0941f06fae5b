"""The options that a sandbox is started with, and the limits of a gateway that `--limit N:KIND` asks for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from batchpay.errors import WrongUse


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one sandbox; the defaults are those of `batchpay sandbox`."""

    host: str = "127.0.0.1"
    port: int = 8780
    """0 picks a free one."""
    db: Path | None = None
    """SQLite file that keeps payments, accounts and journal; None keeps them in memory."""
    dialect: str = "envelope"
    limit: float | None = None
    """Requests answered per second; those above are refused with 429. None: no limit."""
    limit_kind: str = "second"
    """How they are counted: one of KINDS."""
    latency_ms: float = 0.0
    """Minimum time from a request's last byte to its answer."""
    faults: Path | None = None
    """JSON list of fault rules in force from the start (see faults.py)."""
    returns: Path | None = None
    """Where the return file is kept, CSV or NACHA by the name's ending."""
    service_header: str = "SERVICE"
    """The word for SERVICE in SERVICE-API-ID and SERVICE-API-KEY."""
    api_id: str = "sandbox"
    api_key: str = field(default="sandbox-key", repr=False)


KINDS = {
    "second": "this many in any second (the default)",
    "strict": "this many in any second, refused requests counted too",
    "clock": "this many in each second of the clock",
    "bucket": "a bucket that saves up one second's requests",
    "burst": "a bucket that saves up ten requests",
    "even": "a bucket that saves up nothing: requests must keep their distance",
    "minute": "sixty times as many in each minute of the clock",
}


class Limiter:
    """Counts requests and decides which are refused; with a limit of None, refuses nothing."""

    def __init__(self, limit: float | None, kind: str = "second", clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._kind = kind
        self._clock = clock
        self._lock = threading.Lock()
        self._times: deque[float] = deque()
        self._size = {"bucket": max(1.0, limit or 0.0), "burst": 10.0}.get(kind, 1.0)
        self._tokens, self._filled_at = self._size, clock()
        self._window, self._used = -1, 0

    def wait_s(self) -> float:
        """Take a slot and return 0, or return the seconds until one is free."""
        if self.limit is None:
            return 0.0
        with self._lock:
            now = self._clock()
            if self._kind in ("bucket", "burst", "even"):
                return self._from_bucket(self.limit, now)
            if self._kind in ("clock", "minute"):
                return self._from_clock(self.limit, now, 60.0 if self._kind == "minute" else 1.0)
            return self._from_last_second(self.limit, now)

    def headers(self) -> dict[str, str]:
        """Return the headers of a dialect with limit headers."""
        if self.limit is None:
            return {}
        left = max(0, int(self.limit) - len(self._times))
        return {"X-RateLimit-Limit": f"{self.limit:g}", "X-RateLimit-Remaining": str(left), "X-RateLimit-Reset": "1"}

    def _from_last_second(self, limit: float, now: float) -> float:
        window_s = max(1.0, 1.0 / limit)  # below one a second the window is longer, so that it holds one request
        while self._times and now - self._times[0] >= window_s:
            self._times.popleft()
        taken = len(self._times) < limit * window_s
        if taken or self._kind == "strict":
            self._times.append(now)
        return 0.0 if taken else window_s - (now - self._times[0])

    def _from_bucket(self, limit: float, now: float) -> float:
        self._tokens = min(self._size, self._tokens + (now - self._filled_at) * limit)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / limit
        self._tokens -= 1
        return 0.0

    def _from_clock(self, limit: float, now: float, window_s: float) -> float:
        if int(now / window_s) != self._window:
            self._window, self._used = int(now / window_s), 0
        self._used += 1
        return 0.0 if self._used <= limit * window_s else (self._window + 1) * window_s - now


def parse_limit(text: str) -> tuple[float, str]:
    """Read `50` or `50:bucket`; raises WrongUse."""
    number, _, kind = text.partition(":")
    try:
        limit = float(number)
    except ValueError:
        limit = 0.0
    if not 0 < limit < 1e6 or (kind or "second") not in KINDS:
        raise WrongUse(
            f"--limit is a number of requests a second above 0, or that and a kind: 50:bucket;"
            f" kinds: {', '.join(KINDS)}"
        )
    return limit, kind or "second"
