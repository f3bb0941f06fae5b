"""The file by which runs of one machine share a rate, where it is not as they left it; see test_shared_pace.py."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpay.ledger.sqlite import pace_file as module
from batchpay.ledger.sqlite.pace_file import PaceFile, pace_file

pytestmark = pytest.mark.ledgers(
    "sqlite", why="the file by which runs of one machine share a rate; a database's twin is in test_shared_pace.py"
)


class Machine:
    """A clock, and runs that share a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gateway.pace"
        self.now = 1000.0
        self.runs: list[PaceFile] = []

    def run(self) -> PaceFile:
        self.runs.append(PaceFile(self.path, "", lambda: self.now))
        return self.runs[-1]

    def moments(self, run: PaceFile, rate: float, paused_s: float = 0.0) -> list[float]:
        """What a run is leased, on the clock; nothing where it is alone."""
        lease = run.lease(rate, paused_s)
        assert lease is not None
        return [self.now + lease.first_s + number * lease.every_s for number in range(lease.slots)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for run in made.runs:
        os.close(run._descriptor)


def test_what_stands_there_from_before_a_restart_means_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock begins at zero again: a moment of before would lie weeks ahead."""
    one, other = machine.run(), machine.run()
    machine.moments(one, 10, paused_s=60)
    machine.moments(other, 10)
    monkeypatch.setattr(module, "_start_of_machine", lambda: b"x" * 16)
    machine.now = 5.0
    assert machine.moments(machine.run(), 10) == []


def test_a_file_that_is_cut_short_or_not_ours_is_begun_anew(machine: Machine) -> None:
    machine.path.write_bytes(b"nothing of ours")
    assert machine.moments(machine.run(), 10) == []
    assert machine.moments(machine.run(), 10) != []


def test_a_run_waits_for_one_that_stands_still_with_the_file_and_not_for_ever(tmp_path: Path) -> None:
    """A process stopped in those microseconds sends nothing either: the others go on at their own pace."""
    run = PaceFile(tmp_path / "gateway.pace")
    with (tmp_path / "gateway.pace").open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        leases = [run.lease(10, 0) for _ in range(5)]
    assert leases[:4] == [None] * 4
    assert leases[4] is not None and leases[4].slots == 0
    assert run.lease(10, 0) is not None
    run.close()


@pytest.mark.parametrize("filled", [b"\xff", b"\x7f", b"\x40", b"\0"])
def test_what_no_run_has_written_stops_none(machine: Machine, filled: bytes) -> None:
    """Not a number, weeks of pause, a rate of nothing: a run would wait for ever, or its workers end without a word."""
    assert machine.moments(machine.run(), 10) == []
    content = machine.path.read_bytes()
    machine.path.write_bytes(content[:16] + filled * (len(content) - 16))
    assert machine.moments(machine.run(), 10) == []


def test_a_disk_without_room_holds_up_no_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's commit says what is wrong; a run that never came so far would hang without a word."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    run = machine.run()
    monkeypatch.setattr(os, "pwrite", full)
    assert machine.moments(run, 10) == []


def test_without_a_file_each_run_keeps_its_own_pace(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert pace_file(tmp_path / "file", "test http://127.0.0.1:1") is None
    made = pace_file(tmp_path / "folder", "test http://127.0.0.1:1")
    assert made is not None
    made.close()
    (path,) = (tmp_path / "folder").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
