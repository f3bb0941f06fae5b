"""Reading back the rows that this program wrote: results, rejects and reconciliations, CSV, Parquet or XLSX."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count, islice, zip_longest
from pathlib import Path

from batchpay.errors import FileRefused
from batchpay.intake.xlsx.child import sheet_rows
from batchpay.writing.atomic import CSV_ENDINGS
from batchpay.writing.parquet_pages import check_pages

_PARQUET_ROWS = 1_000


def first_row(path: Path, *, saved_anew: bool = False) -> dict[str, str | None] | None:
    """Read the first row of a CSV, Parquet or XLSX by its header's names; all None where there is only a header.

    None where the file is none of these, or can't be read. `saved_anew` also reads a CSV that a spreadsheet has saved
    in its own encoding: whatever is not UTF-8 there, our own words are the same in each.
    """
    try:
        rows = list(islice(rows_of(path, saved_anew=saved_anew), 2)) if path.exists() else []
    except Exception:  # whatever a library raises for a file that is not ours
        return None
    if not rows:
        return None
    cells = [None if cell is None else str(cell) for row in rows[1:] for cell in row]
    return dict(zip_longest(map(str, rows[0]), cells[: len(rows[0])]))


def rows_of(path: Path, separator: str | None = None, *, saved_anew: bool = False) -> Iterator[Sequence[object]]:
    """Read the header and the rows of a CSV, Parquet or XLSX that we wrote; none for any other extension.

    Without a separator, the likeliest is used for a CSV. Raises whatever a library raises for a file that is not ours.
    """
    ending = path.suffix.lower()
    if ending in CSV_ENDINGS:
        return _csv_rows(path, separator, "replace" if saved_anew else "strict")
    if ending in (".parquet", ".pq"):
        return _parquet_rows(path)
    return _xlsx_rows(path) if ending == ".xlsx" else iter(())


def separator_of(header: str) -> str:
    """Return what separates the cells of a CSV's header: a spreadsheet uses the separator of its own country."""
    return max(",;\t|", key=header.count)


def _csv_rows(path: Path, separator: str | None, errors: str) -> Iterator[Sequence[object]]:
    with path.open(encoding="utf-8", errors=errors, newline="") as file:
        header = file.readline()
        file.seek(0)
        yield from csv.reader(file, delimiter=separator or separator_of(header))


def _parquet_rows(path: Path) -> Iterator[Sequence[object]]:
    import polars as pl

    with path.open("rb") as file:
        check_pages(file.fileno())
    table = pl.scan_parquet(path, glob=False)
    yield table.collect_schema().names()
    for begin in count(0, _PARQUET_ROWS):
        frame = table.slice(begin, _PARQUET_ROWS).collect()
        if not frame.height:
            return
        yield from frame.rows()


def _xlsx_rows(path: Path) -> Iterator[Sequence[object]]:
    """Read the sheet that contains our rows: a sheet before it may summarize them."""
    with path.open("rb") as file, closing(sheet_rows(path.name, file.fileno(), ["results", "rejects", None])) as rows:
        try:
            yield from (cells for _, cells in rows)
        except FileRefused:
            raise ValueError("not a workbook of ours") from None
