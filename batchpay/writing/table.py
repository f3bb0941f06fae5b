"""Writing a table of results: CSV, Parquet or XLSX by the path's extension, whole or not at all, mode 0600.

The CSV branch imports nothing heavy and holds some hundred rows at a time. Where there may be a million rows, they are
passed as frames of columns (reports/result_frames.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from batchpay.errors import WrongUse
from batchpay.text import FORMULA_STARTS, guarded
from batchpay.writing.atomic import FileOrPath, MayReplace, PendingFile, Stream, anything, place
from batchpay.writing.xlsx import Column

if TYPE_CHECKING:
    import polars as pl

    from batchpay.writing.xlsx import Workbook

TABLE_ENDINGS = (".csv", ".parquet", ".pq", ".xlsx")
_CSV_ROWS = 256
"""Few enough to stay in the processor's cache."""
_PARQUET_ROWS = 50_000
Row = Sequence[str | None]
Front = Callable[["Workbook", int], None]
"""Writes the first sheet of a workbook, given how many rows the table has."""
_Write = Callable[[BinaryIO, Sequence[Column], Iterable[Row], Front | None], None]


def write_table(
    path: FileOrPath,
    header: Sequence[str | Column],
    rows: Iterable[Row],
    may_replace: MayReplace = anything,
    front: Front | None = None,
) -> Path:
    """Write rows of texts (None is a blank cell); raises WrongUse for an extension that is not ours.

    Return where the table is: the name gets a number where an existing file may not be replaced.

    In CSV a cell that a spreadsheet would run as a formula gets a leading apostrophe; the other formats have typed
    cells, where text stays text. `front` writes a workbook's first sheet, once the rows are written.
    """
    write = table_format(path)
    table = [Column(one) if isinstance(one, str) else one for one in header]
    return put_in_place(path, lambda file: write(file, table, rows, front), may_replace)


def put_in_place(path: FileOrPath, write: Callable[[BinaryIO], None], may_replace: MayReplace) -> Path:
    """Write a file whole, and put it at the first of its names that is free or may be replaced."""
    if isinstance(path, Stream):
        write(path.file)
        return Path(path.name)
    pending = PendingFile(path)
    with pending.abandoned_on_error():
        write(pending.file)
    placed = place(pending, may_replace)
    assert placed is not None, "a table is always written"
    return placed


def table_format(path: FileOrPath) -> _Write:
    """Return the writer for a path's extension; raises WrongUse. Call it early: before anything is sent."""
    writers = dict(zip(TABLE_ENDINGS, (_write_csv, _write_parquet, _write_parquet, _write_xlsx), strict=True))
    ending = Path(str(path)).suffix.lower()
    if ending not in writers:
        raise WrongUse(f"{path}: the name must end in .csv, .parquet or .xlsx")
    return writers[ending]


def _write_csv(file: BinaryIO, header: Sequence[Column], rows: Iterable[Row], front: Front | None) -> None:
    remaining = chain([[column.name for column in header]], rows)
    while some := list(islice(remaining, _CSV_ROWS)):
        beginnings = {cell[0] for row in some for cell in row if cell}
        if not beginnings.isdisjoint(FORMULA_STARTS):
            some = [[guarded(cell) for cell in row] for row in some]
        file.write(csv_lines(some).encode())


def csv_lines(rows: Sequence[Sequence[object]], separator: str = ",") -> str:
    """Write lines of CSV; one with a carriage return is quoted whole, which the standard library does not do."""
    text = io.StringIO(newline="")
    plain = csv.writer(text, delimiter=separator, lineterminator="\n")
    plain.writerows(rows)
    if "\r" not in text.getvalue():
        return text.getvalue()
    text.seek(0)
    text.truncate()
    quoted = csv.writer(text, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        has_return = any(isinstance(cell, str) and "\r" in cell for cell in row)
        (quoted if has_return else plain).writerow(row)
    return text.getvalue()


def _write_parquet(file: BinaryIO, header: Sequence[Column], rows: Iterable[Row], front: Front | None) -> None:
    import polars as pl

    remaining = iter(rows)

    def frames() -> Iterator[pl.DataFrame]:
        while some := list(islice(remaining, _PARQUET_ROWS)):
            columns = zip(*some, strict=True)
            yield pl.DataFrame([pl.Series(f"c{at}", column, pl.String) for at, column in enumerate(columns)])

    sink_parquet(file, header, frames())


def sink_parquet(file: BinaryIO, header: Sequence[Column], frames: Iterator[pl.DataFrame]) -> None:
    """Write frames of text columns, in the header's order, as they come: a million rows are never in memory."""
    import polars as pl
    from polars.io.plugins import register_io_source

    names = [f"c{at}" for at in range(len(header))]

    def given(*_: object) -> Iterator[pl.DataFrame]:
        for frame in frames:
            yield frame.rename(dict(zip(frame.columns, names, strict=True)))

    table = register_io_source(given, schema=dict.fromkeys(names, pl.String))
    table.rename(dict(zip(names, [column.name for column in header], strict=True))).sink_parquet(
        file, row_group_size=_PARQUET_ROWS, maintain_order=True
    )


def _write_xlsx(file: BinaryIO, header: Sequence[Column], rows: Iterable[Row], front: Front | None) -> None:
    from batchpay.writing.xlsx import Workbook

    with Workbook(file) as workbook:
        sheet = workbook.sheet("results", header)
        for row in rows:
            sheet.row(row)
        if front is not None:
            front(workbook, sheet.rows - 1)
