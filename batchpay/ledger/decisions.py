"""What named persons decide: rows in doubt are settled, and batches follow a gateway to its new address."""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.errors import WrongUse
from batchpay.ledger.database import Store


def move_gateway(store: Store, batches: Sequence[str], origin: str, who: str, why: str) -> None:
    """See contract.Ledger."""
    if not (who.strip() and why.strip()):
        raise WrongUse("a gateway is moved by a named person, with a reason")
    with store.transaction() as transaction:
        for name in batches:
            found = transaction.one(transaction.statements.ORIGIN_OF_BATCH, (name,))
            if not found:
                raise WrongUse(f"there is no batch {name}")
            transaction.execute(transaction.statements.MOVE_BATCH, (origin, found[0]))
            transaction.event("gateway moved", found[0], who, why, {"from": found[1], "to": origin})
