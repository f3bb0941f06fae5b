"""How a hidden limit is used: every kind in virtual time, five of them in real time over HTTP against the sandbox."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient
from batchpay.outcome import Pace
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from batchpay.sending.pacing import Throttle
from batchpay.settings import GatewaySettings, Secret
from tests.benchmarks.process import CORES
from tests.benchmarks.results import Results
from tests.support.pace_world import LIMITERS, SETTLED_S, World
from tests.support.sandbox_requests import payment_bytes

UNTIL_S = 300.0
LIMITS = (5, 60, 200)
KINDS = ("second", "clock", "bucket", "burst", "even")
REAL_LIMIT = 30
WORKERS = 8


def measure_pace(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the tables about hidden limits."""
    seeds = (1,) if quick else (1, 2, 3)
    jobs = [(kind, limit, seeds) for kind in LIMITERS for limit in LIMITS]
    with ProcessPoolExecutor(len(CORES)) as processes:  # the clock is virtual: what runs beside makes no difference
        found = list(processes.map(_virtual, jobs))
    at_5 = [one for one in found if one.limit == 5]
    results.figures |= {
        "pace.used_of_wanted": min(one.used / one.wanted for one in found),
        "pace.refused": max(one.refused_after for one in found if one.limit != 5),
        "pace.refused_at_5": max(one.refused_after for one in at_5),
        "pace.refused_at_first": max(one.refused_at_first for one in at_5),
    }
    results.add_table(
        "A hidden limit of any kind, 300 s of virtual time",
        f"Worst of `--rate auto` and 500, `Retry-After: 1` and none, {len(seeds)} seeds: the share of the limit used "
        "after 20 s, of requests refused after it, and before it from `--rate 500`.",
        ("the gateway", "limit a second", "used", "to be used", "refused after", "refused in the first 20 s"),
        [one.cells for one in found],
    )  # fmt: skip
    if quick:  # all kinds at once: they need little, and a minute is enough
        with ThreadPoolExecutor(len(KINDS)) as threads:
            real = list(threads.map(lambda kind: _real(results, kind, 40), KINDS))
    else:
        real = [_real(results, kind, 90) for kind in KINDS]
    results.add_table(
        f"A hidden limit of {REAL_LIMIT} a second over HTTP, in real time",
        f"Against `batchpay sandbox --limit {REAL_LIMIT}:KIND`, `--rate auto`, {WORKERS} workers.",
        ("kind", "used after 15 s", "refused after 15 s"), real,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Found:
    """Worst figures of one kind and limit."""

    kind: str
    limit: int
    used: float
    refused_after: float
    refused_at_first: float

    @property
    def wanted(self) -> float:
        """The least that is to be used."""
        return LIMITERS[self.kind][1]

    @property
    def cells(self) -> tuple[str, ...]:
        """For a table."""
        shares = f"{self.used:.1%}", f"{self.wanted:.1%}", f"{self.refused_after:.2%}", f"{self.refused_at_first:.1%}"
        return self.kind, str(self.limit), *shares


def _virtual(job: tuple[str, int, Sequence[int]]) -> _Found:
    """Try one kind and limit in every way."""
    (kind, limit, seeds), used, after, before = job, 2.0, 0.0, 0.0
    for rate, asked_s, seed in itertools.product((None, 500.0), (1.0, None), seeds):
        run = World(
            LIMITERS[kind][0](limit),
            lambda clock, sleep, rate=rate: Throttle(rate, clock=clock, sleep=sleep),  # type: ignore[misc]
            refusal=Pace(retry_after_s=asked_s, refused=True),
            seed=seed,
        )
        run.run(UNTIL_S)
        used = min(used, run.used(SETTLED_S, UNTIL_S, limit))
        after = max(after, run.refused(SETTLED_S, UNTIL_S))
        if rate is not None:
            before = max(before, run.refused(0, SETTLED_S))
    return _Found(kind, limit, used, after, before)


def _real(results: Results, kind: str, seconds: float) -> tuple[str, ...]:
    answers: list[tuple[float, bool]] = []
    with running(Options(port=0, limit=REAL_LIMIT, limit_kind=kind)) as url:
        client = PaymentsClient(
            GatewaySettings(base_url=url, api_id="sandbox"), Credentials("sandbox", Secret("sandbox-key"))
        )
        throttle, began = Throttle(None), time.monotonic()

        def work() -> None:
            while time.monotonic() - began < seconds and throttle.acquire():
                sent_at = time.monotonic()
                outcome = client.pay(payment_bytes(), lambda: None)
                throttle.learn(outcome.pace, sent_at)
                answers.append((sent_at - began, outcome.pace is None or not outcome.pace.refused))

        workers = [threading.Thread(target=work) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        client.close()
    late = [taken for at, taken in answers if 15 <= at < seconds]
    used, refused = sum(late) / REAL_LIMIT / (seconds - 15), late.count(False) / len(late)
    if kind != "even":  # what an even pace can use of that one depends on the machine
        results.figures["pace.real_used"] = min(used, results.figures.get("pace.real_used", 2))
    results.figures["pace.real_refused"] = max(refused, results.figures.get("pace.real_refused", 0))
    return kind, f"{used:.1%}", f"{refused:.2%}"
