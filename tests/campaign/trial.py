"""One trial: a home with a registered batch, something that goes wrong, the same command run to its end, the check.

The check never trusts batchpay's own state alone: it compares what the oracle received with what the results say.
"""

from __future__ import annotations

import csv
import datetime
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.command import Home, small_file
from tests.support.oracle import Oracle, running_oracle
from tests.support.strace import traced
from tests.support.warm import WARM, Warm

ROWS = 12
FINISHED = (0, 3, 7)
_TRIES = 4


@dataclass
class Findings:
    """What a campaign counted; any `wrong` line fails it."""

    trials: int = 0
    fired: int = 0
    in_doubt: int = 0
    in_doubt_most: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Add what another part of the campaign counted."""
        self.trials += other.trials
        self.fired += other.fired
        self.in_doubt += other.in_doubt
        self.in_doubt_most = max(self.in_doubt_most, other.in_doubt_most)
        self.wrong += other.wrong

    def line(self, name: str) -> str:
        """Describe it in one line."""
        return (
            f"{name}: {self.trials} trials, {self.fired} faults fired, {self.in_doubt} rows in doubt "
            f"(at most {self.in_doubt_most} in a trial), {len(self.wrong)} wrong"
        )


def accepted(home: Home) -> Home:
    """Accept the ledger of a home that was copied: nothing is paid twice by the other one."""
    done = home.run("ledger", "accept", "--reason", "a copy for a trial", "--json")
    assert done.returncode == 0, done.stderr
    return home


@dataclass
class Bench:
    """Where trials run: a folder, an oracle, and a template home to copy."""

    folder: Path
    oracle: Oracle
    template: Path
    warm: Warm = WARM
    """Runs the commands: the program as it is, or one that was changed (sabotages)."""
    workers: int = 4
    count: int = 0

    def home(self) -> Home:
        """Return a fresh copy of the template: a ledger with a registered batch, nothing sent."""
        self.count += 1
        path = self.folder / f"trial-{self.count}"
        shutil.copytree(self.template, path, symlinks=True)
        return accepted(self.home_at(path))

    def empty_home(self) -> Home:
        """Return a home with only the payment file."""
        self.count += 1
        path = self.folder / f"trial-{self.count}"
        path.mkdir()
        small_file(path / "a.csv", ROWS)
        return self.home_at(path)

    def home_at(self, path: Path) -> Home:
        """Return what runs in a folder."""
        return Home(path, self.oracle.origin, {"BATCHPAY_WORKERS": str(self.workers)}, self.warm)


@contextmanager
def bench(folder: Path, program: Path | None = None, *oracle_options: str) -> Iterator[Bench]:
    """Prepare a template, with the program as it is, and keep an oracle running."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        running_oracle(folder / "oracle.log", *oracle_options, warm=WARM) as oracle,
        nullcontext(WARM) if program is None else closing(Warm(program)) as warm,
    ):
        made = Bench(folder, oracle, folder / "template", warm)
        made.template.mkdir()
        home = Home(made.template, oracle.origin, {"BATCHPAY_WORKERS": str(made.workers)})
        small_file(home.path / "a.csv", ROWS)
        past = datetime.datetime.now() - datetime.timedelta(minutes=2)  # noqa: DTZ005 - the clock on the wall
        done = home.run("submit", "a.csv", "--until", past.strftime("%H:%M"))
        assert done.returncode == 6, done.stderr
        assert oracle.entries() == []
        yield made


def run_with(home: Home, prefix: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command under another program (strace), whatever happens to it."""
    return subprocess.run(
        [*prefix, *home.command(*arguments)],
        env=home.environment,
        cwd=home.path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def run_traced(home: Home, options: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that strace watches or disturbs from its first call on."""
    with home.start(*arguments, waits=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        traced(process, *options)
        out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.wait(), out, err)


def finish_and_check(
    made: Bench,
    home: Home,
    since: int,
    story: str,
    command: tuple[str, ...],
    *,
    in_doubt_max: int | None = None,
    rows: int = ROWS,
) -> Findings:
    """Run the command to its end and compare its results with what arrived.

    `since` is the size of the oracle's log before; at most `in_doubt_max` rows may be in doubt (as many as workers).
    """
    found = Findings(trials=1)
    for _ in range(_TRIES):
        done = home.run(*command, "--json", "--max-in-doubt", "1000")
        if done.returncode in FINISHED:
            break
    else:
        found.wrong.append(f"{story}: never finished, exit code {done.returncode}: {done.stderr.strip()}")
        return found
    summary = json.loads(done.stdout)
    made.oracle.settle()
    arrived = made.oracle.entries(since)
    with Path(home.path / summary["results"]).open(encoding="utf-8", newline="") as file:
        states = {row["invoiceNumber"]: row["state"] for row in csv.DictReader(file)}
    found.in_doubt = found.in_doubt_most = summary["in_doubt"]
    found.wrong += [f"{story}: {wrong}" for wrong in _contradictions(summary, states, arrived, rows)]
    most = made.workers if in_doubt_max is None else in_doubt_max
    if summary["in_doubt"] > most:
        found.wrong.append(f"{story}: {summary['in_doubt']} rows in doubt, at most {most} were expected")
    if not found.wrong:
        shutil.rmtree(home.path)
    return found


def _contradictions(
    summary: dict[str, int], states: dict[str, str], arrived: list[dict[str, str]], rows: int
) -> Iterator[str]:
    """Return where batchpay's statements are not what happened."""
    if len(states) != rows or summary["rows"] != rows:
        yield f"{len(states)} of {rows} rows are left"
    for reference, count in Counter(entry["reference"] for entry in arrived).items():
        if count > 1:
            yield f"{reference} arrived {count} times"
        if states.get(reference) not in ("accepted", "in_doubt"):
            yield f"{reference} arrived and is called {states.get(reference)}"
    said_yes = {entry["reference"] for entry in arrived if entry["answer"] == "success"}
    for reference, state in states.items():
        if state == "accepted" and reference not in said_yes:
            yield f"{reference} is called accepted, which the gateway never said"
        if state not in ("accepted", "in_doubt"):
            yield f"{reference} ended {state}"
