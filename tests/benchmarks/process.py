"""Measures programs as whole processes: wall time, CPU time, peak memory, and what they print of themselves."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OWN_PYTHON = sys.executable
PEERS_PYTHON = str(ROOT / ".venv" / "peers" / "bin" / "python")
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = CORES[0]
"""The loopback server runs on the first core alone, every sender on the last one."""
CLIENT_CORE = CORES[-1]


class BenchmarkFailed(Exception):
    """A program that is measured ended badly, or found something else than the others."""


@dataclass(frozen=True)
class Sample:
    """One run of one process."""

    wall_s: float
    cpu_s: float
    rss_mib: float
    told: Mapping[str, Any]
    """The JSON object that it printed last, or nothing."""

    @property
    def job_s(self) -> float:
        """What it took without start and imports, where the program tells it."""
        return float(self.told.get("job_s", self.wall_s))


@dataclass(frozen=True)
class Measured:
    """The median of several runs."""

    samples: Sequence[Sample] = field(repr=False)

    @property
    def runs(self) -> int:
        """How many runs."""
        return len(self.samples)

    def median(self, figure: Callable[[Sample], float]) -> float:
        """Give the median of some figure."""
        return statistics.median(figure(sample) for sample in self.samples)

    @property
    def job_s(self) -> float:
        """Median time of the job alone."""
        return self.median(lambda sample: sample.job_s)

    @property
    def wall_s(self) -> float:
        """Median time of the whole process."""
        return self.median(lambda sample: sample.wall_s)

    @property
    def cpu_s(self) -> float:
        """Median CPU time of the whole process."""
        return self.median(lambda sample: sample.cpu_s)

    @property
    def least_cpu_s(self) -> float:
        """The least CPU time of a run: what other programs add on a busy machine is no part of it."""
        return min(sample.cpu_s for sample in self.samples)

    @property
    def rss_mib(self) -> float:
        """Median peak of the resident memory."""
        return self.median(lambda sample: sample.rss_mib)

    def told(self, name: str) -> float:
        """Median of a figure that the program tells of itself."""
        return self.median(lambda sample: float(sample.told[name]))


def run(
    command: Sequence[str], *, core: int | None = None, environment: Mapping[str, str] | None = None, code: int = 0
) -> Sample:
    """Run a process to its end and measure it; raises BenchmarkFailed where it ends with another exit code."""

    def pin() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})

    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints, env=environment,
            preexec_fn=pin,
        )  # fmt: skip
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # it took too long, or nobody wants to know any more
            process.kill()
            raise
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        complaints.seek(0)
        printed = output.read().decode("utf-8", "replace").strip().splitlines()
        if process.returncode != code:
            said = complaints.read().decode("utf-8", "replace")[-2000:]
            raise BenchmarkFailed(f"{' '.join(command)} ended with {process.returncode}: {said}")
    told = json.loads(printed[-1]) if printed and printed[-1].startswith("{") else {}
    return Sample(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, told)


def measure(times: int, command: Sequence[str], **options: Any) -> Measured:
    """Run a process so many times, one after the other."""
    return Measured([run(command, **options) for _ in range(times)])


def clean_environment(folder: Path, **more: str) -> dict[str, str]:
    """Give the whole environment of a run: nothing of the caller's but the path, a home of its own."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LANG": "C.UTF-8", **more}
