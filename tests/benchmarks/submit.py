"""How fast payments go out, beside senders that keep no ledger."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from batchpay.ledger.open import accept
from tests.benchmarks.own_submit import ledger_settings
from tests.benchmarks.process import CLIENT_CORE, OWN_PYTHON, PEERS_PYTHON, BenchmarkFailed, Measured, Sample, run
from tests.benchmarks.results import Results
from tests.benchmarks.server import BenchmarkServer, running_server
from tests.benchmarks.validate import File

OWN = (OWN_PYTHON, "-m", "tests.benchmarks.own_submit")
DURABLE, BARE, SESSION = "batchpay, durable", "batchpay's sender without a ledger", "requests Session"
PEERS = ("raw sockets", "urllib3", SESSION, "aiohttp")
_LABELS = {
    "raw sockets": "floor: raw sockets", "urllib3": "urllib3 pool in threads",
    SESSION: "requests.Session().post(json=…), one a thread", "aiohttp": "aiohttp tasks",
}  # fmt: skip
Key = tuple[str, int]
"""Sender and width: how many requests are in flight at most."""


class Place:
    """Ledgers of registered files, to be sent whole, and the bodies of their rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with running_server() as server:  # all servers have its port: a batch is registered for one origin
            self.port = server.port

    def bodies(self, rows: int) -> Path:
        """Give the bodies of the rows of the file of this size, a line each."""
        kept, bodies = self._folder / f"kept-{rows}", self._folder / f"bodies-{rows}.jsonl"
        if not kept.exists():
            fresh, origin = self._folder / f"ledger-{rows}", f"http://127.0.0.1:{self.port}"
            run([*OWN, "register", str(File(rows, 0).make(self._folder)), str(fresh), origin, str(bodies)])
            fresh.rename(kept)
        return bodies

    def ledger(self, rows: int) -> Path:
        """Give a fresh ledger with a file of so many rows: what closing a run costs grows with its batch."""
        self.bodies(rows)
        fresh = self._folder / f"ledger-{rows}"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(self._folder / f"kept-{rows}", fresh)
        accept(ledger_settings(fresh), "benchmark", "nothing else sends its payments")
        return fresh

    def send(self, server: BenchmarkServer, sender: str, width: int, rows: int) -> Sample:
        """Send so many rows with one sender on the clients' core."""
        if sender == DURABLE:
            sample = run([*OWN, "durable", str(self.ledger(rows)), str(width)], core=CLIENT_CORE)
        else:
            peer = [PEERS_PYTHON, "-m", "tests.benchmarks.peers.submit", sender]
            command = [*OWN, "bare"] if sender == BARE else peer
            sample = run([*command, server.origin, str(self.bodies(rows)), str(rows), str(width)], core=CLIENT_CORE)
        if sample.told["rows"] != rows:
            raise BenchmarkFailed(f"{sender} sent {sample.told['rows']} of {rows} rows: {sample.told}")
        return sample


def measure_submission(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the tables about speed."""
    place, rows, times = Place(folder), 3000 if quick else 5000, 3 if quick else 5
    wide = [(sender, 64) for sender in (DURABLE, BARE, *PEERS)]
    for latency_ms, more in ((0, [(DURABLE, 1), (SESSION, 1)]), (20, [])):
        plan = dict.fromkeys([*wide, *more], rows)
        # Enough for those that are compared most closely that opening and closing a run weigh little.
        plan |= dict.fromkeys([(DURABLE, 64), (BARE, 64), ("raw sockets", 64)], rows * (8 if latency_ms else 4))
        samples: dict[Key, list[Sample]] = defaultdict(list)
        with running_server(port=place.port, latency_ms=latency_ms) as server:
            for _ in range(times):
                for (sender, width), count in plan.items():
                    samples[sender, width].append(place.send(server, sender, width, count))
        measured = {key: Measured(runs) for key, runs in samples.items()}
        _table(results, latency_ms, measured, plan)
        _figures(results, latency_ms, measured)


def rows_a_second(one: Measured) -> float:
    """Median rate of a sender."""
    return one.median(lambda sample: float(sample.told["rows"]) / sample.job_s)


def _cpu_us_a_row(one: Measured) -> float:
    return one.median(lambda sample: float(sample.told["cpu_s"]) / float(sample.told["rows"]) * 1e6)


def _table(results: Results, latency_ms: float, measured: Mapping[Key, Measured], plan: Mapping[Key, int]) -> None:
    session = rows_a_second(measured[SESSION, 64])
    rows: list[Sequence[str]] = []
    for key in sorted(measured, key=lambda key: -rows_a_second(measured[key])):
        (sender, width), one = key, measured[key]
        label = f"{_LABELS.get(sender, sender)}, {width} in flight"
        rows.append((
            f"**{label}**" if sender in (DURABLE, BARE) else label, f"{rows_a_second(one):,.0f}",
            f"{rows_a_second(one) / session:.2f}", f"{_cpu_us_a_row(one):.0f} us", f"{plan[key]:,}", str(one.runs),
        ))  # fmt: skip
    results.add_table(
        f"Send to a gateway that takes {latency_ms:g} ms",
        "Server alone on the first core, each sender alone on the last one; medians, in turns. Only batchpay's durable "
        "rows are on disk, synced, before their first byte leaves; its time includes opening and closing the run.",
        ("", "rows/s", "x Session in 64 threads", "CPU a row", "rows", "runs"), rows,
    )  # fmt: skip


def _figures(results: Results, latency_ms: float, measured: Mapping[Key, Measured]) -> None:
    rate = {key: rows_a_second(one) for key, one in measured.items()}
    figures = results.figures
    if latency_ms == 0:
        figures["submit.session_ratio_0ms"] = rate[DURABLE, 64] / max(rate[SESSION, 64], rate[SESSION, 1])
        figures["submit.one_worker_share"] = rate[DURABLE, 1] / rate[SESSION, 1]
        figures["submit.cpu_us_a_row"] = _cpu_us_a_row(measured[DURABLE, 64])
        figures["submit.cpu_of_session"] = _cpu_us_a_row(measured[DURABLE, 64]) / _cpu_us_a_row(measured[SESSION, 1])
    else:
        figures["submit.session_ratio_20ms"] = rate[DURABLE, 64] / rate[SESSION, 64]
        figures["submit.share_of_bare_20ms"] = rate[DURABLE, 64] / rate[BARE, 64]
        figures["submit.share_of_sockets_20ms"] = rate[DURABLE, 64] / rate["raw sockets", 64]
