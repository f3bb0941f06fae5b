"""A run is killed just as midnight passes: the next one pays nothing twice, and nothing that was due the day before."""

from __future__ import annotations

import csv
import json
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.command import Home, small_file
from tests.support.held_up import SIGN
from tests.support.oracle import Oracle
from tests.support.warm import Process

ROWS, WORKERS = 40, 8
_FIRST_DAY = {
    "recurringIndicator": "TRUE", "recurringBillingCycle": "MONTHLY", "recurringEndOfMonth": "N",
    "recurringNumOfPayments": "12", "recurringAgreementFlag": "1",
}  # fmt: skip


def _file(path: Path) -> None:
    """Write 40 rows, every second one a recurring payment whose first day is today."""
    with small_file(path, ROWS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    starts = _FIRST_DAY | {"recurringStartDate": f"{datetime.now().astimezone():%m/%d/%Y}"}
    rows = [row | (starts if number % 2 else dict.fromkeys(starts, "") | {"recurringIndicator": "FALSE"})
            for number, row in enumerate(rows, 1)]  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def _run(home: Home, days: int, leave: int, hold: int, *command: str) -> Process:
    arguments = [*command, "--json", "--no-preflight", "--workers", str(WORKERS), "--rate", "100"]
    return home.start(
        str(days), str(leave), str(hold), *arguments,
        module="tests.support.over_midnight", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize(("left", "again"), [(1, ("submit", "a.csv")), (12, ("resume", "--results", "a.results.csv"))])
def test_a_run_that_is_killed_at_midnight_resumes_the_next_day(
    oracle_home: Home, oracle: Oracle, left: int, again: tuple[str, ...]
) -> None:
    """What was on its way is in doubt; what should have started the day before is held back, and reported."""
    _file(oracle_home.path / "a.csv")
    with _run(oracle_home, 0, left, WORKERS, "submit", "a.csv") as first:
        assert first.stderr is not None
        assert any(SIGN in line for line in first.stderr)
        while len(oracle.entries()) < left:
            assert first.poll() is None
        first.kill()
    before = set(oracle.received())
    assert len(before) == left
    with _run(oracle_home, 1, ROWS, ROWS, *again) as second:
        out, _ = second.communicate()
    told = json.loads(out)
    with (oracle_home.path / "a.results.csv").open(newline="") as file:
        by_state: dict[str, set[str]] = {}
        for row in csv.DictReader(file):
            by_state.setdefault(row["state"], set()).add(row["invoiceNumber"])
    received = oracle.received()
    assert set(received.values()) == {1}
    assert not {name for name in received.keys() - before if int(name.removeprefix("INV-")) % 2}
    assert by_state["in_doubt"].isdisjoint(received.keys() - before)
    assert by_state["accepted"] <= received.keys()
    held = by_state["pending"]
    assert held == {f"INV-{number}" for number in range(1, ROWS, 2)} - by_state["in_doubt"] - by_state["accepted"]
    assert (told["exit_code"], told["in_doubt"], told["pending"], told["held_back"]["rows"]) == (
        7, len(by_state["in_doubt"]), len(held), len(held),
    )  # fmt: skip
    assert WORKERS <= told["in_doubt"] <= WORKERS + left
