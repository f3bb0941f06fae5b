"""Ledgers that are not what they should be: restored from a backup, deleted, damaged, cut off."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable

from tests.campaign.trial import Bench, Findings
from tests.support.command import Home


def older_ledger(made: Bench) -> Findings:
    """Pay some rows, copy the earlier ledger over this one: it is older than its witness, and nothing is sent.

    It is the same file, so that its place tells nothing.
    """
    home = made.home()
    state = home.path / ".local"
    shutil.copytree(state, home.path / "backup")
    _pay_some(home)
    shutil.copytree(home.path / "backup", state, dirs_exist_ok=True)
    return _sends_nothing(made, home, "an older ledger brought back")


def deleted_ledger(made: Bench) -> Findings:
    """Pay some rows, delete the ledger: a witness remembers it, and nothing is sent."""
    home = made.home()
    _pay_some(home)
    shutil.rmtree(home.path / ".local")
    return _sends_nothing(made, home, "a deleted ledger")


def damaged_ledger(made: Bench, seed: int) -> Findings:
    """Flip one byte of the ledger at random: it is refused, or nothing that follows contradicts itself."""
    dice = random.Random(seed)

    def flip(content: bytearray) -> None:
        place = dice.randrange(len(content))
        content[place] ^= 1 << dice.randrange(8)

    return _changed(made, flip, f"a flipped bit (seed {seed})")


def cut_ledger(made: Bench, seed: int) -> Findings:
    """Cut the ledger off at a random length."""
    dice = random.Random(seed)

    def cut(content: bytearray) -> None:
        del content[dice.randrange(len(content)) :]

    return _changed(made, cut, f"a ledger cut off (seed {seed})")


def _pay_some(home: Home) -> None:
    """Pay five rows, and move their results away: only the witness then knows of them."""
    home.run("resume", "--limit", "5")
    for results in home.path.rglob("*.results.csv"):
        results.unlink()


def _changed(made: Bench, change: Callable[[bytearray], None], story: str) -> Findings:
    home = made.home()
    begun = made.oracle.log.stat().st_size
    home.run("resume", "--limit", "5")
    ledger = home.path / ".local" / "state" / "batchpay" / "ledger.db"
    content = bytearray(ledger.read_bytes())
    change(content)
    ledger.write_bytes(content)
    since = made.oracle.log.stat().st_size
    before = {entry["reference"] for entry in made.oracle.entries(begun)}
    assert len(before) == 5
    done = home.run("resume")
    again = [entry["reference"] for entry in made.oracle.entries(since)]
    found = Findings(trials=1, fired=int(done.returncode == 5))
    if set(again) & before or len(set(again)) != len(again):
        found.wrong.append(f"{story}: paid again, exit code {done.returncode}")
    if done.returncode == 1:
        found.wrong.append(f"{story}: {done.stderr.strip()}")
    if not found.wrong:
        shutil.rmtree(home.path)
    return found


def _sends_nothing(made: Bench, home: Home, story: str) -> Findings:
    since = made.oracle.log.stat().st_size
    found = Findings(trials=1, fired=1)
    for command in (("resume",), ("submit", "a.csv")):
        done = home.run(*command)
        if done.returncode != 5:
            found.wrong.append(f"{story}: {command[0]} ended with {done.returncode}, not 5: {done.stderr.strip()}")
    if made.oracle.entries(since):
        found.wrong.append(f"{story}: {len(made.oracle.entries(since))} payments were sent")
    if not found.wrong:
        shutil.rmtree(home.path)
    return found
