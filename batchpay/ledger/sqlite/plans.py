"""Plans that were used: each lets one registration, release or run through, and its approvers stand in the history."""

from __future__ import annotations

import json

from batchpay.errors import FileRefused, LedgerNotUsable
from batchpay.ledger.event_chain import approvers_of, plan_detail
from batchpay.ledger.records import PLAN_USED, SignOff
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import Store, Transaction
from batchpay.payment import Totals


def record(transaction: Transaction, batch: int, who: str, sign_off: SignOff, adds: Totals) -> None:
    """Use a plan up, in the transaction of what it lets through; raises where that is not what was approved."""
    if adds != sign_off.adds:
        raise LedgerNotUsable("what is to be recorded is not what the plan approved; nothing was recorded")
    for name, detail in transaction.execute(sql.PLANS_USED, (PLAN_USED,)):
        if json.loads(detail)["plan"] == sign_off.plan:
            raise FileRefused(f"this plan was already used, for batch {name}")
    transaction.event(PLAN_USED, batch, who, None, plan_detail(sign_off, adds))


def record_alone(store: Store, batch: int, who: str, sign_off: SignOff) -> None:
    with store.transaction() as transaction:
        record(transaction, batch, who, sign_off, Totals())


def batch_of_plan(store: Store, plan: str) -> str | None:
    with store.reading() as connection:
        for name, detail in connection.execute(sql.PLANS_USED, (PLAN_USED,)):
            if json.loads(detail)["plan"] == plan:
                return str(name)
    return None


def approvers(store: Store, batch: int) -> int:
    with store.reading() as connection:
        return approvers_of(connection.execute(sql.LET_THROUGH, (batch, "registered", "released", PLAN_USED)))
