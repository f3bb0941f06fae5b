"""Many nights on one ledger: `python -m tests.campaign.nights [--nights N] [--rows N]`.

Each night one file comes in. Some nights its totals are wrong, the run is stopped half-way, or the file comes again.
Each morning the report must be right: what the gateway counted is what the ledger says, and nothing was paid twice.
Over all nights processor time, memory and bytes a row must stay flat, and the ledger must open in 0.3 seconds. Prints
the figures; ends with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchpay.ledger.open import open_ledger
from batchpay.payment import State
from batchpay.settings import LedgerSettings
from tests.support.command import Home, small_file
from tests.support.oracle import running_oracle

OPENING_S_MAX = 0.3
GROWTH_MAX = 1.5
"""How much more the last tenth of the nights may take than the first."""
MISHAPS = {5: "wrong totals", 7: "stopped", 9: "again"}
"""What befalls a night, by its number's last digit."""


@dataclass(frozen=True)
class Night:
    """What one nightly call took."""

    cpu_s: float
    memory_mib: float
    bytes_a_row: float
    opening_s: float


def submit(home: Home, *more: str) -> tuple[dict[str, Any], float, float]:
    """Run the nightly call: its object, its processor seconds, its peak memory in MiB."""
    out = home.path / "summary.json"
    with out.open("wb") as file, subprocess.Popen(
        home.command("submit", "--inbox", "inbox", "--archive", "done", "--out", "out", "--json", "-q", *more),
        env=home.environment, cwd=home.path, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0  # it is waited for already; the object has the exit code
    told: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return told, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def upload(home: Home, number: int, rows: int, *, said: int) -> None:
    """Put a night's file into the inbox, with the totals that its sender says."""
    name = f"night-{number:04d}.csv"
    small_file(home.path / "inbox" / name, rows, first=1 + number * rows)
    (home.path / "inbox" / f"{name}.control.toml").write_text(f"rows = {said}\n")


def night(home: Home, number: int, rows: int, paid: int) -> Night:
    """Live through one night, and through its mishap, to a morning at which all is paid."""
    mishap = MISHAPS.get(number % 10)
    upload(home, number, rows, said=rows + (mishap == "wrong totals"))
    limit = ("--limit", str(rows // 2)) if mishap == "stopped" else ()
    told, cpu_s, memory_mib = submit(home, *limit)
    expected = {"wrong totals": 4, "stopped": 6}.get(mishap or "", 0)
    assert told["exit_code"] == expected, (number, mishap, told)
    if mishap:
        upload(home, number, rows, said=rows)
        assert submit(home)[0]["exit_code"] == 0, (number, mishap)
    ledger = home.path / ".local" / "state" / "batchpay" / "ledger.db"
    began = time.perf_counter()
    with closing(open_ledger(LedgerSettings(url=str(ledger), key_file=str(key_of(home))), read_only=True)) as opened:
        opening_s = time.perf_counter() - began
        accepted = sum(batch.by_state[State.ACCEPTED].rows for batch in opened.batches())
    assert accepted == paid + rows, (number, accepted, paid + rows)
    return Night(cpu_s, memory_mib, ledger.stat().st_size / accepted, opening_s)


def key_of(home: Home) -> Path:
    """Find the ledger's key."""
    (key,) = (home.path / ".config").rglob("*.key")
    return key


def report(name: str, nights: list[Night], problems: list[str]) -> None:
    """Print the first tenth beside the last, and note what grew."""
    tenth = max(1, len(nights) // 10)
    first, last = nights[:tenth], nights[-tenth:]
    for label in ("cpu_s", "memory_mib", "bytes_a_row", "opening_s"):
        before, after = (statistics.median(getattr(one, label) for one in part) for part in (first, last))
        print(f"  {name}: {label:<12} {before:10.3f} -> {after:10.3f}", flush=True)
        if label != "opening_s" and after > before * GROWTH_MAX:
            problems.append(f"{label} grew from {before:.3f} to {after:.3f}")
    if max(one.opening_s for one in last) > OPENING_S_MAX:
        problems.append(f"opening takes {max(one.opening_s for one in last):.3f} s")


def campaign(nights: int, rows: int) -> list[str]:
    """Live through the nights; gives what was wrong."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder, running_oracle(Path(folder) / "oracle.log") as oracle:
        home = Home(Path(folder), oracle.origin)
        (home.path / "inbox").mkdir()
        lived = [night(home, number, rows, number * rows) for number in range(nights)]
        oracle.settle()
        received = oracle.received()
        if len(received) != nights * rows or set(received.values()) != {1}:
            problems.append(f"the gateway counted {sum(received.values())} payments of {len(received)} rows")
        report(f"{nights} nights of {rows} rows", lived, problems)
    return problems


def main() -> int:
    """Run both lengths, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int)
    parser.add_argument("--rows", type=int, default=50)
    options = parser.parse_args()
    plans = [(options.nights, options.rows)] if options.nights else [(365, 50), (30, 5_000)]
    problems = [problem for nights, rows in plans for problem in campaign(nights, rows)]
    for problem in problems:
        print(f"  WRONG {problem}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
