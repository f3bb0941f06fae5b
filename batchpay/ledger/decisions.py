"""What named persons decide about ledgers that differ, rows in doubt or pending, plans, and a gateway that moved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any

from batchpay.errors import (
    FileRefused,
    LedgerBehind,
    LedgerDamaged,
    LedgerElsewhere,
    LedgerNotUsable,
    LossNotSettled,
    WrongUse,
)
from batchpay.ledger import records
from batchpay.ledger.columns import CANCELLED
from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.database import Statements, Store, Transaction, View
from batchpay.ledger.event_chain import plan_detail, to_datetime
from batchpay.ledger.mover import Mover
from batchpay.ledger.states import IN_DOUBT, PENDING, SENDING, STATE_CODES, IllegalMove
from batchpay.payment import ON_THE_WEB, Actor, Totals

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


def kind_of_acceptance(found: Sequence[LedgerNotUsable], *, rows_in_doubt: bool) -> str:
    """Return the kind of event of an acceptance; raises WrongUse if nothing differs, or what no person may accept."""
    for one in found:
        if records.what_accepting_means(one, 0) is None:
            raise one
    if rows_in_doubt or any(isinstance(one, LedgerBehind) for one in found):
        return records.WITNESS_ACCEPTED
    if not found:
        raise WrongUse(
            "the ledger is the one that this machine knows, where it was; there is nothing to accept. If it was "
            "brought back all the same: --rows-in-doubt"
        )
    return (
        records.MACHINE_ACCEPTED if any(isinstance(one, LedgerElsewhere) for one in found) else records.CLOCK_ACCEPTED
    )


def settle(mover: Mover, decisions: Sequence[records.Decision], who: str, why: str) -> int:
    """Settle rows in doubt, as one event.

    Raises WrongUse if one is not in doubt, was sent once more than is known, or can't get the state decided.
    """
    at = mover.now_ms()
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
            in_doubt, state, f"{records.SETTLED_BY}{who}: {why}",
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


def doubt(mover: Mover, day: date) -> int:
    """Make every row that would be sent a row in doubt, which counts as sent on this day; return how many."""
    marked_in_doubt = 0
    pending = mover.rows_in(PENDING)
    for state, found in ((PENDING, pending), (SENDING, mover.rows_in(SENDING))):
        rows = mover.move(found, state, IN_DOUBT)
        mover.note_attempts(rows, IN_DOUBT, records.RESTORED_REASON, at=None)
        marked_in_doubt += len(rows)
    mover.finish()
    mover.doubt_today(pending, day.toordinal())
    return marked_in_doubt


def open_lost_window(view: View, statements: Statements) -> records.LostWindow | None:
    """Find what the ledger may not know and no person has settled yet.

    An acceptance by an earlier version did not record what was lost; it blocks nothing.
    """
    known = _unsettled(view, statements)
    return None if known is None else window(known)


def window(lost: dict[str, Any]) -> records.LostWindow:
    """Read what `lost_by_now` wrote down."""
    return records.LostWindow(to_datetime(lost["since"]), lost["last"] + 1, lost["witnessed"])


def lost_by_now(view: View, statements: Statements, last: int, at: int, witnessed: int | None) -> dict[str, Any]:
    """Write down what an acceptance finds lost, and what an earlier one did that no person has settled yet.

    Whoever accepts twice, or restores again, must look for all of it: the later acceptance alone is told from then on.
    """
    known = _unsettled(view, statements)
    if known is None:
        return {"last": last, "since": at, "witnessed": witnessed}
    both = (known["witnessed"], witnessed)
    return {
        "last": min(known["last"], last),
        "since": min(known["since"], at),
        "witnessed": None if None in both else max(both),
    }


def _unsettled(view: View, statements: Statements) -> dict[str, Any] | None:
    kinds = (records.WITNESS_ACCEPTED, records.SETTLED)
    kind, detail = view.execute(statements.LAST_OF_KINDS, kinds).fetchone() or (records.SETTLED, "{}")
    known: dict[str, Any] = json.loads(detail)
    return None if kind == records.SETTLED or "since" not in known else known


def require_settled(transaction: Transaction) -> None:
    """Raise LossNotSettled if a restored ledger may not know that what is to be registered was already paid."""
    lost = open_lost_window(transaction, transaction.statements)
    if lost is not None:
        raise LossNotSettled(
            f"the ledger was restored: {lost}; nothing new is registered until a person has checked what was paid: "
            "batchpay ledger accept --confirm"
        )


def confirm(store: Store, who: str, why: str) -> None:
    """See batchpay.ledger.open."""
    with store.transaction() as transaction:
        if open_lost_window(transaction, transaction.statements) is None:
            raise WrongUse("nothing that this ledger lost waits to be confirmed")
        transaction.event(records.SETTLED, None, who, why or None, {})


def people_off(view: View, statements: Statements) -> frozenset[str]:
    """Return the people of the page who were switched off: each change of one of them notes all."""
    kinds = (records.PERSON_CHANGED, records.PERSON_CHANGED)
    _, detail = view.execute(statements.LAST_OF_KINDS, kinds).fetchone() or ("", "{}")
    return frozenset(json.loads(detail).get("off", ()))


def use_plan(transaction: Transaction, batch: int, who: str, sign_off: records.SignOff, adds: Totals) -> None:
    """Use up a plan, in the transaction of what it lets through; raises if that is not what was approved."""
    if adds != sign_off.adds:
        raise LedgerNotUsable("what would be recorded differs from what the plan approved; nothing was recorded")
    transaction.registrations()  # from here to the end no other transaction can use the same plan
    known = batch_of_plan(transaction, transaction.statements, sign_off.plan)
    if known is not None:
        raise FileRefused(f"this plan was already used, for batch {known}")
    off = {str(Actor(name, "", ON_THE_WEB)) for name in people_off(transaction, transaction.statements)}
    if off & {sign_off.prepared_by, *(approval.who for approval in sign_off.approvals)}:
        raise RegisteredMeanwhile("a person who agreed to the plan was switched off; look again")
    transaction.event(records.PLAN_USED, batch, who, None, plan_detail(sign_off, adds))


def batch_of_plan(view: View, statements: Statements, plan: str) -> str | None:
    """See contract.Ledger."""
    used = view.execute(statements.PLANS_USED, (records.PLAN_USED,))
    return next((name for name, detail in used if json.loads(detail)["plan"] == plan), None)
