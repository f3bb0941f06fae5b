"""What an answer's headers say about the gateway's rate limit: Retry-After, RateLimit and X-RateLimit."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from batchpay.outcome import Pace

_NAMES = frozenset(
    (
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    )
)
_SECONDS = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?", re.ASCII)
_PARAMETER = re.compile(r"(?:^|[;,\s])\s*([A-Za-z]+)\s*=\s*([0-9]{1,12})(?![0-9.])", re.ASCII)
_LEADING_NUMBER = re.compile(r"\s*([0-9]{1,12})(?![0-9.])", re.ASCII)
_EPOCH_S_LEAST = 1_000_000_000
"""A reset of at least this many seconds is a point in time, not a duration."""


def read_pace(http_status: int, headers: Mapping[str, str]) -> Pace | None:
    """Read the limit that an answer states; None if it states none. Values that make no sense are left out.

    `headers` are by lower-case name.
    """
    if _NAMES.isdisjoint(headers) and http_status != 429:
        return None
    given = {name: headers[name] for name in _NAMES if name in headers}
    date = _date_s(headers.get("date", ""))
    now = time.time() if date is None else date
    retry_after = _retry_after_s(given.get("retry-after", ""), now)
    policy = _parameters(given.get("ratelimit-policy", ""))
    current = _parameters(given.get("ratelimit", ""))
    limit = policy.get("q") or current.get("limit") or _number(given, "ratelimit-limit", "x-ratelimit-limit")
    reset = _first(current.get("t"), current.get("reset"), _number(given, "ratelimit-reset", "x-ratelimit-reset"))
    if reset is not None and reset >= _EPOCH_S_LEAST:
        reset = max(0.0, reset - now)
    remaining = _first(
        current.get("r"), current.get("remaining"), _number(given, "ratelimit-remaining", "x-ratelimit-remaining")
    )
    return Pace(
        retry_after_s=retry_after,
        limit=limit or None,
        window_s=policy.get("w") or None,
        remaining=None if remaining is None else int(remaining),
        reset_s=reset,
        refused=http_status == 429 or (http_status == 503 and retry_after is not None),
    )


def _retry_after_s(text: str, now: float) -> float | None:
    """Return the seconds to wait: a number, or a date relative to the answer's own; a past date is 0, nonsense None."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    date = _date_s(text)
    return None if date is None else max(0.0, date - now)


def _date_s(text: str) -> float | None:
    """Read an HTTP date as seconds since the epoch."""
    if not text or len(text) > 40:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _parameters(text: str) -> dict[str, float]:
    """Read the parameters of the first item of a RateLimit or RateLimit-Policy header, in its later or earlier form.

    Later: `"default";q=100;w=60`, `"default";r=50;t=30`. Earlier: `100;w=60`, `limit=100, remaining=50, reset=5`.
    """
    if ";" in text:
        text = text.split(",", 1)[0]
    found = {name.lower(): float(number) for name, number in _PARAMETER.findall(text[:200])}
    leading = _LEADING_NUMBER.match(text)
    if leading:
        found["q"] = float(leading[1])
    return found


def _number(given: Mapping[str, str], *names: str) -> float | None:
    for name in names:
        match = _LEADING_NUMBER.match(given.get(name, ""))
        if match:
            return float(match[1])
    return None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
