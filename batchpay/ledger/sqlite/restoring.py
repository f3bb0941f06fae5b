"""A ledger that may not be the current one: restored from a backup, copied or moved, on this machine or to another.

Each such ledger sends nothing until a named person has said so, and a restored one registers nothing new until a person
has said that what it lost is known.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchpay.errors import LedgerBehind, LedgerElsewhere, LedgerNotUsable
from batchpay.ledger.decisions import (
    LEDGER_ACCEPTED,
    doubt,
    kind_of_acceptance,
    lost_by_now,
    require_named,
    require_undamaged,
    window,
)
from batchpay.ledger.keys import Keys
from batchpay.ledger.records import HOW_TO_ACCEPT, RESTORED_REASON, WITNESS_ACCEPTED, Accepted
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.audit import check
from batchpay.ledger.sqlite.moves import SqliteMover
from batchpay.ledger.sqlite.store import SqliteStore, check_witness


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
                f"{HOW_TO_ACCEPT}"
            )
        )
    return found


def accept(
    store: SqliteStore, who: str, why: str, found: Sequence[LedgerNotUsable], *, rows_in_doubt: bool
) -> Accepted:
    """Accept the ledger as is, where it is, and make its witness agree.

    If it may not know of payments made since, every row that it would send becomes a row in doubt, for a person to
    check, and what it lost is recorded. Raises LedgerDamaged if more is wrong with it than that: what the witness knows
    is kept.
    """
    require_named(LEDGER_ACCEPTED, who, why)
    kind = kind_of_acceptance(found, rows_in_doubt=rows_in_doubt)
    require_undamaged(check(store))
    marked_in_doubt, lost = 0, None
    record = store.witness.read()
    known = record if record is not None and record.ledger_id == store.ledger_id else None
    with store.transaction() as transaction:
        transaction.replaces_witness = True
        detail: dict[str, Any] = {"before": known and known.machine, "after": store.machine}
        if kind == WITNESS_ACCEPTED:
            last, at = transaction.execute(sql.LAST_EVENT).fetchone()
            for (batch,) in transaction.execute(sql.BATCH_IDS).fetchall():
                marked_in_doubt += doubt(SqliteMover(transaction, batch, "doubted", who, RESTORED_REASON))
            lost = lost_by_now(transaction, sql, last, at, known.number if known and known.number > last else None)
            detail |= {"doubted": marked_in_doubt, **lost}
        transaction.event(kind, None, who, why, detail)
    return Accepted(marked_in_doubt, window(lost) if lost else None)
