"""Finding payments again that an earlier batch has."""

from __future__ import annotations

from datetime import datetime, timedelta

from batchpay.ledger.columns import Earlier, Lookup
from batchpay.ledger.encoding import ROW_MASK, ROWS_BITS, to_datetime, to_ms
from batchpay.ledger.fingerprints import lookup_keys
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.states import ACCEPTED, OPEN
from batchpay.payment import Environment, SamePayment
from batchpay.text import place_of, place_word

_OPEN = ", ".join(map(str, OPEN))
_COUNTED = f"{_OPEN}, {ACCEPTED}"
_NEVER_MS = 1 << 62
_RANK_BITS = 60
"""A row's id takes less; the bits above it say how closely the earlier payment matches."""

_COMPARED = "(? = '' AND batch.digest <> ? OR batch.name = ?) AND batch.environment = ?"
_FOUND = f"""
JOIN row ON row.id = found.id AND row.state IN ({_COUNTED})
JOIN batch ON batch.id = found.id >> {ROWS_BITS} AND {_COMPARED}
LEFT JOIN attempt ON attempt.id = found.id
GROUP BY wanted.row
"""
# A payment counts from the later of its registration and its latest attempt: a batch may wait for days to be sent.
_AT = "max(batch.registered_at, coalesce(attempt.sent_at, 0))"
# One that is not settled is not days ago, but still to come: whatever repeats it would be paid beside it.
_IS_NEAR = f"({_AT} >= ?1 OR (row.state IN ({_OPEN}) AND ?1 < {_NEVER_MS}))"
_BY_PAYMENT_ID = f"""
SELECT wanted.row, max({SamePayment.PAYMENT_ID.value} << {_RANK_BITS} | found.id), row.line, {_AT}
FROM wanted CROSS JOIN payment_id AS found ON found.payment_id = wanted.key {_FOUND}
"""  # noqa: S608 (our own words)
_BY_FINGERPRINT = f"""
SELECT wanted.row, max(CASE
    WHEN {_IS_NEAR} OR (wanted.invoiced AND NOT (wanted.named AND found.named)) THEN {SamePayment.BILL.value}
    WHEN wanted.named AND found.named THEN {SamePayment.ANOTHER_ID.value} ELSE 0 END << {_RANK_BITS} | found.id),
    row.line, {_AT}
FROM wanted CROSS JOIN fingerprint AS found ON found.fingerprint = wanted.key {_FOUND}
"""  # noqa: S608 (our own words)


def earlier(
    store: Store, lookup: Lookup, environment: Environment, days: int, now: datetime, exclude_digest: bytes, within: str
) -> list[Earlier]:
    since = to_ms(now - timedelta(days=days)) if days else _NEVER_MS
    compared = (within, exclude_digest, within, environment)
    found: dict[int, Earlier] = {}
    with store.reading() as connection:
        statement = f"SELECT id, name, file FROM batch WHERE {_COMPARED}"  # noqa: S608 (our own words)
        names = {identity: (name, file) for identity, name, file in connection.execute(statement, compared)}
        if not names:
            return []
        with_older = connection.execute("SELECT 1 FROM meta WHERE name = 'latest batch of version 2'").fetchone()
        by_id, by_bill = lookup_keys(lookup, with_older=bool(with_older))
        connection.execute("CREATE TEMP TABLE wanted (key INTEGER, row INTEGER, named INTEGER, invoiced INTEGER)")
        for keys, wanted, parameters in (
            (by_bill, _BY_FINGERPRINT.replace("?1", str(since)), compared),
            (by_id, _BY_PAYMENT_ID, compared),
        ):
            connection.execute("DELETE FROM wanted")
            # In key order, so that the index is scanned in one direction.
            connection.executemany("INSERT INTO wanted VALUES (?, ?, ?, ?)", sorted(keys))
            for row, ranked, line, at in connection.execute(wanted, parameters):
                rank, identity = ranked >> _RANK_BITS, ranked & (1 << _RANK_BITS) - 1
                if rank:
                    (batch, file), earlier_row = names[identity >> ROWS_BITS], identity & ROW_MASK
                    place = place_of(place_word(file), earlier_row, line)
                    found[row] = Earlier(row, SamePayment(rank), batch, earlier_row, place, to_datetime(at))
    return [found[row] for row in sorted(found)]
