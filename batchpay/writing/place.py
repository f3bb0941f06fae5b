"""Where an output goes: never over one that another batch wrote, so the name gets a number instead."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count, islice, zip_longest
from pathlib import Path

from batchpay.writing.atomic import PendingFile

MayReplace = Callable[[Path, int], bool]
"""Whether the file that stands at a path, the one with this number, may be replaced."""


def anything(path: Path, number: int) -> bool:
    """Replace whatever stands at the path."""
    return True


def is_output_name(name: str) -> bool:
    """Whether a name is one of our results or rejects files', with or without a number."""
    return re.search(r"\.(results|rejects)(-[0-9]+)?\.[a-z]+$", name.lower()) is not None


def numbered(path: Path, number: int) -> Path:
    """Give the path for the first, second and so on of a name: `pay.results.csv`, `pay.results-2.csv`."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def place(pending: PendingFile, may_replace: MayReplace, *, only_over: bool = False) -> Path | None:
    """Put a file at the first of its names that is free or may be replaced; gives where it is now.

    What holds the same bytes, or nothing, may always be. With `only_over` a free name ends the search: there is nothing
    to replace, nothing is written, and None is given.
    """
    wanted = pending.target
    for number in count(1):
        pending.target = numbered(wanted, number)
        if not (pending.target.is_symlink() or pending.target.exists()):
            if only_over:
                pending.abandon()
                return None
            if pending.commit_new():
                break
        if pending.target.is_dir() or pending.is_same_or_empty() or may_replace(pending.target, number):
            pending.commit()
            break
    return pending.target


def first_row(path: Path) -> dict[str, str | None] | None:
    """Read the first row of a CSV, Parquet or XLSX by its header's names; all None where there is a header alone.

    None where the file is none of these, or can't be read.
    """
    readers: dict[str, Callable[[Path], Iterator[Sequence[object]]]] = {
        ".csv": _csv_rows, ".txt": _csv_rows, ".tsv": _csv_rows, ".parquet": _parquet_rows, ".pq": _parquet_rows,
        ".xlsx": _xlsx_rows,
    }  # fmt: skip
    read = readers.get(path.suffix.lower())
    try:
        # Most that are asked for are not there, and a workbook's reader alone takes a third of a second to load.
        rows = list(islice(read(path), 2)) if read is not None and path.exists() else []
    except Exception:  # whatever a library makes of a file that is none of ours
        return None
    if not rows:
        return None
    cells = [None if cell is None else str(cell) for row in rows[1:] for cell in row]
    return dict(zip_longest(map(str, rows[0]), cells[: len(rows[0])]))


def _csv_rows(path: Path) -> Iterator[Sequence[object]]:
    with path.open(encoding="utf-8", newline="") as file:
        header = file.readline()
        file.seek(0)
        separator = max(",;\t|", key=header.count)
        yield from csv.reader(file, delimiter=separator)


def _parquet_rows(path: Path) -> Iterator[Sequence[object]]:
    import polars as pl

    frame = pl.scan_parquet(path, glob=False).head(1).collect()
    yield frame.columns
    yield from frame.rows()


def _xlsx_rows(path: Path) -> Iterator[Sequence[object]]:
    """Read the sheet that holds our rows: a sheet before it may sum them up."""
    from openpyxl import load_workbook

    with closing(load_workbook(path, read_only=True)) as book:
        sheets = [sheet for sheet in book.worksheets if sheet.title in ("results", "rejects")]
        yield from (sheets or book.worksheets)[0].iter_rows(values_only=True)
