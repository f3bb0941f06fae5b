"""What passes from one database to another when a ledger moves: all of its tables, as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from batchpay.ledger.fact_statements import SEALED

TABLES = {
    "event": "number, at, batch, kind, who, why, detail",
    "batch": "id, name, digest, file, origin, columns, options, registered_at, again_reason, environment, row_count,"
    " cents",
    "run": "id, batch, who, started_at, finished_at, stopped",
    "total": "batch, state, direction, row_count, cents",
    "payment": "batch, row, line, amount_cents, direction, state, attempts, chunk, payee, account, sent_at, reasons,"
    " pay_on, sent_on",
    "attempt": "batch, row, attempt, sent_at, state, finished_at, http_status, response_code, message,"
    " gateway_reference, reason",
    "chunk": "batch, chunk, open_rows",
    "body": "batch, chunk, sealed",
    "detail": "batch, chunk, sealed",
    "fingerprint": "fingerprint, batch, row, named",
    "payment_id": "payment_id, batch, row",
    "paid": "payee, account, batch, row_count, cents",
    "fact": f"{', '.join(SEALED)}, seal, corrected",
}
"""Tables and their columns. Payments are in file order, of attempts there is the latest of each row."""
Rows = Iterable[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Contents:
    """A ledger that moves; each table may be read once, in the order of TABLES.

    Batches and runs keep their numbers, as do rows and events, and sealed payloads their places, so the same key reads
    them. The receiver recomputes what authenticates rows and events: each database has its own form of it.
    """

    ledger_id: str
    place: str
    """Where it was, for people."""
    number: int
    """Of its latest event."""
    mac: bytes
    registrations: int
    has_older_digests: bool
    """Whether it has payments whose digests are of an earlier form."""
    rows: Callable[[str], Rows]
    """Reads a table."""
