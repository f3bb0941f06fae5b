"""Runs whose ledger's disk stands still now and then, and whose threads wake up late: never more than the rate.

In virtual time, with the file by which runs of one machine share a rate. A request waits for its slot, then for a
commit, of which the ledger makes one at a time, then until it may leave.
"""

from __future__ import annotations

import heapq
import itertools
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchpay.ledger.sqlite.pace_file import PaceFile
from batchpay.sending.pacing import LEAVE_S_MAX
from batchpay.sending.shared_rate import SharedThrottle

pytestmark = pytest.mark.ledgers(
    "sqlite", why="a commit of a file holds up all runs of its machine; a server's are each other's neighbors only"
)

NETWORK_S, ANSWER_S, COMMIT_S, WAKES_LATE_S = 0.0002, 0.02, 0.001, 0.0003


@dataclass(frozen=True)
class Trouble:
    """What goes wrong on a machine."""

    stalls_a_second: float = 0.0
    """How often the disk stands still, for 0.05 to 0.15 s."""
    share_late: float = 0.0
    """Share of wake-ups that are 5 to 20 ms late."""


class Machine:
    """Its clock, its one ledger, and what arrives at the gateway."""

    def __init__(self, trouble: Trouble, seed: int) -> None:
        self.now = 0.0
        self.arrived: list[float] = []
        self.trouble, self.chance = trouble, random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._to_commit: deque[Callable[[], None]] = deque()
        self._is_committing = False
        self._stalls_at = self._next_stall()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), act))

    def run(self, until: float) -> None:
        while self._events[0][0] < until:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def wakes_late_s(self) -> float:
        more = self.chance.uniform(0.005, 0.02) if self.chance.random() < self.trouble.share_late else 0.0
        return self.chance.expovariate(1 / WAKES_LATE_S) + more

    def commit(self, done: Callable[[], None]) -> None:
        """Write to the ledger, when it is free."""
        if self._is_committing:
            self._to_commit.append(done)
            return
        self._is_committing = True
        takes_s = COMMIT_S
        if self.now >= self._stalls_at:
            takes_s += self.chance.uniform(0.05, 0.15)
            self._stalls_at = self._next_stall()

        def end() -> None:
            self._is_committing = False
            done()
            if self._to_commit:
                self.commit(self._to_commit.popleft())

        self.after(takes_s, end)

    def most_in_a_second(self) -> int:
        arrived = sorted(self.arrived)
        return max(bisect_right(arrived, at + 0.9999999) - place for place, at in enumerate(arrived))

    def _next_stall(self) -> float:
        often = self.trouble.stalls_a_second
        return self.now + self.chance.expovariate(often) if often else float("inf")


class Run:
    """Sends as a run does, at a known rate."""

    def __init__(self, machine: Machine, pace: Path, rate: float, workers: int = 16) -> None:
        self._machine, self._free, self._waits = machine, workers, False
        self._slots: list[float] = []
        self._throttle = SharedThrottle(
            rate, PaceFile(pace, clock=lambda: machine.now), clock=lambda: machine.now, sleep=lambda _: False
        )
        self._is_writing = False

    def take(self) -> None:
        """Take slots while they have come, each for a row; then wait, or for a worker to be free."""
        while self._free:
            if (wait_s := self._throttle._take(self._machine.now)) > 0:
                self._machine.after(wait_s + self._machine.wakes_late_s(), self.take)
                return
            self._free -= 1
            self._slots.append(self._throttle._own.slot)
            self._write()
        self._waits = True

    def _write(self) -> None:
        if self._is_writing or not self._slots:
            return
        self._is_writing, (slots, self._slots) = True, (self._slots, [])

        def done() -> None:
            self._is_writing = False
            for slot in slots:
                self._leave(slot)
            self._write()

        self._machine.commit(done)

    def _leave(self, slot: float) -> None:
        """Leave as `Throttle.leave` does, which can't wait here: other threads act meanwhile."""
        throttle, now = self._throttle, self._machine.now
        planned_at = min(max(now, throttle._may_leave_at()), now + LEAVE_S_MAX)
        throttle._left.append(planned_at)

        def leave() -> None:
            throttle._own.slot, left_at = slot, self._machine.now
            throttle._note_departure(planned_at, left_at)
            self._machine.after(NETWORK_S, lambda: self._machine.arrived.append(self._machine.now))
            self._machine.after(ANSWER_S, lambda: self._answered(left_at))

        self._machine.after(planned_at - now + (self._machine.wakes_late_s() if planned_at > now else 0.0), leave)

    def _answered(self, left_at: float) -> None:
        self._throttle.learn(None, left_at)
        self._free += 1
        if self._waits:
            self._waits = False
            self.take()


@pytest.mark.parametrize(
    ("trouble", "used_least"),
    [(Trouble(), 0.985), (Trouble(stalls_a_second=1.0), 0.84), (Trouble(stalls_a_second=1.0, share_late=0.05), 0.82)],
    ids=["none", "disk", "disk and threads"],
)
@pytest.mark.parametrize("runs", [1, 2, 4])
@pytest.mark.parametrize("rate", [50, 200])
def test_a_disk_that_stands_still_brings_no_second_above_the_rate(
    tmp_path: Path, rate: int, runs: int, trouble: Trouble, used_least: float
) -> None:
    """Two runs sent up to 56 in a second of 50 after each halt: refused, both paused, and 82 % of the rate was used.

    What a halt held up left at once when it was over, in seconds that had all their slots; and one run alone counted
    a request from when it was to leave, not from when its thread woke up.
    """
    seconds = 20.0
    machine = Machine(trouble, seed=1)
    for number in range(runs):
        machine.after(0.4 * number, Run(machine, tmp_path / "pace", rate).take)
    machine.run(seconds)
    assert machine.most_in_a_second() <= rate
    assert len(machine.arrived) / (rate * seconds) > used_least


def test_a_run_that_gets_company_gives_up_slots_for_what_left_close_together(tmp_path: Path) -> None:
    """1,024 in a second of 1,000: alone it made up for its slow start within a second that the other has slots in."""
    machine = Machine(Trouble(), seed=1)
    for number in range(2):
        machine.after(1.5 * number, Run(machine, tmp_path / "pace", 1000, workers=64).take)
    machine.run(4.0)
    assert machine.most_in_a_second() <= 1000
