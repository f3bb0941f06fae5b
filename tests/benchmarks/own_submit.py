"""batchpay's right half, measured: a registered batch sent through `run_batch`, or its sender without a ledger.

    python -m tests.benchmarks.own_submit register FILE LEDGER_FOLDER ORIGIN [BODIES]   register; write the bodies
    python -m tests.benchmarks.own_submit durable LEDGER_FOLDER WORKERS                 send what is pending
    python -m tests.benchmarks.own_submit bare ORIGIN BODIES ROWS WORKERS               the same sender, no ledger
    python -m tests.benchmarks.own_submit finish LEDGER_FOLDER RESULTS                  record answers, write results

Each prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient
from batchpay.ledger.days import NO_LIMITS, SendingDay
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary, PendingPayment
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Actor, Environment, State, Totals
from batchpay.reports.results import write_results
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.sender import Attempts, Sender, Tally
from batchpay.settings import GatewaySettings, LedgerSettings, Secret, Settings, SubmitSettings
from batchpay.workflows.run import RunRequest, run_batch
from batchpay.writing.process_memory import collect_rarely, keep_freed_memory

CREDENTIALS = Credentials("benchmark", Secret("benchmark-key"))
GROUP = 64
"""Rows of one commit: as many as workers that wait for it."""


def settings_for(folder: Path, origin: str, workers: int) -> Settings:
    """Settings of a run with a ledger in that folder."""
    return Settings(
        gateway=GatewaySettings(base_url=origin, api_id="benchmark"),
        submit=SubmitSettings(rate="20000", workers=workers),
        ledger=ledger_settings(folder),
    )


def ledger_settings(folder: Path) -> LedgerSettings:
    """Settings of the ledger in a folder, or of the one in a database that the folder's file `url` names."""
    keys, of_database = folder / "keys", folder / "url"
    if of_database.exists():
        return LedgerSettings(
            url=of_database.read_text(), key_file=str(keys / "ledger.key"), witness=str(keys / "witness")
        )
    return LedgerSettings(url=str(folder / "state" / "ledger.db"), key_file=str(keys / "ledger.key"))


class Quiet:
    """A progress that tells nobody."""

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Sending starts."""

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Some rows went."""

    def say(self, text: str) -> None:
        """A line for a person."""
        print(text, file=sys.stderr)


class GrantsAtOnce:
    """A run without a ledger: every intent is granted, every outcome forgotten."""

    recovered = repeated = 0
    late: Sequence[str] = ()
    refusal: str | None = None
    sending = SendingDay("test", date(2026, 11, 23), NO_LIMITS)

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self._payments = iter([PendingPayment(number, 0, body) for number, body in enumerate(bodies, start=1)])

    def claim(self, limit: int) -> list[PendingPayment]:
        """Give the next rows."""
        return list(islice(self._payments, limit))

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        """Grant all."""
        return set(intents)

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        """Forget."""

    def reject(self, rows: Sequence[int], reason: str) -> None:
        """Forget."""

    def finish(self, stopped: str | None, held_back: Totals | None = None) -> None:
        """End."""

    def close(self) -> None:
        """End."""


def register(path: Path, folder: Path, origin: str, bodies: Path | None) -> dict[str, Any]:
    """Check and register a file by the steps of `submit`, and send nothing."""
    from batchpay.intake.source import open_source
    from batchpay.intake.streams import ahead
    from batchpay.ledger.records import NewBatch
    from batchpay.registration.digests import Content, payment_columns
    from batchpay.registration.request_body import request_form
    from batchpay.schemas.rule import RuleOptions
    from batchpay.validation.check import all_rows
    from tests.benchmarks.data import AS_OF, FIRST_START, LARGEST_CENTS
    from tests.support.whole_check import check

    settings, rules = settings_for(folder, origin, 1), RuleOptions(as_of=AS_OF)
    with closing(open_ledger(settings.ledger, create_as="tester")) as ledger, open_source(str(path)) as source:
        first = Content(source.chunks, ledger)
        verdict = check(first, rules)
        assert not verdict.rejected.rows, "the benchmark registers clean files"
        checked, cpu_before = time.perf_counter(), _cpu_s()
        form = request_form(settings.gateway)
        new = NewBatch(
            digest=first.digest, file=source.name, columns=source.carried, rows=verdict.rows, origin=origin,
            options={"first_start": FIRST_START.isoformat(), "largest_cents": LARGEST_CENTS},
            environment=Environment.TEST, registration_count_seen=ledger.registration_count(),
        )  # fmt: skip
        with ledger.register(new, "benchmark") as registering:
            for rows in ahead(all_rows(source, rules)):
                for columns in payment_columns(ledger, rows, source.carried, form):
                    registering.add_payments(columns)
            name = registering.finish()
        told = {"job_s": time.perf_counter() - checked, "cpu_s": _cpu_s() - cpu_before}
        if bodies is not None:
            with ledger.lock(new.digest), bodies.open("wb") as file:
                run = ledger.start(name, "benchmark")
                while payments := run.claim(5000):
                    file.writelines(payment.body + b"\n" for payment in payments)
                run.finish(None)
    size = sum(file.stat().st_size for file in (folder / "state").glob("ledger.db*") if file.is_file())
    return {"rows": verdict.rows, "bytes": size, **told}


def durable(folder: Path, workers: int) -> dict[str, Any]:
    """Send what is pending of the latest batch through the ledger, as `resume` does."""
    with closing(open_ledger(ledger_settings(folder))) as ledger:
        batch = ledger.find(None)
        settings = settings_for(folder, batch.origin, workers)
        with ledger.lock(batch.digest):
            started, cpu_before = time.perf_counter(), _cpu_s()
            request = RunRequest(results=None, limits=Limits())
            finished = run_batch(ledger, batch, settings, CREDENTIALS, request, Actor("benchmark", "here"), Quiet())
            elapsed_s, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_before
    return {"job_s": elapsed_s, "cpu_s": cpu_s, "rows": finished.by_state[State.ACCEPTED].rows}


def bare(origin: str, path: Path, rows: int, workers: int) -> dict[str, Any]:
    """The same sender with a run that grants at once."""
    settings = settings_for(Path(), origin, workers)
    with path.open("rb") as file:
        bodies = [line.rstrip(b"\n") for _, line in zip(range(rows), file, strict=False)]
    stop = StopRequest()
    started, cpu_before = time.perf_counter(), _cpu_s()
    with closing(PaymentsClient(settings.gateway, CREDENTIALS)) as client:
        client.test_connection()
        throttle = Throttle.from_settings(settings.submit, stop)
        attempts = Attempts(settings.submit, stop)
        sender = Sender(GrantsAtOnce(bodies), client.pay, throttle, attempts, settings.submit, stop)
        sender.send_all(Limits())
    elapsed_s, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_before
    assert sender.tally.outcomes[State.ACCEPTED] == rows, stop.reason
    return {"job_s": elapsed_s, "cpu_s": cpu_s, "rows": rows}


def finish(folder: Path, results: Path) -> dict[str, Any]:
    """Record for every pending row the intent and an answer, in groups as 64 workers make them; write the results."""
    outcome = Outcome(State.ACCEPTED, "success", Answer(200, "200", "accepted", None), bytes_sent=1200)
    with closing(open_ledger(ledger_settings(folder))) as ledger:
        batch = ledger.find(None)
        with ledger.lock(batch.digest):
            started, cpu_before, commits, rows = time.perf_counter(), _cpu_s(), 0, 0
            sent: list[int] = []
            run = ledger.start(batch.batch, "benchmark")
            while payments := run.claim(512):
                for at in range(0, len(payments), GROUP):
                    group = [payment.row for payment in payments[at : at + GROUP]]
                    granted = run.commit(group, [(row, outcome) for row in sent])
                    assert len(granted) == len(group)
                    sent, commits, rows = group, commits + 1, rows + len(group)
            run.commit([], [(row, outcome) for row in sent])
            run.finish(None)
            finished_s, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_before
        started = time.perf_counter()
        write_results(ledger, ledger.find(None), results)
        results_s = time.perf_counter() - started
    return {"job_s": finished_s, "cpu_s": cpu_s, "rows": rows, "commits": commits + 1, "results_s": results_s}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Do one of the four and print what it told."""
    collect_rarely()  # as a command begins
    keep_freed_memory()
    what, *arguments = sys.argv[1:]
    if what == "register":
        bodies = Path(arguments[3]) if len(arguments) > 3 else None
        found = register(Path(arguments[0]), Path(arguments[1]), arguments[2], bodies)
    elif what == "durable":
        found = durable(Path(arguments[0]), int(arguments[1]))
    elif what == "finish":
        found = finish(Path(arguments[0]), Path(arguments[1]))
    else:
        found = bare(arguments[0], Path(arguments[1]), int(arguments[2]), int(arguments[3]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
