"""A part of the campaigns in every test run: kills at 18 points, races, restores, and two sabotages to be noticed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign import durability, kills, races, restores
from tests.campaign.nights import Night, report
from tests.campaign.sabotages import SABOTAGES, Sabotage, caught
from tests.campaign.trial import Bench, Findings, bench
from tests.support.broken_program import broken
from tests.support.postgres import programs_found
from tests.support.strace import STRACE

needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A template of a registered batch and an oracle, for all trials."""
    with bench(tmp_path_factory.mktemp("campaign") / "bench") as prepared:
        yield prepared


@needs_strace
@pytest.mark.parametrize(("command", "fresh", "number"), [(("resume",), False, 14), (("submit", "a.csv"), True, 4)])
def test_kills_pay_nothing_twice_and_lose_nothing(
    made: Bench, command: tuple[str, ...], fresh: bool, number: int
) -> None:
    """Kill -9 before system calls chosen at random, then the same command: every payment once, every state true."""
    found = Findings()
    for point in kills.chosen(kills.points(made, command, fresh=fresh), number, seed=1):
        found.add(kills.hit(made, point, command, fresh=fresh))
    assert found.wrong == []
    assert found.fired >= number // 2  # how often a thread waits for another one varies from run to run


@needs_strace
def test_errors_of_the_disk_stop_the_sending(made: Bench) -> None:
    """EIO, ENOSPC, EROFS, EMFILE and ENOMEM at the ledger's calls: nothing is sent twice, nothing misreported."""
    points = kills.errors_of(kills.points(made, ("resume",), fresh=False))
    found = Findings()
    for point in kills.chosen(points, 8, seed=2):
        found.add(kills.hit(made, point, ("resume",), fresh=False))
    assert found.wrong == []
    assert found.fired >= 4  # how often a call is made varies from run to run


@needs_strace
def test_nothing_leaves_before_the_ledger_is_synced(made: Bench) -> None:
    """The system calls of a run, in order: the last write of the ledger is synced before each payment's first byte."""
    found = durability.sending_after_sync(made)
    assert found.wrong == []
    assert found.fired == 12


@pytest.mark.skipif(not durability.can_cut_power(), reason="mounting a disk image needs root and mkfs.ext4")
def test_a_power_cut_loses_nothing(made: Bench) -> None:
    """The ledger's disk loses its power in the middle of a run."""
    assert durability.power_cut(made, 3).wrong == []


@pytest.mark.parametrize("processes", [2, 5])
def test_one_of_several_starts_does_the_work(made: Bench, processes: int) -> None:
    """Several processes start on one file at the same moment: each payment arrives once."""
    assert races.starts_at_once(made, processes).wrong == []


def test_a_stopped_run_keeps_its_batch(made: Bench) -> None:
    """A run that is stopped keeps its batch, and resumes when it is continued."""
    assert races.stopped_and_replaced(made, 1).wrong == []


def test_a_run_that_was_stopped_sends_nothing_with_an_old_permission(made: Bench) -> None:
    """Stopped between the commit of `sending` and the first byte, longer than the permission lasts: no byte leaves."""
    assert races.stopped_with_a_permission(made).wrong == []


def test_a_restored_or_deleted_ledger_sends_nothing(made: Bench) -> None:
    """An older copy of the ledger, or none, while the witness remembers payments: exit code 5, nothing sent."""
    assert restores.older_ledger(made).wrong == []
    assert restores.deleted_ledger(made).wrong == []


def test_a_damaged_ledger_pays_nothing_again(made: Bench) -> None:
    """A flipped bit or a cut: refused, or without effect."""
    for seed in range(4):
        assert restores.damaged_ledger(made, seed).wrong == []
        assert restores.cut_ledger(made, seed).wrong == []


@needs_strace
@pytest.mark.parametrize("sabotage", SABOTAGES[:2], ids=lambda sabotage: sabotage.name)
def test_sabotage_is_noticed(sabotage: Sabotage, tmp_path: Path) -> None:
    """The trials notice sabotage: ways to break the program are found by the trials meant for them.

    `make campaign-quick` tries all of them.
    """
    assert caught(sabotage, tmp_path) is not None


def test_without_lock_and_token_the_rows_refuse_a_second_run(tmp_path: Path) -> None:
    """Two runs on one batch, with nothing left to keep them apart: the ledger's rows and attempts still do."""
    changes = (
        ("ledger/paths.py", "            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", ""),
        ("ledger/sqlite/run.py", "if not held or held[0] != self._token:", "if not held:"),
    )
    with bench(tmp_path / "bench", broken("no lock, no token", changes, tmp_path / "program")) as made:
        found = races.stopped_and_replaced(made, 0)
    assert (found.fired, found.wrong) == (0, [])


@pytest.mark.parametrize(("last", "wrong"), [
    (Night(1.0, 100.0, 300.0, 0.01), []), (Night(2.0, 100.0, 300.0, 0.01), ["cpu_s"]),
    (Night(1.0, 100.0, 600.0, 0.01), ["bytes_a_row"]), (Night(1.0, 100.0, 300.0, 0.4), ["opening"]),
])  # fmt: skip
def test_nights_that_grow_are_noticed(last: Night, wrong: list[str]) -> None:
    """The campaign of many nights fails if the last nights take more than the first, or if opening is slow."""
    problems: list[str] = []
    report("nights", [Night(1.0, 100.0, 300.0, 0.01)] * 10 + [last] * 10, problems)
    assert [problem.split()[0] for problem in problems] == wrong


def test_nights_with_mishaps_are_reported_as_they_were() -> None:
    """Lost requests and wrong totals: four nights of the campaign, each report in agreement with the book.

    It runs in a process of its own, which forks: this one has threads.
    """
    command = [sys.executable, "-m", "tests.campaign.nights", "--nights", "4", "--rows", "20"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("every report was right")) == (0, 1), done.stdout + done.stderr


def test_two_machines_live_through_chaos() -> None:
    """One sleeps until the other has taken over its batch and finished it: every row still arrives once."""
    if programs_found() is None:
        pytest.skip("no PostgreSQL")
    command = [sys.executable, "-m", "tests.campaign.hosts", "--cycles", "1", "--rows", "40", "--seed", "5"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("WRONG")) == (0, 0), done.stdout + done.stderr
