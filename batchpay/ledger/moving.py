"""What one ledger passes to another when it moves: all of its tables as is, independent of any database.

Batches and runs keep their numbers, as do rows and events, and sealed payloads their places, so the same key reads
them. The receiver recomputes what authenticates rows and events: each database has its own form of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MOVED, ARRIVED = "moved", "arrived"
"""Kinds of events by which a ledger ends in one place, and continues in the other."""
Rows = Callable[[], Iterator[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Contents:
    """A whole ledger; each table may be read once, in the order given."""

    ledger_id: str
    place: str
    """Where it was, for people."""
    number: int
    """Of its latest event."""
    mac: bytes
    registrations: int
    has_older_digests: bool
    """Whether it has payments whose digests are of an earlier form."""
    events: Rows
    """number, at, batch, kind, who, why, detail."""
    batches: Rows
    """id, name, digest, file, origin, columns, options, registered_at, again_reason, environment, row_count, cents."""
    runs: Rows
    """id, batch, who, started_at, finished_at, stopped."""
    totals: Rows
    """batch, state, direction, row_count, cents."""
    payments: Rows
    """batch, row, line, cents, direction, state, attempts, chunk, payee, account, sent_at, reasons; in file order."""
    attempts: Rows
    """batch, row, attempt, sent_at, state, finished_at, status, code, message, reference, reason: each latest one."""
    chunks: Rows
    """batch, chunk, open_rows."""
    bodies: Rows
    """batch, chunk, sealed."""
    details: Rows
    """The same; none for batches that were purged."""
    fingerprints: Rows
    """number, batch, row, named."""
    payment_ids: Rows
    """number, batch, row."""
    paid: Rows
    """payee, account, batch, row_count, cents."""
