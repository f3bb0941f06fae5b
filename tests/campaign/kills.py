"""Kill -9 before a system call, and errors from system calls, by strace's fault injection."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.campaign.trial import Bench, Findings, finish_and_check, run_traced
from tests.support.command import Home
from tests.support.strace import strace

_CALLS = (
    "openat", "read", "pread64", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "unlink", "rename", "close",
    "fcntl", "flock", "connect", "socket", "sendto", "recvfrom", "futex", "fallocate", "mmap",
)  # fmt: skip
_ERRORS = {
    "EIO": ("fdatasync", "fsync", "pwrite64", "pread64"),
    "ENOSPC": ("pwrite64", "fallocate", "openat"),
    "EROFS": ("openat", "pwrite64"),
    "EMFILE": ("openat", "socket"),
    "ENOMEM": ("mmap", "openat"),
}
"""Not `write`: polars's threads wake one another by it, which no disk fails, and would then wait forever."""


@dataclass(frozen=True)
class Point:
    """Where a run is hit: the `when`-th call of one kind in some thread."""

    call: str
    when: int
    error: str | None = None

    def options(self) -> list[str]:
        """Return what tells strace of the fault."""
        fault = f"error={self.error}" if self.error else "signal=SIGKILL"
        expression = f"inject={self.call}:{fault}:when={self.when}" + ("" if self.error is None else "+")
        return ["-o", "/dev/null", "-e", f"trace={self.call}", "-e", expression]

    def prefix(self) -> list[str]:
        """Return the command that runs another one, from its start, with the fault in it."""
        return strace(*self.options())

    def __str__(self) -> str:
        return f"{self.error or 'kill'} at {self.call} {self.when}"


def points(made: Bench, command: tuple[str, ...], *, fresh: bool, codes: tuple[int, ...] = (0, 3)) -> list[Point]:
    """Find every point of a command: how often any one thread makes each call in an undisturbed run."""
    home = made.empty_home() if fresh else made.home()
    found = points_of(home, lambda options: run_traced(home, options, *command), codes)
    shutil.rmtree(home.path)
    return found


def points_of(home: Home, run: Callable[[list[str]], CompletedProcess[Any]], codes: tuple[int, ...]) -> list[Point]:
    """Find every point of whatever runs in a home under strace with some options."""
    trace = home.path / "trace"
    done = run(["-ff", "-o", str(trace), "-e", f"trace={','.join(_CALLS)}"])
    assert done.returncode in codes, done.stderr
    most: dict[str, int] = {}
    for file in home.path.glob("trace.*"):
        counts: dict[str, int] = {}
        for call in re.findall(r"^(\w+)\(", file.read_text("utf-8", "replace"), flags=re.MULTILINE):
            counts[call] = counts.get(call, 0) + 1
        for call, count in counts.items():
            most[call] = max(most.get(call, 0), count)
    return [Point(call, when) for call, count in sorted(most.items()) for when in range(1, count + 1)]


def chosen(found: Sequence[Point], number: int | None, seed: int) -> list[Point]:
    """Choose points, each kind of call as often as any other: common calls don't crowd out rare ones."""
    if number is None:
        return list(found)
    dice = random.Random(seed)
    calls = sorted({point.call for point in found})
    picked: list[Point] = []
    while len(picked) < min(number, len(found)):
        call = dice.choice(calls)
        of_call = [point for point in found if point.call == call and point not in picked]
        if of_call:
            picked.append(dice.choice(of_call))
    return picked


def errors_of(found: Sequence[Point]) -> list[Point]:
    """Return the errors that the calls of these points can end with."""
    return [
        Point(point.call, point.when, error)
        for error, calls in _ERRORS.items()
        for point in found
        if point.call in calls
    ]


def hit(made: Bench, point: Point, command: tuple[str, ...], *, fresh: bool, again: Point | None = None) -> Findings:
    """Hit a run at a point, its recovery at another if asked, then finish and check."""
    home = made.empty_home() if fresh else made.home()
    since = _size(made.oracle.log)
    done = run_traced(home, point.options(), *command)
    fired = int(done.returncode == -9) if point.error is None else int(done.returncode not in (0, 3))
    if again is not None:
        run_traced(home, again.options(), *command)
    story = f"{' '.join(command)}, {point}" + (f", then {again}" if again else "")
    most = made.workers * (1 if again is None else 2)  # each crash can leave as many rows in doubt as there are workers
    found = finish_and_check(made, home, since, story, command, in_doubt_max=most)
    found.fired = fired
    return found


def _size(log: Path) -> int:
    return log.stat().st_size
