"""What named persons decide: rows in doubt are settled, pending ones cancelled, batches follow a gateway that moved."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import LedgerDamaged, WrongUse
from batchpay.ledger.database import Store
from batchpay.ledger.event_chain import account_noted, now_ms
from batchpay.ledger.mover import Mover
from batchpay.ledger.records import CANCELLED, RESTORED_REASON, SETTLED_BY, Decision
from batchpay.ledger.states import IN_DOUBT, PENDING, SENDING, STATE_CODES, IllegalMove

IN_DOUBT_SETTLED = "rows in doubt are settled"
LEDGER_ACCEPTED = "a ledger is accepted"


def require_named(deed: str, who: str, why: str) -> None:
    """Raise WrongUse if nobody is named for an action, or no reason is given."""
    if not (who.strip() and why.strip()):
        raise WrongUse(f"{deed} by a named person, with a reason")


def require_undamaged(problems: Sequence[str]) -> None:
    """Raise LedgerDamaged if a ledger that is to be accepted has problems that acceptance can't fix."""
    if problems:
        raise LedgerDamaged(
            f"{problems[0]}; nothing was accepted, and the witness is as it was (batchpay ledger check says more)"
        )


def settle(mover: Mover, decisions: Sequence[Decision], who: str, why: str) -> int:
    """Settle rows in doubt, as one event.

    Raises WrongUse if one is not in doubt, was sent once more than is known, or can't get the state decided.
    """
    at = now_ms()
    for decision in decisions:
        state, found = STATE_CODES[decision.state], mover.standing(decision.row)
        if found is not None and decision.attempts not in (None, found[1]):  # from another machine, as a rule
            raise WrongUse(f"row {decision.row} was sent again in the meantime, look it up again; nothing was changed")
        try:
            in_doubt = mover.move([decision.row], IN_DOUBT, state)
        except IllegalMove:
            raise WrongUse(
                f"row {decision.row}: a row in doubt becomes accepted, declined or pending (send again)"
            ) from None
        if not in_doubt:
            raise WrongUse(f"row {decision.row} is not in doubt; nothing was changed")
        mover.note_attempts(
            in_doubt, state, f"{SETTLED_BY}{who}: {why}",
            at=None if state == PENDING else at, references={decision.row: decision.gateway_reference},
        )  # fmt: skip
    mover.remember_payees()
    references = {str(one.row): one.gateway_reference for one in decisions if one.gateway_reference}
    mover.finish(**({"references": references} if references else {}))
    return len(decisions)


def cancel(mover: Mover, rows: Sequence[int] | None) -> int:
    """Reject pending rows, all of them without `rows`; return how many. Raises WrongUse if one is not pending."""
    pending = mover.rows_in(PENDING)
    wanted = pending if rows is None else sorted(set(rows))
    if others := set(wanted).difference(pending):
        raise WrongUse(f"row {min(others)} is not pending; nothing was cancelled")
    cancelled = len(mover.reject(wanted, CANCELLED))
    mover.finish()
    return cancelled


def doubt(mover: Mover) -> int:
    """Make every row that would be sent a row in doubt; return how many."""
    marked_in_doubt = 0
    for state in (PENDING, SENDING):
        rows = mover.move(mover.rows_in(state), state, IN_DOUBT)
        mover.note_attempts(rows, IN_DOUBT, RESTORED_REASON, at=None)
        marked_in_doubt += len(rows)
    mover.finish()
    return marked_in_doubt


def move_gateway(store: Store, batches: Sequence[str], origin: str, api_id: str, who: str, why: str) -> None:
    """See contract.Ledger."""
    require_named("a gateway is moved", who, why)
    account = account_noted(store.keys, api_id)
    with store.transaction() as transaction:
        for name in batches:
            found = transaction.one(transaction.statements.ORIGIN_OF_BATCH, (name,))
            if not found:
                raise WrongUse(f"there is no batch {name}")
            transaction.execute(transaction.statements.MOVE_BATCH, (origin, found[0]))
            transaction.event("gateway moved", found[0], who, why, {"from": found[1], "to": origin, **account})
