"""Where an output goes: it never replaces one of another batch; its name gets a number instead."""

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
_ENDINGS = (*CSV_ENDINGS, ".parquet", ".xlsx")
PACKED = (".gz", ".zst")
_PARQUET_ROWS = 1_000
MayReplace = Callable[[Path, int], bool]
"""Whether the existing file at a path, the one with this number, may be replaced."""


def anything(path: Path, number: int) -> bool:
    """Replace whatever is at the path."""
    return True


def stem_and_ending(file: str) -> tuple[str, str]:
    """Return what the names of a payment file's outputs begin with, and the file's own ending, if it is one of ours."""
    name = unpacked_name("stdin" if file == "-" else Path(file).name)
    ending = next((ending for ending in _ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)], ending


def unpacked_name(name: str) -> str:
    """Return a file's name without the ending of its compression."""
    for packing in PACKED:
        name = name.removesuffix(packing)
    return name


def is_output_name(name: str) -> bool:
    """Whether a name is that of one of our results or rejects files, with or without a number."""
    return re.search(r"\.(results|rejects)(-[0-9]+)?\.[a-z]+$", name.lower()) is not None


def numbered(path: Path, number: int) -> Path:
    """Return the path for the first, second and so on of a name: `pay.results.csv`, `pay.results-2.csv`."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def standing(wanted: Path) -> list[Path]:
    """Return the files of a name, with or without a number, in order; nothing where the folder can't be read."""
    try:
        return [numbered(wanted, number) for number in _taken(wanted)]
    except OSError:
        return []


def place(pending: PendingFile, may_replace: MayReplace, *, only_over: bool = False) -> Path | None:
    """Put a file over the first of its names that may be replaced, else at the first free one; return where it is.

    A file with the same bytes, or none, may always be replaced. With `only_over` nothing is written where there is
    nothing to replace, and None is returned.
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
    """Return the numbers under which a name exists, in order: there may be gaps where one was moved away."""
    name = re.compile(f"{re.escape(wanted.stem)}(?:-([1-9][0-9]*))?{re.escape(wanted.suffix)}", re.ASCII)
    found = (name.fullmatch(one.name) for one in wanted.parent.iterdir())
    return sorted(int(one[1] or 1) for one in found if one is not None and one[1] != "1")


def first_row(path: Path, *, saved_anew: bool = False) -> dict[str, str | None] | None:
    """Read the first row of a CSV, Parquet or XLSX by its header's names; all None where there is only a header.

    None where the file is none of these, or can't be read. `saved_anew` also reads a CSV that a spreadsheet has saved
    in its own encoding: whatever is not UTF-8 there, our own words are the same in each.
    """
    try:
        # Most requested files do not exist, and just loading the workbook reader takes a third of a second.
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
    from openpyxl import load_workbook

    with closing(load_workbook(path, read_only=True)) as book:
        sheets = [sheet for sheet in book.worksheets if sheet.title in ("results", "rejects")]
        yield from (sheets or book.worksheets)[0].iter_rows(values_only=True)


METRICS, LOG, PLAN, REPORT, RECONCILIATION = "metrics file", "log", "plan", "report", "reconciliation"
_HEAD_BYTES = 512
_LOG_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z"


def _begins(pattern: bytes) -> Callable[[Path], bool]:
    """Make a check of a file's first bytes."""

    def look(path: Path) -> bool:
        with path.open("rb") as file:
            return re.match(pattern, file.read(_HEAD_BYTES)) is not None

    return look


def _is_reconciliation(path: Path) -> bool:
    row = first_row(path)
    return row is not None and {"verdict", "found_by", "line_there"} <= row.keys()


MARKS: dict[str, Callable[[Path], bool]] = {
    METRICS: _begins(rb"# HELP batchpay_"),
    LOG: _begins(rb'(?:\{"time": "%b", "level": "|%b [A-Z]+ )' % (_LOG_TIME, _LOG_TIME)),
    PLAN: _begins(rb'\{\s*"plan": [0-9]+,\s*"id": "[0-9a-f]+",\s*"seal": "'),
    REPORT: _begins(
        rb'<!doctype html>\s*<html lang="en">\s*<head>\s*<meta charset="utf-8">\s*'
        rb"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-"
    ),
    RECONCILIATION: _is_reconciliation,
}
"""By the kind of output."""


def may_be_written(path: Path, kind: str) -> bool:
    """Whether an output of a kind may be written at a path: no file is there, an empty one, or one of that kind.

    What is not a regular file is left to the writer.
    """
    try:
        if not path.is_file():
            return True
    except OSError:  # whatever is there is in a folder that can't be entered
        return True
    try:
        return path.stat().st_size == 0 or MARKS[kind](path)
    except OSError:
        return False
