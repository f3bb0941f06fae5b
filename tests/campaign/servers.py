"""Servers that fail under a ledger on PostgreSQL: `python -m tests.campaign.servers [--cycles N] [--bytes STEP]`.

First a group's commit is cut at every byte in either direction, unencrypted and encrypted. Then come cycles of two
machines that pay over one ledger, as real processes against a gateway that counts: in the middle of a run the server is
stopped and started, a synchronous standby takes over, a standby takes over that had lost what was recorded last, or the
machine that pays is killed at that very moment. No row may ever arrive twice, be lost, or be misreported. Ends with 1
if anything was wrong.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import trustme

from batchpay.ledger.open import accept, create_ledger, open_ledger
from batchpay.payment import State
from batchpay.settings import LedgerSettings
from tests.campaign.__main__ import gather
from tests.campaign.trial import ROWS, Bench, Findings, finish_and_check
from tests.ledger.batches import ACCEPTED, columns, register
from tests.support.command import Home, small_file
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.oracle import running_oracle
from tests.support.postgres import Cluster, encrypt, own_cluster

_NAME = "payments"


# Cuts


def cuts(cluster: Cluster, folder: Path, options: str, to_server: bool, step: int) -> Iterator[Findings]:
    """Cut one commit after the other, each a byte later than the one before, and check directly what is recorded."""
    server = cluster.server()
    database = server.new_database()
    settings = LedgerSettings(url=server.url(database), key_file=str(folder / "key"), witness=str(folder / "witness"))
    create_ledger(settings, "campaign", owner_url=server.owner_url(database))
    with CuttingProxy("127.0.0.1", cluster.port) as proxy:
        url = settings.url.replace(f":{cluster.port}/", f":{proxy.port}/") + options
        accept(replace(settings, url=url), "campaign", "by the proxy")
        ledger = open_ledger(replace(settings, url=url))
        name = register(ledger, columns(ledger, range(1, 4000)))
        with ledger.lock(ledger.find(name).digest):
            run = ledger.start(name, "campaign")
            run.commit([1], [])
            proxy.count_from_now()
            run.commit([2], [(1, ACCEPTED)])
            size, row = proxy.passed[to_server], 2
            for after_bytes in range(1, size + 1, step):
                row += 1
                ends = Cut(after_bytes, to_server, reset=row % 3 == 0)
                proxy.count_from_now(ends)
                watching = threading.Thread(target=_release_after, args=(ends, proxy))
                watching.start()
                granted = run.commit([row], [(row - 1, ACCEPTED)])
                ends.struck.set()
                watching.join()
                found = Findings(trials=1, fired=1)
                stands = server.run(f"SELECT state, attempts FROM batchpay.payment WHERE row = {row}", database)  # noqa: S608
                if granted != {row} or stands != [(4, 1)]:
                    found.wrong.append(f"cut after byte {after_bytes}: granted {granted}, and the server has {stands}")
                yield found
            proxy.count_from_now()
            run.commit([], [(row, ACCEPTED)])
            run.finish(None)
        found = Findings(trials=1, wrong=ledger.check())
        accepted = ledger.find(name).by_state[State.ACCEPTED].rows
        if accepted != row:
            found.wrong.append(f"{accepted} rows are accepted, and {row} were")
        yield found
        ledger.close()
    server.drop(database)


def _release_after(cut: Cut, proxy: CuttingProxy) -> None:
    cut.struck.wait()
    proxy.release()


# Failovers

_ACCEPT = ("ledger", "accept", "--reason", "the standby was in step")


class Office:
    """Two machines and a server that may fail, set up once and copied for each cycle."""

    def __init__(self, cluster: Cluster, bench: Bench, rows: int, rate: int) -> None:
        self.cluster, self.bench, self.rows, self._rate = cluster, bench, rows, str(rate)
        self._numbers = itertools.count()
        server = cluster.server()
        database = server.new_database()
        server.run(f"ALTER DATABASE {database} RENAME TO {_NAME}")
        self.folder = bench.folder / f"office of {rows} rows"
        self.folder.mkdir()
        owner = server.owner_url(_NAME)
        first, second = (self.machine(self.folder / name, cluster.port) for name in ("first", "second"))
        small_file(first.path / "a.csv", rows)
        _expect(first, 0, "ledger", "init", "--owner-url", owner)
        key = Path(".config") / "batchpay" / "ledger.key"
        (second.path / key).parent.mkdir(parents=True, mode=0o700)
        shutil.copy2(first.path / key, second.path / key)
        _expect(second, 0, "ledger", "join", "--reason", "campaign")
        past = datetime.datetime.now() - datetime.timedelta(minutes=2)  # noqa: DTZ005 - the clock on the wall
        _expect(first, 6, "submit", "a.csv", "--until", past.strftime("%H:%M"))
        cluster.stop()

    def machine(self, path: Path, *ports: int) -> Home:
        """Return a machine whose ledger is at these ports, whichever of them accepts writes."""
        path.mkdir(exist_ok=True, parents=True)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        url = f"postgresql://payer@{hosts}/{_NAME}"
        extra = {"BATCHPAY_LEDGER": url, "BATCHPAY_WORKERS": str(self.bench.workers), "BATCHPAY_RATE": self._rate}
        return Home(path, self.bench.oracle.origin, extra, self.bench.warm)

    @contextmanager
    def cycle(self) -> Iterator[tuple[Cluster, Cluster, Home, Home]]:
        """Yield the two servers and the two machines of a cycle."""
        number = next(self._numbers)
        one, two = self.cluster.copy(f"one{number}"), self.cluster.copy(f"two{number}")
        folder = self.bench.folder / f"cycle {number} of {self.rows} rows"
        shutil.copytree(self.folder, folder, symlinks=True)
        machines = [self.machine(folder / name, one.port, two.port) for name in ("first", "second")]
        one.start()
        _expect(machines[0], 0, *_ACCEPT)
        try:
            yield one, two, machines[0], machines[1]
        finally:
            for server in (one, two):
                server.stop()
                shutil.rmtree(server.data.parent)


def _expect(home: Home, code: int, *arguments: str) -> None:
    done = home.run(*arguments)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)


@contextmanager
def _running(office: Office, home: Home, rows: int) -> Iterator[subprocess.Popen[bytes]]:
    """Let a machine pay until this many rows have arrived; the block does the rest."""
    oracle = office.bench.oracle
    since = oracle.log.stat().st_size
    with (home.path / "said").open("wb") as said:
        process = subprocess.Popen(
            home.command("resume"), env=home.environment, cwd=home.path, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=said,
        )  # fmt: skip
    while process.poll() is None and len(oracle.entries(since)) < rows:
        time.sleep(0.005)
    yield process
    process.wait(timeout=120)


def _attach(one: Cluster, two: Cluster) -> None:
    """Make the second server follow the first, which waits for it."""
    two.follows(one, "second")
    two.start()
    one.server().run("ALTER SYSTEM SET synchronous_standby_names = 'second'")
    one.server().run("SELECT pg_reload_conf()")
    while not one.server().run("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
        time.sleep(0.01)


def _promote(standby: Cluster) -> None:
    standby.server().run("SELECT pg_promote(true, 300)")


def restarted(office: Office, number: int, rows: int) -> Findings:
    """Stop the server abruptly and start it again: the run continues, nothing is in doubt."""
    since = office.bench.oracle.log.stat().st_size
    with office.cycle() as (one, _, first, _second):
        with _running(office, first, rows):
            one.stop()
            one.start()
        return finish_and_check(office.bench, first, since, f"restarted ({number})", ("resume",), in_doubt_max=0)


def taken_over(office: Office, number: int, rows: int) -> Findings:
    """A synchronous standby takes over, and a person accepts it: at most the workers' rows are in doubt."""
    since = office.bench.oracle.log.stat().st_size
    with office.cycle() as (one, two, first, second):
        _attach(one, two)
        with _running(office, first, rows):
            one.stop()
            _promote(two)
            _expect(second, 0, *_ACCEPT)
        return finish_and_check(office.bench, first, since, f"taken over ({number})", ("resume",))


def killed_and_taken_over(office: Office, number: int, rows: int) -> Findings:
    """The machine that pays is killed with its server: it starts again, and at most its workers' rows are in doubt."""
    since = office.bench.oracle.log.stat().st_size
    with office.cycle() as (one, two, first, second):
        _attach(one, two)
        with _running(office, first, rows) as process:
            process.send_signal(signal.SIGKILL)
            one.stop()
            _promote(two)
            _expect(second, 0, *_ACCEPT)
        return finish_and_check(office.bench, first, since, f"killed and taken over ({number})", ("resume",))


def taken_over_too_late(office: Office, number: int, rows: int) -> Findings:
    """A standby takes over that lost what was recorded: no machine sends anything more, even when told to."""
    oracle, story = office.bench.oracle, f"taken over too late ({number})"
    found = Findings(trials=1, fired=1)
    with office.cycle() as (one, two, first, second):
        two.follows(one, "second")
        since = oracle.log.stat().st_size
        with _running(office, first, rows):
            one.stop()
            permitted = len(oracle.entries(since)) + office.bench.workers  # what was recorded before may be under way
            two.start()
            _promote(two)
            for command in (("resume",), ("submit", str(first.path / "a.csv"))):
                done = second.run(*command)
                if done.returncode not in (5, 9):
                    found.wrong.append(f"{story}: {command[0]} elsewhere ended with {done.returncode}: {done.stderr}")
        for command in (("resume",), ("submit", "a.csv")):
            done = first.run(*command)
            if done.returncode != 5:
                found.wrong.append(f"{story}: {command[0]} ended with {done.returncode}: {done.stderr}")
        sent = [entry["reference"] for entry in oracle.entries(since)]
        if len(sent) > permitted:
            found.wrong.append(f"{story}: {len(sent) - permitted} rows were sent by a server that had lost some")
        done = first.run("ledger", "accept", "--reason", "a standby took over too late")
        status = second.json("status")
        if done.returncode or status.get("in_doubt", status) in (0, None):
            found.wrong.append(f"{story}: accepting it ended with {done.returncode}: {done.stderr} {status}")
        second.run("resume")
        if len(oracle.entries(since)) > len(sent) or len(sent) != len(set(sent)):
            found.wrong.append(f"{story}: rows were sent again after it was accepted")
        if not found.wrong:
            shutil.rmtree(first.path.parent)
    return found


Story = Callable[[Office, int, int], Findings]
STORIES: tuple[Story, ...] = (restarted, taken_over, killed_and_taken_over, taken_over_too_late)


def cycles(office: Office, story: Story, number: int, seed: int) -> Iterator[Findings]:
    """Run this many cycles of a story, each at a time of its own."""
    dice = random.Random(f"{story.__name__} {seed}")
    first, last = (1, office.rows - 2) if office.rows == ROWS else (600, office.rows - 400)
    for at in range(number):
        found = story(office, at, dice.randrange(first, last))
        found.fired = 1
        yield found


def main() -> int:
    """Run all of it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=10, help="of each story")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--bytes", type=int, default=1, help="cut at every n-th byte")
    parser.add_argument("--only", choices=("cuts", "cycles"))
    options = parser.parse_args()
    total = Findings()
    with tempfile.TemporaryDirectory() as folder, own_cluster() as cluster:
        if options.only in (None, "cuts"):
            encrypts = encrypt(cluster.server(), trustme.CA())
            for way, to_server in itertools.product(("", "?sslmode=require") if encrypts else ("",), (True, False)):
                name = f"cut {'to' if to_server else 'from'} the server, {'encrypted' if way else 'in clear'}"
                place = Path(folder) / f"cuts{len(way)}{to_server}"
                place.mkdir(mode=0o700)
                gather(name, cuts(cluster, place, way, to_server, options.bytes), total)
        if options.only in (None, "cycles"):
            with running_oracle(Path(folder) / "oracle.log") as oracle:
                office = Office(cluster, Bench(Path(folder), oracle, Path(folder) / "none"), ROWS, 20)
                for story in STORIES:
                    name = story.__name__.replace("_", " ")
                    gather(name, cycles(office, story, options.cycles, options.seed), total)
    print(total.line("in all"), flush=True)
    return int(bool(total.wrong))


if __name__ == "__main__":
    sys.exit(main())
