"""How fast payments go out, beside senders that keep no ledger; what a kill leaves in doubt; how limits are used."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import statistics
import subprocess
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.process import (
    CLIENT_CORE,
    OWN_PYTHON,
    PEERS_PYTHON,
    ROOT,
    BenchmarkFailed,
    Measured,
    Sample,
    clean_environment,
    run,
)
from tests.benchmarks.results import Results
from tests.benchmarks.server import BenchmarkServer, running_server
from tests.benchmarks.validate import File

DURABLE, BARE, SESSION = "batchpay, durable", "batchpay's sender without a ledger", "requests Session"
PEERS = ("raw sockets", "urllib3", SESSION, "aiohttp")
_LABELS = {
    "raw sockets": "floor: raw sockets", "urllib3": "urllib3 pool in threads",
    SESSION: "requests.Session().post(json=…), one a thread", "aiohttp": "aiohttp tasks",
}  # fmt: skip
Key = tuple[str, int]
"""Sender and width: how many requests are in flight at most."""
_CLOSE: Sequence[Key] = ((DURABLE, 64), (BARE, 64), ("raw sockets", 64))
_WITH_A_BAR: Mapping[int, Sequence[Key]] = {
    0: ((DURABLE, 64), (SESSION, 64), (DURABLE, 1), (SESSION, 1)),
    20: ((DURABLE, 64), (BARE, 64), ("raw sockets", 64), (SESSION, 64)),
}
"""What is held against a bar, by the milliseconds that the gateway takes: all that a quick run measures."""


class Place:
    """A folder with a registered batch, the bodies of its first rows, and ledgers of smaller files to be sent whole."""

    def __init__(self, folder: Path, port: int, *, rows: int) -> None:
        self.folder, self.port = folder / "ledger", port
        self.bodies = folder / "bodies.jsonl"
        self._files = folder
        self._register(rows, self.folder, self.bodies)

    def _register(self, rows: int, folder: Path, *bodies: Path) -> None:
        file, origin = File(rows, 0).make(self._files), f"http://127.0.0.1:{self.port}"
        command = [OWN_PYTHON, "-m", "tests.benchmarks.own_submit", "register"]
        run([*command, str(file), str(folder), origin, *map(str, bodies)])

    def whole(self, rows: int) -> Path:
        """Give a fresh ledger with a file of so many rows: what closing a run costs grows with its batch."""
        fresh, kept = self._files / f"ledger-{rows}", self._files / f"kept-{rows}"
        if not kept.exists():
            self._register(rows, fresh)
            shutil.copytree(fresh, kept)
        shutil.rmtree(fresh)
        shutil.copytree(kept, fresh)  # to the same place, and with its witness: a ledger knows where it belongs
        return fresh

    def durable(self, rate: str, workers: int, rows: int | None, folder: Path | None = None) -> list[str]:
        """Give the command that sends the next rows of the batch, or of the one in another folder."""
        limit = [] if rows is None else [str(rows)]
        return [
            OWN_PYTHON,
            "-m",
            "tests.benchmarks.own_submit",
            "durable",
            str(folder or self.folder),
            rate,
            str(workers),
            *limit,
        ]

    def forget_limits(self) -> None:
        """Let the next run begin as if none had met this gateway before."""
        (self.folder / "state" / "limits.json").unlink(missing_ok=True)

    def send(self, server: BenchmarkServer, sender: str, width: int, rows: int) -> Sample:
        """Send so many rows with one sender on the clients' core."""
        if sender == DURABLE:
            sample = run(self.durable("20000", width, rows, self.whole(rows)), core=CLIENT_CORE)
        elif sender == BARE:
            own = [OWN_PYTHON, "-m", "tests.benchmarks.own_submit", "bare"]
            sample = run([*own, server.origin, str(self.bodies), str(rows), str(width)], core=CLIENT_CORE)
        else:
            peer = [PEERS_PYTHON, "-m", "tests.benchmarks.peers.submit", sender]
            sample = run([*peer, server.origin, str(self.bodies), str(rows), str(width)], core=CLIENT_CORE)
        if sample.told["rows"] != rows:
            raise BenchmarkFailed(f"{sender} sent {sample.told['rows']} of {rows} rows: {sample.told}")
        return sample


def free_port() -> int:
    """Find a port for servers that come one after the other: a batch is registered for one origin."""
    with running_server() as server:
        return server.port


def measure_submission(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the tables about speed and about doubt after a kill."""
    place = Place(folder, free_port(), rows=50_000 if quick else 200_000)
    count, rows = (3, 3000) if quick else (5, 5000)
    plans = [(latency_ms, dict.fromkeys(_WITH_A_BAR[latency_ms], rows), count) for latency_ms in (0, 20)]
    if not quick:
        wide = [(sender, 64) for sender in (DURABLE, BARE, *PEERS)]
        for _, plan, _ in plans:
            plan |= dict.fromkeys(wide, rows)
        plans[0][1].update(dict.fromkeys([(BARE, 1), ("raw sockets", 1)], rows))
        plans[1][1].update(dict.fromkeys([(DURABLE, 1), (DURABLE, 8), (SESSION, 1)], 200))
        plans.append((100, dict.fromkeys(wide, 1500) | dict.fromkeys([(DURABLE, 8), (SESSION, 1)], 50), 3))
    for latency_ms, plan, _ in plans[:2]:
        # Enough for those that are compared most closely that opening and closing a run weigh little.
        close = [key for key in _CLOSE if key in plan]
        plan |= dict.fromkeys(close, rows * (8 if latency_ms else 4))
    for latency_ms, plan, times in plans:
        with running_server(port=place.port, latency_ms=latency_ms) as server:
            measured = _in_turns(place, server, plan, times)
        _table(results, latency_ms, measured, plan)
        _figures(results, latency_ms, measured)
    _measure_kills(results, place, 2 if quick else 5)


def _in_turns(place: Place, server: BenchmarkServer, plan: dict[Key, int], times: int) -> dict[Key, Measured]:
    samples: dict[Key, list[Sample]] = defaultdict(list)
    for _ in range(times):
        for (sender, width), rows in plan.items():
            samples[sender, width].append(place.send(server, sender, width, rows))
    return {key: Measured(runs) for key, runs in samples.items()}


def rows_a_second(one: Measured) -> float:
    """Median rate of a sender."""
    return one.median(lambda sample: float(sample.told["rows"]) / sample.job_s)


def cpu_us_a_row(one: Measured) -> float:
    """Median CPU time of a row."""
    return one.median(lambda sample: float(sample.told["cpu_s"]) / float(sample.told["rows"]) * 1e6)


def _table(results: Results, latency_ms: float, measured: dict[Key, Measured], plan: dict[Key, int]) -> None:
    session = rows_a_second(measured[SESSION, 64])
    rows = []
    for key in sorted(measured, key=lambda key: -rows_a_second(measured[key])):
        (sender, width), one = key, measured[key]
        label = f"{_LABELS.get(sender, sender)}, {width} in flight"
        rows.append((
            f"**{label}**" if sender in (DURABLE, BARE) else label, f"{rows_a_second(one):,.0f}",
            f"{rows_a_second(one) / session:.2f}", f"{cpu_us_a_row(one):.0f} us", f"{one.rss_mib:.0f} MiB",
            f"{plan[key]:,}", str(one.runs),
        ))  # fmt: skip
    results.add_table(
        f"Send to a gateway that takes {latency_ms:g} ms",
        "Server alone on the first core, each sender alone on the last one; medians, in turns. Only batchpay's durable "
        "rows are on disk, synced, before their first byte leaves; its time includes opening and closing the run.",
        ("", "rows/s", "x Session in 64 threads", "CPU a row", "peak memory", "rows", "runs"), rows,
    )  # fmt: skip


def _figures(results: Results, latency_ms: float, measured: dict[Key, Measured]) -> None:
    rate = {key: rows_a_second(one) for key, one in measured.items()}
    figures = results.figures
    figures[f"submit.durable_rows_a_second_{latency_ms:g}ms"] = rate[DURABLE, 64]
    if latency_ms == 0:
        figures["submit.session_ratio_0ms"] = rate[DURABLE, 64] / max(rate[SESSION, 64], rate[SESSION, 1])
        figures["submit.one_worker_share"] = rate[DURABLE, 1] / rate[SESSION, 1]
        figures["submit.cpu_us_a_row"] = cpu_us_a_row(measured[DURABLE, 64])
        figures["submit.cpu_of_session"] = cpu_us_a_row(measured[DURABLE, 64]) / cpu_us_a_row(measured[SESSION, 1])
    elif latency_ms == 20:
        figures["submit.session_ratio_20ms"] = rate[DURABLE, 64] / rate[SESSION, 64]
        figures["submit.share_of_bare_20ms"] = rate[DURABLE, 64] / rate[BARE, 64]
        figures["submit.share_of_sockets_20ms"] = rate[DURABLE, 64] / rate["raw sockets", 64]


# Doubt after a kill


def _measure_kills(results: Results, place: Place, kills: int) -> None:
    rows, twice = [], 0
    for workers in (8, 64):
        with running_server(port=place.port, latency_ms=20) as server:
            doubts = [_kill_once(place, server, workers) for _ in range(kills)]
            twice += len(server.statistics()["twice"])
        rows.append((f"{workers} workers", str(kills), f"{statistics.median(doubts):g}", str(max(doubts)), str(twice)))
        if workers == 64:
            results.figures["submit.doubt_after_kill_a_worker"] = max(doubts) / workers
    results.figures["submit.sent_twice"] = twice
    results.add_table(
        "Killed with SIGKILL while sending, then resumed",
        "Gateway of 20 ms. Rows in doubt are for a person to settle; a sender without a ledger does not know which of "
        "all its rows were paid.",
        ("", "kills", "rows in doubt, median", "most", "sent twice"), rows,
    )  # fmt: skip


def _kill_once(place: Place, server: BenchmarkServer, workers: int) -> int:
    """Kill a run in its midst, resume for some rows, and tell how many rows the kill left in doubt."""
    before = run(place.durable("20000", workers, 200), core=CLIENT_CORE).told["by_state"]["in_doubt"]
    process = subprocess.Popen(
        place.durable("20000", workers, None), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(1.2)  # somewhere amid the sending
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    after = run(place.durable("20000", workers, 200), core=CLIENT_CORE).told["by_state"]["in_doubt"]
    return int(after) - int(before)


# Limits


def measure_limits(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the tables about known and hidden limits of the gateway."""
    port = free_port()
    place = Place(folder / "limits", port, rows=50_000)
    seconds = 5 if quick else 12
    rows = [_known(results, place, limit, limit * seconds) for limit in (50, 200, 1000)]
    results.add_table(
        "A known limit (`--rate`)",
        f"The gateway refuses what is over the limit in any one second; {seconds} s each, 20 ms, 32 workers. *Worst "
        "second*: most payments that arrived within one second. A run is repeated where some were refused and the "
        f"gateway itself stood still for {_STILL_S * 1000:g} ms or more, {_RUNS_MAX} times at most.",
        ("limit a second", "used", "refused", "worst second", "runs"), rows,
    )  # fmt: skip
    kinds = {"window": "counts the last second"} if quick else {
        "window": "counts the last second", "bucket": "saves up one second's worth",
    }  # fmt: skip
    rows = [_hidden(results, place, kind, words, 25 if quick else 35) for kind, words in kinds.items()]
    results.add_table(
        "A hidden limit of 100 a second (`--rate auto`)",
        "The gateway answers 429 with `Retry-After: 1` and says nothing else; 20 ms, 16 workers.",
        ("the gateway", "used, first 5 s", "used after", "refused, all", "refused after 5 s", "worst second"), rows,
    )  # fmt: skip

    _measure_together(results, folder / "together", quick=quick)


_STILL_S = 0.005
"""Requests of a second are spread over 1.0065 s: a gateway that stood still for so long may see a second too full."""
_RUNS_MAX = 6


def _known(results: Results, place: Place, limit: int, rows: int) -> tuple[str, ...]:
    """Send under a known limit."""

    def sent() -> dict[str, Any]:
        place.forget_limits()
        with running_server(port=place.port, latency_ms=20, limit=limit) as server:
            run(place.durable(str(limit), 32, rows), core=CLIENT_CORE)
            return server.statistics()

    found, runs = _undisturbed(sent)
    taken: list[float] = sorted(found["taken"])
    used = (len(taken) - 1) / (taken[-1] - taken[0]) / limit
    refused = len(found["refused"])
    results.figures[f"limits.known_{limit}_used"] = used
    results.figures["limits.known_refused"] = results.figures.get("limits.known_refused", 0) + refused
    return f"{limit:,}", f"{used:.1%}", str(refused), str(worst_second(taken)), str(runs)


def _undisturbed(sent: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """Run until the machine did not stand still, which says nothing where some were refused; tells how often."""
    found, runs = sent(), 1
    while found["refused"] and found["late_s"] >= _STILL_S and runs < _RUNS_MAX:
        found, runs = sent(), runs + 1
    return found, runs


def _hidden(results: Results, place: Place, kind: str, words: str, seconds: int) -> tuple[str, ...]:
    limit = 100
    with running_server(port=place.port, latency_ms=20, limit=limit, kind=kind) as server:
        run(place.durable("auto", 16, limit * seconds), core=CLIENT_CORE)
        found = server.statistics()
    taken, refused = sorted(found["taken"]), sorted(found["refused"])
    split = taken[0] + 5
    early = bisect_left(taken, split)
    used_early = early / 5 / limit
    used_late = (len(taken) - early) / (taken[-1] - split) / limit
    all_refused = len(refused) / (len(taken) + len(refused))
    late = len(refused) - bisect_left(refused, split)
    late_refused = late / (len(taken) - early + late)
    figures = results.figures
    figures["limits.hidden_used"] = min(used_late, figures.get("limits.hidden_used", 2))
    figures["limits.hidden_refused"] = max(all_refused, figures.get("limits.hidden_refused", 0))
    return (
        words, f"{used_early:.1%}", f"{used_late:.1%}", f"{all_refused:.2%}", f"{late_refused:.2%}",
        str(worst_second(taken)),
    )  # fmt: skip


# Several runs at once


def _measure_together(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the table about runs on different batches of one ledger that send to one gateway at once."""
    seconds = 8 if quick else 20
    rows = [_together(results, folder / str(limit), limit, seconds) for limit in (50, 200)]
    results.add_table(
        "Two runs at once, one gateway",
        "`batchpay resume --rate` on two batches of one ledger, the second a second later; 20 ms, 16 workers each. The "
        "gateway refuses what is over the limit in any one second. *Used* counts the time in which both sent. Repeated "
        "as under a known limit.",
        ("limit a second", "used", "refused", "worst second", "runs"), rows,
    )  # fmt: skip


def _together(results: Results, folder: Path, limit: int, seconds: int) -> tuple[str, ...]:
    """Let two runs send at once."""
    port, number = free_port(), itertools.count(1)
    found, runs = _undisturbed(lambda: _both_sent(folder / str(next(number)), port, limit, seconds))
    taken, refused = sorted(found["taken"]), found["refused"]
    if len(taken) != limit * seconds // 2 * 2 + 1:
        raise BenchmarkFailed(f"two runs ended after {len(taken)} payments")
    both = [at for at in taken if taken[0] + 2 <= at < taken[-1] - 1]
    used = len(both) / (both[-1] - both[0]) / limit
    figures = results.figures
    figures["limits.together_used"] = min(used, figures.get("limits.together_used", 2))
    figures["limits.together_refused"] = max(len(refused) / len(taken), figures.get("limits.together_refused", 0))
    return f"{limit:,}", f"{used:.1%}", str(len(refused)), str(worst_second(sorted([*taken, *refused]))), str(runs)


def _both_sent(folder: Path, port: int, limit: int, seconds: int) -> dict[str, Any]:
    names = []
    for more in (0, 1):
        file = str(File(limit * seconds // 2 + more, 0).make(folder))
        command = [OWN_PYTHON, "-m", "tests.benchmarks.own_submit", "register", file, str(folder)]
        names.append(run([*command, f"http://127.0.0.1:{port}"]).told["batch"])
    environment = clean_environment(
        folder, BATCHPAY_BASE_URL=f"http://127.0.0.1:{port}", BATCHPAY_API_ID="benchmark",
        BATCHPAY_API_KEY="benchmark-key", BATCHPAY_LEDGER=str(folder / "state" / "ledger.db"),
        BATCHPAY_LEDGER_KEY_FILE=str(folder / "keys" / "ledger.key"),
    )  # fmt: skip
    with running_server(port=port, latency_ms=20, limit=limit) as server:
        runs = []
        for name in names:
            command = [OWN_PYTHON, "-m", "batchpay", "resume", name, "--rate", str(limit), "--workers", "16"]
            runs.append(subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            ))  # fmt: skip
            time.sleep(1.0)
        if any(codes := ended(runs)):
            raise BenchmarkFailed(f"two runs ended with {codes}")
        return server.statistics()


def ended(runs: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Wait for all and give their exit codes; whatever comes between ends them."""
    try:
        return [process.wait() for process in runs]
    finally:
        for process in runs:
            process.kill()


def worst_second(times: Sequence[float]) -> int:
    """Most arrivals within any one second."""
    most = first = 0
    for last, at in enumerate(times):
        while times[first] <= at - 1:
            first += 1
        most = max(most, last - first + 1)
    return most
