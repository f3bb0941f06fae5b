"""What a ledger on PostgreSQL costs beside one on SQLite, in turns, and how machines share one rate.

The server runs on the gateway's core, as on another machine: the sender has its own core to itself. Its data lie where
SQLite's do, every commit synced. Without a server's programs nothing is measured, and the table says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from batchpay.ledger.open import create_ledger
from tests.benchmarks.own_submit import ledger_settings
from tests.benchmarks.process import (
    CLIENT_CORE,
    OWN_PYTHON,
    SERVER_CORE,
    BenchmarkFailed,
    Measured,
    Sample,
    clean_environment,
    run,
)
from tests.benchmarks.results import Results
from tests.benchmarks.server import running_server
from tests.benchmarks.submit import cpu_us_a_row, ended, free_port, rows_a_second, worst_second
from tests.benchmarks.validate import File
from tests.support.postgres import Cluster, Server, programs_found

_SETTINGS = {"shared_buffers": "128MB", "autovacuum": "on", "max_wal_size": "1GB", "max_connections": "100"}
_OWN = [OWN_PYTHON, "-m", "tests.benchmarks.own_submit"]
KINDS = ("SQLite", "PostgreSQL")


class Database:
    """A server of the benchmark's own, and ledgers in it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.server: Server = cluster.server()
        os.sched_setaffinity(cluster.pid, {SERVER_CORE})

    def make_ledger(self, folder: Path) -> str:
        """Make a ledger, whose key and witness lie in a folder; gives the name of its database."""
        name = self.server.new_database()
        folder.mkdir(parents=True, mode=0o700)
        (folder / "url").write_text(self.server.url(name))
        create_ledger(ledger_settings(folder), "benchmark", owner_url=self.server.owner_url(name))
        return name

    def cpu_s(self) -> float:
        """CPU time of the server and of all that it ever started."""
        ticks = 0
        for process in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = process.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if process.parent.name == str(self._cluster.pid):
                ticks += sum(map(int, fields[11:15]))  # its own, and those of its children that have ended
            elif fields[1] == str(self._cluster.pid):
                ticks += sum(map(int, fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def database() -> Iterator[Database | None]:
    """Run a server; None where none is installed."""
    programs = programs_found()
    if programs is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="batchpay-bench-postgres-") as folder:
        cluster = Cluster(programs, Path(folder), _SETTINGS)
        cluster.make()
        cluster.start()
        try:
            yield Database(cluster)
        finally:
            cluster.stop()


def measure_hosts(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the tables about the ledger on PostgreSQL."""
    folder.mkdir(parents=True)
    with database() as found, mock.patch.dict(os.environ, XDG_STATE_HOME=str(folder / "state")):
        if found is None:
            words = "No PostgreSQL was found on this machine (no `initdb`), so nothing was measured."
            results.add_table("A ledger on PostgreSQL", words, ("",), [])
            return
        _measure_sending(results, found, folder / "sending", quick=quick)
        _measure_registering(results, found, folder / "registering", quick=quick)
        _measure_rate(results, found, folder / "rate", quick=quick)


# Sending


class _Batches:
    """One registered file in a ledger of each kind, to be sent whole, as often as wanted."""

    def __init__(self, database_: Database, folder: Path, port: int, rows: int) -> None:
        self._database, self._folder = database_, folder
        self._kept = database_.make_ledger(folder / "PostgreSQL")
        for kind in KINDS:
            origin = f"http://127.0.0.1:{port}"
            run([*_OWN, "register", str(File(rows, 0).make(folder)), str(folder / kind), origin])
            shutil.copytree(folder / kind, folder / f"{kind} kept")

    def fresh(self, kind: str) -> Path:
        """Give a ledger in which nothing was sent; it is at its place, and so is its witness."""
        place = self._folder / kind
        shutil.rmtree(place)
        shutil.copytree(self._folder / f"{kind} kept", place)
        if kind == "PostgreSQL":
            server, name = self._database.server, f"{self._kept}_sent"
            server.put_back(self._kept, name)
            server.run("VACUUM ANALYZE", name)
            server.run("CHECKPOINT")
            (place / "url").write_text(server.url(name))
        return place


def _measure_sending(results: Results, database_: Database, folder: Path, *, quick: bool) -> None:
    rows, count, port = 6000 if quick else 24_000, 3 if quick else 5, free_port()
    folder.mkdir()
    batches, lines = _Batches(database_, folder, port, rows), []
    for latency_ms in (20, 0):
        samples: dict[str, list[Sample]] = {kind: [] for kind in KINDS}
        server_us: list[float] = []
        with running_server(port=port, latency_ms=latency_ms):
            for _ in range(count):
                for kind in KINDS:
                    command = [*_OWN, "durable", str(batches.fresh(kind)), "20000", "64"]
                    before = database_.cpu_s()
                    sample = run(command, core=CLIENT_CORE)
                    if sample.told["rows"] != rows:
                        raise BenchmarkFailed(f"{kind}: sent {sample.told['rows']} of {rows} rows: {sample.told}")
                    samples[kind].append(sample)
                    if kind == "PostgreSQL":
                        server_us.append((database_.cpu_s() - before) / rows * 1e6)
        own = {kind: Measured(each) for kind, each in samples.items()}
        ratio = rows_a_second(own["PostgreSQL"]) / rows_a_second(own["SQLite"])
        results.figures[f"hosts.rate_of_sqlite_{latency_ms}ms"] = ratio
        cpu = cpu_us_a_row(own["PostgreSQL"]) / cpu_us_a_row(own["SQLite"])
        results.figures[f"hosts.cpu_of_sqlite_{latency_ms}ms"] = cpu
        lines += [
            (f"{kind}, {latency_ms} ms", f"{rows_a_second(own[kind]):,.0f}", f"{cpu_us_a_row(own[kind]):.0f} us",
             f"{sorted(server_us)[count // 2]:.0f} us" if kind == "PostgreSQL" else "",
             f"{ratio:.2f}" if kind == "PostgreSQL" else "1")
            for kind in KINDS
        ]  # fmt: skip
    results.add_table(
        "Send with a ledger on PostgreSQL",
        f"{rows:,} rows, 64 workers, one machine, medians of {count} in turns with SQLite. *Server*: CPU of all of "
        "PostgreSQL, on the gateway's core.",
        ("ledger, gateway", "rows/s", "CPU a row", "server", "x SQLite"), lines,
    )  # fmt: skip


def _started(folder: Path, port: int, *command: str) -> subprocess.Popen[bytes]:
    """Start a command of the machine whose key and witness lie in a folder."""
    ledger, config = ledger_settings(folder), folder / "batchpay.toml"
    places = {"url": ledger.url, "key_file": ledger.key_file, "witness": ledger.witness}
    config.write_text("\n".join(["[ledger]", *(f'{name} = "{value}"' for name, value in places.items())]))
    environment = clean_environment(
        folder, BATCHPAY_BASE_URL=f"http://127.0.0.1:{port}", BATCHPAY_API_ID="benchmark",
        BATCHPAY_API_KEY="benchmark-key", XDG_STATE_HOME=os.environ["XDG_STATE_HOME"],
    )  # fmt: skip
    return subprocess.Popen(
        [OWN_PYTHON, "-m", "batchpay", "--config", str(config), *command], cwd=folder, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


# Registering


def _measure_registering(results: Results, database_: Database, folder: Path, *, quick: bool) -> None:
    rows, count = (100_000, 3) if quick else (1_000_000, 3)
    folder.mkdir()
    file, lines = str(File(rows, 0).make(folder)), []
    told: dict[str, list[tuple[float, float, float, float]]] = {kind: [] for kind in KINDS}
    for turn in range(count):
        for kind in KINDS:
            place = folder / f"{kind} {turn}"
            name = database_.make_ledger(place) if kind == "PostgreSQL" else ""
            before = database_.cpu_s()
            found = run([*_OWN, "register", file, str(place), "http://127.0.0.1:9"]).told
            size = found["bytes"]
            if name:
                size = int(str(database_.server.run(_SIZE, name)[0][0]))
                database_.server.drop(name)
            server_s = database_.cpu_s() - before if name else 0.0
            told[kind].append((found["register_s"], found["register_cpu_s"], server_s, size / rows))
            shutil.rmtree(place)
    medians = {kind: [sorted(column)[count // 2] for column in zip(*each, strict=True)] for kind, each in told.items()}
    for kind, (register_s, cpu_s, server_s, size) in medians.items():
        lines.append((kind, f"{register_s:.1f} s", f"{cpu_s:.1f} s", f"{server_s:.1f} s" if server_s else "",
                      f"{size:.0f}"))  # fmt: skip
    figures = results.figures
    figures["hosts.register_of_sqlite"] = medians["PostgreSQL"][0] / medians["SQLite"][0]
    figures["hosts.bytes_a_row"] = medians["PostgreSQL"][3]
    results.add_table(
        "Register in a ledger on PostgreSQL",
        f"{rows:,} rows, medians of {count} in turns; as in *The ledger*. *Server*: CPU of all of PostgreSQL.",
        ("ledger", "register", "CPU", "server", "bytes a row"), lines,
    )  # fmt: skip


_SIZE = (
    "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
    " WHERE c.relnamespace = 'batchpay'::regnamespace AND c.relkind = 'r'"
)


# One rate


def _measure_rate(results: Results, database_: Database, folder: Path, *, quick: bool) -> None:
    """Several runs at once under one known limit, of which one is stopped for some seconds."""
    folder.mkdir()
    seconds = 10 if quick else 20
    lines = [_together(results, database_, folder / f"{hosts} {limit}", hosts, limit, seconds)
             for hosts, limit in ((2, 50), (4, 200))]  # fmt: skip
    results.add_table(
        "One rate for all machines",
        "`batchpay resume --rate` on so many batches of one ledger at once, each a second after the other; one of them "
        "stands still for two seconds and goes on. 20 ms, 16 workers each; the gateway refuses nothing. *Worst "
        "second*: most payments that arrived within one second. *Used* counts the time in which all sent.",
        ("hosts", "limit a second", "used", "worst second", "at most"), lines,
    )  # fmt: skip


def _together(
    results: Results, database_: Database, folder: Path, hosts: int, limit: int, seconds: int
) -> tuple[str, ...]:
    database_.make_ledger(folder)
    port, names = free_port(), []
    for more in range(hosts):
        file = str(File(limit * seconds // hosts + more, 0).make(folder))
        names.append(run([*_OWN, "register", file, str(folder), f"http://127.0.0.1:{port}"]).told["batch"])
    with running_server(port=port, latency_ms=20) as server:
        runs = []
        for name in names:
            runs.append(_started(folder, port, "resume", name, "--rate", str(limit), "--workers", "16"))
            time.sleep(1.0)
        time.sleep(3.0)
        runs[0].send_signal(signal.SIGSTOP)
        stopped_at = time.time()
        time.sleep(2.0)
        runs[0].send_signal(signal.SIGCONT)
        codes = ended(runs)
        taken = sorted(server.statistics()["taken"])
    rows = sum(limit * seconds // hosts + more for more in range(hosts))
    if any(codes) or len(taken) != rows:
        raise BenchmarkFailed(f"{hosts} runs ended with {codes} after {len(taken)} of {rows} payments")
    all_sent = [at for at in taken if taken[0] + hosts + 1 <= at < stopped_at]
    used = (len(all_sent) - 1) / (all_sent[-1] - all_sent[0]) / limit
    worst, most = worst_second(taken), limit * 1.02 + hosts
    figures = results.figures
    figures["hosts.rate_used"] = min(used, figures.get("hosts.rate_used", 2))
    figures["hosts.worst_second"] = max(worst / most, figures.get("hosts.worst_second", 0))
    return str(hosts), str(limit), f"{used:.1%}", str(worst), f"{most:.0f}"
