"""How a gateway's limit is used over HTTP, in real time: a known one, every kind of hidden one, refusals at random.

`tests/sending/test_limit_finder.py` asks the same in virtual time, for longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient
from batchpay.sending.pacing import Throttle
from batchpay.settings import GatewaySettings, Secret
from tests.benchmarks.results import Results
from tests.benchmarks.server import IN_FLIGHT_S, running_server
from tests.support.pace_world import LIMITERS, SETTLED_S
from tests.support.sandbox_requests import payment_bytes

_WORKERS = 32


@dataclass(frozen=True, slots=True)
class Case:
    """A gateway that refuses, and how a run is to fare with it."""

    kind: str
    limit: float
    """A second; in flight or percent for the kinds that count these."""
    rate: float | None
    """What `--rate` says; None is `auto`."""
    to_use: float
    """Payments a second that the gateway would take, or that `--rate` allows."""
    least: float
    """Share of it to be used at least."""
    refused_most: float = 0.01
    """Share of the requests that may be refused."""

    def run(self, seconds: float, since_s: float) -> tuple[float, float, str]:
        """Send for so long; gives what was used and refused after `since_s`, and what the run concluded."""
        answers: list[tuple[float, bool]] = []
        with running_server(latency_ms=IN_FLIGHT_S * 1000, limit=self.limit, kind=self.kind) as server:
            settings = GatewaySettings(base_url=server.origin, api_id="benchmark")
            client = PaymentsClient(settings, Credentials("benchmark", Secret("benchmark-key")))
            throttle, began = Throttle(self.rate), time.monotonic()

            def work() -> None:
                while time.monotonic() - began < seconds and throttle.acquire():
                    sent_at = time.monotonic()
                    outcome = client.pay(payment_bytes(), throttle.leave)
                    throttle.learn(outcome.pace, sent_at)
                    answers.append((sent_at - began, outcome.pace is None or not outcome.pace.refused))

            workers = [threading.Thread(target=work) for _ in range(_WORKERS)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            client.close()
        late = [taken for at, taken in answers if since_s <= at < seconds]
        used = sum(late) / self.to_use / (seconds - since_s)
        return used, late.count(False) / len(late), throttle.told().concluded or "nothing"


_KNOWN = [Case("any second", limit, limit, limit, 0.99, 0.001) for limit in (50, 200, 1000)]
_HIDDEN = [
    *(
        Case(kind, 30, None, 30, LIMITERS[kind][1])
        for kind in (
            "any second", "clock second", "bucket of a second", "bucket of five", "bucket of one", "two tiers",
            "a minute's quota",
        )
    ),
    Case("so many at once", 4, None, 4 / IN_FLIGHT_S, 0.6),
]  # fmt: skip
_RANDOM = [Case("at random", percent, 30, 30, 0.5, 0.05) for percent in (0.2, 1, 2)]


def measure_pace(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the table about limits."""
    found = [(case, *case.run(5 if quick else 12, 1)) for case in _KNOWN]
    _tell(results, "known", found)
    windows_s = 60 if quick else 120  # whole minutes, for the quota of a minute
    hidden = [*_HIDDEN, *_RANDOM]  # all at once: they need little
    with ThreadPoolExecutor(len(hidden)) as threads:
        each = list(threads.map(lambda case: (case, *case.run(SETTLED_S + windows_s, SETTLED_S)), hidden))
    _tell(results, "hidden", each[: len(_HIDDEN)])
    _tell(results, "random", each[len(_HIDDEN) :])
    results.add_table(
        "The pace under limits, over HTTP",
        f"A gateway of {IN_FLIGHT_S * 1000:g} ms that answers 429 with `Retry-After: 1`, {_WORKERS} workers. A known "
        f"limit is used from the first second on; the others count after {SETTLED_S:g} s, for {windows_s} s.",
        ("the gateway refuses over", "`--rate`", "used", "to be used", "refused", "concluded"),
        [
            (f"{case.limit:g} {case.kind}", "auto" if case.rate is None else f"{case.rate:g}", f"{used:.1%}",
             f"{case.least:.0%}", f"{refused:.2%}", concluded)
            for case, used, refused, concluded in (*found, *each)
        ],
    )  # fmt: skip


def _tell(results: Results, name: str, found: Sequence[tuple[Case, float, float, str]]) -> None:
    """Note the worst for the bars: 1 is what is to be used, and what may be refused."""
    results.figures[f"pace.{name}_used"] = min(used / case.least for case, used, _, _ in found)
    results.figures[f"pace.{name}_refused"] = max(refused / case.refused_most for case, _, refused, _ in found)
