"""What named people decide: a ledger that may not be the current one is accepted, rows in doubt are settled."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import LedgerNotUsable, WrongUse
from batchpay.ledger.decisions import (
    IN_DOUBT_SETTLED,
    LEDGER_ACCEPTED,
    doubt,
    kind_of_acceptance,
    lost_by_now,
    require_named,
    require_undamaged,
    settle,
    window,
)
from batchpay.ledger.postgres import failover
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.audit import check
from batchpay.ledger.postgres.fences import fence
from batchpay.ledger.postgres.moves import PostgresMover
from batchpay.ledger.postgres.store import PostgresStore, PostgresTransaction
from batchpay.ledger.records import RESTORED_REASON, WITNESS_ACCEPTED, Accepted, Decision
from batchpay.ledger.spill import refuse_unheard_answers
from batchpay.payment import State


def accept(store: PostgresStore, who: str, why: str, clock: list[LedgerNotUsable], *, rows_in_doubt: bool) -> Accepted:
    """Accept the ledger as is, where it is, for all machines, and make this machine's witness agree.

    If it may not know of payments made since, every run that it considers alive is fenced, every row that it would send
    becomes a row in doubt, for a person to check, and what it lost is recorded. Raises LedgerDamaged if more is wrong
    with it than that: what the witness knows is kept.
    """
    require_named(LEDGER_ACCEPTED, who, why)
    require_undamaged(check(store))
    marked_in_doubt, lost = 0, None
    record = store.witness.read()
    of_this_ledger = record is not None and record.ledger_id == store.ledger_id
    with store.transaction() as transaction:
        transaction.registrations()  # which locks the ledger
        found = failover.problem(store, transaction.connection, record)
        kind = kind_of_acceptance([*clock, *([found] if found else [])], rows_in_doubt=rows_in_doubt)
        known, store.epoch, _ = failover.standing_of(transaction.connection)
        place, detail = failover.place(store, transaction.connection, known), failover.of_machine(store)
        if kind == WITNESS_ACCEPTED:
            last, at, _ = transaction.one(sql.LAST_EVENT) or (0, 0, b"")
            for run, batch in transaction.execute(sql.LIVE_RUNS).fetchall():
                fence(transaction, run, batch, who, heard_at=transaction.now_ms())
            for (batch,) in transaction.execute(sql.BATCH_IDS).fetchall():
                marked_in_doubt += doubt(PostgresMover(transaction, batch, "doubted", who, RESTORED_REASON))
            witnessed = record.number if record is not None and of_this_ledger and record.number > last else None
            (store.epoch,) = transaction.one(sql.ACCEPT_LEDGER, (place,)) or (0,)
            lost = lost_by_now(transaction, sql, last, at, witnessed)
            detail |= {"doubted": marked_in_doubt, **lost}
        else:
            transaction.execute(sql.SET_PLACE, (place,))
        transaction.event(kind, None, who, why, detail)
        transaction.replaces_witness = True
    return Accepted(marked_in_doubt, window(lost) if lost else None)


def resolve(store: PostgresStore, name: str, batch: int, decisions: Sequence[Decision], who: str, why: str) -> int:
    require_named(IN_DOUBT_SETTLED, who, why)
    refuse_unheard_answers(store.paths.witness, store.keys, name, decisions)
    with store.transaction() as transaction:
        mover = PostgresMover(transaction, batch, "resolved", who, why)
        _refuse_rows_of_unheard(transaction, batch, [one.row for one in decisions if one.state is State.PENDING])
        return settle(mover, decisions, who, why)


def _refuse_rows_of_unheard(transaction: PostgresTransaction, batch: int, rows: Sequence[int]) -> None:
    """Refuse to send a row again while a machine whose run was fenced may still send it: it may only be asleep."""
    found = transaction.one(sql.SENT_BY_UNHEARD, (batch, list(rows)))
    if found is not None:
        raise WrongUse(
            f"row {found[0]} was being sent by {found[1]}, whose run was fenced and has not been heard of since: if it "
            "resumes, it may still send it. Let it resume, or turn it off for good and confirm it: batchpay resolve "
            "with --host-is-gone; nothing was changed"
        )
