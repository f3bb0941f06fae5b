"""What named persons decide of rows in doubt."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import WrongUse
from batchpay.ledger.encoding import now_ms
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite.payee_history import remember_payees
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.sqlite.transitions import Mover
from batchpay.ledger.states import IN_DOUBT, PENDING, STATE_CODES, IllegalMove


def resolve(store: Store, batch: int, decisions: Sequence[Decision], who: str, why: str) -> int:
    if not (who.strip() and why.strip()):
        raise WrongUse("rows in doubt are settled by a named person, with a reason")
    at = now_ms()
    with store.transaction() as transaction:
        mover = Mover(transaction, batch, "resolved", who, why)
        for decision in decisions:
            state = STATE_CODES[decision.state]
            try:
                in_doubt = mover.move(decision.row, IN_DOUBT, state)
            except IllegalMove:
                raise WrongUse(
                    f"row {decision.row}: a row in doubt becomes accepted, declined or pending (send again)"
                ) from None
            if not in_doubt:
                raise WrongUse(f"row {decision.row} is not in doubt; nothing was changed")
            mover.note_attempt(
                decision.row, state, f"resolved by {who}: {why}",
                at=None if state == PENDING else at, reference=decision.gateway_reference,
            )  # fmt: skip
        remember_payees(transaction, batch)
        references = {str(one.row): one.gateway_reference for one in decisions if one.gateway_reference}
        mover.finish(**({"references": references} if references else {}))
    return len(decisions)
