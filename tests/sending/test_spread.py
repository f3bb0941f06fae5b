"""Requests leave one after another where many would leave at once, and answers come the same way."""

from __future__ import annotations

import pytest

from batchpay.sending.spread import DELAY_S_MAX, FEW, SHARE, Spread

MS = 0.001


class Clock:
    """A clock that stands still; `waits` are what those who came to it had to wait."""

    def __init__(self) -> None:
        self.now = 5.0
        self.waits: list[float] = []

    def spread(self, workers: int) -> Spread:
        return Spread(workers, lambda: self.now, self.waits.append)


def test_those_that_come_together_leave_one_after_another() -> None:
    """Of 64 answers that came together none was worked off before nearly all were: each row waited for all others."""
    clock = Clock()
    spread = clock.spread(64)
    spread.wait()
    spread.learn(20 * MS)
    for _ in range(64):
        spread.wait()
    distance_s = SHARE * 20 * MS / 64
    assert clock.waits[-60:] == pytest.approx([place * distance_s for place in range(FEW + 1, 64)])


def test_whoever_comes_in_time_does_not_wait() -> None:
    clock = Clock()
    spread = clock.spread(4)
    spread.learn(20 * MS)
    for _ in range(50):
        spread.wait()
        clock.now += SHARE * 5 * MS
    assert clock.waits == []


def test_nobody_waits_longer_than_a_moment() -> None:
    """A hundred requests that come together would fill the time that the gateway takes."""
    clock = Clock()
    spread = clock.spread(100)
    spread.learn(90 * MS)
    for _ in range(100):
        spread.wait()
    assert max(clock.waits) == pytest.approx(DELAY_S_MAX)


@pytest.mark.parametrize(
    ("exchange_s", "is_on"), [(12 * MS, False), (13 * MS, True), (64 * MS, True), (65 * MS, False)]
)
def test_only_what_gains_by_it_is_spread(exchange_s: float, *, is_on: bool) -> None:
    """A quicker gateway takes less time than we do; a slower one's rows lose little, and commits take many of them."""
    clock = Clock()
    spread = clock.spread(64)
    assert not spread.is_on
    spread.learn(exchange_s)
    for _ in range(FEW + 3):
        spread.wait()
    assert (spread.is_on, bool(clock.waits)) == (is_on, is_on)


def test_the_quickest_answer_counts_and_is_forgotten_in_time() -> None:
    """An answer's time contains what it waited for us; the least does not. But a gateway may become slower."""
    clock = Clock()
    spread = clock.spread(100)
    for exchange_s in (100 * MS, 20 * MS, *[80 * MS] * 20):
        spread.learn(exchange_s)
    for _ in range(FEW + 3):
        spread.wait()
    assert clock.waits[-1] == pytest.approx((FEW + 2) * SHARE * 0.2 * MS, rel=0.03)
    for _ in range(2000):
        spread.learn(80 * MS)
    clock.now += 1
    for _ in range(FEW + 3):
        spread.wait()
    assert clock.waits[-1] == pytest.approx((FEW + 2) * SHARE * 0.8 * MS)
