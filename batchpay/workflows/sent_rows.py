"""Which rows would be sent now, and how a person may see them: masked, each with what deserves a look."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from batchpay.ledger.contract import Ledger
from batchpay.payment import State
from batchpay.schemas import checks
from batchpay.schemas.columns import ACCOUNT, PAY_ON, WARNED
from batchpay.validation.check import valid_rows
from batchpay.workflows.file_check import FileCheck
from batchpay.workflows.rejected_earlier import RejectedEarlier
from batchpay.workflows.requests import Decisions
from batchpay.writing.table import write_table

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary

FLAGS = "flags"
"""Codes of warnings, `changed_account`, and why a row is sent though it was not: `released`, `returned`, `pending`."""
SHOWN = (
    "row", "line", "name", *(NAMED := ("invoiceNumber", "paymentId")), "direction", "amount", "currency", "account",
    "first_seen", PAY_ON, FLAGS, "warnings",
)  # fmt: skip
"""The columns of a masked row, all text but `row`, `line` and FLAGS, a list; `first_seen` is a day or `new`."""


def masked_rows(
    ledger: Ledger | None, checked: FileCheck, decisions: Decisions, batch: BatchSummary | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows that would be sent now as frames of SHOWN: of an account number the last four characters only."""
    is_known = ledger is not None and batch is not None
    released = released_rows(ledger, batch, decisions) if ledger is not None and batch is not None else None
    returned = pl.Series(list(checked.returned.lifts), dtype=pl.UInt32)
    for rows in rows_to_send(ledger, checked, decisions, batch, released):
        frame = checked.warned.among(rows)
        warnings = pl.col(WARNED) if WARNED in frame.columns else pl.lit(None, pl.String)
        is_released = pl.lit(value=False) if released is None else pl.col("_row").is_in(released.implode())
        codes = warnings.str.split("; ").list.eval(pl.element().str.extract("^[^:]+: ([a-z_]+)").drop_nulls())
        why = (
            pl.when(pl.col("_row").is_in(returned.implode())).then(pl.lit("returned")),
            pl.when(is_released).then(pl.lit("released")).when(is_known).then(pl.lit("pending")),
        )
        yield frame.select(
            row="_row",
            line="_line",
            name="achNameOnCheck",
            **{name: name if name in frame.columns else pl.lit(None, pl.String) for name in NAMED},
            direction="transactionType",
            amount="amount",
            currency=pl.col("currencyCode").fill_null("USD") if "currencyCode" in frame.columns else pl.lit("USD"),
            account=checks.masked(pl.col(ACCOUNT)),
            first_seen=checked.first_seen.of(rows["_row"]),
            **{PAY_ON: PAY_ON, FLAGS: pl.concat_list(codes.fill_null([]), *why).list.drop_nulls().list.unique()},
            warnings=warnings,
        )


def write_rows(path: Path, frames: Iterator[pl.DataFrame]) -> None:
    """Write masked rows as a table, by the path's extension."""
    texts = (pl.col("row", "line").cast(pl.String), pl.col(FLAGS).list.join(" "))
    write_table(path, SHOWN, (row for frame in frames for row in frame.with_columns(texts).iter_rows()))


def rows_to_send(
    ledger: Ledger | None,
    checked: FileCheck,
    decisions: Decisions,
    batch: BatchSummary | None,
    released: pl.Series | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows that would be sent now, in file order; arguments as for `propose`, and `released_rows` if read."""
    frames = valid_rows(checked.source, checked.request.rules, checked.verdict)
    if ledger is None or batch is None:
        yield from frames
        return
    pending, _ = pending_rows(ledger, batch)
    released = released_rows(ledger, batch, decisions) if released is None else released
    waiting = pl.concat([pending, released])
    for frame in frames:
        some = frame.filter(pl.col("_row").is_in(waiting.implode()))
        if some.height:
            yield some


def released_rows(ledger: Ledger, batch: BatchSummary, decisions: Decisions) -> pl.Series:
    """Return the numbers of the rejected rows that are to be released."""
    return RejectedEarlier(ledger, batch).rows if decisions.release else pl.Series([], dtype=pl.UInt32)


def pending_rows(ledger: Ledger, batch: BatchSummary, due: date | None = None) -> tuple[pl.Series, pl.Series]:
    """Return the numbers and cents of the pending rows, or of those that are due on a day."""
    rows: list[int] = []
    amounts: list[int] = []
    for columns in ledger.row_columns(batch.batch, [State.PENDING], due=due):
        rows += columns.rows
        amounts += columns.amounts_cents
    return pl.Series(rows, dtype=pl.UInt32), pl.Series(amounts, dtype=pl.Int64)
