"""What named persons do to rows: settle those in doubt, and accept a ledger whose witness disagrees."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import WrongUse
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite.encoding import now_ms
from batchpay.ledger.sqlite.payee_history import remember_payees
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.sqlite.transitions import IN_DOUBT, PENDING, SENDING, Mover
from batchpay.ledger.states import STATE_CODES, IllegalMove

RESTORED_REASON = "the ledger was accepted without its witness: payments made since may be unknown to it"


def resolve(store: Store, batch: int, decisions: Sequence[Decision], who: str, why: str) -> int:
    if not (who.strip() and why.strip()):
        raise WrongUse("rows in doubt are settled by a named person, with a reason")
    if not decisions:
        return 0
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


def accept_witness(store: Store, who: str, why: str) -> int:
    """Accept the ledger as it stands and make its witness agree.

    It may be a restored backup that does not know of payments made since: every row that it would send becomes a row in
    doubt, for a person to look at. Returns how many.
    """
    if not who.strip() or not why.strip():
        raise WrongUse("a ledger is accepted by a named person, with a reason")
    marked_in_doubt = 0
    testimony = store.witness.read()
    with store.transaction() as transaction:
        for (batch,) in transaction.execute("SELECT id FROM batch ORDER BY id").fetchall():
            mover = Mover(transaction, batch, "doubted", who, RESTORED_REASON)
            for state in (PENDING, SENDING):
                for row in mover.ids_in(state):
                    mover.move(row, state, IN_DOUBT)
                    mover.note_attempt(row, IN_DOUBT, RESTORED_REASON, at=None)
                    marked_in_doubt += 1
            mover.finish()
        witnessed = testimony.number if testimony else None
        transaction.event("witness accepted", None, who, why, {"doubted": marked_in_doubt, "witnessed": witnessed})
        transaction.replaces_witness = True
    return marked_in_doubt
