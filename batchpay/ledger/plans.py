"""Plans that were used: each lets one registration, release or run through; its approvers are in the history."""

from __future__ import annotations

import json
from collections.abc import Iterable

from batchpay.errors import FileRefused, LedgerNotUsable
from batchpay.ledger.database import Store, Transaction
from batchpay.ledger.event_chain import approvers_of, plan_detail
from batchpay.ledger.records import PLAN_USED, SignOff
from batchpay.payment import Totals


def use(transaction: Transaction, batch: int, who: str, sign_off: SignOff, adds: Totals) -> None:
    """Use up a plan, in the transaction of what it lets through; raises if that is not what was approved."""
    if adds != sign_off.adds:
        raise LedgerNotUsable("what would be recorded differs from what the plan approved; nothing was recorded")
    transaction.registrations()  # from here to the end no other transaction can use the same plan
    known = _batch_of(sign_off.plan, transaction.execute(transaction.statements.PLANS_USED, (PLAN_USED,)))
    if known is not None:
        raise FileRefused(f"this plan was already used, for batch {known}")
    transaction.event(PLAN_USED, batch, who, None, plan_detail(sign_off, adds))


def use_alone(store: Store, batch: int, who: str, sign_off: SignOff) -> None:
    """See contract.Ledger.use_plan."""
    with store.transaction() as transaction:
        use(transaction, batch, who, sign_off, Totals())


def batch_of_plan(store: Store, plan: str) -> str | None:
    """See contract.Ledger."""
    with store.reading() as view:
        return _batch_of(plan, view.execute(store.statements.PLANS_USED, (PLAN_USED,)))


def _batch_of(plan: str, used: Iterable[tuple[str, str]]) -> str | None:
    return next((name for name, detail in used if json.loads(detail)["plan"] == plan), None)


def approvers(store: Store, batch: int) -> int:
    """See contract.Ledger."""
    with store.reading() as view:
        return approvers_of(
            view.execute(store.statements.EVENTS_OF_KINDS, (batch, "registered", "released", PLAN_USED))
        )
