"""Three machines pay one batch while things go wrong: `python -m tests.campaign.hosts [--cycles N] [--seed S]`.

Each cycle one machine leads and two help, as real processes over one PostgreSQL ledger, against a gateway that counts.
Meanwhile machines are killed, or stopped until the others have shut them out, their connections are cut, and the server
is stopped abruptly and started. A person also wants rows sent again that a stopped machine may still hold a permission
for. In the end every row has arrived once, whatever batchpay says of it: none twice, none lost, none misreported, and
each machine that died left at most as many rows in doubt as it had workers. Ends with 1 if anything was wrong.

The machines wait for one another a fraction of what they do in production, and pause briefly before the first byte.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from batchpay.errors import BatchpayError
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import Decision
from batchpay.payment import State
from batchpay.settings import LedgerSettings
from tests.model import clock
from tests.model.command import Call, Done, start_fork, wait_for_fork
from tests.support.command import Home, small_file
from tests.support.oracle import Oracle, running_oracle
from tests.support.postgres import PAYER, Cluster, own_cluster

WORKERS = 4
NAMES = ("a", "b", "c")
LEASE_S, BEAT_S = 1.5, 0.2
_PATIENCE_S = 60.0
_HELD = 9
"""The exit code when another machine is at work on the batch."""
_DATABASE, _TEMPLATE = "chaos", "chaos_template"
_SHUT_OUT = "SELECT count(*) FROM batchpay.run WHERE fenced_by IS NOT NULL"
_KEY = Path(".config") / "batchpay" / "ledger.key"


def hasten() -> None:
    """Shorten the time machines wait for one another, and lengthen the time in which a permission is not used yet."""
    company = importlib.import_module("batchpay.ledger.postgres.company")
    company.LEASE_S, company.BEAT_S = LEASE_S, BEAT_S  # type: ignore[attr-defined]
    statements = importlib.import_module("batchpay.ledger.postgres.statements")
    statements.LOCK_BATCH = statements.LOCK_BATCH.replace("60s", "2s")  # type: ignore[attr-defined]
    sender = importlib.import_module("batchpay.sending.sender")
    sender._CLAIM_ROWS = 4  # type: ignore[attr-defined]
    payload = importlib.import_module("batchpay.ledger.payload")
    payload.CHUNK_ROWS = 4  # type: ignore[attr-defined]
    pacing = importlib.import_module("batchpay.sending.pacing")
    leave = pacing.Throttle.leave

    def leave_late(throttle: object) -> None:
        time.sleep(0.01)
        leave(throttle)

    pacing.Throttle.leave = leave_late


@dataclass
class Tally:
    """The totals of all cycles."""

    cycles: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    in_doubt: int = 0
    alive: int = 0
    """Runs that were shut out though nobody had killed or stopped them: this machine was too busy for such a lease."""
    refused: int = 0
    """Rows that a person was not allowed to send again."""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        fired = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.cycles} cycles of three machines: {fired or 'no faults'}; {self.in_doubt} rows in doubt, "
            f"{self.refused} refused to be sent again; {self.alive} shut out for slowness; {len(self.wrong)} wrong"
        )


class Site:
    """The server, the gateway, and three machines that are copied for every cycle."""

    def __init__(self, folder: Path, cluster: Cluster, oracle: Oracle, rows: int) -> None:
        self.folder, self.cluster, self.oracle, self.rows = folder, cluster, oracle, rows
        self.server = cluster.server()
        made = self.server.new_database()
        self.server.run(f"ALTER DATABASE {made} RENAME TO {_DATABASE}")
        self.template = folder / "template"
        homes = [self.home(self.template / name) for name in NAMES]
        small_file(homes[0].path / "a.csv", rows)
        self._expect(0, homes[0], "ledger", "init", "--owner-url", self.server.owner_url(_DATABASE))
        for home in homes[1:]:
            (home.path / _KEY).parent.mkdir(parents=True, mode=0o700)
            shutil.copy2(homes[0].path / _KEY, home.path / _KEY)
            self._expect(0, home, "ledger", "join", "--reason", "campaign")
        past = datetime.datetime.now() - datetime.timedelta(minutes=2)  # noqa: DTZ005 - the clock on the wall
        self._expect(6, homes[0], "submit", "a.csv", "--until", past.strftime("%H:%M"))
        self.server.run(f"ALTER DATABASE {_DATABASE} RENAME TO {_TEMPLATE}")

    def home(self, path: Path) -> Home:
        """Return a machine."""
        path.mkdir(parents=True, exist_ok=True)
        url = f"{self.server.url(_DATABASE)}?connect_timeout=5"
        extra = {"BATCHPAY_LEDGER": url, "BATCHPAY_WORKERS": str(WORKERS), "BATCHPAY_RATE": "150"}
        return Home(path, self.oracle.origin, extra | {"BATCHPAY_MAX_IN_DOUBT": "1000", "BATCHPAY_TIMEOUT": "5"})

    def start(self, home: Home, *arguments: str) -> tuple[int, Call]:
        """Start a command on a machine."""
        call = Call((*arguments, "--config", "settings.toml"), str(home.path), home.environment)
        (home.path / "settings.toml").write_text("[submit]\nmax_in_doubt = 1000\nmax_in_doubt_in_a_row = 1000\n")
        return start_fork(call, hasten), call

    def run(self, home: Home, *arguments: str) -> Done:
        """Run a command on a machine to its end."""
        return wait_for_fork(*self.start(home, *arguments))[0]

    def _expect(self, code: int, home: Home, *arguments: str) -> None:
        done = self.run(home, *arguments)
        if done.code != code:
            raise AssertionError((arguments, done))

    @contextmanager
    def machines(self, number: int) -> Iterator[list[Home]]:
        """Yield the machines of a cycle, with a ledger in which the batch is registered and nothing sent."""
        folder = self.folder / f"cycle {number}"
        shutil.copytree(self.template, folder)
        self.server.drop(_DATABASE)
        self.server.run(f"CREATE DATABASE {_DATABASE} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
        yield [self.home(folder / name) for name in NAMES]
        shutil.rmtree(folder)

    def ledger(self, home: Home) -> Ledger:
        """Open the ledger as a machine sees it."""
        key, url = home.path / _KEY, home.extra["BATCHPAY_LEDGER"]
        witness = next(key.parent.glob("*.witness"))
        return open_ledger(LedgerSettings(url=url, key_file=str(key), witness=str(witness)))


class Cycle:
    """One batch from its first row to its last."""

    def __init__(self, site: Site, homes: list[Home], dice: random.Random, tally: Tally) -> None:
        self.site, self.homes, self.dice, self.tally = site, homes, dice, tally
        self.since = site.oracle.log.stat().st_size
        with closing(site.ledger(homes[0])) as ledger:
            self.batch = ledger.find(None).batch
        self.running: dict[int, tuple[int, Call]] = {}
        self.stopped: set[int] = set()
        self.ended: list[str] = []
        self.died = 0

    def live(self) -> None:
        """Let them work, break something now and then, and bring the batch to its end."""
        self.begin(0, "resume", self.batch)
        self._wait_until(lambda: self.arrived() > 0)  # while others are at work nobody can begin to lead
        for number in (1, 2):
            self.begin(number, "work", self.batch)
        moments = sorted(self.dice.sample(range(2, self.site.rows - 5), self.dice.choice((1, 1, 2, 3))))
        for moment in moments:
            if not self._wait_until(lambda moment=moment: self.arrived() >= moment):  # type: ignore[misc]
                break
            fault = self.dice.choice((self.kill, self.kill, self.stop, self.stop, self.cut, self.restart_server))
            fault()
            self.tally.faults[fault.__name__.replace("_", " ")] += 1
        if not self._wait_until(lambda: not self.running.keys() - self.stopped):
            raise AssertionError(f"{sorted(self.running)} never ended")
        self._finish(1)
        self._want_again(1)
        for number in sorted(self.stopped):
            self._wake(number)
        self._wait_until(lambda: not self.running)
        self._settle()

    def begin(self, number: int, *arguments: str) -> None:
        """Start a command on a machine."""
        self.running[number] = self.site.start(self.homes[number], *arguments)

    def arrived(self) -> int:
        """Return how many payments the gateway has."""
        return len(self.site.oracle.entries(self.since))

    def _wait_until(self, done: Callable[[], bool]) -> bool:
        """Wait until something is true; False if all machines that are not stopped have ended first."""
        until = time.monotonic() + _PATIENCE_S
        while not done():
            for number, (process, call) in list(self.running.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    del self.running[number]
                    said = Path(f"{call.environment['HOME']}/sandbox.err")
                    error = said.read_text("utf-8", "replace") if said.exists() else ""
                    self.ended.append(f"{NAMES[number]}: {os.waitstatus_to_exitcode(status)} {error.strip()[-300:]}")
            if not self.running.keys() - self.stopped and not done():
                return False
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True

    # Faults

    def _one(self) -> int | None:
        """Choose a machine that works; one is always left."""
        working = sorted(self.running.keys() - self.stopped)
        return self.dice.choice(working) if len(working) > 1 else None

    def kill(self) -> None:
        """Kill a machine's process; now and then its service restarts it immediately."""
        number = self._one()
        if number is not None:
            os.kill(self.running[number][0], signal.SIGKILL)
            os.waitpid(self.running.pop(number)[0], 0)
            self.died += 1
            if self.dice.random() < 0.4:
                self.begin(number, "work", self.batch)

    def stop(self) -> None:
        """Stop a machine's process: it sleeps until the others are done, or only past its lease."""
        number = self._one()
        if number is not None:
            os.kill(self.running[number][0], signal.SIGSTOP)
            self.stopped.add(number)
            self.died += 1
            if self.dice.random() < 0.4:
                until = time.monotonic() + LEASE_S * 1.5
                self._wait_until(lambda: time.monotonic() > until)
                self._wake(number)

    def _wake(self, number: int) -> None:
        self.stopped.discard(number)
        if number in self.running:  # it may have ended right before it was stopped
            os.kill(self.running[number][0], signal.SIGCONT)

    def cut(self) -> None:
        """Cut some of the connections to the server."""
        found = self.site.server.run(f"SELECT pid FROM pg_stat_activity WHERE usename = '{PAYER}'")  # noqa: S608
        for (pid,) in found:
            if self.dice.random() < 0.6:
                self.site.server.run(f"SELECT pg_terminate_backend({pid})")

    def restart_server(self) -> None:
        """Stop the server abruptly, as a power cut would, and start it again."""
        self.site.cluster.stop()
        time.sleep(self.dice.random() * 0.5)
        self.site.cluster.start()

    # The end

    def _finish(self, number: int) -> None:
        """Let a machine send what is left, and wait for the dead if necessary."""
        for _ in range(6):
            with closing(self.site.ledger(self.homes[number])) as ledger:
                found = ledger.find(self.batch)
                left = found.by_state[State.PENDING].rows + found.by_state[State.SENDING].rows
            if not left:
                return
            for command in ("work", "resume"):
                done = self.site.run(self.homes[number], command, self.batch)
        self.wrong(f"it never ended: {done.code} {done.err[-300:]}")

    def _want_again(self, number: int) -> None:
        """Have a person send again what the gateway does not have, while sleeping machines may still send it."""
        arrived = {entry["reference"] for entry in self.site.oracle.entries(self.since)}
        with closing(self.site.ledger(self.homes[number])) as ledger:
            asked = [row for row in ledger.rows(self.batch, [State.IN_DOUBT]) if reference_of(row.row) not in arrived]
            granted = 0
            for row in asked:
                try:
                    ledger.resolve(self.batch, [Decision(row.row, State.PENDING)], "ann", "not in the portal")
                    granted += 1
                except BatchpayError:
                    self.tally.refused += 1
        if granted:
            self.site.run(self.homes[number], "resume", self.batch)

    def _settle(self) -> None:
        """Compare the ledger with what arrived, have a person settle the rest, and check again."""
        self.site.oracle.settle()
        self._compare()
        answers = {entry["reference"] for entry in self.site.oracle.entries(self.since)}
        with closing(self.site.ledger(self.homes[2])) as ledger:
            doubts = [row.row for row in ledger.rows(self.batch, [State.IN_DOUBT])]
            self.tally.in_doubt += len(doubts)
            [(shut_out,)] = self.site.server.run(_SHUT_OUT, _DATABASE)
            self.tally.alive += max(0, int(str(shut_out)) - self.died)
            if len(doubts) > WORKERS * int(str(shut_out)):
                self.wrong(f"{len(doubts)} rows in doubt after {shut_out} runs were shut out")
            if doubts:
                ledger.say_hosts_gone(self.batch, "ann", "all of them have ended")
                ledger.resolve(self.batch, [
                    Decision(row, State.ACCEPTED if reference_of(row) in answers else State.PENDING) for row in doubts
                ], "ann", "the portal")  # fmt: skip
        done = self.site.run(self.homes[2], "resume", self.batch)
        if done.code == _HELD:  # a machine was killed at its end, when the others had seen it idle and had left
            self.site.run(self.homes[2], "work", self.batch)
            done = self.site.run(self.homes[2], "resume", self.batch)
        self.site.oracle.settle()
        if done.code or len(self._compare()) != self.site.rows:
            self.wrong(f"it ended with {done.code}, {len(self._compare())} rows arrived: {done.err[-300:]}")
        with closing(self.site.ledger(self.homes[2])) as ledger:
            for problem in ledger.check():
                self.wrong(problem)

    def _compare(self) -> Counter[str]:
        """Find what arrived twice, and what the ledger misreports."""
        arrived = Counter(entry["reference"] for entry in self.site.oracle.entries(self.since))
        for reference, count in arrived.items():
            if count > 1:
                self.wrong(f"{reference} arrived {count} times")
        with closing(self.site.ledger(self.homes[2])) as ledger:
            states = {reference_of(row.row): row.state for row in ledger.rows(self.batch)}
        for reference, state in states.items():
            if state is not State.IN_DOUBT and (state is State.ACCEPTED) != (reference in arrived):
                self.wrong(f"{reference} is {state}, and arrived {arrived[reference]} times")
        return arrived

    def wrong(self, what: str) -> None:
        """Record a violation."""
        self.tally.wrong.append(f"cycle {self.tally.cycles}: {what}; {'; '.join(self.ended)}")


def reference_of(row: int) -> str:
    """Return the invoiceNumber of a row (tests/support/command.py)."""
    return f"INV-{row}"


def campaign(folder: Path, cycles: int, seed: int, rows: int, *, say: Callable[[str], None] = print) -> Tally:
    """Run this many cycles."""
    clock.load_program()
    tally = Tally()
    with own_cluster({"fsync": "on"}) as cluster, running_oracle(folder / "log", "--latency-ms", "20") as oracle:
        site = Site(folder, cluster, oracle, rows)
        for number in range(cycles):
            tally.cycles += 1
            with site.machines(number) as homes:
                cycle = Cycle(site, homes, random.Random(f"{seed} {number}"), tally)
                before = len(tally.wrong)
                try:
                    cycle.live()
                except AssertionError as error:
                    cycle.wrong(str(error))
                finally:
                    for process, _ in cycle.running.values():
                        os.kill(process, signal.SIGKILL)
                        os.waitpid(process, 0)
                for wrong in tally.wrong[before:]:
                    say(f"  WRONG {wrong}")
            if tally.cycles % 10 == 0:
                say(str(tally))
    return tally


def main() -> int:
    """Run the campaign; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--rows", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = campaign(
            Path(folder), options.cycles, options.seed, options.rows, say=lambda text: print(text, flush=True)
        )
    print(tally, flush=True)
    return int(bool(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
