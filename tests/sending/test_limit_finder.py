"""Finding a hidden limit, in virtual time: limiters that gateways really use, and what the world does to a run."""

from __future__ import annotations

import random

import pytest

from batchpay.outcome import Finding, Pace
from batchpay.sending.limit_finder import LimitFinder
from batchpay.sending.pacing import Throttle
from tests.support.pace_world import (
    LIMITERS,
    SETTLED_S,
    Bucket,
    ClockWindow,
    Closed,
    Concurrent,
    Limiter,
    Noise,
    Shared,
    Sliding,
    UsedUp,
    World,
)


def world(gateway: Limiter, rate: float | None, *, start: Finding | None = None, after_s: float | None = 1.0) -> World:
    return World(
        gateway,
        lambda clock, sleep: Throttle(rate, clock=clock, sleep=sleep, start=start),
        refusal=Pace(retry_after_s=after_s, refused=True),
    )


@pytest.mark.parametrize(("limit", "rate", "after_s"), [(5, 500.0, None), (60, None, 1.0), (200, None, None)])
@pytest.mark.parametrize("kind", LIMITERS)
def test_limit_of_any_kind_is_found(kind: str, limit: int, rate: float | None, after_s: float | None) -> None:
    """After 20 s nearly all of the limit is used and next to nothing refused, whatever the gateway counts.

    Of a bucket of one at 200 a second an even pace can use 65 %: requests come closer together than they left.
    """
    make, least = LIMITERS[kind]
    run = world(make(limit), rate, after_s=after_s)
    run.run(300)
    assert run.used(SETTLED_S, 300, limit) >= least - 0.1 * (limit == 200 and kind == "bucket of one")
    assert run.refused(SETTLED_S, 300) < (0.035 if limit == 5 else 0.01)
    assert run.throttle.told().concluded != "that shows no limit"


@pytest.mark.parametrize("limit", [20, 1000])
def test_a_limit_far_from_where_the_search_begins_is_found(limit: int) -> None:
    run = world(Sliding(limit), None)
    run.run(60)
    assert run.used(SETTLED_S, 60, limit) >= 0.9
    assert run.refused(SETTLED_S, 60) < 0.01


@pytest.mark.parametrize("share", [0.002, 0.01, 0.02])
@pytest.mark.parametrize(("ceiling", "after_s"), [(20.0, 1.0), (30.0, 1.0), (100.0, None), (500.0, None)])
def test_refusals_at_random_do_not_slow_a_run_down(share: float, ceiling: float, after_s: float | None) -> None:
    """A node that is sick refuses 1 % of the requests: of 100 a second 4 were left, for hours, and nobody was told.

    The pauses that the gateway asks for are kept: at 2 %, and a second each, they alone cost 30 to 40 % of these rates.
    """
    run = world(Noise(share), ceiling, after_s=after_s)
    run.run(seconds := min(900, 100_000 / ceiling))
    assert run.used(0, seconds, ceiling) >= 0.5
    found = run.throttle.told()
    if found.concluded != "that shows no limit":
        assert "whatever the rate" in str(found.concluded)
        assert found.limit is None
        assert run.throttle.to_remember() is None


@pytest.mark.parametrize(("ceiling", "after_s", "least"), [(30.0, 1.0, 0.5), (100.0, None, 0.5), (300.0, 1.0, 0.1)])
@pytest.mark.parametrize("seed", [3, 7, 13, 21])
def test_refusals_that_come_close_together_by_chance_do_not_pass_for_a_limit(
    seed: int, ceiling: float, after_s: float | None, least: float
) -> None:
    """Of 30 a second 8 were left, and the run said it had found the limit: 4,000 rows at 300 a second took 8 minutes.

    At 1 % and a second's pause each 77 % of 30 a second can be used, and 25 % of 300.
    """
    run = World(
        Noise(0.01, seed=seed),
        lambda clock, sleep: Throttle(ceiling, clock=clock, sleep=sleep),
        refusal=Pace(retry_after_s=after_s, refused=True),
        seed=seed,
    )
    run.run(80)
    assert run.used(SETTLED_S, 80, ceiling) >= least
    assert "faster than" not in str(run.throttle.told())


def test_a_limit_behind_refusals_at_random_is_found() -> None:
    """Refusals that come far more often than before are a limit's."""
    gateway = Sliding(1000)
    run = world(Noise(0.01, gateway), 100.0, after_s=None)
    run.run(200)
    assert "whatever the rate" in str(run.throttle.told())
    gateway.rate = 10
    run.run(300)
    assert run.throttle.state().rate < 20


@pytest.mark.parametrize("kind", LIMITERS)
def test_no_limit_is_taken_for_refusals_at_random(kind: str) -> None:
    for limit, rate, after_s in ((60, None, 1.0), (60, 500.0, None), (20, 40.0, None)):
        run = world(LIMITERS[kind][0](limit), rate, after_s=after_s)
        run.run(200)
        assert "whatever the rate" not in str(run.throttle.told())


def test_limit_that_moves_is_followed_down_and_up() -> None:
    """A limit that is halved is found again within twenty seconds, one that is doubled within three minutes."""
    gateway = Sliding(100)
    run = world(gateway, None)
    run.run(60)
    gateway.rate = 50
    run.run(130)
    assert run.used(80, 130, 50) >= 0.9
    gateway.rate = 200
    run.run(400)
    assert run.used(310, 400, 200) >= 0.9
    assert run.refused(SETTLED_S, 400) < 0.005


@pytest.mark.parametrize("inner", [Sliding(100), Bucket(100, 100)])
def test_limit_shared_with_another_client_is_shared(inner: Limiter) -> None:
    """Another client takes half: the other half is used."""
    run = world(Shared(inner, 50), None)
    run.run(150)
    assert run.used(SETTLED_S, 150, 50) >= 0.9
    assert run.refused(SETTLED_S, 150) < 0.01


def test_quota_of_an_hour_is_used_up_and_waited_for() -> None:
    """Asking whether it is open again costs little."""
    run = world(ClockWindow(2, 3600), None)
    run.run(3 * 3600)
    assert run.used(3600, 3 * 3600, 2) >= 0.85
    assert run.refused(3600, 3 * 3600) < 0.02


@pytest.mark.parametrize("closed_s", [1.5, 60.0])
def test_a_gateway_that_is_closed_at_first_is_as_one_just_met(closed_s: float) -> None:
    """Where the very first request is refused no rate is known: the search began at one in ten seconds, for minutes."""
    run = world(UsedUp(Sliding(100), closed_s, left=0), None)
    run.run(closed_s + 80)
    assert run.used(closed_s + 20, closed_s + 80, 100) >= 0.9
    assert run.refused(closed_s + 20, closed_s + 80) < 0.005


@pytest.mark.parametrize("since", [1.0, 10.0])
def test_a_gateway_that_was_closed_for_a_minute_is_used_again(since: float) -> None:
    """What it had taken until then is no minute's quota."""
    run = world(Closed(Sliding(100), since, since + 60), None)
    run.run(400)
    assert run.used(since + 180, 400, 100) >= 0.75


@pytest.mark.parametrize("most", [1, 2, 4, 8, 32])
def test_limit_on_concurrency_is_kept_to(most: int) -> None:
    """Where so many at once are taken, the pace goes where that many are under way, with next to nothing refused."""
    run = world(Concurrent(most, 0.02), None)
    run.run(150)
    assert run.used(40, 150, min(most * 50, 1000)) >= 0.6
    assert run.refused(40, 150) < 0.01


def test_heavy_tail_of_latencies_and_late_threads_change_little() -> None:
    """Answers of 5 to 2,000 ms, and threads that wake up to 20 ms late: the limit is found all the same."""

    def heavy(chance: random.Random) -> float:
        return min(2.0, 0.005 * chance.paretovariate(0.9)) if chance.random() < 0.5 else 0.005 + chance.random() * 0.05

    for limit, rate, how in ((60, None, {"latency_s": heavy}), (200, 500.0, {"late_s": 0.01})):
        run = World(
            Sliding(limit),
            lambda clock, sleep, rate=rate: Throttle(rate, clock=clock, sleep=sleep),  # type: ignore[misc]
            refusal=Pace(retry_after_s=1.0, refused=True),
            **how,
        )
        run.run(150)
        assert run.used(25, 150, limit) >= 0.85
        assert run.refused(25, 150) < 0.01


def test_what_was_found_is_a_start_and_no_truth() -> None:
    """A run that begins with an earlier finding uses it at once; where the limit has changed it finds the new one."""
    known = world(Sliding(100), None, start=Finding(97.0))
    known.run(20)
    assert known.used(1, 20, 100) >= 0.94
    assert known.refused(0, 20) == 0
    lower = world(Sliding(40), None, start=Finding(97.0))
    lower.run(60)
    assert lower.used(20, 60, 40) >= 0.88
    higher = world(Sliding(200), None, start=Finding(97.0))
    higher.run(200)
    assert higher.used(100, 200, 200) >= 0.8


def test_a_run_that_goes_above_what_it_began_with_is_remembered() -> None:
    """It is refused nothing, so it finds no limit: the next run began at the tenth again, and every one after it."""
    run = world(Sliding(100), 50.0, start=Finding(5.0))
    run.run(150)
    assert run.throttle.told().refusals == 0
    assert run.throttle.to_remember() == Finding(50.0)
    assert world(Sliding(100), 3.0, start=Finding(5.0)).throttle.to_remember() is None


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

    The next run begins there all the same; a limit is told once another one is refused.
    """
    run = world(Played(120), rate)
    run.run(10)
    assert (run.throttle.told().refusals, run.throttle.told().concluded) == (1, None)
    assert run.throttle.to_remember() is not None
    twice = world(Played(120, 200), 100.0)
    twice.run(10)
    assert "faster than" in str(twice.throttle.told())


def test_a_remembered_rate_never_lifts_the_ceiling() -> None:
    """--rate is a ceiling, whatever an earlier run found."""
    run = world(Bucket(1000, 1000), 10.0, start=Finding(97.0))
    run.run(20)
    assert len(run.sent) <= 10 * 20 + 1


def test_each_of_several_runs_takes_its_part() -> None:
    """What is known is divided, and put together again when the others end."""
    finder = LimitFinder(90.0, 0.0)
    finder.share(3)
    assert finder.rate == pytest.approx(30)
    finder.share(1)
    assert finder.rate == pytest.approx(90)


def test_finding_in_words() -> None:
    """What was found is said as people say it; nothing is said before the first refusal."""
    assert str(Finding(98.04)) == "98 a second"
    assert str(Finding(0.5)) == "0.5 a second"
    assert str(Finding(999.7)) == "1,000 a second"
    assert str(Finding(5.0, 60.0)) == "300 in 60 s"
    assert str(Finding(97.0, refused_share=0.0099)) == "1.0 % of the requests, whatever the rate"
    assert LimitFinder(None, 0.0).finding() is None


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
