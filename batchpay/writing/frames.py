"""Writing a table with very many rows, given as frames of text columns: what `write_table` writes, by polars."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import polars as pl

from batchpay.text import FORMULA_STARTS
from batchpay.writing.columns import Column
from batchpay.writing.place import MayReplace
from batchpay.writing.stream import Stream
from batchpay.writing.table import Front, csv_lines, put_in_place, sink_parquet, table_format, write_table

_RUNS = f"^([{re.escape(''.join(FORMULA_STARTS))}])"


def write_frames(
    path: Path | Stream,
    header: Sequence[Column],
    frames: Iterator[pl.DataFrame],
    may_replace: MayReplace,
    front: Front | None = None,
) -> Path:
    """Write frames whose columns are those of the header, all text; otherwise like `write_table`, to the byte."""
    table_format(path)
    ending = Path(str(path)).suffix.lower()
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
    least, most = (frame.select(end).row(0) for end in (pl.all().min(), pl.all().max()))
    ends = [ends for ends in zip(frame.columns, least, most, strict=True) if ends[1] is not None]
    # Searching each cell costs more than the rest: only where a formula could sort between the minimum and maximum.
    near = [name for name, low, high in ends if any(low[:1] <= start <= high[:1] for start in FORMULA_STARTS)]
    runs = [name for name in near if frame[name].str.contains(_RUNS).any()]
    frame = frame.with_columns(pl.col(runs).str.replace(_RUNS, "'${1}"))
    # polars would distinguish an empty text from a blank cell by quotation marks.
    frame = frame.with_columns(pl.col([name for name, low, _ in ends if not low]).replace("", None))
    text = io.BytesIO()
    frame.write_csv(text, include_header=False)
    lines = text.getvalue()
    return csv_lines(frame.rows()).encode() if b"\r" in lines else lines
