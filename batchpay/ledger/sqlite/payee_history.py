"""What the ledger remembers of payees: accepted payments by payee, account and batch, updated as runs finish.

Nothing is written while rows are being sent: an index on the rows themselves made accepting ten times as expensive.
"""

from __future__ import annotations

from collections.abc import Sequence

from batchpay.ledger.reading import summed_up
from batchpay.ledger.records import PayeeFacts
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import Store
from batchpay.payment import Environment


def payee_facts(
    store: Store, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None
) -> dict[bytes, PayeeFacts]:
    with store.reading() as connection:
        others = connection.execute(sql.BATCHES_BUT, (environment, exclude_digest or b"")).fetchall()
        counted = {number for (number,) in others}
        connection.execute(sql.MAKE_WANTED_PAYEES)
        # In key order, so that the table is scanned in one direction.
        connection.executemany(sql.ADD_WANTED_PAYEE, ((payee,) for payee in sorted(set(payees))))
        return summed_up(
            (payee, account, rows, cents)
            for payee, account, batch, rows, cents in connection.execute(sql.PAID_TO_WANTED)
            if batch in counted
        )
