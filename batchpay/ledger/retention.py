"""Retention: erasing personal data from a ledger once nobody needs it: names, details, messages of final batches.

Rows, amounts, states, references, digests, totals and history stay: they keep a payment from being made twice, and
prove that it was made. What each database's own files still contain afterward is its own affair: sqlite/retention.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from batchpay.errors import WrongUse
from batchpay.ledger.database import Store
from batchpay.ledger.decisions import require_named, require_settled
from batchpay.ledger.event_chain import to_datetime, to_ms
from batchpay.ledger.reading import batch_number
from batchpay.ledger.records import PURGED, BatchSummary, OldBatch
from batchpay.ledger.spill import spill_files
from batchpay.payment import State
from batchpay.text import row_count

EraseTexts = Callable[[Any, int], int]
"""Erases details and messages of a batch in a transaction; returns the number of messages."""
_OPEN = (State.PENDING, State.SENDING, State.IN_DOUBT)


def old_batches(store: Store, batches: Iterable[BatchSummary], before: datetime) -> list[OldBatch]:
    known = {batch.batch: batch for batch in batches}
    with store.reading() as view:
        found = view.execute(store.statements.OLD_BATCHES, (to_ms(before),)).fetchall()
    return [
        OldBatch(name, one.file, one.environment, rows, to_datetime(at), _stays(store, one))
        for name, at, rows in found
        if rows and (one := known.get(name))
    ]


def _stays(store: Store, batch: BatchSummary) -> str | None:
    open_rows = [f"{row_count(totals.rows)} {state.words}" for state in _OPEN if (totals := batch.by_state[state]).rows]
    if open_rows:
        return ", ".join(open_rows)
    if spill_files(store.witness.path, batch.batch):
        return f"answers wait to be merged: batchpay resume {batch.batch}"
    return None


def erase(store: Store, name: str, before: datetime, who: str, why: str, erase_texts: EraseTexts) -> None:
    """Delete the texts of one batch that the caller holds, in one transaction."""
    require_named("a batch is purged", who, why)
    number, _ = batch_number(store, name)
    with store.transaction() as transaction:
        require_settled(transaction)
        transaction.hold_batch(number)
        statements, of_batch = transaction.statements, (number,)
        open_rows, last, purged_at, rows = (
            transaction.execute(statement, of_batch).fetchone()[0]
            for statement in (
                statements.OPEN_ROWS, statements.LAST_DEED_ON_BATCH, statements.PURGED_AT, statements.ROWS_WITH_DETAILS
            )
        )  # fmt: skip
        if open_rows or last >= to_ms(before) or purged_at is not None:
            raise WrongUse(f"batch {name} has changed in the meantime and was not purged; run the command again")
        messages = erase_texts(transaction, number)
        transaction.execute(store.fact_statements.erase, {"batch": number})
        transaction.event(PURGED, number, who, why, {"rows": rows, "messages": messages})
