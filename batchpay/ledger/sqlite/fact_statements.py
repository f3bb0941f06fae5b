# ruff: noqa: S608 - what is in braces are state codes and table names, our own words
"""Statements about facts that a ledger in a file words in its own way."""

from __future__ import annotations

from batchpay.ledger.fact_statements import FactStatements
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.states import ACCEPTED, REJECTED

_PLACE = "{0}.id >> 32, {0}.id & 4294967295"
_WANTED = "FROM json_each(:wanted) AS wanted CROSS JOIN"
FACTS = FactStatements(
    schema="", value=":{}", among="IN (SELECT value FROM json_each({}))", own_chain="",
    payments_by={
        "payment_id": f"SELECT wanted.value, {_PLACE.format('payment_id')} {_WANTED} payment_id ON payment_id ="
        " wanted.value",
        "reference": f"SELECT wanted.value, {_PLACE.format('attempt')} {_WANTED} attempt ON gateway_reference ="
        " wanted.value",
        "account": f"SELECT hex(account), {_PLACE.format('row')} FROM batch CROSS JOIN row ON row.id >= batch.id << 32"
        " AND row.id < batch.id + 1 << 32 AND hex(account) IN (SELECT value FROM json_each(:wanted))"
        f" WHERE {sql.SENT_SINCE}",
    },
    payments="SELECT row.id & 4294967295, line, row.state, amount_cents, direction, sent_at, account, chunk"
    " FROM json_each(:rows) AS wanted CROSS JOIN row ON row.id = (:batch << 32 | wanted.value)"
    f" LEFT JOIN attempt ON attempt.id = row.id WHERE row.state <> {REJECTED}",
    details="SELECT chunk.id, sealed FROM chunk JOIN detail ON detail.chunk = chunk.id WHERE batch = :batch",
    returned=f"(SELECT * FROM {sql.RETURNED})",
    unlike_rows="fact LEFT JOIN row ON row.id = (fact.batch << 32 | fact.row)"
    f" WHERE row.state IS NOT {ACCEPTED} OR fact.account <> hex(row.account) OR fact.direction <> row.direction"
    " OR (kind = 1 AND fact.amount_cents <> row.amount_cents) OR (corrected IS NOT NULL AND EXISTS (SELECT 1 FROM event"
    " WHERE event.kind = 'purged' AND event.kind <> 'progress' AND event.batch = fact.batch))",
    batches_since=f"SELECT id FROM batch WHERE {sql.SENT_SINCE} ORDER BY id",
    count_registration=(),
)  # fmt: skip
