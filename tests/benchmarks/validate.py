"""How long a check takes, beside the floor and beside the peers: by size, by share of bad rows, by kind of file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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

ALL, FIFTEEN, FLOOR, READ = "batchpay, all rules", "batchpay, the fifteen rules", "decode", "read"
COMMAND = "`batchpay validate --rejects`, start to end"
_LABELS = {
    FLOOR: "floor: polars decodes all columns as text",
    READ: "floor: polars.read_csv, or read_parquet, of the whole file",
    "wc -l": "floor: `wc -l`",
    "read_excel": "floor: polars.read_excel",
}
AS_OF_DAY = "2026-11-20"
FAST = ("wc -l", FLOOR, ALL, FIFTEEN, "polars by hand", "dataframely", "DuckDB")
SLOW = "pandera on pandas"
_FINDS_SHARED = (FIFTEEN, "polars by hand", "dataframely", "DuckDB", SLOW)


@dataclass(frozen=True)
class File:
    """A payment file to be made."""

    rows: int
    bad: int
    kind: str = "csv"
    twice_every: int = 0
    """One in so many rows shares its paymentId with the row before."""
    office: bool = False
    """Rows as offices have them, a third with a warning, and every cell quoted."""
    warned: int | None = None
    """Percent of an office's rows with a warning, where it is not a third."""

    @property
    def name(self) -> str:
        """Its name on disk."""
        words = (str(self.rows), str(self.bad), *(way.lstrip("-") for way in self._ways))
        return f"{'-'.join(words)}.{self.kind}"

    @property
    def has_bad(self) -> bool:
        """Whether some row fails."""
        return bool(self.bad or self.twice_every)

    @property
    def _ways(self) -> list[str]:
        ways = ["--twice-every", str(self.twice_every)] if self.twice_every else []
        ways += ["--office", "--dialect", "quoted"] if self.office else []
        return ways + ([] if self.warned is None else ["--warned", str(self.warned)])

    def make(self, folder: Path) -> Path:
        """Write it unless it is there already."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.name
        if not path.exists():
            command = [OWN_PYTHON, "-m", "tests.benchmarks.data", str(path), "--rows", str(self.rows)]
            run([*command, "--bad", str(self.bad), *self._ways])
        return path


def check(engine: str, path: Path, rejects: Path, *, has_bad: bool) -> Sample:
    """Run one engine over one file."""
    rejects.unlink(missing_ok=True)
    if engine in (ALL, FIFTEEN):
        which = "all" if engine == ALL else "fifteen"
        return run([OWN_PYTHON, "-m", "tests.benchmarks.own_validate", which, str(path), str(rejects)])
    if engine == COMMAND:
        command = [OWN_PYTHON, "-m", "batchpay", "validate", str(path), "--rejects", str(rejects), "--json"]
        # A home of its own: with a ledger in it, each row would be looked up there as well.
        environment = clean_environment(rejects.parent)
        return run([*command, "--as-of", AS_OF_DAY], environment=environment, code=3 if has_bad else 0)
    return run([PEERS_PYTHON, "-m", "tests.benchmarks.peers.validate", engine, str(path), str(rejects)])


def compare(file: File, folder: Path, times: dict[str, int]) -> dict[str, Measured]:
    """Run engines over one file in turns; see `compare_files`."""
    return compare_files({file: times}, folder)[file]


def compare_files(times: dict[File, dict[str, int]], folder: Path) -> dict[File, dict[str, Measured]]:
    """Run engines over files, all in turns, so that a busy moment of the machine hits all of them.

    Their findings are held together, file by file.
    """
    samples: dict[File, dict[str, list[Sample]]] = {file: defaultdict(list) for file in times}
    for turn in range(max(count for engines in times.values() for count in engines.values())):
        for file, engines in times.items():
            for engine, count in engines.items():
                if turn < count:
                    sample = check(engine, file.make(folder), folder / "rejects.csv", has_bad=file.has_bad)
                    samples[file][engine].append(sample)
    for file, found in samples.items():
        _require_agreement(file, found)
    return {file: {engine: Measured(runs) for engine, runs in by_engine.items()} for file, by_engine in samples.items()}


def _require_agreement(file: File, samples: dict[str, list[Sample]]) -> None:
    """Refuse figures of engines that found different failures of the fifteen rules."""
    found = {engine: {_shared(engine, sample) for sample in samples[engine]} for engine in samples}
    answers = {answer for engine in found if engine in (*_FINDS_SHARED, ALL, COMMAND) for answer in found[engine]}
    if len(answers) > 1:
        raise BenchmarkFailed(f"{file.name}: failures of the fifteen rules differ: {found}")


def _shared(engine: str, sample: Sample) -> int:
    if engine == COMMAND:
        counts: dict[str, int] = sample.told["counts"]
        return sum(counts.get(rule.name, 0) for rule in SHARED_RULES)
    return int(sample.told["shared_failures" if engine == ALL else "failures"])


def _times(engines: Iterable[str], count: int) -> dict[str, int]:
    return dict.fromkeys(engines, count)


def _peers_table(results: Results, title: str, note: str, measured: dict[str, Measured]) -> None:
    """Put batchpay and its peers into a table, the fastest first."""
    floor = next(measured[name].job_s for name in (FLOOR, READ, "read_excel") if name in measured)
    rows = []
    for engine in sorted(measured, key=lambda engine: measured[engine].job_s):
        one = measured[engine]
        label = _LABELS.get(engine, engine)
        rows.append((
            f"**{label}**" if engine in (ALL, FIFTEEN, COMMAND) else label,
            f"{one.job_s:.2f} s", f"{one.job_s / floor:.2f}",
            f"{one.wall_s:.2f} s", f"{one.cpu_s:.2f} s", f"{one.rss_mib:.0f} MiB", str(one.runs),
        ))  # fmt: skip
    header = ("", "job", "x floor", "whole process", "CPU", "peak memory", "runs")
    results.add_table(title, note, header, rows)


NOTE = (
    "Fresh process a run, file in the page cache, engines in turns, medians. *job* leaves out the interpreter's start "
    "and imports, *whole process* and *CPU* do not. Every engine but the floors writes the bad rows with all their "
    "errors and cells as CSV; all found the same failures of the fifteen rules."
)


def measure_validation(results: Results, folder: Path, *, quick: bool) -> None:
    """Make all tables about checking."""
    count = 3 if quick else 5
    times = _times(FAST, count) | ({} if quick else {SLOW: 3})
    small = compare(File(100_000, 2), folder, times)
    _peers_table(results, "Check 100,000 rows, CSV, 2 % bad", NOTE, small)
    results.figures["validate.dataframely_ratio"] = small["dataframely"].job_s / small[FIFTEEN].job_s
    results.figures["validate.duckdb_ratio"] = small["DuckDB"].job_s / small[FIFTEEN].job_s

    rows = 250_000 if quick else 1_000_000
    times = _times((READ, COMMAND), count) | ({} if quick else _times(FAST, count) | {SLOW: 1})
    million = compare(File(rows, 2), folder, times)
    _peers_table(results, f"Check {rows:,} rows, CSV, 2 % bad", NOTE, million)
    with_warnings, without = File(rows, 2, office=True), File(rows, 2, office=True, warned=0)
    offices = compare_files({with_warnings: _times((READ, COMMAND), count), without: _times((COMMAND,), count)}, folder)
    office, unwarned = offices[with_warnings], offices[without]
    note = f"{NOTE} A third of the rows with a warning, typographic apostrophes, every cell quoted."
    found = office | {f"{COMMAND}, no row with a warning": unwarned[COMMAND]}
    _peers_table(results, f"Check {rows:,} rows of an office, CSV, 2 % bad", note, found)
    results.figures["validate.warned_ratio"] = office[COMMAND].least_cpu_s / unwarned[COMMAND].least_cpu_s
    for name, measured in (("", million), ("office_", office)):
        ratio = measured[COMMAND].least_cpu_s / measured[READ].least_cpu_s
        results.figures[f"validate.{name}cpu_ratio"] = ratio
    results.figures["validate.rss_mib"] = max(million[COMMAND].rss_mib, office[COMMAND].rss_mib)
    if not quick:
        results.figures["validate.dataframely_ratio"] = million["dataframely"].job_s / million[FIFTEEN].job_s
        results.figures["validate.duckdb_ratio"] = million["DuckDB"].job_s / million[FIFTEEN].job_s

    _measure_shares(results, folder, million, rows, quick=quick)
    _measure_parquet(results, folder, rows, count)
    if not quick:
        _measure_sizes(results, folder, small, million)
    _measure_workbook(results, folder, 1 if quick else 3)


def _measure_shares(results: Results, folder: Path, million: dict[str, Measured], size: int, *, quick: bool) -> None:
    own, count = (COMMAND, 1) if quick else (ALL, 3)
    peers = {} if quick else _times(("polars by hand", "dataframely", "DuckDB", FIFTEEN), 1)
    files = [File(size, 0), File(size, 0, twice_every=2), File(size, 100)]
    times = {file: _times((own, COMMAND), count) | (peers if file.bad else {}) for file in files}
    clean, all_twice, bad = compare_files(times, folder).values()
    found = {"nothing bad": clean[own], "2 % bad": million[own]}
    if not quick:
        twice = compare(File(size, 2, twice_every=10_000), folder, {ALL: count})
        found["2 % bad, and 0.02 % share a paymentId: read again to name them"] = twice[ALL]
    found |= {"every row shares its paymentId with another": all_twice[own], "every row bad": bad[own]}
    found |= {f"every row bad, {engine}": bad[engine] for engine in peers}
    rows = [
        (label, f"{one.job_s:.2f} s", f"{one.job_s / clean[own].job_s:.2f}", f"{one.cpu_s:.2f} s",
         f"{one.rss_mib:.0f} MiB", str(one.runs))
        for label, one in found.items()
    ]  # fmt: skip
    results.add_table(
        f"Share of bad rows, {size:,} rows, CSV", f"{own} unless another name stands there.",
        ("", "job", "x nothing bad", "CPU", "peak memory", "runs"), rows,
    )  # fmt: skip
    clean_s, bad_s, twice_s = (each[COMMAND].least_cpu_s for each in (clean, bad, all_twice))
    results.figures["validate.all_bad_ratio"] = bad_s / clean_s
    results.figures["validate.all_twice_ratio"] = twice_s / clean_s
    results.figures["validate.bad_row_us"] = (bad_s - clean_s) / size * 1e6


def _measure_sizes(results: Results, folder: Path, small: dict[str, Measured], million: dict[str, Measured]) -> None:
    times = {FLOOR: 3, ALL: 3, FIFTEEN: 1, "polars by hand": 1, "dataframely": 1, "DuckDB": 1}
    large = compare(File(5_000_000, 2), folder, times)
    rows = []
    for engine in times:
        cells = [_LABELS.get(engine, engine)]
        for measured in (small, million, large):
            cells += [f"{measured[engine].job_s:.2f} s", f"{measured[engine].rss_mib:.0f} MiB"]
        rows.append(tuple(cells))
    results.add_table(
        "Growth with size, CSV, 2 % bad",
        "5,000,000 rows: medians of three for the floor and batchpay, one run of the others.",
        ("", "100 thousand", "memory", "1 million", "memory", "5 million", "memory"), rows,
    )  # fmt: skip
    results.figures["validate.rss_growth"] = large[ALL].rss_mib / million[ALL].rss_mib


def _measure_parquet(results: Results, folder: Path, size: int, count: int) -> None:
    quick = size < 1_000_000
    engines = (READ, COMMAND, *(() if quick else (FLOOR, ALL, FIFTEEN, "polars by hand", "dataframely", "DuckDB")))
    measured = compare(File(size, 2, "parquet"), folder, _times(engines, min(count, 3)))
    note = NOTE + " Row groups of 100,000 rows, all columns text."
    _peers_table(results, f"Check {size:,} rows, Parquet, 2 % bad", note, measured)
    results.figures["validate.parquet_cpu_ratio"] = measured[COMMAND].least_cpu_s / measured[READ].least_cpu_s
    if quick:
        return
    rows = []
    for size in (100_000, 5_000_000):
        measured = compare(File(size, 2, "parquet"), folder, {FLOOR: 1, ALL: 1})
        rows += [
            (f"{size:,} rows, {_LABELS.get(name, name)}", f"{one.job_s:.2f} s", f"{one.rss_mib:.0f} MiB")
            for name, one in measured.items()
        ]
    for bad in (0, 100):
        one = compare(File(1_000_000, bad, "parquet"), folder, {ALL: 1})[ALL]
        rows.append((f"1,000,000 rows, {bad} % bad, {ALL}", f"{one.job_s:.2f} s", f"{one.rss_mib:.0f} MiB"))
    results.add_table("Parquet by size and share", "One run each.", ("", "job", "peak memory"), rows)


def _measure_workbook(results: Results, folder: Path, count: int) -> None:
    measured = compare(File(50_000, 2, "xlsx"), folder, {"read_excel": count, ALL: count})
    note = "batchpay reads cell types and number formats in a child process with limits; polars reads the texts."
    _peers_table(results, "Check a workbook of 50,000 rows", note, measured)
    results.figures["validate.read_excel_ratio"] = measured[ALL].job_s / measured["read_excel"].job_s
