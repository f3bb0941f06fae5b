"""The sandbox's limits: each counts as its kind says."""

from __future__ import annotations

import pytest

from batchpay.sandbox.options import BadLimit, Limiter, parse_limit


@pytest.mark.parametrize(
    ("kind", "at_s", "taken"),
    [
        ("second", [0.0] * 7 + [0.99, 1.0], [True] * 5 + [False] * 3 + [True]),
        ("strict", [0.0] * 7 + [0.5, 1.0], [True] * 5 + [False] * 3 + [True]),
        ("strict", [0.0] * 5 + [0.5] * 5 + [1.0], [True] * 5 + [False] * 6),
        ("clock", [0.9] * 6 + [1.0] * 6, [True] * 5 + [False] + [True] * 5 + [False]),
        ("bucket", [0.0] * 6 + [0.2] * 2 + [1.2] * 6, [True] * 5 + [False, True, False] + [True] * 5 + [False]),
        ("burst", [0.0] * 11 + [0.2] * 2, [True] * 10 + [False, True, False]),
        ("even", [0.0, 0.1, 0.2, 0.3, 0.41], [True, False, True, False, True]),
        ("minute", [0.0] * 301 + [59.0, 60.0], [True] * 300 + [False, False, True]),
    ],
)
def test_each_kind_counts_as_it_says(kind: str, at_s: list[float], taken: list[bool]) -> None:
    """Five a second, by each of the kinds; a refused request is told when to come again."""
    now = [600.0]
    limiter = Limiter(5, kind, clock=lambda: now[0])
    found = []
    for at in at_s:
        now[0] = 600.0 + at
        wait_s = limiter.wait_s()
        assert 0 <= wait_s <= 60
        found.append(wait_s == 0)
    assert found == taken


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "ten", "5:", "5:unknown", ":bucket"])
def test_a_limit_that_is_written_wrongly_is_refused(text: str) -> None:
    """The refusal names the kinds."""
    if text == "5:":
        assert parse_limit(text) == (5.0, "second")
        return
    with pytest.raises(BadLimit, match="bucket"):
        parse_limit(text)
    assert parse_limit("2.5:minute") == (2.5, "minute")
