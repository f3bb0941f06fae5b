"""One walk's world: a home, its files, what the model knows, and the commands that are run in it.

After every command the invariants are checked (invariants.py): a walk ends at the first that does not hold.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model import clock, invariants
from tests.model.business import Batch, Row
from tests.model.command import Call, Done, Forks, key_of, run_here
from tests.model.files import write_file
from tests.model.gateway import Gateway
from tests.model.ledgers import Ledger, LedgerDatabase, LedgerFile
from tests.support.postgres import Server


class Violation(AssertionError):
    """An invariant does not hold: the program is wrong, or the model is."""


@dataclass(slots=True)
class File:
    """A payment file in the home's folder."""

    name: str
    rows: list[Row]


@dataclass(slots=True)
class Command:
    """What the model knows of one command."""

    name: str
    arguments: tuple[str, ...]
    at_h: float
    live: bool
    rows: list[Row] = field(default_factory=list)
    """The rows of the file, or of the batch, that the command is about."""
    other_rows: list[Row] = field(default_factory=list)
    """What the file holds after it was replaced while the command ran."""
    known: Batch | None = None
    """The batch that the command resumes, as it was before."""
    before: dict[int, str] = field(default_factory=dict)
    """The states of its payments before."""
    batch: Batch | None = None
    max_cents: int | None = None
    day: datetime.date = datetime.date.max
    """The day on which it began."""
    day_cents: int | None = None
    """What one day may be sent, each direction apart, if that is limited."""
    approvals: int = 0
    """How many other people the policy requires."""
    forbidden: str = ""
    """Why it must send nothing; empty if it may."""
    killed: bool = False
    besides: set[str] = field(default_factory=set)
    """Commands that ran while it was sending: it had decided by then what it sends."""
    disturbed: bool = False
    """Whether something else happened while it ran: then its own summary may be about less than the whole."""
    arrivals_then: int | None = None
    """How many payments had arrived when it ended, if another one was still under way."""

    def has(self, option: str) -> bool:
        return option in self.arguments

    def value(self, option: str) -> str:
        """Return the value that an option has; empty if it is not given."""
        return self.arguments[self.arguments.index(option) + 1] if option in self.arguments else ""


class World:
    """A home with payment files, a ledger, and two gateways."""

    def __init__(self, folder: Path, gateway: Gateway, forks: Forks, server: Server | None = None) -> None:
        self.folder, self.gateway, self.forks = folder, gateway, forks
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.ledger: Ledger = LedgerFile(self.home) if server is None else LedgerDatabase(server)
        gateway.begin()
        self.hours = 0.0
        self.paid_at_hours = 0.0
        """When the ledger certainly wrote last; it may have written later."""
        self.files: list[File] = []
        self.batches: dict[str, Batch] = {}
        self.commands: dict[str, Command] = {}
        self.results: dict[str, str] = {}
        """Which batch wrote a results file."""
        self.numbers = 0
        self.names = 0
        self.max_cents: int | None = None
        self.day_cents: int | None = None
        self.approvals = 0
        self.released: set[int] = set()
        """Payments that waited for a person, and that another than their maker released by name."""
        self.live = True
        self.accounts_told: set[str] = set()
        """Accounts of which a bank said anything."""
        self.forbidden = ""
        """Why the present ledger must send nothing."""
        self.window_open = False
        """Whether payments made since the backup are unknown to the ledger, and nobody has settled them yet."""
        self.window_lost = False
        self.backup: Any = None
        self.story: list[str] = []
        """What was done, for a person who reads about a violation."""
        self.write_settings()
        self.run("ledger", "init", *self.ledger.init)

    # The clock

    def pass_hours(self, hours: float) -> None:
        self.hours += hours
        clock.offset_s = self.hours * 3600

    # Files and settings

    def write_settings(self, policy: str = "") -> None:
        """Write the settings file again, with other lines of [policy] if they are given."""
        text = "[submit]\nwait_s_max = 0.01\nattempts_max = 2\n"
        text += '[policy]\nzone = "UTC"\nhold = ["achAccountNumber.account"]\n'
        text += policy or (f"approvals = {self.approvals}\n" if self.approvals else "")
        limits = {"max_amount": self.max_cents, "max_per_day": self.day_cents}
        set_limits = [f'{name} = "{cents // 100}.{cents % 100:02d}"\n' for name, cents in limits.items() if cents]
        text += "".join(["[limits]\n", *set_limits])
        path = self.home / ".config" / "batchpay" / "batchpay.toml"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, "utf-8")
        path.chmod(0o600)

    def new_name(self, suffix: str = ".csv") -> str:
        self.names += 1
        return f"f{self.names}{suffix}"

    def save(self, name: str, rows: Sequence[Row]) -> File:
        """Write a payment file; one of the same name is replaced."""
        write_file(self.home / name, rows)
        self.files = [file for file in self.files if file.name != name]
        self.files.append(File(name, list(rows)))
        self.story.append(f"write {name}: " + "; ".join(_told(row) for row in rows))
        return self.files[-1]

    def known_batch(self, rows: list[Row], *, live: bool) -> Batch | None:
        """Return the latest batch with this content in the present ledger."""
        found = [one for one in self.batches.values() if one.rows == rows and not one.lost and one.live == live]
        return found[-1] if found else None

    # Commands

    def call(self, *arguments: str, live: bool | None = None, home: Path | None = None, **environment: str) -> Call:
        """Put a call together; every command has an API key of its own."""
        live = self.live if live is None else live
        base = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home or self.home),
            "LANG": "C.UTF-8",
            "BATCHPAY_BASE_URL": self.gateway.origin(live=live),
            "BATCHPAY_API_ID": "office",
            "BATCHPAY_API_KEY": key_of(f"c{len(self.commands) + 1}"),
            "BATCHPAY_RATE": "5000",
            "BATCHPAY_WORKERS": "1",
            "BATCHPAY_ENVIRONMENT": "live" if live else "test",
            "BATCHPAY_MACHINE": "machine-one",
            **self.ledger.environment,
        }
        return Call(tuple(arguments), str(self.home), {**base, **environment})

    def begin(self, call: Call, **known: Any) -> Command:
        """Record a command before it runs."""
        name = call.name
        live = call.environment["BATCHPAY_ENVIRONMENT"] == "live"
        command = Command(
            name, call.arguments, self.hours, live, max_cents=self.max_cents, approvals=self.approvals,
            day=clock.today(), day_cents=self.day_cents, **known,
        )  # fmt: skip
        command.forbidden = command.forbidden or self.forbidden
        command.before = dict(command.known.states) if command.known else {}
        if self.window_open and call.arguments[0] == "submit" and command.known is None:
            command.forbidden = command.forbidden or "the ledger was restored, and what it lost is not settled"
        if (
            call.arguments[0] == "submit"
            and command.known is None
            and self.approvals
            and not command.has("--from-plan")
        ):
            command.forbidden = command.forbidden or "nobody approved it"
        self.commands[name] = command
        self.story.append(f"[{self.hours:.0f} h] batchpay {' '.join(call.arguments)}{'' if live else '   (sandbox)'}")
        return command

    def end(self, command: Command, done: Done) -> Done:
        """Record how it ended and check the invariants."""
        self.story[-1] += "" if command.disturbed else f" -> {done.code}"
        if self.gateway.of(command.name):
            self.paid_at_hours = self.hours
        invariants.hold_all(self, [(command, done)], [(command, done)])
        return done

    def run(self, *arguments: str, **known: Any) -> Done:
        """Run a command in this process."""
        call = self.call(*arguments)
        return self.end(self.begin(call, **known), run_here(call))

    def ask(self, *arguments: str) -> Done:
        """Run a command that only reads; no invariant is checked."""
        call = self.call(*arguments)
        return run_here(Call(call.arguments, call.folder, {**call.environment, "BATCHPAY_API_KEY": key_of("look")}))

    def run_with_hook(
        self,
        call: Call,
        command: Command,
        act: Callable[[], list[tuple[Command, Done]]],
        moment: str,
        times: int = 1,
    ) -> None:
        """Run a command here while `act` happens at a point: `lock`, or a request: `account`, `connection`, `payment`.

        What `act` finds wrong is raised at the end: in the gateway's thread it would be lost. The command has its batch
        before the connection is tested and a payment leaves, so anything that arrives then is registered after it.
        """
        raised: list[BaseException] = []
        ended: list[tuple[Command, Done]] = []
        acts = [act] * times

        def once() -> None:
            if acts:
                try:
                    others = acts.pop()()
                    for command_ended, _ in others:
                        command_ended.arrivals_then = len(self.gateway.arrivals)
                    ended.extend(others)
                except BaseException as error:
                    raised.append(error)

        self.gateway.hook = lambda kind, count: once() if kind == moment else None
        command.disturbed = True
        try:
            done = run_here(call, moment, [once] * times)
        finally:
            self.gateway.hook = None
        if raised:
            raise raised[0]
        self.story.append(f"  {command.name} -> {done.code}; at its {moment}: {[end.code for _, end in ended]}")
        if moment in ("connection", "payment"):
            command.besides = {other.name for other, _ in ended}
        at_its_end = [*ended, (command, done)]
        registered = [(command, done), *ended] if moment in ("connection", "payment") else at_its_end
        invariants.hold_all(self, at_its_end, registered)

    def run_killed(self, call: Call, command: Command, payments: int) -> Done:
        """Run a command in a process of its own, and kill it when this many payments have arrived."""
        process = self.forks.start(call)
        came = [0]

        def kill(kind: str, count: int) -> None:
            came[0] += kind == "payment"
            if kind == "payment" and came[0] == payments:
                process.kill()
                process.join()

        self.gateway.hook = kill
        try:
            done = self.forks.wait(process, call)
        finally:
            self.gateway.hook = None
        command.killed = done.code < 0
        return self.end(command, done)

    def close(self) -> None:
        """Remove the home and its ledger."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.ledger.close()

    @contextmanager
    def as_it_was(self, before: Path) -> Iterator[None]:
        """The home's disk as it was: the same files at the same place, with what a copy has; afterwards as it is."""
        with self.another_home("now") as now:
            _write_over(before, self.home)
            try:
                yield
            finally:
                _write_over(now, self.home)

    @contextmanager
    def another_home(self, name: str) -> Iterator[Path]:
        """A copy of the home elsewhere: another machine, or another person's."""
        path = self.folder / name
        shutil.copytree(self.home, path, symlinks=True)
        try:
            yield path
        finally:
            shutil.rmtree(path)


def _write_over(source: Path, target: Path) -> None:
    for path in [path for path in target.rglob("*") if not path.is_dir()]:
        if not os.path.lexists(source / path.relative_to(target)):
            path.unlink()
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def _told(row: Row) -> str:
    day = row.pay_on and f"on {row.pay_on}"
    parts = (row.payment_id or "-", row.invoice or "-", row.amount, row.direction, row.start, day)
    return f"E{row.number} " + " ".join(part for part in parts if part)
