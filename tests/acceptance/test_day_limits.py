"""Programs that submit and send at once, counted by the gateway: no cent more leaves on a day than its limit allows."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import pytest

from tests.support.command import Home, small_file
from tests.support.oracle import Oracle

FILES = {"a": 20, "b": 24, "c": 28}
"""The number of the first of four rows, which is its amount as well: any two files have more than 150.00."""


def limit(home: Home, amount: str) -> None:
    """Set the limit of a day for all programs."""
    (home.path / "batchpay.toml").write_text(f'[limits]\nmax_per_day = "{amount}"\n')


def at_once(home: Home, *commands: tuple[str, ...]) -> list[dict[str, Any]]:
    """Run commands at once; return what each says."""
    with ExitStack() as started:
        processes = [
            started.enter_context(home.start(*command, "--json", "--no-preflight", stdout=subprocess.PIPE))
            for command in commands
        ]
        return [json.loads(process.stdout.read()) for process in processes if process.stdout is not None]


def arrived(oracle: Oracle) -> Decimal:
    """Add up what the gateway received; it received nothing twice."""
    assert set(oracle.received().values()) <= {1}
    return sum((Decimal(entry["amount"]) for entry in oracle.entries()), Decimal())


@pytest.mark.parametrize("paying_home", ["sqlite", "postgres"], indirect=True)
def test_programs_at_once_keep_the_limit_of_a_day(paying_home: Home, oracle: Oracle) -> None:
    """Of three files one is registered; of what was registered before, one program is killed while the others send."""
    home = paying_home
    oracle.plan()
    for name, first in FILES.items():
        small_file(home.path / f"{name}.csv", 4, first=first)
    limit(home, "150.00")
    told = at_once(home, *(("submit", f"{name}.csv") for name in FILES))
    assert sorted(one["exit_code"] for one in told) == [0, 4, 4]
    (paid,) = [name for name, one in zip(FILES, told, strict=True) if one["exit_code"] == 0]
    assert arrived(oracle) == 4 * FILES[paid] + 7

    limit(home, "9999.00")
    left = [name for name in FILES if name != paid]
    small_file(home.path / "d.csv", 40, first=101)
    batches = [home.json("submit", f"{name}.csv", "--limit", "1", "--no-preflight")["batch"] for name in left]
    before = len(oracle.entries())
    with home.start("submit", "d.csv", "--no-preflight", "--rate", "20", "--workers", "1") as killed:
        assert oracle.gets(before + 2, killed)
        killed.kill()
    oracle.settle()
    most = arrived(oracle) + Decimal("150.00")
    limit(home, str(most))
    told = at_once(home, *(("resume", batch) for batch in batches), ("submit", "d.csv"))
    waits = [one["pending"] for one in told]
    assert most - 110 < arrived(oracle) <= most
    assert sum(waits) == 6 + 40 - (len(oracle.entries()) - before)
    # A batch that found room for all is done; it may end before the killed one is found to be in doubt.
    assert all(one["exit_code"] in ((7, 8) if one["pending"] else (0, 7)) for one in told)
    assert told[-1]["stopped"].startswith("limits.max_per_day")
