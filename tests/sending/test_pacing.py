"""The throttle in virtual time: a clock that only moves when somebody sleeps, and gateways that count."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from batchpay.errors import SettingsNotUsable
from batchpay.outcome import Pace
from batchpay.sending.limits import StopRequest
from batchpay.sending.pacing import ALONE_S_MAX, Throttle
from batchpay.settings import SubmitSettings, parse_rate
from tests.support import pace_world
from tests.support.pace_world import Bucket, Limiter, Sliding

REFUSAL = Pace(retry_after_s=1.0, refused=True)


def virtual_run(gateway: Limiter, rate: float | None, *, refusal: Pace = REFUSAL, **options: Any) -> pace_world.World:
    """A run under a throttle of that rate."""
    if "latency_s" in options:
        options["latency_s"] = lambda chance, latency_s=options["latency_s"]: latency_s
    return pace_world.World(
        gateway, lambda clock, sleep: Throttle(rate, clock=clock, sleep=sleep), refusal=refusal, **options
    )


@pytest.mark.parametrize("late_s", [0.0001, 0.003])
@pytest.mark.parametrize("make", [lambda limit: Bucket(limit, limit), Sliding, lambda limit: Bucket(limit, limit / 5)])
@pytest.mark.parametrize("limit", [50, 200, 1000])
def test_known_limit_is_used_without_a_refusal(limit: int, make: Callable[[int], Limiter], late_s: float) -> None:
    """A limit that is known is used to 99 % with no request refused, also where threads wake up late."""
    world = virtual_run(make(limit), float(limit), late_s=late_s)
    world.run(10)
    assert world.refused(0, 10) == 0
    assert world.used(0, 10, limit) >= 0.99


@pytest.mark.parametrize("rate", [0.5, 20.0, 1000.0])
def test_requests_held_up_by_the_ledger_do_not_leave_bunched(rate: float) -> None:
    """A slow disk holds up what waits for its commit; a limit of 1,000 a second then refused 22 that left at once."""
    now, slept = 0.0, 0.0

    def sleep(seconds: float) -> bool:
        nonlocal slept
        slept = seconds
        return False

    throttle = Throttle(rate, clock=lambda: now, sleep=sleep)
    moments = [number * 1.0065 / rate for number in range(int(max(rate, 4) * 20))]
    held = moments[len(moments) // 4], moments[len(moments) // 4] + 0.2
    left: list[float] = []
    for moment in moments:
        now, slept = held[1] if held[0] <= moment < held[1] else moment, 0.0
        throttle.leave()
        left.append(now + slept)
    a_second = math.ceil(rate)
    assert all(later - earlier >= a_second / rate for earlier, later in zip(left, left[a_second:], strict=False))
    assert max(at - moment for at, moment in zip(left, moments, strict=True)) <= 0.2 + 1e-9
    assert left[-1] - moments[-1] < 0.2 - 0.1 * (rate > 1), "those held up come back to their moments"


@pytest.mark.parametrize("bunched_s", [0.005, 0.01, 0.02])
@pytest.mark.parametrize("limit", [50, 100, 200])
def test_unknown_limit_is_kept_on_a_busy_machine(limit: int, bunched_s: float) -> None:
    """Requests that arrive bunched change little."""
    world = virtual_run(Sliding(limit), None, bunched_s=bunched_s)
    world.run(65)
    assert world.used(20, 65, limit) >= 0.9
    assert world.refused(20, 65) < 0.01


def test_announced_limit_is_not_exceeded() -> None:
    """Where the gateway announces its limit and window, nothing is refused and 95 % is used."""
    world = virtual_run(Sliding(100), None, plain=Pace(limit=6000, window_s=60))
    world.run(30)
    assert world.refused(0, 30) == 0
    assert world.used(5, 30, 100) >= 0.95


def test_falling_limit_is_followed_and_the_ceiling_regained() -> None:
    """A gateway that allows less for a while is obeyed; afterwards the rate comes back to the ceiling by itself."""
    gateway = Bucket(100, 20)
    world = virtual_run(gateway, 100.0)
    world.run(10)
    gateway.rate = 40
    world.run(40)
    assert world.used(20, 40, 40) >= 0.8
    assert world.refused(10, 40) < 0.03
    gateway.rate = 100
    world.run(400)
    assert world.throttle.state().rate == 100


def test_no_second_sees_more_than_the_rate() -> None:
    """After any stall of the senders, no second carries more than the ceiling."""
    now = [0.0]

    def sleep(seconds: float) -> bool:
        now[0] += seconds
        return False

    throttle = Throttle(50.0, clock=lambda: now[0], sleep=sleep)
    left: list[float] = []
    stalls = random.Random(3)
    for _ in range(2000):
        if stalls.random() < 0.05:
            now[0] += stalls.random() * 0.3
        throttle.acquire()
        throttle.leave()
        left.append(now[0])
    assert max(sum(1 for at in left[i : i + 60] if at < left[i] + 1.0) for i in range(len(left))) <= 50


def make_at(rate: float | None) -> tuple[Throttle, list[float], list[float]]:
    """A throttle with its clock and the list of its waits."""
    now, waits = [100.0], [0.0]

    def sleep(seconds: float) -> bool:
        now[0] += seconds
        waits.append(seconds)
        return False

    return Throttle(rate, clock=lambda: now[0], sleep=sleep, wait_s_max=60.0), now, waits


@pytest.mark.parametrize(("pace", "pause_s"), [
    (Pace(retry_after_s=3.0, refused=True), 3.0), (Pace(retry_after_s=1e12, refused=True), 60.0),
    (Pace(retry_after_s=0.0, refused=True), 0.0), (Pace(reset_s=4.0, remaining=0, refused=True), 4.0),
    (Pace(refused=True), 0.25), (Pace(retry_after_s=3.0), 0.0), (Pace(), 0.0),
])  # fmt: skip
def test_pauses(pace: Pace, pause_s: float) -> None:
    """A refusal pauses the run for as long as it asks, capped; an answer that refuses nothing does not."""
    throttle, now, _ = make_at(10.0)
    throttle.acquire()
    throttle.learn(pace, sent_at=now[0])
    assert throttle.state().paused_s == pytest.approx(pause_s)
    began = now[0]
    throttle.acquire()
    assert now[0] >= began + pause_s


def test_nothing_but_refusals_double_the_pause() -> None:
    """While every answer is a refusal, pauses grow up to the cap; an answer that is none ends that."""
    throttle, now, _ = make_at(10.0)
    pauses = []
    for _ in range(30):
        throttle.acquire()
        throttle.learn(Pace(retry_after_s=0.0, refused=True), sent_at=now[0])
        pauses.append(throttle.state().paused_s)
        now[0] += 0.001
    assert pauses[1] > 0.2
    assert pauses == sorted(pauses)
    assert pauses[-1] > 20
    assert max(pauses) <= 60
    throttle.acquire()
    throttle.learn(None, sent_at=now[0])
    throttle.acquire()
    throttle.learn(Pace(retry_after_s=0.0, refused=True), sent_at=now[0])
    assert throttle.state().paused_s == 0


def test_what_a_stall_lost_is_not_made_up_by_two_at_once() -> None:
    """A gateway that has refused may refuse two at the same time: they keep apart, less what threads wake up late."""
    now, late_s = 0.0, 0.002

    def sleep(seconds: float) -> bool:
        nonlocal now
        now += seconds + late_s
        return False

    throttle = Throttle(50.0, clock=lambda: now, sleep=sleep)
    left, rates = list[float](), list[float]()
    for number in range(200):
        assert throttle.acquire()
        throttle.leave()
        left.append(now)
        throttle.learn(Pace(retry_after_s=0.1, refused=True) if number == 100 else None, now)
        rates.append(throttle.state().rate)
        now += 0.04 * (number % 20 == 0)
    apart = list(zip(left[101:], left[102:], rates[101:], strict=False))
    assert all(later - earlier >= 1 / rate - 1.6 * late_s for earlier, later, rate in apart)
    assert any(later - earlier <= 1 / rate - 0.25 * late_s for earlier, later, rate in apart), "nothing was made up"


def test_a_request_that_goes_alone_and_is_lost_holds_up_the_others_for_a_moment_only() -> None:
    """Nobody answers it, so that nothing is heard of it any more: the run stood still until somebody stopped it."""
    now = 0.0

    def sleep(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return now > 60.0

    throttle = Throttle(50.0, clock=lambda: now, sleep=sleep)
    assert throttle.acquire()
    throttle.learn(Pace(retry_after_s=5.0, refused=True), now)
    left = [now for _ in range(2) if throttle.acquire()]
    assert left == pytest.approx([5.0, 5.0 + ALONE_S_MAX], abs=0.01)


def test_no_more_leave_together_than_a_second_may_have() -> None:
    """Held up from the start by one commit: the last of them leaves a second later."""
    slept: list[float] = []
    throttle = Throttle(50.0, clock=lambda: 0.0, sleep=slept.append)
    for _ in range(51):
        throttle.leave()
    assert slept == [1.0]


def test_a_thread_that_wakes_up_late_is_counted_when_it_left() -> None:
    """Those of the next second keep clear of it: 51 left within a second of 50."""
    now, late_s, left = 0.0, iter([0.05]), list[float]()

    def sleep(seconds: float) -> bool:
        nonlocal now
        now += seconds + next(late_s, 0.0)
        return False

    throttle = Throttle(50.0, clock=lambda: now, sleep=sleep)
    for _ in range(150):
        throttle.leave()
        left.append(now)
    assert all(later - earlier >= 0.999 for earlier, later in zip(left, left[50:], strict=False))


def test_an_answer_to_what_left_before_the_pause_does_not_end_it() -> None:
    """It was taken before the limit was reached: the one that goes alone finds out whether more may go."""
    now = 0.0

    def sleep(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return False

    throttle = Throttle(50.0, clock=lambda: now, sleep=sleep)
    before = [now for _ in range(2) if throttle.acquire()]
    throttle.learn(Pace(retry_after_s=1.0, refused=True), before[1])
    assert throttle.acquire()
    alone_at = now
    throttle.learn(None, before[0])
    assert throttle.acquire()
    assert now - alone_at == pytest.approx(ALONE_S_MAX, abs=0.01)


@pytest.mark.parametrize("told", [Pace(limit=10.0), Pace(window_s=60.0)])
def test_a_limit_without_its_window_is_no_rate(told: Pace) -> None:
    """A hundred, but in which time? It was divided by nothing, and the run ended."""
    throttle = Throttle(50.0, clock=lambda: 0.0)
    throttle.learn(told, 0.0)
    assert throttle.state().rate == 50.0


def test_one_congestion_lowers_the_rate_once() -> None:
    """Refusals of requests that were under way when the rate was lowered do not lower it again."""
    throttle, now, _ = make_at(100.0)
    sent = []
    for _ in range(30):
        throttle.acquire()
        sent.append(now[0])
    now[0] += 0.05
    throttle.learn(Pace(retry_after_s=1.0, refused=True), sent_at=sent[-10])
    lowered = throttle.state().rate
    for at in sent[-9:]:
        throttle.learn(Pace(retry_after_s=1.0, refused=True), sent_at=at)
    assert throttle.state().rate == lowered < 100


@pytest.mark.parametrize("refused_before", [False, True])
def test_a_refusal_lowers_a_rate_that_was_just_announced(refused_before: bool) -> None:
    """A gateway that took 100 a second announces 20 and refuses one of those under way: the run goes below 20.

    What had left in the second before it was taken for the limit, and the rate stayed where it was.
    """
    throttle, now, _ = make_at(100.0)
    for pace in [None] * 300 + [REFUSAL] * refused_before + [None] * 4500:
        throttle.acquire()
        throttle.learn(pace, sent_at=now[0])
    sent = []
    for _ in range(2):
        throttle.acquire()
        sent.append(now[0])
    throttle.learn(Pace(limit=20, window_s=1), sent_at=sent[0])
    announced = throttle.state().rate
    assert announced <= 20
    throttle.learn(REFUSAL, sent_at=sent[1])
    assert throttle.state().rate < announced


def test_a_late_refusal_that_asks_for_longer_is_waited_for() -> None:
    """A refusal of a request that was under way already changes no rate, but how long it asks to wait counts."""
    throttle, now, _ = make_at(100.0)
    sent = []
    for _ in range(5):
        throttle.acquire()
        sent.append(now[0])
    throttle.learn(Pace(retry_after_s=1.0, refused=True), sent_at=sent[-1])
    for asked_s, pause_s in ((0.5, 1.0), (5.0, 5.0), (None, 5.0), (1e12, 60.0)):
        throttle.learn(Pace(retry_after_s=asked_s, refused=True), sent_at=sent.pop(0))
        assert throttle.state().paused_s == pytest.approx(pause_s)


def test_a_pause_that_was_asked_for_does_not_lengthen_those_that_are_not() -> None:
    """A gateway asks for three seconds and takes the next request; one that asks for none is soon tried again."""
    throttle, now, _ = make_at(10.0)
    throttle.acquire()
    throttle.learn(Pace(retry_after_s=3.0, refused=True), sent_at=now[0])
    for _ in range(30):
        throttle.acquire()
        throttle.leave()
        throttle.learn(None, sent_at=now[0])
    throttle.acquire()
    throttle.learn(Pace(refused=True), sent_at=now[0])
    assert throttle.state().paused_s <= 0.5


def test_pause_holds_a_thread_that_waits_already() -> None:
    """A pause announced while a thread waits for its moment holds that thread too."""
    now = [0.0]
    pending: list[Pace] = []

    def sleep(seconds: float) -> bool:
        now[0] += seconds
        if pending and seconds > 0:
            throttle.learn(pending.pop(), sent_at=now[0])
        return False

    throttle = Throttle(10.0, clock=lambda: now[0], sleep=sleep)
    throttle.acquire()
    pending.append(Pace(retry_after_s=5.0, refused=True))
    throttle.acquire()
    assert now[0] >= 5.1


def test_stop_ends_every_wait() -> None:
    """When the run is to stop, waiting threads and later ones are turned away."""
    stop = StopRequest()
    throttle = Throttle.from_settings(SubmitSettings(rate="0.1"), stop)
    assert throttle.acquire()
    turned_away: list[bool] = []
    threads = [threading.Thread(target=lambda: turned_away.append(throttle.acquire())) for _ in range(8)]
    for thread in threads:
        thread.start()
    stop.ask("stopped")
    for thread in threads:
        thread.join(5)
    assert turned_away == [False] * 8
    assert not throttle.acquire()
    assert not Throttle.from_settings(SubmitSettings(rate="0.1"), stop).acquire(), "though its slot is there"


def test_longest_wait_of_the_settings_bounds_a_pause() -> None:
    """submit.wait_s_max bounds a pause, however long the gateway asks."""
    throttle = Throttle.from_settings(SubmitSettings(rate="10", wait_s_max=7.0), StopRequest())
    throttle.learn(Pace(retry_after_s=3600.0, refused=True), time.monotonic())
    assert 0 < throttle.state().paused_s <= 7.0


def test_rate_setting() -> None:
    """submit.rate is a number within bounds or `auto`."""
    assert parse_rate("10") == 10
    assert parse_rate("0.5") == 0.5
    assert parse_rate(" Auto ") is None
    for text in ("", "0", "-1", "nan", "inf", "1e9", "ten", "10/s"):
        with pytest.raises(SettingsNotUsable, match=r"submit\.rate"):
            parse_rate(text)
