"""Ledger maintenance: create it, check it, accept it after a restore or a move, back it up, erase old details."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from batchpay.errors import LedgerNotUsable, WrongUse, once_sent
from batchpay.ledger import open as door
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import copies_beside, file_of, open_ledger
from batchpay.ledger.paths import LedgerPaths
from batchpay.ledger.records import BACKED_UP, Accepted, Event, LostWindow, OldBatch, Purge, what_accepting_means
from batchpay.payment import Actor, State
from batchpay.settings import LedgerSettings, Settings
from batchpay.text import instant, local_time
from batchpay.writing.atomic import numbered

_COPY = re.compile(r"(ledger-[0-9]{8}T[0-9]{6}Z)(?:-([0-9]+))?\.db")


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """What a check of the whole ledger found."""

    problems: list[str]
    """What is wrong with it, and in what it is not the ledger that this machine knows, each once."""
    accepting: list[str]
    """What accepting the differences would mean for rows and files."""
    lost: LostWindow | None
    """What a restored ledger lost and nobody has confirmed yet: new files wait for that."""
    weaknesses: list[str]

    @property
    def exit_code(self) -> int:
        """Return 5 if anything is wrong or differs, 8 if new files wait for a person."""
        return 5 if self.problems else 8 if self.lost else 0


def make_ledger(
    settings: LedgerSettings, actor: Actor, beside_another: str | None, owner_url: str | None = None
) -> tuple[LedgerPaths, list[str]]:
    """Create a new, empty ledger; return where its files are, and what weakens it.

    `beside_another` is a person's reason for a second ledger; without it LedgerBesideAnother is raised. `owner_url` is
    the login that creates the tables in a database server, if batchpay's own may not.
    """
    made = door.create_ledger(settings, str(actor), beside_another, owner_url=owner_url)
    return made, door.weaknesses(settings)


def schema_text() -> str:
    """Return the SQL of a ledger's tables, for whoever runs the database server."""
    return door.schema_text()


def join_ledger(settings: LedgerSettings, reason: str | None, actor: Actor) -> LedgerPaths:
    """Let this machine work with a ledger that other machines already work with; raises WrongUse."""
    return door.join(settings, str(actor), require_reason("ledger join", reason))


def move_ledger(
    settings: LedgerSettings, to: str, reason: str | None, actor: Actor, owner_url: str | None = None
) -> LedgerPaths:
    """Move a ledger from its file to a database; return where it is now. Raises WrongUse, BatchHeld."""
    return door.move(settings, to, str(actor), require_reason("ledger move", reason), owner_url=owner_url)


def check_ledger(settings: LedgerSettings) -> LedgerCheck:
    """Bring an older ledger up to date, and check all of it: by itself, and against what this machine knows."""
    door.bring_up_to_date(settings)
    with closing(door.open_ledger(settings, read_only=True)) as ledger:
        problems = [*ledger.check(), *(once_sent(one) for one in ledger.differences)]
        states = (batch.by_state[state].rows for batch in ledger.batches() for state in (State.PENDING, State.SENDING))
        rows = sum(states) if ledger.differences else 0
        accepting = filter(None, [what_accepting_means(one, rows) for one in ledger.differences])
        return LedgerCheck(problems, list(accepting), ledger.lost_window(), door.weaknesses(settings))


def accept_ledger(settings: LedgerSettings, reason: str | None, actor: Actor, *, rows_in_doubt: bool) -> Accepted:
    """Accept a ledger that is not the one that this machine knows; raises WrongUse if nothing differs."""
    why = require_reason("ledger accept", reason)
    return door.accept(settings, str(actor), why, rows_in_doubt=rows_in_doubt)


def confirm_ledger(settings: LedgerSettings, reason: str | None, actor: Actor) -> None:
    """Record that what a restored ledger lost is accounted for; raises WrongUse if nothing waits for that."""
    door.confirm(settings, str(actor), reason or "")


def back_up(
    settings: LedgerSettings, target: Path, keep: int | None, now: datetime, actor: Actor
) -> tuple[Path, str | None]:
    """Write a consistent copy of the ledger; in a folder, named after the time. Raises WrongUse, LedgerNotUsable.

    Returns its path, and what kept the ledger from recording the backup. `keep` removes older copies in the folder:
    only such as this ledger has recorded, by when they were made. The names are of a clock that may have been wrong,
    and another ledger's copies may be there as well.
    """
    try:
        folder = target if target.is_dir() else None
    except OSError as error:
        raise LedgerNotUsable(f"the backup {target} can't be created: {error.strerror}") from None
    if keep is not None and folder is None:
        raise WrongUse(f"--keep: {target} is not a folder; nothing was written or removed")
    with closing(door.open_ledger(settings, read_only=True)) as ledger:
        if folder is None:
            ledger.backup(target)
        else:
            target = _back_up_into(folder, ledger, now)
    problem = None
    try:
        with closing(door.open_ledger(settings)) as ledger:
            ledger.note_backup(str(actor), target.name)
    except LedgerNotUsable as error:
        problem = str(error)
    if folder is not None and keep is not None and problem is None:
        with closing(door.open_ledger(settings, read_only=True)) as ledger:
            recorded = [json.loads(event.detail)["file"] for event in ledger.events() if event.kind == BACKED_UP]
        there = {copy.string for copy in _copies_in(folder)}
        for older in [name for name in recorded if name in there][:-keep]:
            (folder / older).unlink(missing_ok=True)
    return target, problem


def _copies_in(folder: Path) -> list[re.Match[str]]:
    """Find the names of copies that are named after the time: their second, and their number within that second."""
    return [copy for path in folder.iterdir() if (copy := _COPY.fullmatch(path.name))]


def _back_up_into(folder: Path, ledger: Ledger, now: datetime) -> Path:
    """Write a copy named after the time; a further one of the same second gets a number."""
    second = f"ledger-{now:%Y%m%dT%H%M%SZ}"
    for number in count(1 + max((int(copy[2] or 1) for copy in _copies_in(folder) if copy[1] == second), default=0)):
        target = numbered(folder / f"{second}.db", number)
        try:
            ledger.backup(target)
        except LedgerNotUsable:
            if not os.path.lexists(target):  # otherwise another call was first
                raise
        else:
            break
    return target


def require_reason(option: str, reason: str | None) -> str:
    """Return the reason that an option requires; raises WrongUse."""
    if not (reason or "").strip():
        raise WrongUse(f"{option} needs --reason TEXT, which is kept in the ledger's history")
    return str(reason)


@dataclass(frozen=True, slots=True)
class Retention:
    """Which old batches there are, and what was erased of them."""

    before: datetime
    """Batches with any event since then are left out."""
    old: list[OldBatch]
    done: Purge | None
    """None if nothing was to be erased, only shown."""
    copies: list[str]
    """Copies of the ledger next to it, and the latest backup: they contain what it contained when they were made."""
    unfinished: bool
    """Whether an earlier purge still has to be completed."""

    @property
    def due(self) -> list[OldBatch]:
        """Return the batches that a purge erases."""
        return [one for one in self.old if one.stays is None]

    @property
    def exit_code(self) -> int:
        """Return 9 if another process held a batch, else 0."""
        return 9 if self.done is not None and self.done.held else 0

    def as_json(self) -> dict[str, Any]:
        """Return the object of `ledger purge --json`."""
        erased = None if self.done is None else [one.batch for one in self.done.erased]
        return {
            "dry_run": self.done is None,
            "before": instant(self.before),
            "batches": [
                {"batch": one.batch, "environment": str(one.environment), "file": one.file, "rows": one.rows,
                 "last_event_at": instant(one.last_event_at), "stays": one.stays}
                for one in self.old
            ],
            "purged": erased,
            "held": [] if self.done is None else list(self.done.held),
            "unfinished": self.unfinished,
            "pieces_searched": 0 if self.done is None else self.done.pieces_searched,
            "bytes_searched": 0 if self.done is None else self.done.bytes_searched,
            "copies": self.copies,
            "exit_code": self.exit_code,
        }  # fmt: skip


def look(settings: Settings, older_than_days: int | None, now: datetime) -> Retention:
    """List the batches whose names, details and messages a purge would erase, and those that stay; erase nothing.

    Without a number of days, `retention.details_days` applies. Raises WrongUse, LedgerNotUsable.
    """
    before = _before(settings, older_than_days, now)
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        copies = _copies(settings, ledger.latest_event(BACKED_UP))
        return Retention(before, ledger.old_batches(before), None, copies, ledger.unfinished_purge())


def purge(
    settings: Settings, older_than_days: int | None, reason: str | None, now: datetime, actor: Actor
) -> Retention:
    """Erase what `look` lists, from the ledger and from every byte of its files, and record who and why.

    Raises WrongUse, BatchHeld while a run is in progress, RunStopped and LedgerNotUsable if it was not completed.
    """
    why = require_reason("a purge", reason)
    before = _before(settings, older_than_days, now)
    with closing(open_ledger(settings.ledger)) as ledger:
        old, last_backup = ledger.old_batches(before), ledger.latest_event(BACKED_UP)
        done = ledger.purge(before, str(actor), why)
        return Retention(before, old, done, _copies(settings, last_backup), ledger.unfinished_purge())


def _before(settings: Settings, older_than_days: int | None, now: datetime) -> datetime:
    days = older_than_days or settings.retention.details_days
    if not days:
        raise WrongUse("specify --older-than DAYS, or the setting retention.details_days")
    return now - timedelta(days=days)


def _copies(settings: Settings, last_backup: Event | None) -> list[str]:
    if file_of(settings.ledger) is None:
        return ["the database server's files until it has vacuumed them, its write-ahead log and its backups"]
    beside = [str(path) for path in copies_beside(settings.ledger)]
    if last_backup is None:
        return beside
    name = json.loads(last_backup.detail)["file"]
    return [*beside, f"backup {name} of {local_time(last_backup.at)}, and those before it"]
