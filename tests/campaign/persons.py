"""Kills while a person settles rows in doubt, and clocks that are wrong."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace

from tests.campaign import kills
from tests.campaign.trial import Bench, Findings, finish_and_check, run_traced, run_with
from tests.support.command import Home

FAKETIME = shutil.which("faketime")
_CLOCKS = ("-400d", "-1h", "+1h", "+400d", "-3d x20")


def kills_of_resolve(made: Bench, number: int | None, seed: int) -> Iterator[Findings]:
    """Kill `resolve` at points of its own; the oracle of `made` leaves some rows without an answer."""
    prepared = made.home()
    prepared.run("resume", "--max-in-doubt", "1000")
    status = json.loads(prepared.run("status", "--json").stdout)["batches"][0]
    doubts = status["in_doubt"]
    assert doubts > 0, "the oracle left no row in doubt"
    listed = json.loads(prepared.run("resolve", status["batch"], "--json").stdout)
    row = str(listed["rows_in_doubt"][0]["row"])
    who = ("--name", "Ann Lee", "--reason", "seen in the portal", "--yes")
    command = ("resolve", status["batch"], "--row", row, "--decision", "accepted", *who)
    template = replace(made, template=prepared.path)
    found = kills.points(template, command, fresh=False, codes=(0, 7))
    for point in kills.chosen(found, number, seed):
        yield _killed(template, point, command, doubts)


def _killed(made: Bench, point: kills.Point, command: tuple[str, ...], doubts: int) -> Findings:
    home = made.home()
    since = made.oracle.log.stat().st_size
    done = run_traced(home, point.options(), *command)
    found = Findings(trials=1, fired=int(done.returncode == -9))
    left = _doubts(home)
    if left not in (doubts, doubts - 1):
        found.wrong.append(f"resolve, {point}: {left} rows in doubt of {doubts}")
    if left == doubts and home.run(*command).returncode not in (0, 7):
        found.wrong.append(f"resolve, {point}: can't be done again")
    if _doubts(home) != doubts - 1:
        found.wrong.append(f"resolve, {point}: not settled after all")
    checked = home.run("ledger", "check")
    if checked.returncode != 0:
        found.wrong.append(f"resolve, {point}: {checked.stdout.strip()} {checked.stderr.strip()}")
    if made.oracle.entries(since):
        found.wrong.append(f"resolve, {point}: something was sent")
    if not found.wrong:
        shutil.rmtree(home.path)
    return found


def _doubts(home: Home) -> int:
    doubts: int = json.loads(home.run("status", "--json").stdout)["batches"][0]["in_doubt"]
    return doubts


def wrong_clocks(made: Bench, seed: int) -> Iterator[Findings]:
    """Start a run under one clock, kill it, and continue under another: no decision to send depends on the time."""
    dice = random.Random(seed)
    for first in _CLOCKS:
        second = dice.choice(_CLOCKS)
        home = made.home()
        since = made.oracle.log.stat().st_size
        run_with(home, [str(FAKETIME), "-f", first], "resume", "--limit", "5")
        run_with(home, [str(FAKETIME), "-f", second], "resume", "--limit", "3")
        found = finish_and_check(made, home, since, f"clock {first}, then {second}", ("resume",), in_doubt_max=0)
        found.fired = 1
        yield found
