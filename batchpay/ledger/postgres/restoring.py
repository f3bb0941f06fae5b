"""A ledger that may not be the current one: a database that was restored, or whose standby took over too late."""

from __future__ import annotations

from batchpay.ledger.decisions import LEDGER_ACCEPTED, doubt, require_named, require_undamaged
from batchpay.ledger.event_chain import now_ms
from batchpay.ledger.lost_window import lost_by_now, window
from batchpay.ledger.postgres import failover
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.audit import check
from batchpay.ledger.postgres.fences import fence
from batchpay.ledger.postgres.moves import PostgresMover
from batchpay.ledger.postgres.store import PostgresStore
from batchpay.ledger.records import RESTORED_REASON, WITNESS_ACCEPTED, AcceptedWitness


def accept_witness(store: PostgresStore, who: str, why: str) -> AcceptedWitness:
    """Accept the ledger as is and make this machine's witness agree.

    It may not know of payments made since: every run that it considers alive is fenced, every row that it would send
    becomes a row in doubt, for a person to check, and what it lost is recorded. Raises LedgerDamaged if more is wrong
    with it than that: what the witness knows is kept.
    """
    require_named(LEDGER_ACCEPTED, who, why)
    require_undamaged(check(store, by_witness=False))
    marked_in_doubt = 0
    record = store.witness.read()
    of_this_ledger = record is not None and record.ledger_id == store.ledger_id
    with store.transaction() as transaction:
        last, at, _ = transaction.one(sql.LAST_EVENT) or (0, 0, b"")
        for run, batch in transaction.execute(sql.LIVE_RUNS).fetchall():
            fence(transaction, run, batch, who, heard_at=now_ms())
        for (batch,) in transaction.execute(sql.BATCH_IDS).fetchall():
            marked_in_doubt += doubt(PostgresMover(transaction, batch, "doubted", who, RESTORED_REASON))
        witnessed = record.number if record is not None and of_this_ledger and record.number > last else None
        place = failover.place(store, transaction.connection, failover.known_place(transaction.connection))
        (store.epoch,) = transaction.one(sql.ACCEPT_LEDGER, (place,)) or (0,)
        lost = lost_by_now(transaction, sql, last, at, witnessed)
        detail = {"doubted": marked_in_doubt, **lost, **failover.of_machine(store)}
        transaction.event(WITNESS_ACCEPTED, None, who, why, detail)
        transaction.replaces_witness = True
    return AcceptedWitness(marked_in_doubt, window(lost))
