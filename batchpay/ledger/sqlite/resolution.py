"""What named persons do to rows: settle those in doubt, and accept a ledger whose witness disagrees."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import WrongUse
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite.encoding import STATE_CODES, now_ms
from batchpay.ledger.sqlite.payee_history import remember_payees
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.sqlite.transitions import IN_DOUBT, PENDING, SENDING, Mover
from batchpay.payment import State

_DECIDABLE = (State.ACCEPTED, State.DECLINED, State.PENDING)
RESTORED_REASON = "the ledger was accepted without its witness: payments made since may be unknown to it"


def resolve(store: Store, batch: int, decisions: Sequence[Decision], who: str, why: str) -> int:
    """See contract.Ledger."""
    if not who.strip() or not why.strip():
        raise WrongUse("rows in doubt are settled by a named person, with a reason")
    if not decisions:
        return 0
    at = now_ms()
    with store.transaction() as transaction:
        mover = Mover(transaction, batch)
        for decision in decisions:
            if decision.state not in _DECIDABLE:
                raise WrongUse(f"row {decision.row}: a row in doubt becomes accepted, declined or pending (send again)")
            state = STATE_CODES[decision.state]
            if not mover.move(decision.row, IN_DOUBT, state):
                raise WrongUse(f"row {decision.row} is not in doubt; nothing was changed")
            mover.note_attempt(
                decision.row, state, f"resolved by {who}: {why}",
                at=None if state == PENDING else at, reference=decision.gateway_reference,
            )  # fmt: skip
        remember_payees(transaction, batch)
        references = {str(one.row): one.gateway_reference for one in decisions if one.gateway_reference}
        detail: dict[str, object] = dict(mover.finish())
        transaction.event("resolved", batch, who, why, detail | ({"references": references} if references else {}))
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
            mover = Mover(transaction, batch)
            for state in (PENDING, SENDING):
                for row in mover.ids_in(state):
                    mover.move(row, state, IN_DOUBT)
                    mover.note_attempt(row, IN_DOUBT, RESTORED_REASON, at=None)
                    marked_in_doubt += 1
            moved = mover.finish()
            if moved:
                transaction.event("doubted", batch, who, RESTORED_REASON, moved)
        witnessed = testimony.number if testimony else None
        transaction.event("witness accepted", None, who, why, {"doubted": marked_in_doubt, "witnessed": witnessed})
        transaction.replaces_witness = True
    return marked_in_doubt
