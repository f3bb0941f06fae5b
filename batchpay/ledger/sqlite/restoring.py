"""A ledger that may not be the current one: restored from a backup, copied or moved, on this machine or to another.

Each such ledger sends nothing until a named person has said so, and a restored one registers nothing new until a person
has said that what it lost is known. A ledger that moves to another database ends here in one transaction, whose only
change is the event that says where it went: until that is durable it is in force, and afterward it never is again.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from batchpay.errors import BatchHeld, LedgerBehind, LedgerDamaged, LedgerElsewhere, LedgerNotUsable
from batchpay.ledger import decisions, records
from batchpay.ledger.keys import Keys
from batchpay.ledger.moving import Contents
from batchpay.ledger.reading import today
from batchpay.ledger.spill import spill_files
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.audit import check
from batchpay.ledger.sqlite.ledger import SqliteLedger
from batchpay.ledger.sqlite.moves import SqliteMover
from batchpay.ledger.sqlite.store import SqliteStore, check_witness
from batchpay.ledger.witness import witness_in_database
from batchpay.payment import State


def file_mark(keys: Keys, file: Path, path: Path) -> str:
    """Return a keyed digest of which file it is, and of the path at which it is, or soon will be."""
    return keys.mac("place", os.fsencode(f"{file.stat().st_ino} {path}")).hex()[:16]


def differences(store: SqliteStore) -> list[LedgerNotUsable]:
    """Return in what the ledger is not the one that its witness knows, or not where it was.

    A machine without an identity compares only files, and keeps what is known of the machine.
    """
    record = store.witness.read()
    store.where = file_mark(store.keys, store.place.ledger, store.place.ledger)
    with store.reading() as connection:
        behind = check_witness(connection, store.ledger_id, store.witness, record)
    found: list[LedgerNotUsable] = [LedgerBehind(text) for text in behind]
    if record is None or record.ledger_id != store.ledger_id:
        return found
    machine = store.machine = store.machine or record.machine
    what = "was last used on another machine" if record.machine not in (None, machine) else ""
    if not what and record.place not in (None, store.where):
        what = "is not the file that was last used, or not where that was: it was copied, restored or moved"
    if what:
        found.append(
            LedgerElsewhere(
                f"the ledger {store.place.ledger} {what}; nothing was sent now; if the other sends nothing more: "
                f"{records.HOW_TO_ACCEPT}"
            )
        )
    return found


def accept(
    store: SqliteStore, who: str, why: str, found: Sequence[LedgerNotUsable], *, rows_in_doubt: bool
) -> records.Accepted:
    """Accept the ledger as is, where it is, and make its witness agree.

    If it may not know of payments made since, every row that it would send becomes a row in doubt, for a person to
    check, and what it lost is recorded. Raises LedgerDamaged if more is wrong with it than that: what the witness knows
    is kept.
    """
    decisions.require_named(decisions.LEDGER_ACCEPTED, who, why)
    kind = decisions.kind_of_acceptance(found, rows_in_doubt=rows_in_doubt)
    decisions.require_undamaged(check(store))
    marked_in_doubt, lost = 0, None
    record = store.witness.read()
    known = record if record is not None and record.ledger_id == store.ledger_id else None
    with store.transaction() as transaction:
        transaction.replaces_witness = True
        detail: dict[str, Any] = {"before": known and known.machine, "after": store.machine}
        if kind == records.WITNESS_ACCEPTED:
            last, at = transaction.execute(sql.LAST_EVENT).fetchone()
            for (batch,) in transaction.execute(sql.BATCH_IDS).fetchall():
                marked_in_doubt += decisions.doubt(
                    SqliteMover(transaction, batch, "doubted", who, records.RESTORED_REASON), today(store, transaction)
                )
            lost = decisions.lost_by_now(
                transaction, sql, last, at, known.number if known and known.number > last else None
            )
            detail |= {"doubted": marked_in_doubt, **lost}
        transaction.event(kind, None, who, why, detail)
    return records.Accepted(marked_in_doubt, decisions.window(lost) if lost else None)


_REASON = "the ledger moves to another database"


def moved_to(connection: sqlite3.Connection) -> str | None:
    """Return where a ledger has moved to; None if it is still here."""
    found = connection.execute(sql.LAST_DETAIL, (records.MOVED,)).fetchone()
    return str(json.loads(found[0])["to"]) if found else None


def refuse_moved(store: SqliteStore) -> None:
    """Raise LedgerNotUsable if the ledger is no longer here: whatever it says may have changed since."""
    with store.reading() as connection:
        to = moved_to(connection)
    if to is not None:
        raise LedgerNotUsable(
            f"the ledger {store.place.ledger} has moved to {to}: let ledger.url (BATCHPAY_LEDGER) name that; nothing "
            "was sent"
        )


def refuse_restored_after_move(store: SqliteStore) -> None:
    """Raise LedgerNotUsable where this machine knows of the ledger in a database: this file is from before the move.

    No person may accept it by its own witness: two ledgers would then be in force.
    """
    witness = witness_in_database(store.ledger_id, store.place, store.keys)
    if witness is not None:
        raise LedgerNotUsable(
            f"the ledger {store.place.ledger} has moved to a database, of which {witness} is the witness, and this "
            "file was restored from before: let ledger.url (BATCHPAY_LEDGER) name the database; nothing was sent. If "
            f"the database is lost for good, move that witness and {store.place.witness} away; batchpay ledger "
            "accept --reason TEXT then puts in doubt what this file would send"
        )


def depart(ledger: SqliteLedger, to: str, who: str, why: str, hand_over: Callable[[Contents], None]) -> None:
    """Pass everything on, then end here; raises BatchHeld while anything is in progress, LedgerNotUsable.

    No lock is kept on the batches, of which there may be thousands: what was written while the ledger was checked ends
    the move, and a run that begins once it is being passed on is refused by the event that ended this ledger.
    """
    store = ledger.store
    ledger.refuse_while_held("a move")
    for batch in ledger.batches():
        if _was_interrupted(store, batch):
            with ledger.lock(batch.digest):
                ledger.start(batch.batch, who, _REASON).finish(_REASON)
    with store.reading() as connection:
        checked = connection.execute(sql.LAST_EVENT).fetchone()
    problems = check(store)
    if problems:
        raise LedgerDamaged(f"{problems[0]}; nothing was moved (batchpay ledger check says more)")
    with store.transaction() as transaction:
        ledger.refuse_while_held("a move")
        interrupted = any(_was_interrupted(store, batch) for batch in ledger.batches())
        if interrupted or transaction.execute(sql.LAST_EVENT).fetchone() != checked:
            raise BatchHeld("something was written to the ledger while it was checked; run the command again")
        hand_over(contents(store, transaction.connection))
        transaction.event(records.MOVED, None, who, why, {"to": to})
    store.witness.sync()


def _was_interrupted(store: SqliteStore, batch: records.BatchSummary) -> bool:
    return batch.by_state[State.SENDING].rows > 0 or bool(spill_files(store.place.witness, batch.batch))


def contents(store: SqliteStore, connection: sqlite3.Connection) -> Contents:
    """Return all of a ledger up to the event that ended it, if there is one."""
    meta = dict(connection.execute(sql.META))
    number, mac = connection.execute(sql.LAST_MAC_BEFORE, (records.MOVED,)).fetchone()
    statements = sql.MOVING | {"fact": store.fact_statements.every}
    return Contents(
        ledger_id=store.ledger_id, place=str(store.place.ledger), number=number, mac=mac,
        registrations=connection.execute(sql.REGISTRATION_COUNT).fetchone()[0],
        has_older_digests="latest batch of version 2" in meta,
        rows=lambda table: connection.execute(statements[table], (number,) if table == "event" else ()),
    )  # fmt: skip
