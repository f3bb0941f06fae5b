"""The throttle of a run that may have company: alone it is the plain one, with others it waits for leased moments."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable

import pytest

from batchpay.ledger.records import Lease
from batchpay.outcome import Finding, Pace
from batchpay.sending.pacing import Throttle
from batchpay.sending.shared_rate import ASK_AGAIN_S, SharedThrottle
from batchpay.settings import RATE_MOST
from tests.support.pace_world import SlidingSecond, World

REFUSAL = Pace(retry_after_s=1.0, refused=True)
ALONE = Lease(0.0, 0.01, 0, 1)


class Source:
    """Gives the leases of a list, then the last of them for ever; notes what it was asked."""

    def __init__(self, *leases: Lease | None) -> None:
        self._leases = list(leases)
        self.asked: list[tuple[float, float]] = []

    def found(self) -> None:
        pass

    def remember(self, finding: Finding) -> None:
        pass

    def lease(self, rate: float, paused_s: float) -> Lease | None:
        self.asked.append((rate, paused_s))
        return self._leases.pop(0) if len(self._leases) > 1 else self._leases[0]

    def close(self) -> None:
        pass


class Clock:
    """A clock that somebody sets."""

    now = 100.0

    def throttle(self, source: Source, rate: float | None = 1000.0) -> SharedThrottle:
        return SharedThrottle(rate, source, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def leaves(self, throttle: SharedThrottle) -> float:
        """When the next request may leave."""
        assert throttle.acquire()
        return self.now


@pytest.mark.parametrize("rate", [None, 50.0])
def test_a_run_that_is_alone_keeps_its_own_pace(rate: float | None) -> None:
    """To the last request: a single run is neither slower nor less careful for what it might share.

    It asks only as often as it is told to: each time is a transaction of the ledger.
    """

    def sent(make: Callable[[Callable[[], float], Callable[[float], bool]], Throttle]) -> list[tuple[float, bool]]:
        world = World(SlidingSecond(40), make, refusal=REFUSAL)
        world.run(20)
        return world.sent

    source = Source(Lease(0.0, 1.0, 0, 1))
    plain = sent(lambda clock, sleep: Throttle(rate, clock=clock, sleep=sleep))
    assert sent(lambda clock, sleep: SharedThrottle(rate, source, clock=clock, sleep=sleep)) == plain
    assert len(plain) > 500
    assert 15 < len(source.asked) <= 21


def test_a_slow_run_that_is_alone_looks_every_second_whether_it_still_is() -> None:
    """At one in ten seconds two that had begun seconds apart never heard each other: together two in ten seconds."""
    clock = Clock()
    asked_at: list[float] = []

    class Noted(Source):
        def lease(self, rate: float, paused_s: float) -> Lease | None:
            asked_at.append(clock.now)
            return super().lease(rate, paused_s)

    throttle = clock.throttle(Noted(ALONE), 0.1)
    assert [clock.leaves(throttle) for _ in range(2)] == pytest.approx([100.0, 110.065])
    assert max(later - earlier for earlier, later in itertools.pairwise(asked_at)) <= 1.0


def test_with_company_requests_leave_at_leased_moments() -> None:
    clock, source = Clock(), Source(Lease(0.5, 0.1, 2, 2), Lease(0.2, 0.1, 1, 2))
    throttle = clock.throttle(source)
    assert [clock.leaves(throttle) for _ in range(3)] == pytest.approx([100.5, 100.6, 100.8])
    assert source.asked == [(1000.0, 0.0)] * 2


def test_moments_that_were_missed_are_given_up() -> None:
    """A process that was stopped would otherwise send all at once what it had leased, beside the others."""
    clock = Clock()
    throttle = clock.throttle(Source(Lease(0.0, 0.01, 10, 2), Lease(0.3, 0.01, 10, 2)))
    assert clock.leaves(throttle) == 100.0
    clock.now += 5
    assert clock.leaves(throttle) == pytest.approx(105.3)


class InTurns(Source):
    """Leases every other run of ten moments, of 200 a second, for ever."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(ALONE)
        self._clock = clock
        self.moments: list[float] = []

    def lease(self, rate: float, paused_s: float) -> Lease | None:
        first = (self.moments[-1] + 11 * 0.005) if self.moments else self._clock.now
        self.moments += [first + number * 0.005 for number in range(10)]
        return Lease(first - self._clock.now, 0.005, 10, 2)


@pytest.mark.parametrize("held_up_at", ["a moment", "the commit"])
def test_what_was_held_up_does_not_come_on_top_of_what_follows(held_up_at: str) -> None:
    """Two runs wait for each other's commits: each that was held up for 40 ms made up for it beside the other."""
    clock = Clock()
    source = InTurns(clock)
    throttle = clock.throttle(source, 200.0)
    left = []
    for number in range(1000):
        clock.now += 0.04 * (number == 355 and held_up_at == "a moment")
        clock.leaves(throttle)
        clock.now += 0.04 * (number in (355, 356) and held_up_at == "the commit")
        throttle.leave()
        throttle.learn(None, clock.now)
        left.append(clock.now)
    assert max(bisect_right(left, at + 0.9999) - place for place, at in enumerate(left)) == 100
    assert len(source.moments) - len(left) <= 40  # one after the other here: who waits misses moments


def test_moments_that_pass_while_the_first_answers_are_out_are_given_up() -> None:
    """A run that joined another sent them late: 204 in a second of 200, and both went slower since."""
    clock = Clock()
    source = InTurns(clock)
    throttle = clock.throttle(source, 200.0)
    assert [clock.leaves(throttle) for _ in range(3)] == pytest.approx([100.0, 100.005, 100.01])
    began = clock.now

    def answered(seconds: float) -> bool:
        clock.now += seconds
        if clock.now >= began + 0.022:
            throttle.learn(None, clock.now)
        return False

    throttle._sleep = answered
    assert clock.leaves(throttle) == pytest.approx(100.035, abs=0.001)


def test_a_run_that_is_left_alone_counts_what_the_other_sent_in_the_last_second() -> None:
    """The gateway saw 205 in the second in which one of two runs ended: the one left made up for moments of the other.

    Here the other run ends in the middle of its moments.
    """
    clock = Clock()
    source = InTurns(clock)
    throttle = clock.throttle(source, 200.0)
    left = []
    for _ in range(400):
        left.append(clock.leaves(throttle))
        throttle.leave()
        throttle.learn(None, clock.now)
    of_other = [at + 0.05 for at in source.moments][:-5]
    source.lease = lambda rate, paused_s: ALONE  # type: ignore[method-assign]
    clock.now += 0.03
    for _ in range(600):
        left.append(clock.leaves(throttle))
        throttle.leave()
        throttle.learn(None, clock.now)
    together = sorted(left + of_other)
    assert max(bisect_right(together, at + 0.9999) - place for place, at in enumerate(together)) == 200
    assert left[-1] - left[-201] == pytest.approx(1.0065, abs=0.005)


def test_a_moment_that_is_late_by_more_than_a_wink_is_given_up() -> None:
    """Those of 50 ms were used late, on top of the others': 203 in a second of 200."""
    clock = Clock()
    throttle = clock.throttle(Source(Lease(0.0, 0.01, 10, 2)))
    assert clock.leaves(throttle) == 100.0
    clock.now = 100.025
    assert [clock.leaves(throttle) for _ in range(2)] == pytest.approx([100.025, 100.03], abs=1e-6)


def test_what_a_halt_held_up_costs_slots_though_it_leaves_without_a_wait() -> None:
    """The ledger's disk stood still: three requests leave at once, on top of those that have slots a second later.

    Two of the next slots have passed by then. A third one is given up: as many as left late.
    """
    clock = Clock()
    throttle = clock.throttle(Source(Lease(0.0, 0.02, 1000, 2)), rate=100.0)
    slots = []
    for _ in range(5):  # by these it knows how long a request usually waits for its commit
        slots.append(clock.leaves(throttle))
        clock.now += 0.001
        throttle.leave()
        throttle.learn(None, slots[-1])
    held_up = []
    for _ in range(3):
        slots.append(clock.leaves(throttle))
        held_up.append(throttle._own.slot)
    clock.now += 0.055
    for slot in held_up:
        throttle._own.slot = slot
        throttle.leave()
    assert clock.leaves(throttle) == pytest.approx(slots[-1] + 4 * 0.02)


def test_nothing_leaves_while_nobody_can_be_asked() -> None:
    clock = Clock()
    throttle = clock.throttle(Source(None, None, Lease(0.0, 0.01, 10, 2)))
    assert clock.leaves(throttle) == pytest.approx(100 + 2 * ASK_AGAIN_S)


def test_a_refusal_goes_to_the_others_with_the_next_lease_and_counts_for_all() -> None:
    """Of what the gateway took this run sent half: measured by its own requests alone the limit would be half."""
    clock, source = Clock(), Source(Lease(0.0, 0.01, 1, 2))
    throttle = clock.throttle(source, None)
    for _ in range(100):
        sent_at = clock.leaves(throttle)
        throttle.learn(None, sent_at)
        clock.now += 0.02
    throttle.learn(REFUSAL, clock.leaves(throttle))
    assert throttle.acquire()
    rate, paused_s = next((rate, paused_s) for rate, paused_s in source.asked if paused_s)
    assert paused_s == pytest.approx(1.0, abs=0.05)
    assert 80 < rate < RATE_MOST


@pytest.mark.parametrize("sharers", [2, 3])
def test_a_quota_that_is_used_together_is_found_whole(sharers: int) -> None:
    """Of a hundred a minute each of two runs sent fifty, and each took fifty for what the gateway allows."""
    clock = Clock()
    used: Counter[int] = Counter()
    throttle = clock.throttle(Source(Lease(0.0, 0.01, 1, sharers)), None)
    while clock.now < 400:
        sent_at = clock.leaves(throttle)
        minute = int(sent_at // 60)
        used[minute] += sharers
        clock.now += 0.02
        throttle.learn(Pace(refused=used[minute] > 600), sent_at)
    found = throttle.finding()
    assert found is not None
    assert found.window_s == 60.0
    assert found.rate == pytest.approx(10.0, rel=0.02)
