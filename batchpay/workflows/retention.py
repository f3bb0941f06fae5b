"""Retention: list the personal data that a ledger has kept longer than it should, and erase it on a person's word."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from batchpay.errors import WrongUse
from batchpay.ledger.open import copies_beside, file_of, open_ledger
from batchpay.ledger.records import BACKED_UP, Event, OldBatch, Purge
from batchpay.payment import Actor
from batchpay.settings import Settings
from batchpay.text import instant, local_time
from batchpay.workflows.ledger_care import require_reason


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
