"""What named persons decide of rows in doubt."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import WrongUse
from batchpay.ledger.encoding import now_ms
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.company_statements import SENT_BY_UNHEARD
from batchpay.ledger.postgres.moves import Mover
from batchpay.ledger.postgres.store import Store, Transaction
from batchpay.ledger.records import Decision
from batchpay.ledger.states import IN_DOUBT, PENDING, STATE_CODES, IllegalMove
from batchpay.payment import State


def resolve(store: Store, batch: int, decisions: Sequence[Decision], who: str, why: str) -> int:
    if not (who.strip() and why.strip()):
        raise WrongUse("rows in doubt are settled by a named person, with a reason")
    at = now_ms()
    with store.transaction() as transaction:
        mover = Mover(transaction, batch, "resolved", who, why)
        _refuse_rows_of_unheard(transaction, batch, [one.row for one in decisions if one.state is State.PENDING])
        for decision in decisions:
            state = STATE_CODES[decision.state]
            try:
                in_doubt = mover.move([decision.row], IN_DOUBT, state)
            except IllegalMove:
                raise WrongUse(
                    f"row {decision.row}: a row in doubt becomes accepted, declined or pending (send again)"
                ) from None
            if not in_doubt:
                raise WrongUse(f"row {decision.row} is not in doubt; nothing was changed")
            mover.note_attempts(
                in_doubt, state, f"resolved by {who}: {why}",
                at=None if state == PENDING else at, references={decision.row: decision.gateway_reference},
            )  # fmt: skip
        transaction.execute(sql.REMEMBER_PAYEES, (batch,))
        references = {str(one.row): one.gateway_reference for one in decisions if one.gateway_reference}
        mover.finish(**({"references": references} if references else {}))
    return len(decisions)


def _refuse_rows_of_unheard(transaction: Transaction, batch: int, rows: Sequence[int]) -> None:
    """Refuse to send a row again while a machine that was shut out may still send it: it may only be asleep."""
    found = transaction.one(SENT_BY_UNHEARD, (batch, list(rows)))
    if found is not None:
        raise WrongUse(
            f"row {found[0]} was being sent by {found[1]}, which was shut out and has not been heard of since: if it "
            "wakes up, it may still send it. Let it wake up, or switch it off for good and say so: batchpay resolve "
            "with --host-is-gone; nothing was changed"
        )
