"""A ledger that may not be the current one: restored from a backup, copied to another machine, brought back.

Each such ledger sends nothing until a named person has said so, and a restored one registers nothing new until a person
has said that what it lost is known.
"""

from __future__ import annotations

from batchpay.errors import WrongUse
from batchpay.ledger.decisions import LEDGER_ACCEPTED, doubt, require_named, require_undamaged
from batchpay.ledger.lost_window import lost_by_now, window
from batchpay.ledger.records import (
    MACHINE_ACCEPTED,
    RESTORED_REASON,
    WITNESS_ACCEPTED,
    AcceptedWitness,
)
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.audit import check
from batchpay.ledger.sqlite.moves import SqliteMover
from batchpay.ledger.sqlite.store import SqliteStore


def accept_witness(store: SqliteStore, who: str, why: str) -> AcceptedWitness:
    """Accept the ledger as is and make its witness agree.

    It may be a restored backup that does not know of payments made since: every row that it would send becomes a row in
    doubt, for a person to check, and what it lost is recorded. The machine that the witness names stays. Raises
    LedgerDamaged if more is wrong with it than that: what the witness knows is kept.
    """
    require_named(LEDGER_ACCEPTED, who, why)
    require_undamaged(check(store, by_witness=False))
    marked_in_doubt = 0
    record = store.witness.read()
    of_this_ledger = record is not None and record.ledger_id == store.ledger_id
    if record is not None and of_this_ledger and record.machine is not None:
        store.machine = record.machine
    with store.transaction() as transaction:
        transaction.replaces_witness = True
        last, at = transaction.execute(sql.LAST_EVENT).fetchone()
        for (batch,) in transaction.execute(sql.BATCH_IDS).fetchall():
            marked_in_doubt += doubt(SqliteMover(transaction, batch, "doubted", who, RESTORED_REASON))
        witnessed = record.number if record is not None and of_this_ledger and record.number > last else None
        lost = lost_by_now(transaction, sql, last, at, witnessed)
        transaction.event(WITNESS_ACCEPTED, None, who, why, {"doubted": marked_in_doubt, **lost})
    return AcceptedWitness(marked_in_doubt, window(lost))


def accept_machine(store: SqliteStore, who: str, why: str) -> None:
    """See batchpay.ledger.open."""
    require_named(LEDGER_ACCEPTED, who, why)
    record = store.witness.read()
    if store.machine is None or record is None or record.machine in (None, store.machine):
        raise WrongUse("the ledger was not last used on another machine; there is nothing to accept")
    with store.transaction() as transaction:
        transaction.event(MACHINE_ACCEPTED, None, who, why, {"before": record.machine, "after": store.machine})
        transaction.replaces_witness = True
