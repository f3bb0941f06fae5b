"""Run the campaigns: `python -m tests.campaign [--quick] [--seed N] [--power-cuts N]`.

Prints what was tried, how many faults really fired, and what was found; ends with 1 if anything was wrong, or if a
sabotage was not noticed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.campaign import durability, kills, page, persons, phases, races, restores
from tests.campaign.sabotages import SABOTAGES, caught
from tests.campaign.trial import Bench, Findings, bench
from tests.support.fault_kinds import FAULTS
from tests.support.strace import STRACE

_QUICK_KILLS = {"resume": 280, "submit": 140, "again": 50, "resolve": 30, "page": 60}
_QUICK_ERRORS, _QUICK_PAGE_ERRORS = 100, 20
_COMMANDS: dict[str, tuple[tuple[str, ...], bool]] = {
    "resume": (("resume",), False),
    "submit": (("submit", "a.csv"), True),
}


def gather(name: str, parts: Iterable[Findings], total: Findings) -> None:
    """Run the trials of one part and report what they found."""
    began = time.monotonic()
    findings = Findings()
    for part in parts:
        findings.add(part)
        for wrong in part.wrong:
            print(f"  WRONG {wrong}", flush=True)
    total.add(findings)
    print(f"{findings.line(name)} ({time.monotonic() - began:.0f} s)", flush=True)


def kill_trials(made: Bench, name: str, number: int | None, seed: int) -> Iterable[Findings]:
    """Kill a command at points of its own."""
    command, fresh = _COMMANDS[name]
    for point in kills.chosen(kills.points(made, command, fresh=fresh), number, seed):
        yield kills.hit(made, point, command, fresh=fresh)


def kills_of_recovery(made: Bench, number: int, seed: int) -> Iterable[Findings]:
    """Kill a run, then its recovery."""
    command, fresh = _COMMANDS["resume"]
    found = [point for point in kills.points(made, command, fresh=fresh) if point.call in ("sendto", "fdatasync")]
    first = kills.chosen(found, None, seed)
    for again in kills.chosen(kills.points(made, command, fresh=fresh), number, seed):
        yield kills.hit(made, first[again.when % len(first)], command, fresh=fresh, again=again)


def main() -> int:
    """Run everything; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--power-cuts", type=int, default=20)
    options = parser.parse_args()
    quick, seed = options.quick, options.seed
    total = Findings()
    print(f"seed {seed}, {'quick' if quick else 'every point'}", flush=True)
    with tempfile.TemporaryDirectory() as folder, bench(Path(folder) / "bench") as made:
        if STRACE is None:
            print("strace is not installed: no kills, no errors of system calls")
        else:
            for name in _COMMANDS:
                gather(
                    f"kill -9 of {name}", kill_trials(made, name, _QUICK_KILLS[name] if quick else None, seed), total
                )
            gather("kill -9 again in the recovery", kills_of_recovery(made, _QUICK_KILLS["again"], seed), total)
            found = kills.errors_of(kills.points(made, ("resume",), fresh=False))
            points = kills.chosen(found, _QUICK_ERRORS if quick else None, seed)
            gather("errors", (kills.hit(made, point, ("resume",), fresh=False) for point in points), total)
            number = _QUICK_KILLS["page"] if quick else None
            hits = page.kills_and_errors(made, number, _QUICK_PAGE_ERRORS if quick else None, seed)
            gather("the page's child", hits, total)
            gather("order of calls", [durability.sending_after_sync(made)], total)
        if durability.can_cut_power():
            cuts = range(seed, seed + options.power_cuts)
            gather("power cuts", (durability.power_cut(made, number) for number in cuts), total)
        else:
            print("no power cuts: they need root and mkfs.ext4")
        starts = 60 if quick else 200
        gather("starts at once", (races.starts_at_once(made, 2 + number % 7) for number in range(starts)), total)
        gather("stopped and replaced", (races.stopped_and_replaced(made, number) for number in range(20)), total)
        gather("stopped with a permission", [races.stopped_with_a_permission(made)], total)
        kinds = list(FAULTS)[:: 8 if quick else 1]
        gather("network faults in every phase", phases.every_fault_in_every_phase(kinds), total)
        gather("under another name", [races.paid_under_another_name(made)], total)
        gather("restored or deleted", [restores.older_ledger(made), restores.deleted_ledger(made)], total)
        flips = range(seed, seed + (60 if quick else 1000))
        gather("flipped bits", (restores.damaged_ledger(made, number) for number in flips), total)
        gather("cut off", (restores.cut_ledger(made, number) for number in flips), total)
        if persons.FAKETIME is None:
            print("faketime is not installed: no wrong clocks")
        else:
            gather("wrong clocks", persons.wrong_clocks(made, seed), total)
    if STRACE is not None:
        with tempfile.TemporaryDirectory() as folder, bench(Path(folder) / "b", None, "--silent-every", "5") as silent:
            number = _QUICK_KILLS["resolve"] if quick else None
            gather("kill -9 of resolve", persons.kills_of_resolve(silent, number, seed), total)
    missed = 0
    for sabotage in SABOTAGES:
        with tempfile.TemporaryDirectory() as folder:
            noticed = caught(sabotage, Path(folder))
        missed += noticed is None
        print(f"sabotage '{sabotage.name}': {noticed or 'NOT NOTICED'}", flush=True)
    print(total.line("in all"), f"; {len(SABOTAGES) - missed} of {len(SABOTAGES)} sabotages noticed", flush=True)
    return int(bool(total.wrong) or missed > 0)


if __name__ == "__main__":
    sys.exit(main())
