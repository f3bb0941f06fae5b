"""What the ledgers cost: registering, the way to the first byte of a resumed batch, finishing.

And how soon commands answer.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from batchpay.ledger.open import create_ledger
from tests.benchmarks.own_submit import ledger_settings
from tests.benchmarks.process import CLIENT_CORE, OWN_PYTHON, BenchmarkFailed, Measured, clean_environment, run
from tests.benchmarks.results import Results
from tests.benchmarks.server import running_server
from tests.benchmarks.submit import OWN
from tests.benchmarks.validate import File
from tests.support.postgres import own_cluster, programs_found

Make = Callable[[Path], None]
"""Make what a new ledger needs in its folder."""


def measure_ledger(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the tables about the ledgers."""
    with running_server() as server:
        origin = server.origin
    sizes = (100_000,) if quick else (100_000, 1_000_000)
    with ExitStack() as stack:
        kinds: dict[str, Make] = {"SQLite": lambda place: None}
        if programs_found() is not None:
            cluster = stack.enter_context(own_cluster({"shared_buffers": "128MB", "max_wal_size": "1GB"}))

            def in_a_database(place: Path) -> None:
                name = cluster.server().new_database()
                place.mkdir(parents=True, mode=0o700)
                (place / "url").write_text(cluster.server().url(name))
                create_ledger(ledger_settings(place), "benchmark", owner_url=cluster.server().owner_url(name))

            kinds["PostgreSQL"] = in_a_database
        rows = [_one(results, folder, origin, size, kind, make) for size in sizes for kind, make in kinds.items()]
    results.add_table(
        "The ledgers",
        "Every commit synced. *Register*: the checked file is read again, its digest compared, request bodies built, "
        "sealed and written in one transaction. *First byte*: from the start of `batchpay resume` to the first "
        "payment's arrival, with all rows pending; median of three. *Finish*: intents and answers of 64 rows a commit, "
        "without sending.",
        ("ledger", "rows", "register", "bytes a row", "first byte", "finish", "commits/s", "results file"), rows,
    )  # fmt: skip
    _measure_floor(results, folder, origin)


def _one(results: Results, folder: Path, origin: str, size: int, kind: str, make: Make) -> tuple[str, ...]:
    place = folder / f"{kind}-{size}"
    make(place)
    registered = run([*OWN, "register", str(File(size, 0).make(folder)), str(place), origin])
    first_byte_s = ""
    if kind == "SQLite":
        found_s = sorted(_first_byte_s(place, int(origin.rpartition(":")[2])) for _ in range(3))[1]
        first_byte_s = f"{found_s:.2f} s"
        results.figures["ledger.first_byte_s"] = found_s
        results.figures["ledger.register_s_a_million"] = registered.job_s / size * 1e6
        results.figures["ledger.bytes_a_row"] = registered.told["bytes"] / size
    else:
        of_sqlite = registered.job_s / (results.figures["ledger.register_s_a_million"] * size / 1e6)
        results.figures["ledger.postgres_register_of_sqlite"] = of_sqlite
    finished = run([*OWN, "finish", str(place), str(folder / "results.csv")])
    return (
        kind, f"{size:,}", f"{registered.job_s:.2f} s",
        f"{registered.told['bytes'] / size:.0f}" if kind == "SQLite" else "", first_byte_s, f"{finished.job_s:.1f} s",
        f"{finished.told['commits'] / finished.job_s:,.0f}", f"{finished.told['results_s']:.2f} s",
    )  # fmt: skip


_FLOOR_ROWS, _FLOOR_TURNS = 50_000, 7


def _measure_floor(results: Results, folder: Path, origin: str) -> None:
    """Compare CPU times with an SQLite that proves nothing, in turns, the least of each."""
    file, bodies = str(File(_FLOOR_ROWS, 0).make(folder)), str(folder / "bodies.jsonl")
    run([*OWN, "register", file, str(folder / "other"), origin, bodies])
    turns = []
    for turn in range(_FLOOR_TURNS):
        place = folder / f"own-{turn}"
        registered = run([*OWN, "register", file, str(place), origin]).told["cpu_s"]
        plain = run([OWN_PYTHON, "-m", "tests.benchmarks.plain_ledger", bodies, str(folder / f"plain-{turn}"), "64"])
        finished = run([*OWN, "finish", str(place), str(folder / "results.csv")]).told["cpu_s"]
        turns.append((registered, plain.told["register_cpu_s"], finished, plain.told["finish_cpu_s"]))
    least = [min(times) / _FLOOR_ROWS * 1e6 for times in zip(*turns, strict=True)]
    rows = []
    for what, own, floor in (("register", *least[:2]), ("finish", *least[2:])):
        results.figures[f"ledger.{what}_of_plain"] = own / floor
        rows.append((what, f"{own:.1f} us a row", f"{floor:.1f} us a row", f"{own / floor:.1f}"))
    results.add_table(
        "The ledger beside a plain SQLite",
        f"CPU of {_FLOOR_ROWS:,} rows, least of {_FLOOR_TURNS} in turns. *Plain* keeps rows, a digest, packed bodies, "
        "and notes in groups of 64 what is sent and answered: no history, seals, totals, encryption or look-ups.",
        ("", "batchpay", "plain", "x"), rows,
    )  # fmt: skip


def _environment(home: Path, port: int, ledger: Path) -> dict[str, str]:
    return clean_environment(
        home, BATCHPAY_BASE_URL=f"http://127.0.0.1:{port}", BATCHPAY_API_ID="benchmark",
        BATCHPAY_API_KEY="benchmark-key", BATCHPAY_LEDGER=str(ledger),
    )  # fmt: skip


def _first_byte_s(place: Path, port: int) -> float:
    """Resume with the installed command, and tell when the first payment arrived; the run is then killed."""
    environment = _environment(place, port, place / "state" / "ledger.db")
    environment["BATCHPAY_LEDGER_KEY_FILE"] = str(place / "keys" / "ledger.key")
    with running_server(port=port, latency_ms=50) as server:
        started = time.time()
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(CLIENT_CORE), OWN_PYTHON, "-m", "batchpay", "resume"], cwd=place,
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while process.poll() is None and time.time() < started + 60:
                if arrived := server.arrived():
                    return arrived[0] - started
                time.sleep(0.02)
        finally:
            process.kill()
            code = process.wait()
    raise BenchmarkFailed(f"resume sent nothing and ended with {code}")


# Start


def measure_start(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the table about how soon commands answer."""
    count, home = 5 if quick else 9, folder / "home"
    home.mkdir(parents=True)
    own, one = [OWN_PYTHON, "-m", "batchpay"], str(File(1, 0).make(folder))
    commands = {
        "`python -c pass`": [OWN_PYTHON, "-c", "pass"],
        "**batchpay --version**": [*own, "--version"],
        "**batchpay --help**": [*own, "--help"],
        '`python -c "import pandera.polars"`': [OWN_PYTHON, "-c", "import pandera.polars"],
        "**batchpay validate**, one row": [*own, "validate", one],
        "**batchpay submit**, one row, ledger made anew": [*own, "submit", one, "--yes"],
    }
    with running_server() as server:
        turns = []
        for number in range(count):  # each has a ledger of its own: a row that was sent already is a duplicate
            place = home / str(number)
            place.mkdir()
            environment = _environment(place, server.port, place / "ledger.db")
            each = (
                [*command, "--out", str(place)] if "submit" in command else command for command in commands.values()
            )
            turns.append([run(command, environment=environment) for command in each])
    found = {label: Measured(samples) for label, samples in zip(commands, zip(*turns, strict=True), strict=True)}
    results.add_table(
        "Start", f"Whole processes, medians of {count}, in turns.", ("", "wall", "CPU", "peak memory"),
        [
            (label, f"{1000 * one.wall_s:.0f} ms", f"{1000 * one.cpu_s:.0f} ms", f"{one.rss_mib:.0f} MiB")
            for label, one in found.items()
        ],
    )  # fmt: skip
    _, _, _, floor, validate, _ = found.values()
    results.figures["start.validate_ratio"] = validate.least_cpu_s / floor.least_cpu_s
