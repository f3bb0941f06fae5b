"""What a restored ledger may not know: nothing new is registered until a person has said that it is known."""

from __future__ import annotations

import json

from batchpay.errors import LossNotSettled, WrongUse
from batchpay.ledger.database import Statements, Store, Transaction, View
from batchpay.ledger.decisions import LEDGER_ACCEPTED, require_named
from batchpay.ledger.encoding import to_datetime
from batchpay.ledger.records import SETTLED, WITNESS_ACCEPTED, LostWindow


def open_lost_window(view: View, statements: Statements) -> LostWindow | None:
    """Find what the ledger may not know and no person has settled yet.

    An acceptance by an earlier version did not record what was lost; it blocks nothing.
    """
    kinds = (WITNESS_ACCEPTED, SETTLED)
    kind, detail = view.execute(statements.LAST_OF_KINDS, kinds).fetchone() or (SETTLED, "{}")
    known = json.loads(detail)
    if kind == SETTLED or "since" not in known:
        return None
    return LostWindow(to_datetime(known["since"]), known["last"] + 1, known["witnessed"])


def require_settled(transaction: Transaction) -> None:
    """Raise LossNotSettled if a restored ledger may not know that what is to be registered was already paid."""
    lost = open_lost_window(transaction, transaction.statements)
    if lost is not None:
        raise LossNotSettled(
            f"the ledger was restored: {lost}; nothing new is registered before a person has looked what was paid: "
            'batchpay ledger check --lost-window-settled --reason "…"'
        )


def settle(store: Store, who: str, why: str) -> None:
    """See batchpay.ledger.open."""
    require_named(LEDGER_ACCEPTED, who, why)
    with store.transaction() as transaction:
        if open_lost_window(transaction, transaction.statements) is None:
            raise WrongUse("no part of this ledger is lost that nobody has settled; there is nothing to settle")
        transaction.event(SETTLED, None, who, why, {})
