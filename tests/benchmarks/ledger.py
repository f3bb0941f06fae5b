"""What the ledger costs: registering, the way to the first byte of a resumed batch, finishing.

And how soon commands answer.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from batchpay.payment import format_cents
from tests.benchmarks.data import LARGEST_CENTS
from tests.benchmarks.process import (
    CLIENT_CORE,
    OWN_PYTHON,
    BenchmarkFailed,
    Measured,
    clean_environment,
    measure,
    run,
)
from tests.benchmarks.results import Results
from tests.benchmarks.server import running_server
from tests.benchmarks.submit import free_port
from tests.benchmarks.validate import File


def measure_ledger(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the table about the ledger."""
    port = free_port()
    rows = [_one_size(results, folder, port, size) for size in ((100_000,) if quick else (100_000, 1_000_000))]
    results.add_table(
        "The ledger",
        "SQLite, every commit synced. *Register*: the checked file is read again, its digest compared, request bodies "
        "built, sealed and written in one transaction; in brackets how much of it builds bodies and digests, waits for "
        "the thread that reads, and for the one that seals and writes. *First byte*: from the start of "
        "`batchpay resume` to the first payment's arrival, with all rows pending; medians of three; in brackets where "
        "a limit was lowered since, so that every waiting row is looked at first. *Finish*: intents and answers of 64 "
        "rows a commit, without sending.",
        ("rows", "register", "bytes a row", "first byte", "finish", "commits/s", "results file", "bytes a row, final"),
        rows,
    )  # fmt: skip
    _measure_floor(results, folder, port)


_FLOOR_ROWS, _FLOOR_TURNS = 50_000, 7


def _measure_floor(results: Results, folder: Path, port: int) -> None:
    """Hold CPU times against an SQLite that proves nothing, in turns."""
    command, origin = [OWN_PYTHON, "-m", "tests.benchmarks.own_submit"], f"http://127.0.0.1:{port}"
    register, finish = _Turns(), _Turns()
    file, bodies = str(File(_FLOOR_ROWS, 0).make(folder)), str(folder / "bodies.jsonl")
    run([*command, "register", file, str(folder / "other"), origin, bodies])
    for turn in range(_FLOOR_TURNS):
        place = folder / f"own-{turn}"
        own = run([*command, "register", file, str(place), origin]).told
        floor = [OWN_PYTHON, "-m", "tests.benchmarks.plain_ledger", bodies, str(folder / f"plain-{turn}"), "64"]
        plain = run(floor)
        finished = run([*command, "finish", str(place), str(folder / "results.csv")]).told
        register.add(own["register_cpu_s"], plain.told["register_cpu_s"])
        finish.add(finished["cpu_s"], plain.told["finish_cpu_s"])
    results.figures["ledger.register_of_plain"], results.figures["ledger.finish_of_plain"] = (
        register.ratio,
        finish.ratio,
    )
    results.add_table(
        "The ledger beside a plain SQLite",
        f"CPU of {_FLOOR_ROWS:,} rows, least of {_FLOOR_TURNS} in turns. *Plain* keeps rows, a digest, packed bodies, "
        "and notes in groups of 64 what is sent and answered: no history, seals, totals, encryption or look-ups.",
        ("", "batchpay", "plain", "x"),
        [("register", *register.words), ("finish", *finish.words)],
    )


class _Turns:
    """CPU times of two programs."""

    def __init__(self) -> None:
        self._own: list[float] = []
        self._plain: list[float] = []

    def add(self, own_s: float, plain_s: float) -> None:
        """Note a turn."""
        self._own.append(own_s)
        self._plain.append(plain_s)

    @property
    def ratio(self) -> float:
        """Least against least."""
        return min(self._own) / min(self._plain)

    @property
    def words(self) -> tuple[str, str, str]:
        """For a table."""
        own, plain = (f"{min(times) / _FLOOR_ROWS * 1e6:.1f} us a row" for times in (self._own, self._plain))
        return own, plain, f"{self.ratio:.1f}"


def _one_size(results: Results, folder: Path, port: int, size: int) -> tuple[str, ...]:
    place = folder / f"ledger-{size}"
    origin = f"http://127.0.0.1:{port}"
    command = [OWN_PYTHON, "-m", "tests.benchmarks.own_submit"]
    told = run([*command, "register", str(File(size, 0).make(folder)), str(place), origin]).told
    bytes_a_row = told["bytes"] / size
    first_byte_s, looked_at_s = (
        sorted(_first_byte_s(place, port, limit) for _ in range(3))[1] for limit in (LARGEST_CENTS, LARGEST_CENTS - 1)
    )
    finished = run([*command, "finish", str(place), str(folder / f"results-of-{size}.csv")]).told
    commits = finished["commits"] / finished["job_s"]
    figures = results.figures
    figures["ledger.register_s_a_million"] = told["register_s"] / size * 1e6
    figures["ledger.bytes_a_row"] = bytes_a_row
    figures["ledger.first_byte_s"] = first_byte_s
    figures["ledger.commits_a_second"] = commits
    figures["ledger.results_ratio"] = finished["results_cpu_s"] / finished["csv_module_s"]
    return (
        f"{size:,}",
        f"{told['register_s']:.2f} s ({told['columns_s']:.2f}, {told['read_s']:.2f}, {told['write_s']:.2f})",
        f"{bytes_a_row:.0f}", f"{first_byte_s:.2f} s ({looked_at_s:.2f})", f"{finished['job_s']:.1f} s",
        f"{commits:,.0f}",
        f"{finished['results_s']:.2f} s", f"{finished['bytes'] / size:.0f}",
    )  # fmt: skip


def _first_byte_s(place: Path, port: int, max_cents: int) -> float:
    """Resume with the installed command, and tell when the first payment arrived; the run is then killed.

    `max_cents` is what a payment may move at most by then.
    """
    environment = clean_environment(
        place, BATCHPAY_BASE_URL=f"http://127.0.0.1:{port}", BATCHPAY_API_ID="benchmark",
        BATCHPAY_API_KEY="benchmark-key", BATCHPAY_LEDGER=str(place / "state" / "ledger.db"),
        BATCHPAY_LEDGER_KEY_FILE=str(place / "keys" / "ledger.key"),
    )  # fmt: skip
    (place / "batchpay.toml").write_text(f'[limits]\nmax_amount = "{format_cents(max_cents)}"\n')
    with running_server(port=port, latency_ms=50) as server:
        started = time.time()
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(CLIENT_CORE), OWN_PYTHON, "-m", "batchpay", "resume"], cwd=place,
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while process.poll() is None and time.time() < started + 60:
                arrived = server.statistics()["taken"]
                if arrived:
                    return float(arrived[0]) - started
                time.sleep(0.02)
        finally:
            process.kill()
            code = process.wait()
    raise BenchmarkFailed(f"resume sent nothing and ended with {code}")


# Start


def measure_start(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the table about how soon commands answer."""
    count = 5 if quick else 9
    home = folder / "home"
    home.mkdir(parents=True)
    port = free_port()
    environment = clean_environment(
        home, BATCHPAY_BASE_URL=f"http://127.0.0.1:{port}", BATCHPAY_API_ID="benchmark",
        BATCHPAY_API_KEY="benchmark-key", BATCHPAY_LEDGER=str(home / "ledger.db"),
    )  # fmt: skip
    own = [OWN_PYTHON, "-m", "batchpay"]
    one = str(File(1, 0).make(folder))
    bare = measure(count, [OWN_PYTHON, "-c", "pass"], environment=environment)
    in_turns = ([OWN_PYTHON, "-c", "import pandera.polars"], [*own, "validate", one])
    turns = [[run(command, environment=environment) for command in in_turns] for _ in range(count)]
    floor, validate = (Measured(samples) for samples in zip(*turns, strict=True))
    found = {
        "`python -c pass`": bare,
        "**batchpay --version**": measure(count, [*own, "--version"], environment=environment),
        "**batchpay --help**": measure(count, [*own, "--help"], environment=environment),
        '`python -c "import pandera.polars"`': floor,
        "**batchpay validate**, one row": validate,
    }
    with running_server(port=port):
        # The first submits; the others find the row sent already, so each gets a ledger of its own.
        runs = []
        for number in range(count):
            ledger = {**environment, "HOME": str(home / str(number)), "BATCHPAY_LEDGER": str(home / f"{number}.db")}
            out = home / f"out-{number}"
            out.mkdir()
            runs.append(run([*own, "submit", one, "--out", str(out), "--yes"], environment=ledger))
        found["**batchpay submit**, one row, ledger made anew"] = Measured(runs)
    rows = [
        (label, f"{1000 * each.wall_s:.0f} ms", f"{each.wall_s / bare.wall_s:.1f}", f"{1000 * each.cpu_s:.0f} ms",
         f"{each.rss_mib:.0f} MiB")
        for label, each in found.items()
    ]  # fmt: skip
    results.add_table(
        "Start", f"Whole processes, medians of {count}.", ("", "wall", "x python", "CPU", "peak memory"), rows
    )
    results.figures["start.validate_ratio"] = validate.least_cpu_s / floor.least_cpu_s
    results.figures["start.help_ratio"] = found["**batchpay --help**"].wall_s / bare.wall_s
