"""What a restored ledger may not know: nothing new is registered until a person has said that it is known."""

from __future__ import annotations

import json
from typing import Any

from batchpay.errors import LossNotSettled, WrongUse
from batchpay.ledger.database import Statements, Store, Transaction, View
from batchpay.ledger.decisions import LEDGER_ACCEPTED, require_named
from batchpay.ledger.event_chain import to_datetime
from batchpay.ledger.records import SETTLED, WITNESS_ACCEPTED, LostWindow


def open_lost_window(view: View, statements: Statements) -> LostWindow | None:
    """Find what the ledger may not know and no person has settled yet.

    An acceptance by an earlier version did not record what was lost; it blocks nothing.
    """
    known = _unsettled(view, statements)
    return None if known is None else window(known)


def window(lost: dict[str, Any]) -> LostWindow:
    """Read what `lost_by_now` wrote down."""
    return LostWindow(to_datetime(lost["since"]), lost["last"] + 1, lost["witnessed"])


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
    kinds = (WITNESS_ACCEPTED, SETTLED)
    kind, detail = view.execute(statements.LAST_OF_KINDS, kinds).fetchone() or (SETTLED, "{}")
    known: dict[str, Any] = json.loads(detail)
    return None if kind == SETTLED or "since" not in known else known


def require_settled(transaction: Transaction) -> None:
    """Raise LossNotSettled if a restored ledger may not know that what is to be registered was already paid."""
    lost = open_lost_window(transaction, transaction.statements)
    if lost is not None:
        raise LossNotSettled(
            f"the ledger was restored: {lost}; nothing new is registered until a person has checked what was paid: "
            'batchpay ledger check --lost-window-settled --reason "…"'
        )


def settle(store: Store, who: str, why: str) -> None:
    """See batchpay.ledger.open."""
    require_named(LEDGER_ACCEPTED, who, why)
    with store.transaction() as transaction:
        if open_lost_window(transaction, transaction.statements) is None:
            raise WrongUse("no lost part of this ledger is unsettled; there is nothing to settle")
        transaction.event(SETTLED, None, who, why, {})
