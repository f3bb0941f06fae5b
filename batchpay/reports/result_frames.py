"""Rows of the ledger as they appear in the results file: a frame of texts and numbers, built by column."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import datetime

import polars as pl

from batchpay.errors import LedgerDamaged
from batchpay.ledger.records import BatchSummary, RowColumns
from batchpay.text import instant

_SHOWN = (
    "paymentId", "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "currencyCode", "name",
    "account",
)  # fmt: skip
"""Columns that come from a row's details."""
_CARRIED = "carried"


def frame_of(rows: RowColumns, header: Sequence[str], batch: BatchSummary) -> pl.DataFrame:
    """Return rows of a batch under the results file's names (batchpay.reports.results.HEADER), null for no text."""
    details = _read(rows.details, len(batch.columns))
    count = len(rows.rows)
    message = pl.Series(rows.messages, dtype=pl.String)
    found = {
        "row": _numbers(rows.rows),
        "line": _numbers(rows.lines),
        **{name: details[name] for name in _SHOWN},
        "amount": _amounts(rows.amounts_cents),
        "state": pl.Series(rows.states, dtype=pl.String),
        "http_status": _numbers(rows.http_statuses),
        "response_code": pl.Series(rows.response_codes, dtype=pl.String),
        "message": message.set(message == "", None).fill_null(pl.Series(rows.reasons, dtype=pl.String)),
        "gateway_reference": pl.Series(rows.gateway_references, dtype=pl.String),
        "attempts": _numbers(rows.attempts),
        "sent_at": _instants(rows.sent_at),
        "finished_at": _instants(rows.finished_at),
        "batch": pl.Series([batch.batch]).new_from_index(0, count),
        "environment": pl.Series([str(batch.environment)]).new_from_index(0, count),
    }
    carried = header[len(found) :]
    found |= {name: details[_CARRIED].list.get(at) for at, name in enumerate(carried)}
    return pl.DataFrame(found).select(header)


def _read(details: Sequence[bytes], carried: int) -> pl.DataFrame:
    """Read rows' details by column; a row of an earlier version may carry nothing."""
    schema = dict.fromkeys(_SHOWN, pl.String) | ({_CARRIED: pl.List(pl.String)} if carried else {})
    try:
        found = pl.read_ndjson(io.BytesIO(b"\n".join(details)), schema=schema)
    except pl.exceptions.PolarsError:
        found = pl.DataFrame(schema=schema)
    if found.height != len(details) or (
        carried and not (found[_CARRIED].list.len().fill_null(carried) == carried).all()
    ):
        raise LedgerDamaged("the ledger is damaged: details that are not one JSON object a row")
    return found


def _numbers(numbers: Sequence[int | None]) -> pl.Series:
    return pl.Series(numbers, dtype=pl.Int64)


def _amounts(amounts_cents: Sequence[int]) -> pl.Series:
    """Write amounts as `batchpay.payment.format_cents` does."""
    return pl.Series(amounts_cents, dtype=pl.Int64).cast(pl.Decimal(38, 2)) / 100


def _instants(moments: Sequence[datetime | None]) -> pl.Series:
    """Rows of one commit share their times: each is formatted only once."""
    text_of = {moment: instant(moment) for moment in set(moments)}.__getitem__
    return pl.Series(list(map(text_of, moments)), dtype=pl.String)
