"""Finding payments again that an earlier batch holds."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import compress

from batchpay.ledger.fingerprints import digest_numbers
from batchpay.ledger.records import Earlier, Lookup
from batchpay.ledger.sqlite.encoding import ROW_MASK, ROWS_BITS, to_ms
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.states import STATE_CODES
from batchpay.payment import Environment, State

_COUNTED = ", ".join(str(STATE_CODES[s]) for s in (State.PENDING, State.SENDING, State.ACCEPTED, State.IN_DOUBT))
_NO_DIGEST = b""

_BY_PAYMENT_ID = f"""
SELECT wanted.row, min(payment_id.id)
FROM wanted CROSS JOIN payment_id ON payment_id.payment_id = wanted.key
JOIN row ON row.id = payment_id.id AND row.state IN ({_COUNTED})
JOIN batch ON batch.id = payment_id.id >> {ROWS_BITS} AND batch.digest <> ? AND batch.environment = ?
GROUP BY wanted.row
"""  # noqa: S608
# A payment counts from the later of its registration and its latest attempt: a batch may lie for days before it goes.
_BY_FINGERPRINT = f"""
SELECT wanted.row, min(fingerprint.id)
FROM wanted CROSS JOIN fingerprint ON fingerprint.fingerprint = wanted.key AND NOT (wanted.named AND fingerprint.named)
JOIN row ON row.id = fingerprint.id AND row.state IN ({_COUNTED})
JOIN batch ON batch.id = fingerprint.id >> {ROWS_BITS} AND batch.digest <> ? AND batch.environment = ?
LEFT JOIN attempt ON attempt.id = fingerprint.id
WHERE max(batch.registered_at, coalesce(attempt.sent_at, 0)) >= ?
GROUP BY wanted.row
"""  # noqa: S608


def earlier(
    store: Store, lookup: Lookup, environment: Environment, days: int, now: datetime, exclude_digest: bytes | None
) -> list[Earlier]:
    """See contract.Ledger; at most one earlier payment a row, one with the same paymentId before others."""
    since = to_ms(now - timedelta(days=days))
    but = _NO_DIGEST if exclude_digest is None else exclude_digest
    has_name = [payment_id is not None for payment_id in lookup.payment_ids]
    payment_ids = [payment_id for payment_id in lookup.payment_ids if payment_id is not None]
    named = [
        (key, row, 1) for key, row in zip(digest_numbers(payment_ids), compress(lookup.rows, has_name), strict=True)
    ]
    printed = list(zip(digest_numbers(lookup.fingerprints), lookup.rows, has_name, strict=True))
    found: dict[int, Earlier] = {}
    with store.reading() as connection:
        if connection.execute("SELECT 1 FROM batch WHERE digest <> ? LIMIT 1", (but,)).fetchone() is None:
            return []
        names = dict(connection.execute("SELECT id, name FROM batch"))
        connection.execute("CREATE TEMP TABLE wanted (key INTEGER, row INTEGER, named INTEGER)")
        for keys, by_payment_id in ((named, True), (printed, False)):
            if not by_payment_id and days == 0:
                continue
            connection.execute("DELETE FROM wanted")
            # In the order of the keys, so that the walk through the index goes one way.
            connection.executemany("INSERT INTO wanted VALUES (?, ?, ?)", sorted(keys))
            parameters = (but, environment) if by_payment_id else (but, environment, since)
            for row, identity in connection.execute(_BY_PAYMENT_ID if by_payment_id else _BY_FINGERPRINT, parameters):
                one = Earlier(row, by_payment_id, names[identity >> ROWS_BITS], identity & ROW_MASK)
                found.setdefault(row, one)
    return [found[row] for row in sorted(found)]
