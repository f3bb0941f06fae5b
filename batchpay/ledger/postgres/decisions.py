"""What named people decide about rows in doubt."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import WrongUse
from batchpay.ledger.decisions import IN_DOUBT_SETTLED, require_named, settle
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.moves import PostgresMover
from batchpay.ledger.postgres.store import PostgresStore, PostgresTransaction
from batchpay.ledger.records import Decision
from batchpay.ledger.spill import refuse_unheard_answers
from batchpay.payment import State


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
