"""Measures batchpay beside its peers: `make bench`, `make bench-quick`, `make bench-check`.

    python -m tests.benchmarks [--quick] [--check] [--only validate|submit|pace|ledger|start]

A run prints what it found and keeps it in build/benchmarks/; without --quick it is written into RESULTS.md as well.
"""

from __future__ import annotations

import argparse
import compileall
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import results as written
from tests.benchmarks.ledger import measure_ledger, measure_start
from tests.benchmarks.pace import measure_pace
from tests.benchmarks.process import CORES, PEERS_PYTHON, ROOT, BenchmarkFailed
from tests.benchmarks.submit import measure_submission
from tests.benchmarks.validate import measure_validation

PARTS = {
    "validate": measure_validation,
    "submit": measure_submission,
    "pace": measure_pace,
    "ledger": measure_ledger,
    "start": measure_start,
}

_PART_S_MAX = {True: 600, False: 3600}
"""A part that takes so long, quick or not, hangs: the longest takes a tenth of it."""


@contextmanager
def at_most(seconds: int, name: str) -> Iterator[None]:
    """End what hangs in the block; raises BenchmarkFailed."""

    def give_up(*_: object) -> None:
        raise BenchmarkFailed(f"{name} was not done in {seconds // 60} minutes")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def main() -> int:
    """Measure, print, and hold the figures against the bars if asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--quick", action="store_true", help="small files and fewer runs: about three minutes")
    parser.add_argument("--check", action="store_true", help="fail where a figure falls under its bar")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; may be repeated")
    arguments = parser.parse_args()
    if not Path(PEERS_PYTHON).exists():
        print(f"{PEERS_PYTHON} is not there: run `make bench`, which installs the peers", file=sys.stderr)
        return 2
    if len(CORES) < 2:
        print("the benchmarks need two cores: the loopback server has one of its own", file=sys.stderr)
        return 2
    for room in ("batchpay", "schemas"):  # an installed program starts from bytecode; so does what is measured here
        compileall.compile_dir(ROOT / room, quiet=1)
    started = time.monotonic()
    kept = ROOT / "build" / "benchmarks" / ("quick" if arguments.quick else "full")
    chosen = [name for name in PARTS if not arguments.only or name in arguments.only]
    with tempfile.TemporaryDirectory(prefix="batchpay-bench-") as temporary:
        for name in chosen:
            print(f"{time.monotonic() - started:5.0f} s  {name}", file=sys.stderr, flush=True)
            found = written.Results()
            with at_most(_PART_S_MAX[arguments.quick], name):
                PARTS[name](found, Path(temporary) / name, quick=arguments.quick)
            written.keep(found, kept / f"{name}.json")
    took_s, words = time.monotonic() - started, "".join(f" {word}" for word in sys.argv[1:])
    results = written.merge([kept / f"{name}.json" for name in chosen])
    print(written.markdown(results, took_s, words))
    if not arguments.quick:  # parts that were not measured now stand there as they were measured last
        everything = written.merge([kept / f"{name}.json" for name in PARTS])
        written.write_results(written.markdown(everything, took_s, words))
    return check(results) if arguments.check else 0


def check(results: written.Results) -> int:
    """Tell which bars fall, and prove that each would be seen to fall."""
    bars = written.read_bars()
    toothless = written.toothless(results.figures, bars)
    assert not toothless, f"these bars can't fail: {toothless}"
    measured = sum(bar.name in results.figures for bar in bars)
    print(f"\n{measured} of {len(bars)} bars measured, and each fails when it is raised over its figure")
    failures = written.fallen(results.figures, bars)
    for failure in failures:
        print(f"under its bar: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
