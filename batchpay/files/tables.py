"""Writing a table of results: CSV, Parquet or XLSX by the path's ending, whole or not at all, mode 0600.

The CSV branch imports nothing heavy and holds one row at a time: the sending half writes its results through it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from batchpay.errors import WrongUse
from batchpay.files.atomic import atomic_writer

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
_PARQUET_ROWS = 50_000
Row = Sequence[str | None]
_Write = Callable[[BinaryIO, Sequence[str], Iterable[Row]], None]


def write_table(path: str | Path, header: Sequence[str], rows: Iterable[Row]) -> None:
    """Write rows of texts (None is a blank cell); raises WrongUse for an ending that is none of ours.

    In CSV a cell that a spreadsheet would run as a formula gets an apostrophe in front; the other formats have typed
    cells, where a text stays one.
    """
    write = table_format(path)
    with atomic_writer(path) as file:
        write(file, header, rows)


def table_format(path: str | Path) -> _Write:
    """The writer for a path's ending; raises WrongUse. Call it early: before anything is sent."""
    writers: dict[str, _Write] = {
        ".csv": _write_csv, ".parquet": _write_parquet, ".pq": _write_parquet, ".xlsx": _write_xlsx,
    }  # fmt: skip
    ending = Path(path).suffix.lower()
    if ending not in writers:
        raise WrongUse(f"{path}: the name must end in .csv, .parquet or .xlsx")
    return writers[ending]


def defused(cell: str | None) -> str | None:
    """A cell that no spreadsheet runs as a formula."""
    return f"'{cell}" if cell is not None and cell.startswith(FORMULA_STARTS) else cell


def _write_csv(file: BinaryIO, header: Sequence[str], rows: Iterable[Row]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([defused(cell) for cell in header])
    writer.writerows([defused(cell) for cell in row] for row in rows)
    text.flush()
    text.detach()


def _write_parquet(file: BinaryIO, header: Sequence[str], rows: Iterable[Row]) -> None:
    import polars as pl

    names = [f"c{at}" for at in range(len(header))]
    frame = pl.DataFrame([list(row) for row in rows], schema=dict.fromkeys(names, pl.String), orient="row")
    frame.columns = list(header)
    frame.write_parquet(file, row_group_size=_PARQUET_ROWS)


def _write_xlsx(file: BinaryIO, header: Sequence[str], rows: Iterable[Row]) -> None:
    from batchpay.files.xlsx_out import SheetWriter

    with SheetWriter(file, "results") as sheet:
        sheet.header(header)
        for row in rows:
            sheet.row(row)
