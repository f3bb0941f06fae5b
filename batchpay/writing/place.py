"""Where an output goes: never over one that another batch wrote, so the name gets a number instead."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count, islice, zip_longest
from pathlib import Path

from batchpay.writing.atomic import PendingFile
from batchpay.writing.parquet_pages import check_pages

CSV_ENDINGS = (".csv", ".txt", ".tsv")
_PARQUET_ROWS = 1_000
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


def standing(wanted: Path) -> list[Path]:
    """Give what stands under a name, with or without a number, in order; nothing where the folder can't be read."""
    try:
        return [numbered(wanted, number) for number in _taken(wanted)]
    except OSError:
        return []


def place(pending: PendingFile, may_replace: MayReplace, *, only_over: bool = False) -> Path | None:
    """Put a file over the first of its names that may be replaced, or else at the first free one; gives where it is.

    What holds the same bytes, or nothing, may always be replaced. With `only_over` nothing is written where there is
    nothing to replace, and None is given.
    """
    wanted = pending.target
    with pending.abandoned_on_error():
        for number in _taken(wanted):
            pending.target = numbered(wanted, number)
            if pending.target.is_dir() or pending.is_same_or_empty() or may_replace(pending.target, number):
                pending.commit()
                return pending.target
    if only_over:
        pending.abandon()
        return None
    for number in count(1):
        pending.target = numbered(wanted, number)
        if not (pending.target.is_symlink() or pending.target.exists()) and pending.commit_new():
            break
    return pending.target


def _taken(wanted: Path) -> list[int]:
    """Give the numbers of a name under which something stands, in order: there may be gaps where one was moved away."""
    name = re.compile(f"{re.escape(wanted.stem)}(?:-([1-9][0-9]*))?{re.escape(wanted.suffix)}", re.ASCII)
    found = (name.fullmatch(one.name) for one in wanted.parent.iterdir())
    return sorted(int(one[1] or 1) for one in found if one is not None and one[1] != "1")


def first_row(path: Path, *, saved_anew: bool = False) -> dict[str, str | None] | None:
    """Read the first row of a CSV, Parquet or XLSX by its header's names; all None where there is a header alone.

    None where the file is none of these, or can't be read. `saved_anew` also reads a CSV that a spreadsheet has saved
    in its own encoding: whatever no UTF-8 has, our own words are the same in each.
    """
    try:
        # Most that are asked for are not there, and a workbook's reader alone takes a third of a second to load.
        rows = list(islice(rows_of(path, saved_anew=saved_anew), 2)) if path.exists() else []
    except Exception:  # whatever a library makes of a file that is none of ours
        return None
    if not rows:
        return None
    cells = [None if cell is None else str(cell) for row in rows[1:] for cell in row]
    return dict(zip_longest(map(str, rows[0]), cells[: len(rows[0])]))


def rows_of(path: Path, separator: str | None = None, *, saved_anew: bool = False) -> Iterator[Sequence[object]]:
    """Read the header and the rows of a CSV, Parquet or XLSX that we wrote; none where the ending is another.

    Without a separator, a CSV's is the likeliest. Raises whatever a library makes of a file that is none of ours.
    """
    ending = path.suffix.lower()
    if ending in CSV_ENDINGS:
        return _csv_rows(path, separator, "replace" if saved_anew else "strict")
    if ending in (".parquet", ".pq"):
        return _parquet_rows(path)
    return _xlsx_rows(path) if ending == ".xlsx" else iter(())


def separator_of(header: str) -> str:
    """Tell what parts the cells of a CSV's header: a spreadsheet saves it with that of its own country."""
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
    """Read the sheet that holds our rows: a sheet before it may sum them up."""
    from openpyxl import load_workbook

    with closing(load_workbook(path, read_only=True)) as book:
        sheets = [sheet for sheet in book.worksheets if sheet.title in ("results", "rejects")]
        yield from (sheets or book.worksheets)[0].iter_rows(values_only=True)
