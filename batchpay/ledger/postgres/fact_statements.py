# ruff: noqa: S608 - what is in braces are state codes and table names, our own words
"""Statements about facts that a ledger in a database words in its own way."""

from __future__ import annotations

from batchpay.ledger.fact_statements import SEALED, FactStatements
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.states import REJECTED

_WANTED = "FROM json_array_elements_text(%(wanted)s::json) AS wanted (value)"
_ACCOUNT = "upper(encode(int8send(p.account), 'hex'))"
FACTS = FactStatements(
    schema="batchpay.", value="%({})s", own_chain=" AND chain = 0",
    # Without statistics, a subquery without ARRAY would be compared with every fact.
    among="= ANY(ARRAY(SELECT each.value FROM json_array_elements_text({}::json) AS each (value)))",
    payments_by={
        "payment_id": f"SELECT f.payment_id, f.batch, f.row {_WANTED} JOIN batchpay.payment_id f ON f.payment_id ="
        " wanted.value::bigint",
        "reference": f"SELECT wanted.value, a.batch, a.row {_WANTED} JOIN batchpay.attempt a ON a.gateway_reference ="
        " wanted.value",
        "account": f"SELECT {_ACCOUNT}, p.batch, p.row FROM batchpay.batch b JOIN batchpay.payment p ON p.batch = b.id"
        " WHERE p.account IN (SELECT ('x' || value)::bit(64)::bigint"
        f" FROM json_array_elements_text(%(wanted)s::json) AS each (value)) AND {sql.SENT_SINCE}",
    },
    payments="SELECT p.row, p.line, p.state, p.amount_cents, p.direction, p.sent_at, int8send(p.account), p.chunk"
    " FROM batchpay.payment p WHERE p.batch = %(batch)s AND p.row = ANY(ARRAY(SELECT value::int"
    f" FROM json_array_elements_text(%(rows)s::json))) AND p.state <> {REJECTED}",
    details="SELECT chunk, sealed FROM batchpay.detail WHERE batch = %(batch)s",
    returned="batchpay.returned", unlike_rows="batchpay.fact_unlike_row",
    batches_since=f"SELECT b.id FROM batchpay.batch b WHERE {sql.SENT_SINCE} ORDER BY b.id",
    count_registration=(
        sql.COUNT_REGISTRATION,
        "UPDATE batchpay.batch SET registration = (SELECT registrations FROM batchpay.ledger) WHERE id = %(batch)s",
    ),
)  # fmt: skip
_TYPES = {"code": "text", "account": "text", "seal": "bytea", "corrected": "bytea"}
FACTS.add = "INSERT INTO batchpay.fact ({}) SELECT * FROM unnest({})".format(
    ", ".join((*SEALED, "seal", "corrected")),
    ", ".join(f"%({name})s::{_TYPES.get(name, 'bigint')}[]" for name in (*SEALED, "seal", "corrected")),
)
"""All lines at once, by column: one at a time they take ten times as long."""
