"""Finding again what the ledger knows: payments that an earlier batch has, and what was paid to a payee before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from batchpay.ledger.columns import Earlier, Lookup
from batchpay.ledger.encoding import to_datetime, to_ms
from batchpay.ledger.fingerprints import lookup_keys
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.reading import signed, unsigned
from batchpay.ledger.postgres.store import Store
from batchpay.ledger.reading import summed_up
from batchpay.ledger.records import PayeeFacts
from batchpay.payment import Environment, SamePayment
from batchpay.text import place_of, place_word

_NEVER_MS = 1 << 62
_KEYS_AT_ONCE = 50_000


def earlier(
    store: Store, lookup: Lookup, environment: Environment, days: int, now: datetime, exclude_digest: bytes, within: str
) -> list[Earlier]:
    since = to_ms(now - timedelta(days=days)) if days else _NEVER_MS
    compared = {"digest": exclude_digest, "within": within, "environment": environment.value}
    near = {"since": since, "open": days > 0}
    found: dict[int, Earlier] = {}
    with store.reading() as connection:
        names = {
            identity: (name, file)
            for identity, name, file in connection.execute(sql.COMPARED_BATCHES, compared).fetchall()
        }
        if not names:
            return []
        (with_older,) = connection.execute(sql.HAS_OLDER_DIGESTS).fetchone() or (False,)
        by_id, by_bill = lookup_keys(lookup, with_older=with_older)
        for keys, wanted in ((by_bill, sql.EARLIER_BY_BILL), (by_id, sql.EARLIER_BY_PAYMENT_ID)):
            # In key order, so that the index is scanned in one direction.
            keys.sort()
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                numbers, rows, named, invoiced = map(list, zip(*keys[start : start + _KEYS_AT_ONCE], strict=True))
                parameters: dict[str, Any] = {"keys": numbers, "rows": rows, "named": named, "invoiced": invoiced}
                for row, same, batch, earlier_row, line, at in connection.execute(
                    wanted, compared | near | parameters, binary=True
                ):
                    name, file = names[batch]
                    place = place_of(place_word(file), earlier_row, line)
                    one = Earlier(row, SamePayment(same), name, earlier_row, place, to_datetime(at))
                    found[row] = one
    return [found[row] for row in sorted(found)]


def payee_facts(
    store: Store, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None
) -> dict[bytes, PayeeFacts]:
    wanted = sorted({signed(payee) for payee in payees})
    of_others = (environment.value, exclude_digest or b"")
    with store.reading() as connection:
        return summed_up(
            (unsigned(payee), unsigned(account), rows, cents)
            for start in range(0, len(wanted), _KEYS_AT_ONCE)
            for payee, account, rows, cents in connection.execute(
                sql.PAID_TO, (*of_others, wanted[start : start + _KEYS_AT_ONCE]), binary=True
            )
        )
