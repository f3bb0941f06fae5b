"""Rows of the ledger as they appear in the results file: frames of texts and numbers, by column.

Written as `write_table` would, to the byte, but by polars.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import polars as pl

from batchpay.errors import LedgerDamaged
from batchpay.ledger.facts import Fact
from batchpay.ledger.records import BatchSummary, RowColumns
from batchpay.text import FORMULA_STARTS, NEGATIVE_AMOUNT, instant
from batchpay.writing.atomic import MayReplace, Stream
from batchpay.writing.table import Front, csv_lines, put_in_place, sink_parquet, table_format, write_table
from batchpay.writing.xlsx import Column, Kind

_SHOWN = (
    "paymentId", "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "currencyCode", "name",
    "account", "warnings", "payOn",
)  # fmt: skip
"""Columns that come from a row's details."""
_CARRIED = "carried"
KINDS = {
    "row": Kind.INTEGER, "line": Kind.INTEGER, "amount": Kind.AMOUNT, "state": Kind.STATE, "message": Kind.WRAP,
    "http_status": Kind.INTEGER, "attempts": Kind.INTEGER, "sent_at": Kind.INSTANT, "finished_at": Kind.INSTANT,
    "warnings": Kind.WRAP,
}  # fmt: skip
"""What a workbook shows as more than text."""


def frame_of(rows: RowColumns, header: Sequence[str], batch: BatchSummary, returns: Mapping[int, Fact]) -> pl.DataFrame:
    """Return rows of a batch under the results file's names (batchpay.reports.results.HEADER), null for no text."""
    details = _read(rows.details, len(batch.columns))
    count = len(rows.rows)
    message = pl.Series(rows.messages, dtype=pl.String)
    found = {
        "row": _numbers(rows.rows),
        "line": _numbers(rows.lines),
        **{name: details[name] for name in _SHOWN},
        "amount": pl.Series(rows.amounts_cents, dtype=pl.Int64).cast(pl.Decimal(38, 2)) / 100,
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
    came_back = list(map(returns.get, rows.rows)) if returns else [None] * count
    found["returned"] = pl.Series([one and one.day.isoformat() for one in came_back], dtype=pl.String)
    found["return_code"] = pl.Series([one and one.code for one in came_back], dtype=pl.String)
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


def _instants(moments: Sequence[datetime | None]) -> pl.Series:
    """Rows of one commit share their times: each is formatted only once."""
    text_of = {moment: instant(moment) for moment in set(moments)}.__getitem__
    return pl.Series(list(map(text_of, moments)), dtype=pl.String)


_RUNS = f"^([{re.escape(''.join(FORMULA_STARTS))}])"
_SPLITS = '[",\r\n]'
_MAY_RUN_OR_SPLIT = '[",\r\n=@]'
_LAST_SIGN = "-"
"""What else begins a formula (plus, tab, return) sorts before it."""


def write_frames(
    path: Path | Stream,
    header: Sequence[Column],
    frames: Iterator[pl.DataFrame],
    may_replace: MayReplace,
    front: Front | None = None,
) -> Path:
    """Write frames whose columns are those of the header, text or numbers; otherwise like `write_table`, to the byte.

    Numbers are written with all their digits.
    """
    table_format(path)
    ending = Path(str(path)).suffix.lower()
    if ending != ".csv":
        frames = (frame.cast(pl.String) for frame in frames)
    if ending == ".xlsx":
        return write_table(path, header, (row for frame in frames for row in frame.iter_rows()), may_replace, front)

    def write(file: BinaryIO) -> None:
        if ending != ".csv":
            sink_parquet(file, header, frames)
            return
        names = pl.DataFrame([[column.name] for column in header], [f"c{at}" for at in range(len(header))])
        file.write(csv_bytes(names))
        for frame in frames:
            file.write(csv_bytes(frame))

    return put_in_place(path, write, may_replace)


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """Return lines of CSV, each cell guarded as `batchpay.text.guarded` does."""
    # Asking each cell costs more than the rest: only columns are asked that hold such a character somewhere.
    asked = frame.select(pl.col(pl.String).str.join().str.contains(_MAY_RUN_OR_SPLIT)).row(0, named=True)
    odd = [name for name, holds_one in asked.items() if holds_one]
    least = {column.name: column.min() for column in frame}
    near = [name for name, low in least.items() if name in odd or _may_begin_so(str(low), frame[name])]
    runs = [name for name in near if frame[name].cast(pl.String).str.contains(_RUNS).any()]
    if runs:
        cells = pl.col(runs).cast(pl.String)
        is_number = cells.str.contains(f"^{NEGATIVE_AMOUNT}$")
        frame = frame.with_columns(pl.when(is_number).then(cells).otherwise(cells.str.replace(_RUNS, "'${1}")))
    splits = any(frame[name].str.contains(_SPLITS).any() for name in odd)
    if splits:  # polars would then distinguish an empty text from a blank cell by quotation marks
        frame = frame.with_columns(pl.col([name for name, low in least.items() if low == ""]).replace("", None))
    text = io.BytesIO()
    frame.write_csv(text, include_header=False, quote_style="necessary" if splits else "never")
    lines = text.getvalue()
    return csv_lines(frame.rows()).encode() if b"\r" in lines else lines


def _may_begin_so(least: str, column: pl.Series) -> bool:
    """Whether a cell could begin with plus, minus, tab or return, by the least and the greatest cell."""
    return least[:1] <= _LAST_SIGN and any(least[:1] <= start <= str(column.max())[:1] for start in FORMULA_STARTS)
