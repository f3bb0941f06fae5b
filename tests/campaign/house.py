"""A home where files come in each night, its gateway, and the book of both, which all reports are compared with."""

from __future__ import annotations

import csv
import re
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.campaign.book import STATES, Batch, Book, amount_of, cents_of, reference_of
from tests.model import clock
from tests.model.command import Call, Done, start_fork, wait_for_fork
from tests.support.command import Home, small_file
from tests.support.oracle import Oracle, running_oracle

WORKERS = 4
NIGHTS_KEPT = 60
"""After this many nights the details of a batch are purged."""
DAY_S = 86_400
_METRIC = re.compile(r'^batchpay_ledger_(rows|amount_cents)\{environment="test",state="(\w+)"\} (\d+)$', re.MULTILINE)
_METRICS_FILE = "batchpay.prom"
_PLACES = ("--out", "out", "--json", "-q", "--metrics-file", _METRICS_FILE)
_SUBMIT = ("submit", "--inbox", "inbox", "--archive", "done", *_PLACES)


class Wrong(AssertionError):
    """A report that does not agree with the book."""


def expect(what: str, found: object, expected: object) -> None:
    """Raise Wrong unless both are the same."""
    if found != expected:
        raise Wrong(f"{what}: {found!r}, and the book has {expected!r}")


class House:
    """See the module; a context that keeps the gateway running."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.rows = rows
        self.night = 0
        self._log = folder / "gateway.log"
        self._running = ExitStack()
        self.oracle: Oracle = self._running.enter_context(running_oracle(self._log))
        self.book = Book(self._log)
        self.home = Home(folder, self.oracle.origin, {"BATCHPAY_WORKERS": str(WORKERS)})
        self.inbox = folder / "inbox"
        for place in (self.inbox, folder / "backups"):
            place.mkdir()
        self.usage: resource.struct_rusage | None = None
        """What the last call used."""
        self.forked_at_mib = 0.0
        """What this process held when it forked that call."""
        self._began_s = 0.0

    def __enter__(self) -> House:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def stop_gateway(self) -> None:
        """Switch the gateway off."""
        self._running.close()

    def start_gateway(self) -> None:
        """Switch it on again, at the same address."""
        port = self.oracle.origin.rsplit(":", 1)[1]
        self.oracle = self._running.enter_context(running_oracle(self._log, "--port", port))

    # What comes in

    @property
    def first(self) -> int:
        """The number of the night's first payment."""
        return 1 + self.night * self.rows

    def upload(self, *, said: int | None = None, name: str | None = None) -> Path:
        """Put the night's file into the inbox, with the number of rows that its sender states."""
        file = small_file(self.inbox / (name or f"night-{self.night:04d}.csv"), self.rows, first=self.first)
        self.say_rows(file, self.rows if said is None else said)
        return file

    def say_rows(self, file: Path, rows: int) -> None:
        """Write the control file."""
        file.with_name(f"{file.name}.control.toml").write_text(f"rows = {rows}\n")

    def register(self, rejected: tuple[int, int] = (0, 0)) -> None:
        """Record in the book that the night's file is in the ledger."""
        numbers = list(range(self.first, self.first + self.rows))
        self.book.batches[self.night] = Batch(numbers, rejected)

    # Calls

    def start(self, *arguments: str, prepare: Callable[[], None] | None = None) -> tuple[int, Call]:
        """Start a command; return its process."""
        call = Call(arguments, str(self.home.path), self.home.environment)
        self._began_s = time.time() + clock.offset_s
        self.forked_at_mib = (
            int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize() / 2**20
        )
        return start_fork(call, prepare), call

    def call(self, *arguments: str, prepare: Callable[[], None] | None = None) -> Done:
        """Run a command to its end."""
        done, self.usage = wait_for_fork(*self.start(*arguments, prepare=prepare))
        return done

    def submit(self, code: int, *more: str, registered: bool = True, prepare: Callable[[], None] | None = None) -> None:
        """Run the nightly call and compare everything it reports with the book.

        `code` is what it would end with if nothing were in doubt; `registered` tells whether the ledger has the file.
        """
        self.check_call(self.call(*_SUBMIT, *more, prepare=prepare), code, registered=registered)

    def submission(self) -> Done:
        """Run the nightly call and compare nothing with the book."""
        return self.call(*_SUBMIT)

    def start_submission(self) -> tuple[int, Call]:
        """Start the nightly call."""
        return self.start(*_SUBMIT)

    def settings(self, table: str, **values: str) -> list[str]:
        """Write a settings file with one table; return the options of a call that uses it."""
        path = self.home.path / f"{table}.toml"
        path.write_text("\n".join([f"[{table}]", *(f'{name} = "{value}"' for name, value in values.items()), ""]))
        path.chmod(0o600)
        return ["--config", str(path)]

    def send_due(self) -> None:
        """Send last night's file, which is due on this day."""
        self.book.batches[self.night - 1].touched = self.night
        self.check_call(self.call("resume", "--due", *_PLACES), 0, registered=False)

    # A person

    def settle(self, night: int) -> None:
        """Settle what is in doubt of a night, like a person who checks with the gateway which payments were made."""
        batch = self.book.batches.get(night)
        for number in self.book.doubts([night]).get(night, ()):
            assert batch is not None
            reference, batch.touched = reference_of(number), self.night
            was_made = self.book.words(reference) != ["lost"]
            decision = "accepted" if was_made else "send again"
            (self.book.settled if was_made else self.book.sent_again).add(reference)
            row = str(1 + number - batch.numbers[0])
            signed = ("--name", "Ann Lee", "--reason", "asked the gateway", "--yes")
            done = self.call("resolve", batch.name, "--row", row, "--decision", decision, *signed)
            expect("resolve", done.code in (0, 7), True)
        if batch is not None and self.book.totals([batch])["pending"][0]:
            self.check_call(self.call("resume", batch.name, *_PLACES), 0, registered=False)

    # Reports

    def check_call(self, done: Done, code: int, *, registered: bool = True) -> None:
        """Compare one call with the book: exit code, metrics, and the summary and results of the night's file."""
        self.oracle.settle()
        self.book.read()
        doubts = self.book.doubts(self.book.batches)
        expect("exit code", (done.code, done.json.get("exit_code")), 2 * (7 if doubts else code,))
        self._check_metrics(done.code)
        if not registered:
            return
        batch, told = self.book.batches[self.night], done.json
        batch.name, batch.touched = told["batch"], self.night
        totals = self.book.totals([batch])
        expect("summary", {state: told[state] for state in STATES}, {state: totals[state][0] for state in STATES})
        expect("cents", {s: told["amount"][s] for s in STATES}, {s: amount_of(totals[s][1]) for s in STATES})
        elsewhere = {
            self.book.batches[night].name: len(found) for night, found in doubts.items() if night != self.night
        }
        expect("elsewhere", {one["batch"]: one["rows"] for one in told["in_doubt_elsewhere"]}, elsewhere)
        with (self.home.path / told["results"]).open(encoding="utf-8", newline="") as file:
            results = {row["invoiceNumber"]: row["state"] for row in csv.DictReader(file)}
        expect("results", results, {reference_of(number): self.book.state(number) for number in batch.numbers})

    def _check_metrics(self, code: int) -> None:
        """Compare the metrics file with the book: written by this call, with every row and cent of the ledger."""
        text = (self.home.path / _METRICS_FILE).read_text("utf-8")
        (ended_s,) = re.findall(r"^batchpay_end_timestamp_seconds ([0-9.]+)$", text, re.MULTILINE)
        expect("metrics", (float(ended_s) > self._began_s, f"\nbatchpay_exit_code {code}\n" in text), (True, True))
        found = {(kind, state): int(number) for kind, state, number in _METRIC.findall(text)}
        totals = self.book.totals(self.book.batches.values())
        for place, kind in enumerate(("rows", "amount_cents")):
            expect(f"metrics: {kind}", [found.get((kind, s)) for s in STATES], [totals[s][place] for s in STATES])

    def check_morning(self) -> None:
        """Compare what monitoring sees six hours later with the book; back up each week, purge each month."""
        clock.offset_s += DAY_S / 4
        if self.night % 7 == 0:
            expect("backup", self.call("ledger", "backup", "backups", "--keep", "2").code, 0)
        if self.night % 30 == 29:
            self._purge()
        doubts = self.book.doubts(self.book.batches)
        done = self.call("health", "--json", "--expect-every", "26h", "--backup-every", "8d", "--inbox", "inbox")
        found = {one["check"]: one for one in done.json["checks"]}
        failing = {name for name, one in found.items() if not one["ok"]}
        expect("health", (done.code, failing), (7, {"doubts"}) if doubts else (0, set()))
        told = [
            (one["batch"], one["rows"], one["amount"], one["age_s"] // DAY_S)
            for one in found["doubts"].get("batches", ())
        ]
        expect("doubts in health", told, [
            (self.book.batches[night].name, len(found), amount_of(sum(map(cents_of, found))), self.night - night)
            for night, found in doubts.items()
        ])  # fmt: skip
        clock.offset_s += DAY_S * 3 / 4
        self.night += 1

    def _purge(self) -> None:
        done = self.call("ledger", "purge", "--older-than", str(NIGHTS_KEPT), "--reason", "records rule 7", "--json")
        old = [
            batch
            for batch in self.book.batches.values()
            if not batch.purged and self.night - batch.touched >= NIGHTS_KEPT
        ]
        expect("purge", (done.code, set(done.json["purged"])), (0, {batch.name for batch in old}))
        for batch in old:
            batch.purged = True
