"""How long a check takes, beside the peers: by size, by share of bad rows, by kind of file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.process import (
    OWN_PYTHON,
    PEERS_PYTHON,
    BenchmarkFailed,
    Measured,
    Sample,
    clean_environment,
    run,
)
from tests.benchmarks.results import Results
from tests.benchmarks.rules import SHARED_RULES

FIFTEEN, COMMAND = "batchpay, the fifteen rules", "`batchpay validate --rejects`, start to end"
FLOOR, PANDERA = "polars decodes all columns as text", "pandera on pandas"
PEERS = ("polars by hand", "dataframely", "DuckDB")
NOTE = (
    "Fresh process a run, file in the page cache, engines in turns, medians. *job* leaves out the interpreter's start "
    "and imports, *whole process* and *CPU* do not. Every engine but the floor writes the bad rows with all their "
    "errors and cells as CSV; all found the same failures of the fifteen rules. The command checks all rules."
)


@dataclass(frozen=True)
class File:
    """A payment file to be made."""

    rows: int
    bad: int
    """Percent of the rows."""
    kind: str = "csv"
    twice_every: int = 0
    """One in so many rows shares its paymentId with the row before."""

    @property
    def name(self) -> str:
        """Its name on disk."""
        return f"{self.rows}-{self.bad}-{self.twice_every}.{self.kind}"

    def make(self, folder: Path) -> Path:
        """Write it unless it is there already."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.name
        if not path.exists():
            shares = ["--bad", str(self.bad), "--twice-every", str(self.twice_every)]
            run([OWN_PYTHON, "-m", "tests.benchmarks.data", str(path), "--rows", str(self.rows), *shares])
        return path


def check(engine: str, file: File, folder: Path) -> Sample:
    """Run one engine over one file."""
    path, rejects = str(file.make(folder)), folder / "rejects.csv"
    rejects.unlink(missing_ok=True)
    if engine == FIFTEEN:
        return run([OWN_PYTHON, "-m", "tests.benchmarks.own_validate", path, str(rejects)])
    if engine == COMMAND:
        command = [OWN_PYTHON, "-m", "batchpay", "validate", path, "--rejects", str(rejects), "--json"]
        # A home of its own: with a ledger in it, each row would be looked up there as well.
        environment, code = clean_environment(folder), 3 if file.bad or file.twice_every else 0
        return run([*command, "--as-of", "2026-11-20"], environment=environment, code=code)
    return run([PEERS_PYTHON, "-m", "tests.benchmarks.peers.validate", engine, path, str(rejects)])


def compare(file: File, folder: Path, engines: Iterable[str], times: int) -> dict[str, Measured]:
    """Run engines over a file in turns, so that a busy moment hits all; what they found must be the same."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for _ in range(times):
        for engine in engines:
            samples[engine].append(check(engine, file, folder))
    found = {engine: {_shared(engine, one) for one in each} for engine, each in samples.items() if engine != FLOOR}
    if len(set[int]().union(*found.values())) > 1:
        raise BenchmarkFailed(f"{file.name}: failures of the fifteen rules differ: {found}")
    return {engine: Measured(runs) for engine, runs in samples.items()}


def _shared(engine: str, sample: Sample) -> int:
    if engine == COMMAND:
        counts: dict[str, int] = sample.told["counts"]
        return sum(counts.get(rule.name, 0) for rule in SHARED_RULES)
    return int(sample.told["failures"])


def _table(results: Results, title: str, measured: Mapping[str, Measured], note: str = NOTE) -> None:
    """Put batchpay and its peers into a table, the fastest first."""
    rows = [
        (f"**{name}**" if name in (FIFTEEN, COMMAND) else name, f"{one.job_s:.2f} s", f"{one.wall_s:.2f} s",
         f"{one.cpu_s:.2f} s", f"{one.rss_mib:.0f} MiB", str(one.runs))
        for name, one in sorted(measured.items(), key=lambda item: item[1].job_s)
    ]  # fmt: skip
    results.add_table(title, note, ("", "job", "whole process", "CPU", "peak memory", "runs"), rows)


def measure_validation(results: Results, folder: Path, *, quick: bool) -> None:
    """Make all tables about checking."""
    rows, times, figures = 250_000 if quick else 1_000_000, 3 if quick else 5, results.figures
    csv = compare(File(rows, 2), folder, (FLOOR, COMMAND, FIFTEEN, *PEERS), times)
    csv |= compare(File(rows, 2), folder, (PANDERA,), 1)
    _table(results, f"Check {rows:,} rows, CSV, 2 % bad", csv)
    figures["validate.cpu_of_duckdb"] = csv[COMMAND].least_cpu_s / csv["DuckDB"].least_cpu_s
    figures["validate.pandera_ratio"] = csv[PANDERA].job_s / csv[FIFTEEN].job_s
    parquet = compare(File(rows, 2, "parquet"), folder, (FLOOR, COMMAND, FIFTEEN, *PEERS), 3)
    _table(results, f"Check {rows:,} rows, Parquet, 2 % bad", parquet)
    figures["validate.parquet_cpu_of_duckdb"] = parquet[COMMAND].least_cpu_s / parquet["DuckDB"].least_cpu_s

    files = {
        "nothing bad": File(rows, 0), "every row shares its paymentId with another": File(rows, 0, twice_every=2),
        "every row bad": File(rows, 100), "five times as many rows, 2 % bad": File(5 * rows, 2),
        "a workbook of 50,000 rows, 2 % bad": File(50_000, 2, "xlsx"),
    }  # fmt: skip
    alone = {label: compare(file, folder, (COMMAND,), 1 if quick else 3)[COMMAND] for label, file in files.items()}
    _table(results, f"By share of bad rows and by size: {rows:,} rows, CSV", alone, f"{COMMAND}.")
    clean, twice, bad, large, workbook = alone.values()
    figures["validate.all_bad_ratio"] = bad.least_cpu_s / clean.least_cpu_s
    figures["validate.all_twice_ratio"] = twice.least_cpu_s / clean.least_cpu_s
    figures["validate.bad_row_us"] = (bad.least_cpu_s - clean.least_cpu_s) / rows * 1e6
    figures["validate.rss_mib"] = csv[COMMAND].rss_mib
    figures["validate.rss_growth"] = large.rss_mib / csv[COMMAND].rss_mib
    figures["validate.workbook_of_csv"] = (workbook.least_cpu_s / 50_000) / (clean.least_cpu_s / rows)
