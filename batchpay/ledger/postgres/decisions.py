"""What named persons decide: rows in doubt are settled, batches follow a gateway, plans are used up."""

from __future__ import annotations

import json
from collections.abc import Sequence

from batchpay.errors import FileRefused, LedgerNotUsable, WrongUse
from batchpay.ledger.encoding import now_ms
from batchpay.ledger.event_chain import approvers_of, plan_detail
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.company_statements import SENT_BY_UNHEARD
from batchpay.ledger.postgres.moves import Mover
from batchpay.ledger.postgres.store import Store, Transaction
from batchpay.ledger.records import PLAN_USED, Decision, SignOff
from batchpay.ledger.states import IN_DOUBT, PENDING, STATE_CODES, IllegalMove
from batchpay.payment import State, Totals


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


def move_gateway(store: Store, batches: Sequence[str], origin: str, who: str, why: str) -> None:
    if not (who.strip() and why.strip()):
        raise WrongUse("a gateway is moved by a named person, with a reason")
    with store.transaction() as transaction:
        for name in batches:
            found = transaction.one(sql.ORIGIN_OF_BATCH, (name,))
            if not found:
                raise WrongUse(f"there is no batch {name}")
            transaction.execute(sql.MOVE_BATCH, (origin, found[0]))
            transaction.event("gateway moved", found[0], who, why, {"from": found[1], "to": origin})


def use_plan(transaction: Transaction, batch: int, who: str, sign_off: SignOff, adds: Totals) -> None:
    """Use a plan up, in the transaction of what it lets through; raises where that is not what was approved."""
    if adds != sign_off.adds:
        raise LedgerNotUsable("what is to be recorded is not what the plan approved; nothing was recorded")
    transaction.registrations()  # under this lock no other transaction can use the same plan
    for name, detail in transaction.execute(sql.PLANS_USED, (PLAN_USED,)):
        if json.loads(detail)["plan"] == sign_off.plan:
            raise FileRefused(f"this plan was already used, for batch {name}")
    transaction.event(PLAN_USED, batch, who, None, plan_detail(sign_off, adds))


def use_plan_alone(store: Store, batch: int, who: str, sign_off: SignOff) -> None:
    with store.transaction() as transaction:
        use_plan(transaction, batch, who, sign_off, Totals())


def batch_of_plan(store: Store, plan: str) -> str | None:
    with store.reading() as connection:
        for name, detail in connection.execute(sql.PLANS_USED, (PLAN_USED,)):
            if json.loads(detail)["plan"] == plan:
                return str(name)
    return None


def approvers(store: Store, batch: int) -> int:
    with store.reading() as connection:
        return approvers_of(connection.execute(sql.LET_THROUGH, (batch, "registered", "released", PLAN_USED)))
