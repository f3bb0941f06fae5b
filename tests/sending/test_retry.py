"""Another attempt only where the last one proved that nothing was applied; waits bounded, obedient, interruptible."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from batchpay.outcome import Outcome, Pace
from batchpay.payment import State
from batchpay.sending.limits import StopRequest
from batchpay.sending.sender import WAIT_S_FIRST, Attempts
from batchpay.settings import SubmitSettings

PENDING = Outcome(State.PENDING, "connection refused")
FINAL = [
    Outcome(State.ACCEPTED, "yes"),
    Outcome(State.DECLINED, "no"),
    Outcome(State.IN_DOUBT, "silence", bytes_sent=9),
    Outcome(State.PENDING, "certificate", stop="certificate"),
]


class Recorded(StopRequest):
    """A request whose waits are written down instead of waited for."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._stop_after = stop_after

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if len(self.waits) == self._stop_after:
            self.ask("stopped")
        return self.is_set()


def in_turn(*outcomes: Outcome) -> tuple[Callable[[], Outcome], list[int]]:
    left: Iterator[Outcome] = iter(outcomes)
    made: list[int] = []

    def attempt() -> Outcome:
        made.append(1)
        return next(left)

    return attempt, made


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("final", FINAL)
def test_pending_is_repeated_until_it_is_not(final: Outcome, before: int) -> None:
    """What proves something, or pending with a reason to stop, ends the matter: at once, or after two pending ones."""
    stop = Recorded()
    attempt, made = in_turn(*[PENDING] * before, final)
    assert Attempts(SubmitSettings(), stop).run(attempt) is final
    assert (len(made), len(stop.waits)) == (before + 1, before)


@pytest.mark.parametrize("pending", [PENDING, PENDING._replace(pace=Pace(limit=10.0))])
def test_number_of_attempts_is_bounded(pending: Outcome) -> None:
    """attempts_max attempts are made, and the last outcome is given: a limit that is told refuses nothing."""
    for attempts_max in (1, 2, 6):
        attempt, made = in_turn(*[pending] * 9)
        outcome = Attempts(SubmitSettings(attempts_max=attempts_max), Recorded()).run(attempt)
        assert (outcome, len(made)) == (pending, attempts_max)


def test_waits_grow_at_random_and_are_bounded() -> None:
    """Waits are random below a bound that doubles, and never above wait_s_max."""
    seen: list[list[float]] = []
    for _ in range(50):
        stop = Recorded()
        Attempts(SubmitSettings(attempts_max=9, wait_s_max=3.0), stop).run(in_turn(*[PENDING] * 9)[0])
        assert all(wait <= min(3.0, WAIT_S_FIRST * 2**number) for number, wait in enumerate(stop.waits))
        seen.append(stop.waits)
    assert len({tuple(waits) for waits in seen}) == 50
    assert max(waits[7] for waits in seen) > 1.5


@pytest.mark.parametrize(("asked_s", "wait_s"), [(7.0, 7.0), (1e12, 60.0)])
def test_retry_after_is_obeyed_and_capped(asked_s: float, wait_s: float) -> None:
    """The wait is not shorter than the gateway asks, and not longer than wait_s_max."""
    stop = Recorded()
    busy = Outcome(State.PENDING, "HTTP 429", pace=Pace(retry_after_s=asked_s, refused=True))
    Attempts(SubmitSettings(), stop).run(in_turn(busy, FINAL[0])[0])
    assert stop.waits == [wait_s]


def test_busy_without_a_time_is_waited_for_as_ever() -> None:
    """429 without Retry-After: a random wait, and then once more."""
    stop = Recorded()
    busy = Outcome(State.PENDING, "HTTP 429", pace=Pace(refused=True))
    assert Attempts(SubmitSettings(), stop).run(in_turn(busy, FINAL[0])[0]) is FINAL[0]
    (wait_s,) = stop.waits
    assert 0 <= wait_s <= WAIT_S_FIRST


@pytest.mark.parametrize("asked_s", [None, 1.0, 3600.0])
def test_a_row_refused_for_its_pace_is_given_up_only_after_minutes(asked_s: float | None) -> None:
    """A gateway closed for a minute, or a minute's quota, ended a run of one worker after six refusals in ten seconds.

    Where so many attempts are too many, it is given up after the time that they may take.
    """
    stop = Recorded()
    busy = Outcome(State.PENDING, "HTTP 429", pace=Pace(retry_after_s=asked_s, refused=True))
    attempt, made = in_turn(*[busy] * 999)
    assert Attempts(SubmitSettings(), stop).run(attempt) is busy
    assert 300 <= sum(stop.waits) <= 360
    assert len(made) >= 6
    attempt, made = in_turn(*[busy] * 9)
    assert Attempts(SubmitSettings(attempts_max=1), Recorded()).run(attempt) is busy
    assert len(made) == 1


@pytest.mark.parametrize("waits", [0, 2])
def test_stop_ends_a_wait_and_further_attempts(waits: int) -> None:
    """Nothing more is attempted and the row stays pending; stopped already, it is not even waited for."""
    stop = Recorded(stop_after=waits)
    if not waits:
        stop.ask("stopped")
    attempt, made = in_turn(*[PENDING] * 9)
    assert Attempts(SubmitSettings(), stop).run(attempt) == PENDING
    assert (len(made), len(stop.waits)) == (max(1, waits), waits)


@pytest.mark.parametrize("before", [0, 1])
def test_what_an_attempt_raises_goes_on(before: int) -> None:
    """An exception of an attempt (the ledger's) is not caught, and not a reason for another attempt."""
    made: list[int] = []

    def attempt() -> Outcome:
        made.append(1)
        if len(made) > before:
            raise LookupError("the ledger says no")
        return PENDING

    with pytest.raises(LookupError, match="the ledger says no"):
        Attempts(SubmitSettings(), Recorded()).run(attempt)
    assert len(made) == before + 1


def test_one_object_serves_many_threads() -> None:
    """Threads that share it count their attempts apart."""
    attempts = Attempts(SubmitSettings(attempts_max=5), Recorded())
    counts: list[int] = []

    def work() -> None:
        attempt, made = in_turn(*[PENDING] * 9)
        attempts.run(attempt)
        counts.append(len(made))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [5] * 16
