"""Rate limit headers in all the shapes they come in."""

from __future__ import annotations

import pytest

from batchpay.gateway.answer import read_pace
from batchpay.outcome import Pace

DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(("text", "seconds"), [
    ("2", 2.0), (" 2 ", 2.0), ("0", 0.0), ("0.5", 0.5), ("999999999999", 999_999_999_999.0), ("9" * 5000, None),
    ("-5", None), ("+5", None), ("soon", None), ("", None), ("5, 10", None), ("1e3", None), ("nan", None),
    ("\u0665", None), ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0), ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
    ("Sun Nov  6 08:49:47 1994", 10.0), ("Sun, 06 Nov 1994 08:49:27 GMT", 0.0),
    ("Sun, 99 Nov 1994 08:49:27 GMT", None), ("Sun, 06 Nov 99999999 08:49:27 GMT", None),
    (f"Sun, 06 Nov 1994 08:49:47 GMT ({20 * 'x'})", None),
])  # fmt: skip
def test_retry_after(text: str, seconds: float | None) -> None:
    """Seconds and dates (against the answer's own date) are understood, nonsense is not a time at all."""
    pace = read_pace(429, {"retry-after": text, "date": DATE})
    assert pace == Pace(retry_after_s=seconds, refused=True)


def test_a_date_without_the_answers_own_counts_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that sends no Date: its refusal could not be judged, so that a row that was not paid was in doubt."""
    monkeypatch.setattr("time.time", lambda: 784_111_777.0)
    assert read_pace(429, {"retry-after": "Sun, 06 Nov 1994 08:49:47 GMT"}) == Pace(retry_after_s=10.0, refused=True)


@pytest.mark.parametrize(
    ("headers", "pace"),
    [
        ({}, None),
        ({"ratelimit-policy": '"default";q=100;w=60', "ratelimit": '"default";r=50;t=30'}, Pace(None, 100, 60, 50, 30)),
        ({"ratelimit-policy": "100;w=60"}, Pace(None, 100, 60)),
        ({"ratelimit-policy": '100;w=60;comment="at most q=5"'}, Pace(None, 100, 60)),
        ({"ratelimit": "limit=100, remaining=5, reset=7"}, Pace(None, 100, None, 5, 7)),
        ({"ratelimit-policy": '"a";q=10;w=1, "b";q=1000;w=3600'}, Pace(None, 10, 1)),
        (
            {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"},
            Pace(None, 100, None, 0, 9),
        ),
        (
            {"x-ratelimit-limit": "100", "x-ratelimit-reset": "1800000010", "date": "Fri, 15 Jan 2027 08:00:00 GMT"},
            Pace(None, 100, None, None, 10),
        ),
        ({"ratelimit-limit": "many", "x-ratelimit-remaining": "-3", "ratelimit-reset": ""}, Pace()),
        ({"ratelimit-policy": "q=0;w=0"}, Pace()),
        ({"ratelimit-policy": "w=60", "x-ratelimit-limit": "0"}, Pace(window_s=60)),
    ],
)
def test_announced_limits(headers: dict[str, str], pace: Pace | None) -> None:
    """RateLimit in its later and earlier shape and X-RateLimit are read; what makes no sense is left out."""
    assert read_pace(200, headers) == pace


def test_refusals() -> None:
    """429 is a refusal for pace's sake, 503 only with Retry-After."""
    assert read_pace(429, {}) == Pace(refused=True)
    assert read_pace(503, {}) is None
    assert read_pace(503, {"retry-after": "1"}) == Pace(1.0, refused=True)
    assert read_pace(500, {"retry-after": "1"}) == Pace(1.0)
