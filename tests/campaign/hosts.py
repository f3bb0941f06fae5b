"""Two machines pay one batch while things go wrong: `python -m tests.campaign.hosts [--cycles N] [--seed S]`.

Each is real processes that a cron line starts again and again, over one PostgreSQL ledger, against a gateway that
counts. They are killed, or stopped until the other has taken over; connections are cut, and the server is stopped
abruptly and started. Whoever is left finishes the batch: nobody calls anything by hand. A person also wants rows sent
again for which a stopped machine may still hold a permission. In the end no row has arrived twice, none is lost, each
is what batchpay says of it, each command ended with 7 while there was a doubt, and a machine that died left at most as
many rows in doubt as it had workers. Ends with 1 if anything was wrong.

`--without fence|hearing` breaks the program on purpose, which must be found. The machines wait for one another a
fraction of what they do in production, and pause briefly before the first byte.
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
NAMES = ("a", "b")
LEASE_S, BEAT_S = 1.5, 0.2
_PATIENCE_S = 60.0
_CODES = {0, 5, 6, 7, 9}
"""How a command may end: 5 where the server is down."""
_DATABASE, _TEMPLATE = "chaos", "chaos_template"
_OPEN_ROWS = "SELECT count(*) FROM batchpay.payment WHERE state IN (3, 4)"
"""Pending, and being sent."""
_LIVE_RUNS = "SELECT count(*) FROM batchpay.run WHERE is_live"
_TAKEN_OVER = "SELECT count(*) FROM batchpay.run WHERE is_fenced"
_KEY = Path(".config") / "batchpay" / "ledger.key"
_WITHOUT = {
    "fence": ("FENCE", "SELECT number, mac FROM batchpay.run WHERE id = %(run)s AND is_live"),
    "hearing": ("SENT_BY_UNHEARD", "SELECT 1, '' FROM batchpay.run WHERE %s = -1 AND %s::int[] IS NULL"),
}
"""What a sabotage makes of a statement of the ledger; permissions then last longer than a machine sleeps."""


def break_off(without: str) -> None:
    """Leave something out of the program, if it is to be."""
    if without:
        setattr(importlib.import_module("batchpay.ledger.postgres.statements"), *_WITHOUT[without])
        importlib.import_module("batchpay.sending.sender").PERMISSION_S = 600.0  # type: ignore[attr-defined]


def hasten(without: str = "") -> None:
    """Shorten the time machines wait for one another, and lengthen the time in which a permission is not used yet."""
    importlib.import_module("batchpay.ledger.records").LEASE_S = LEASE_S  # type: ignore[attr-defined]
    heartbeat = importlib.import_module("batchpay.ledger.postgres.heartbeat")
    heartbeat.BEAT_S, heartbeat.LOOK_S = BEAT_S, BEAT_S  # type: ignore[attr-defined]
    statements = importlib.import_module("batchpay.ledger.postgres.statements")
    statements.LOCK_BATCH = statements.LOCK_BATCH.replace("60s", "2s")  # type: ignore[attr-defined]
    break_off(without)
    importlib.import_module("batchpay.sending.sender")._CLAIM_ROWS = 4  # type: ignore[attr-defined]
    transport = importlib.import_module("batchpay.gateway.transport")
    since_boot_s = transport.since_boot_s

    def late() -> float:
        time.sleep(0.01)
        return float(since_boot_s())

    transport.since_boot_s = late  # type: ignore[attr-defined]


@dataclass
class Tally:
    """The totals of all cycles."""

    cycles: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    taken_over: int = 0
    in_doubt: int = 0
    alive: int = 0
    """Runs that were fenced though nobody had killed or stopped them: this machine was too busy for such a lease."""
    refused: int = 0
    """Rows that a person was not allowed to send again."""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        fired = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.cycles} cycles of two machines: {fired or 'no faults'}; {self.taken_over} taken over, {self.alive} "
            f"of them for slowness; {self.in_doubt} rows in doubt, {self.refused} refused to be sent again; "
            f"{len(self.wrong)} wrong"
        )


class Site:
    """The server, the gateway, and two machines that are copied for every cycle."""

    def __init__(self, folder: Path, cluster: Cluster, oracle: Oracle, rows: int, without: str) -> None:
        self.folder, self.cluster, self.oracle, self.rows, self.without = folder, cluster, oracle, rows, without
        self.server = cluster.server()
        made = self.server.new_database()
        self.server.run(f"ALTER DATABASE {made} RENAME TO {_DATABASE}")
        self.template = folder / "template"
        first, second = homes = [self.home(self.template / name) for name in NAMES]
        for home in homes:
            (home.path / "in").mkdir()
            (home.path / "none").mkdir()
            small_file(home.path / "in" / "a.csv", rows)
        self._expect(0, first, "ledger", "init", "--owner-url", self.server.owner_url(_DATABASE))
        (second.path / _KEY).parent.mkdir(parents=True, mode=0o700)
        shutil.copy2(first.path / _KEY, second.path / _KEY)
        self._expect(0, second, "ledger", "join", "--reason", "campaign")
        past = datetime.datetime.now() - datetime.timedelta(minutes=2)  # noqa: DTZ005 - the clock on the wall
        self._expect(6, first, "submit", "in/a.csv", "--until", past.strftime("%H:%M"))
        self.server.run(f"ALTER DATABASE {_DATABASE} RENAME TO {_TEMPLATE}")

    def home(self, path: Path) -> Home:
        """Return a machine."""
        path.mkdir(parents=True, exist_ok=True)
        url = f"{self.server.url(_DATABASE)}?connect_timeout=5"
        extra = {"BATCHPAY_LEDGER": url, "BATCHPAY_WORKERS": str(WORKERS), "BATCHPAY_RATE": "150"}
        return Home(path, self.oracle.origin, extra | {"BATCHPAY_MAX_IN_DOUBT": "1000", "BATCHPAY_TIMEOUT": "60"})

    def start(self, home: Home, *arguments: str) -> tuple[int, Call]:
        """Start a command on a machine."""
        call = Call((*arguments, "--config", "settings.toml"), str(home.path), home.environment)
        (home.path / "settings.toml").write_text("[submit]\nmax_in_doubt = 1000\nmax_in_doubt_in_a_row = 1000\n")
        return start_fork(call, lambda: hasten(self.without)), call

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
        self.server.put_back(_TEMPLATE, _DATABASE)
        yield [self.home(folder / name) for name in NAMES]
        shutil.rmtree(folder)

    def count(self, statement: str) -> int:
        """Return a number of the ledger's."""
        return int(str(self.server.run(statement, _DATABASE)[0][0]))

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
        self.cron: list[tuple[str, ...]] = [("submit", "in/a.csv")] * 2
        self.cron[1] = dice.choice((("submit", "in/a.csv"), ("submit", "--inbox", "none"), ("resume",)))
        self.running: dict[int, tuple[int, Call]] = {}
        self.stopped: set[int] = set()
        self.gone: set[int] = set()
        """Machines that never come back."""
        self.ended: list[str] = []
        self.died = 0

    def live(self) -> None:
        """Let them work, break something now and then, and wait until whoever is left has finished the batch."""
        self._start(0)
        self._wait_until(lambda: self.arrived() > 0)
        faults = (self.kill, self.kill, self.stop, self.stop, self.cut, self.restart_server)
        for moment in sorted(self.dice.sample(range(2, self.site.rows - 5), self.dice.choice((1, 1, 2, 3)))):
            self._wait_until(lambda moment=moment: self.arrived() >= moment)  # type: ignore[misc]
            fault = self.dice.choice(faults)
            fault()
            self.tally.faults[fault.__name__.replace("_", " ")] += 1
        self._wait_until(lambda: not self.site.count(_OPEN_ROWS))
        self._wait_until(lambda: not self.running.keys() - self.stopped, has_cron=False)
        self._want_again()
        for number in sorted(self.stopped):
            self._wake(number)
        self._wait_until(lambda: not self.running, has_cron=False)
        self._settle()

    def arrived(self) -> int:
        """Return how many payments the gateway has."""
        return len(self.site.oracle.entries(self.since))

    def _start(self, number: int) -> None:
        self.running[number] = self.site.start(self.homes[number], *self.cron[number])

    def _wait_until(self, done: Callable[[], bool], *, has_cron: bool = True) -> None:
        """Wait until something is true, or all is sent; cron starts each machine's command again and again."""
        until, next_cron = time.monotonic() + _PATIENCE_S, 0.0
        while not done():
            for number, (process, call) in list(self.running.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    del self.running[number]
                    self._note(number, call, os.waitstatus_to_exitcode(status))
            if has_cron and time.monotonic() > next_cron:
                next_cron = time.monotonic() + 0.2
                if not self.site.count(_OPEN_ROWS):
                    return
                if self.gone and not self.site.count(_LIVE_RUNS):  # it had stopped by itself before it died
                    self.cron[1] = ("resume",)
                for number in {0, 1} - self.running.keys() - self.gone - self.stopped:
                    self._start(number)
            if time.monotonic() > until:
                raise AssertionError(f"it never ended: {self.site.count(_OPEN_ROWS)} rows are open")
            time.sleep(0.005)

    def _note(self, number: int, call: Call, code: int) -> None:
        said = Path(f"{call.environment['HOME']}/{call.name}.err")
        error = said.read_text("utf-8", "replace") if said.exists() else ""
        self.ended.append(f"{NAMES[number]}: {' '.join(call.arguments[:3])}: {code} {error.strip()[-300:]}")
        if code not in _CODES:
            self.wrong(f"a command ended with {code}")

    # Faults

    def _one(self) -> int | None:
        """Choose a machine that works; the other one must be left."""
        if self.stopped or self.gone or not self.running:
            return None
        return self.dice.choice(sorted(self.running))

    def kill(self) -> None:
        """Kill a machine's process; half of them never come back."""
        number = self._one()
        if number is not None:
            os.kill(self.running[number][0], signal.SIGKILL)
            os.waitpid(self.running.pop(number)[0], 0)
            self.died += 1
            if self.dice.random() < 0.5:
                self.gone.add(number)

    def stop(self) -> None:
        """Stop a machine's process: it sleeps until the other is done, or only past its lease."""
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

    @property
    def left(self) -> Home:
        """A machine that is there."""
        return self.homes[min({0, 1} - self.gone - self.stopped)]

    def _want_again(self) -> None:
        """Have a person send again what the gateway does not have, while a sleeping machine may still send it."""
        arrived = {entry["reference"] for entry in self.site.oracle.entries(self.since)}
        with closing(self.site.ledger(self.left)) as ledger:
            asked = [row for row in ledger.rows(self.batch, [State.IN_DOUBT]) if reference_of(row.row) not in arrived]
            granted = 0
            for row in asked:
                try:
                    ledger.resolve(self.batch, [Decision(row.row, State.PENDING)], "ann", "not in the portal")
                    granted += 1
                except BatchpayError:
                    self.tally.refused += 1
        if granted:
            self.site.run(self.left, "resume", self.batch)

    def _settle(self) -> None:
        """Compare the ledger with what arrived, have a person settle the rest, and check again."""
        self.site.oracle.settle()
        answers = self._compare()
        with closing(self.site.ledger(self.left)) as ledger:
            doubts = [row.row for row in ledger.rows(self.batch, [State.IN_DOUBT])]
        taken_over, code = self.site.count(_TAKEN_OVER), 7 if doubts else 0
        self.tally.in_doubt += len(doubts)
        self.tally.taken_over += taken_over
        self.tally.alive += max(0, taken_over - self.died)
        if len(doubts) > WORKERS * (taken_over + self.died):
            self.wrong(f"{len(doubts)} rows in doubt after {self.died} died and {taken_over} runs were taken over")
        for command in (("submit", "--inbox", "none"), ("health",)):
            if (done := self.site.run(self.left, *command)).code != code:
                self.wrong(f"{len(doubts)} rows are in doubt, and {command[0]} ended with {done.code}: {done.out}")
        if doubts:
            with closing(self.site.ledger(self.left)) as ledger:
                ledger.say_hosts_gone(self.batch, "ann", "all of them have ended")
                ledger.resolve(self.batch, [
                    Decision(row, State.ACCEPTED if reference_of(row) in answers else State.PENDING) for row in doubts
                ], "ann", "the portal")  # fmt: skip
        done = self.site.run(self.left, "resume", self.batch)
        self.site.oracle.settle()
        if done.code or len(self._compare()) != self.site.rows:
            self.wrong(f"it ended with {done.code}, {len(self._compare())} rows arrived: {done.err[-300:]}")
        with closing(self.site.ledger(self.left)) as ledger:
            for problem in ledger.check():
                self.wrong(problem)

    def _compare(self) -> Counter[str]:
        """Find what arrived twice, and what the ledger misreports."""
        arrived = Counter(entry["reference"] for entry in self.site.oracle.entries(self.since))
        for reference, count in arrived.items():
            if count > 1:
                self.wrong(f"{reference} arrived {count} times")
        with closing(self.site.ledger(self.left)) as ledger:
            states = {reference_of(row.row): row.state for row in ledger.rows(self.batch)}
        for reference, state in states.items():
            if state is not State.IN_DOUBT and (state is State.ACCEPTED) != (reference in arrived):
                self.wrong(f"{reference} is {state}, and arrived {arrived[reference]} times")
        return arrived

    def wrong(self, what: str) -> None:
        """Record a violation."""
        self.tally.wrong.append(f"cycle {self.tally.cycles}: {what}; {'; '.join(self.ended[-6:])}")


def reference_of(row: int) -> str:
    """Return the invoiceNumber of a row (tests/support/command.py)."""
    return f"INV-{row}"


def campaign(
    folder: Path, cycles: int, seed: int, rows: int, without: str = "", *, say: Callable[[str], None] = print
) -> Tally:
    """Run this many cycles; with a sabotage, until it is found."""
    clock.load_program()
    break_off(without)
    tally = Tally()
    with own_cluster({"fsync": "on"}) as cluster, running_oracle(folder / "log", "--latency-ms", "20") as oracle:
        site = Site(folder, cluster, oracle, rows, without)
        for number in range(cycles):
            tally.cycles += 1
            with site.machines(number) as homes:
                cycle = Cycle(site, homes, random.Random(f"{seed} {number}"), tally)
                before = len(tally.wrong)
                try:
                    cycle.live()
                except (AssertionError, BatchpayError) as error:
                    cycle.wrong(str(error))
                finally:
                    for process, _ in cycle.running.values():
                        os.kill(process, signal.SIGKILL)
                        os.waitpid(process, 0)
                for wrong in tally.wrong[before:]:
                    say(f"  WRONG {wrong}")
            if without and tally.wrong:
                break
            if tally.cycles % 10 == 0:
                say(str(tally))
    return tally


def main() -> int:
    """Run the campaign; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--without", choices=_WITHOUT, default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = campaign(
            Path(folder), options.cycles, options.seed, options.rows, options.without,
            say=lambda text: print(text, flush=True),
        )  # fmt: skip
    print(tally, flush=True)
    return int(bool(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
