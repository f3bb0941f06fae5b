"""Writing a table with very many rows, given as frames of columns: what `write_table` writes, by polars."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import polars as pl

from batchpay.text import FORMULA_STARTS, NEGATIVE_AMOUNT
from batchpay.writing.columns import Column
from batchpay.writing.place import MayReplace
from batchpay.writing.stream import Stream
from batchpay.writing.table import Front, csv_lines, put_in_place, sink_parquet, table_format, write_table

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
