"""Finding a hidden limit, in virtual time: limiters that gateways really use, and what the world does to a run."""

from __future__ import annotations

import math
import random

import pytest

from batchpay.outcome import Finding, Pace
from batchpay.sending.limit_finder import LimitFinder
from batchpay.sending.pacing import Throttle
from batchpay.sending.quota import Quota
from tests.support.pace_world import (
    LIMITERS,
    Bucket,
    ClockWindow,
    Closed,
    Concurrent,
    Limiter,
    Shared,
    SlidingSecond,
    UsedUp,
    World,
)
from tests.support.pace_world import used_least as least


def world(gateway: Limiter, rate: float | None, *, start: Finding | None = None, after_s: float | None = 1.0) -> World:
    return World(
        gateway,
        lambda clock, sleep: Throttle(rate, clock=clock, sleep=sleep, start=start),
        refusal=Pace(retry_after_s=after_s, refused=True),
    )


@pytest.mark.parametrize(("limit", "rate", "after_s"), [(5, 500.0, None), (60, None, 1.0), (200, None, None)])
@pytest.mark.parametrize("kind", LIMITERS)
def test_limit_of_any_kind_is_found(kind: str, limit: int, rate: float | None, after_s: float | None) -> None:
    """After 25 s nearly all of the limit is used and next to nothing refused, whatever the gateway counts.

    On five of these limiters 4 to 79 % was used. The whole table, 252 runs, is part of `make bench`.
    """
    run = world(LIMITERS[kind](limit), rate, after_s=after_s)
    run.run(300)
    assert run.used(25, 300, limit) >= least(kind, limit, 300)
    assert run.refused(25, 300) < (0.02 if limit == 5 else 0.005)


@pytest.mark.parametrize("rate", [None, 10.0, 500.0])
def test_a_few_in_a_second_are_no_measure_of_it(rate: float | None) -> None:
    """Two a second, and none saved up: two that come too near are refused, after one or two in that second.

    Taken for what it allows in one, that left a quarter of the limit unused.
    """
    run = world(Bucket(2, 1), rate)
    run.run(100)
    assert run.used(25, 100, 2) >= 0.9


def test_refusals_at_neighboring_rates_leave_the_search_open() -> None:
    """A ceiling 6 % above the limit: both of the first refusals come after 200 in a second, at rates 3 % apart.

    That alone proves no limit by the second; where it was taken for one, 1 % less was used.
    """
    run = world(SlidingSecond(200), 212.0, after_s=None)
    run.run(200)
    assert run.used(15, 200, 200) >= 0.98
    assert run.refused(15, 200) < 0.0002


def test_limit_that_moves_is_followed_down_and_up() -> None:
    """A limit that is halved is found again within ten seconds, one that is doubled within two minutes."""
    gateway = SlidingSecond(100)
    run = world(gateway, None)
    run.run(60)
    gateway.rate = 50
    run.run(130)
    assert run.used(72, 130, 50) >= 0.9
    gateway.rate = 200
    run.run(350)
    assert run.used(260, 350, 200) >= 0.93
    assert run.refused(25, 350) < 0.005


@pytest.mark.parametrize("inner", [SlidingSecond(100), Bucket(100, 100)])
def test_limit_shared_with_another_client_is_shared(inner: Limiter) -> None:
    """Another client takes half: the other half is used."""
    run = world(Shared(inner, 50), None)
    run.run(150)
    assert run.used(25, 150, 50) >= 0.94
    assert run.refused(25, 150) < 0.005


def test_quota_of_an_hour_is_used_up_and_waited_for() -> None:
    """From the second hour on the whole quota of each hour is used; asking whether it is open again costs little."""
    run = world(ClockWindow(2, 3600), None)
    run.run(3 * 3600)
    assert run.used(3600, 3 * 3600, 2) >= 0.97
    assert run.refused(3600, 3 * 3600) < 0.02


@pytest.mark.parametrize("after_s", [1.0, None])
@pytest.mark.parametrize("left", [0, 9])
@pytest.mark.parametrize("limit", [2, 5])
def test_a_quota_that_others_used_up_says_nothing_of_the_next_one(limit: int, left: int, after_s: float | None) -> None:
    """A run that begins where nothing, or hardly anything, is left of a minute uses the whole of the next ones.

    What it got of the first minute was taken for the quota: in the two after it 2 to 8 % was used, and what it then
    believed was a window of three minutes or four.
    """
    run = world(UsedUp(ClockWindow(limit, 60), 60, left=left), None, after_s=after_s)
    run.run(360)
    assert run.used(60, 120, limit) >= 0.99
    assert run.used(120, 360, limit) >= 0.95


@pytest.mark.parametrize("closed_s", [1.5, 60.0])
def test_a_gateway_that_is_closed_at_first_is_as_one_just_met(closed_s: float) -> None:
    """Where the very first request is refused no rate is known: the search began at one in ten seconds, for minutes."""
    run = world(UsedUp(SlidingSecond(100), closed_s, left=0), None)
    run.run(closed_s + 60)
    assert run.used(closed_s + 5, closed_s + 60, 100) >= 0.9
    assert run.refused(closed_s + 5, closed_s + 60) < 0.005


def test_a_known_window_is_asked_for_when_it_ends_and_not_where_others_would() -> None:
    """Others use up a known quota of 900 s, for once: until it opens again that costs few refusals."""
    gateway = ClockWindow(5, 900)
    run = world(gateway, None, after_s=None)
    run.run(4 * 900)
    assert str(run.throttle.finding()) == "4,500 in 900 s"
    run.gateway = UsedUp(gateway, 5 * 900, left=30)
    run.run(5 * 900)
    assert sum(not allowed for at, allowed in run.sent if at >= 4 * 900) <= 40


@pytest.mark.parametrize("rate", [None, 500.0])
@pytest.mark.parametrize("after_s", [4.0, 10.0, 60.0])
def test_a_long_wait_asked_for_after_any_refusal_is_no_quota(after_s: float, rate: float | None) -> None:
    """A hundred in any second, and whoever is refused is to wait long.

    Of that 5 to 40 % was used, and "1,121 in 227 s" was told.
    """
    run = world(SlidingSecond(100), rate, after_s=after_s)
    run.run(600)
    assert run.used(180, 600, 100) >= 0.8
    found = run.throttle.finding()
    assert found is not None and found.window_s is None
    assert found.rate == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("rate", [None, 500.0])
def test_a_quota_is_known_by_what_is_asked_for_until_it_opens(rate: float | None) -> None:
    """One refusal a window, with the seconds until its end: another number each time, and a minute between openings."""

    class Told(World):
        @property
        def refusal(self) -> Pace:
            return Pace(retry_after_s=math.ceil(60 - self.now % 60), refused=True)

        @refusal.setter
        def refusal(self, value: Pace) -> None:
            pass

    run = Told(
        ClockWindow(60, 60),
        lambda clock, sleep: Throttle(rate, clock=clock, sleep=sleep),
        refusal=Pace(refused=True),
    )
    run.run(360)
    assert run.used(60, 360, 60) >= 0.97
    assert run.refused(240, 360) < 0.001
    assert str(run.throttle.finding()) == "3,600 in 60 s"


@pytest.mark.parametrize("after_s", [1.0, None])
@pytest.mark.parametrize("since", [1.0, 10.0])
def test_a_gateway_that_was_closed_for_a_minute_is_used_as_before(since: float, after_s: float | None) -> None:
    """What it had taken until then was believed to be a minute's quota: for 160 s 1 % was used, or 17 %.

    That guess was also what the next run began with.
    """
    run = world(Closed(SlidingSecond(100), since, since + 60), None, after_s=after_s)
    run.run(since + 75)
    assert run.throttle.finding() is None
    run.run(400)
    assert run.used(since + 130, 400, 100) >= 0.88
    found = run.throttle.finding()
    assert found is not None and found.window_s is None


def test_limit_on_concurrency_is_kept_to() -> None:
    """Where so many at once are taken, the pace goes where that many are under way, with next to nothing refused."""
    run = world(Concurrent(4, 0.02), None)
    run.run(150)
    assert run.used(40, 150, 200) >= 0.75
    assert run.refused(40, 150) < 0.005


def test_heavy_tail_of_latencies_and_late_threads_change_little() -> None:
    """Answers of 5 to 2,000 ms, and threads that wake up to 20 ms late: the limit is found all the same."""

    def heavy(chance: random.Random) -> float:
        return min(2.0, 0.005 * chance.paretovariate(0.9)) if chance.random() < 0.5 else 0.005 + chance.random() * 0.05

    slow = World(
        SlidingSecond(60),
        lambda clock, sleep: Throttle(None, clock=clock, sleep=sleep),
        refusal=Pace(retry_after_s=1.0, refused=True),
        latency_s=heavy,
    )
    slow.run(150)
    assert slow.used(25, 150, 60) >= 0.92
    assert slow.refused(25, 150) < 0.005
    late = World(
        SlidingSecond(200),
        lambda clock, sleep: Throttle(500.0, clock=clock, sleep=sleep),
        refusal=Pace(retry_after_s=1.0, refused=True),
        late_s=0.01,
    )
    late.run(100)
    assert late.used(25, 100, 200) >= 0.9
    assert late.refused(25, 100) < 0.005


@pytest.mark.parametrize("after_s", [1.0, None])
@pytest.mark.parametrize("kind", LIMITERS)
def test_start_far_above_the_limit_costs_few_refusals(kind: str, after_s: float | None) -> None:
    """At 500 a second against 5 a second a tenth of the first 25 s is refused at most: it was 40 %."""
    run = world(LIMITERS[kind](5), 500.0, after_s=after_s)
    run.run(25)
    assert run.refused(0, 25) <= 0.10


def test_what_was_found_is_a_start_and_no_truth() -> None:
    """A run that begins with an earlier finding uses it at once; where the limit has changed it finds the new one."""
    known = world(SlidingSecond(100), None, start=Finding(97.0))
    known.run(20)
    assert known.used(1, 20, 100) >= 0.94
    assert known.refused(0, 20) == 0
    lower = world(SlidingSecond(40), None, start=Finding(97.0))
    lower.run(60)
    assert lower.used(15, 60, 40) >= 0.88
    higher = world(SlidingSecond(200), None, start=Finding(97.0))
    higher.run(150)
    assert higher.used(60, 100, 200) >= 0.7
    assert higher.used(100, 150, 200) >= 0.8


def test_a_run_that_goes_far_above_what_it_began_with_is_remembered() -> None:
    """It is refused nothing, so it finds no limit: the next run began at the tenth again, and every one after it."""
    run = world(SlidingSecond(100), 50.0, start=Finding(5.0))
    run.run(40)
    assert run.throttle.to_remember() is None
    run.run(120)
    assert run.throttle.finding() is None
    assert run.throttle.to_remember() == Finding(50.0)
    refused = world(SlidingSecond(100), None, start=Finding(5.0))
    refused.run(200)
    assert refused.throttle.to_remember() == refused.throttle.finding() != None  # noqa: E711


class Played:
    """Takes whatever comes, but for some requests: the first is number 1."""

    def __init__(self, *refused: int) -> None:
        self._refused, self._seen = refused, 0

    def allows(self, now: float) -> bool:
        self._seen += 1
        return self._seen not in self._refused


@pytest.mark.parametrize("rate", [None, 100.0, 500.0])
def test_a_single_refusal_is_no_limit(rate: float | None) -> None:
    """A gateway may refuse one request for any reason: 'faster than 453 a second' was told of one played on purpose.

    The next run begins there all the same; a limit is told once another one near that rate is refused.
    """
    run = world(Played(120), rate)
    for until in range(1, 30):
        run.run(until)
        assert run.throttle.finding() is None
    assert not all(allowed for _, allowed in run.sent)
    twice = world(Played(120, 200), 100.0)
    twice.run(30)
    assert twice.throttle.finding() == twice.throttle.to_remember() != None  # noqa: E711


def test_a_limit_that_was_raised_is_not_told_until_it_is_met_again() -> None:
    """Limit 30, then 300: a run that was refused nothing above 30 ended with 'refused what came faster than 171'."""
    gateway = SlidingSecond(40)
    run = world(gateway, None)
    run.run(60)
    met, gateway.rate = run.throttle.finding(), 300
    assert met is not None
    for until in range(70, 250, 2):
        run.run(until)
        found, known = run.throttle.finding(), run.throttle.to_remember()
        assert known is not None
        assert found in (None, known)
        assert found is None or found.rate < 60 or run.refused(10, until) > 0
    assert found is not None
    assert 250 < found.rate <= 300


def test_a_remembered_rate_never_lifts_the_ceiling() -> None:
    """--rate is a ceiling, whatever an earlier run found."""
    run = world(Bucket(1000, 1000), 10.0, start=Finding(97.0))
    run.run(20)
    assert len(run.sent) <= 10 * 20 + 1


def test_a_quota_is_asked_for_often_where_a_usual_window_is_about_to_end() -> None:
    """It opened between 68 and 70: with ten seconds a window it opens again between 78 and 80, and is closed at 79."""
    quota = Quota(0.0)
    quota.taken = 300
    quota.close(60.0, 5.0)
    quota.still_closed(68.0)
    assert quota.reopen(70.0) is not None
    quota.close(75.0, 5.0)
    assert [quota.patience_s(now) for now in (77.5, 79.0, 81.0)] == [pytest.approx(s) for s in (0.5, 0.4, 1.5)]


def test_finding_in_words() -> None:
    """What was found is said as people say it; nothing is said before the first refusal."""
    assert str(Finding(98.04)) == "98 a second"
    assert str(Finding(0.5)) == "0.5 a second"
    assert str(Finding(999.7)) == "1,000 a second"
    assert str(Finding(2512.3)) == "2,512 a second"
    assert str(Finding(5.0, 60.0)) == "300 in 60 s"
    assert LimitFinder(None, 0.0).finding() is None
    run = world(ClockWindow(5, 60), None)
    run.run(200)
    found = run.throttle.finding()
    assert found is not None
    assert found.window_s == 60
    assert found.rate == pytest.approx(5, rel=0.03)


@pytest.mark.parametrize(("ceiling", "raised"), [(None, 200.0), (100.0, 100.0), (30.0, 30.0)])
def test_an_announced_limit_is_followed_down_at_once_and_up_after_a_while(ceiling: float | None, raised: float) -> None:
    """A run that was told 40 and then 200 stayed at 40 to its end; of servers that announce others, the lowest."""
    finder = LimitFinder(ceiling, 0.0)
    rates = []
    for second in range(400):
        finder.limit_to(40.0 if second < 30 or (200 < second < 300 and second % 7 == 0) else 200.0, float(second))
        rates.append(finder.rate)
    low = min(40.0, raised)
    assert rates[:120] == [low] * 120
    assert rates[120:203] == [raised] * 83
    assert rates[203:360] == [low] * 157
    assert rates[360:] == [raised] * 40


def test_an_announced_limit_that_rises_does_not_undo_what_was_refused() -> None:
    """It is a reason to look higher, from where nothing is refused."""
    finder = LimitFinder(None, 0.0)
    finder.limit_to(40.0, 0.0)
    for moment in range(40):
        finder.left(moment / 40)
        finder.taken(moment / 40, moment / 40 + 0.01)
    finder.refused(1.0, 1.01, None)
    found = finder.rate
    assert found < 40
    for second in range(2, 200):
        finder.limit_to(200.0, float(second))
    assert (finder.rate, finder.ceiling) == (found, 200.0)
