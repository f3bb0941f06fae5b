"""Reading a sheet that a person or another program filled in: CSV or XLSX, one line of texts at a time, bounded.

Not for payment files (batchpay.intake reads those, with their rules): only what `resolve` and `reconcile` read back.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
import zipfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from batchpay.errors import FileRefused
from batchpay.writing.atomic import Stream

BYTES_MAX = 256 << 20
UNPACKED_BYTES_MAX = 1 << 30
ROWS_MAX = 1_000_000
COLUMNS_MAX = 500
LOST_DIGITS = "#####"
"""Replaces a number that a spreadsheet can't hold: of more than 15 digits it keeps the first 15."""
_SEPARATORS = (",", ";", "\t", "|")
_WORKBOOKS = (".xlsx", ".xlsm")
_LINES_PROBED = 20
_DIGITS_KEPT = 10**15
_SCIENTIFIC = re.compile(r"[0-9](?:[.,][0-9]+)?E\+?[0-9]+", re.ASCII)


def read_sheet(path: str | Path | Stream, sheet: str | None = None) -> Generator[tuple[int, list[str]], None, None]:
    """Yield the lines of a sheet as (line, cells), without blank lines; raises FileRefused.

    Cells are texts without white space at their ends. Numbers and dates of a workbook become plain digits and ISO 8601.
    In a workbook it is the first visible sheet, or the one that `sheet` names.
    """
    with _opened(path) as file:
        yield from _lines(path, file, sheet)


def sheet_names(path: str | Path | Stream) -> list[str]:
    """Name the visible sheets of a workbook; none where the file is not a workbook; raises FileRefused."""
    if Path(str(path)).suffix.lower() not in _WORKBOOKS:
        return []
    with _opened(path) as file, _workbook(path, file) as sheets:
        return [sheet.title for sheet in sheets]


@contextmanager
def _opened(path: str | Path | Stream) -> Iterator[BinaryIO]:
    if isinstance(path, Stream):
        _require_bounded(path, path.file)
        yield path.file
        return
    try:
        if not Path(path).is_file() and Path(path).stat():
            raise FileRefused(f"{path} is not a file")
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; an error while reading is a different one
    except OSError as error:
        raise FileRefused(f"{path} can't be read: {error.strerror}") from None
    with file:
        _require_bounded(path, file)
        yield file


def _require_bounded(path: str | Path | Stream, file: BinaryIO) -> None:
    """Refuse an empty file, or one larger than any export, before any of it is read."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size == 0:
        raise FileRefused(f"{path} is empty")
    if size > BYTES_MAX:
        raise FileRefused(f"{path} is larger than {BYTES_MAX >> 20} MB; export a shorter time")


def _lines(path: str | Path | Stream, file: BinaryIO, sheet: str | None) -> Iterator[tuple[int, list[str]]]:
    ending = Path(str(path)).suffix.lower()
    if ending in _WORKBOOKS:
        lines = _workbook_lines(path, file, sheet)
    elif ending in (".csv", ".txt", ".tsv"):
        lines = _csv_lines(path, file)
    else:
        raise FileRefused(f"{path}: a sheet must be .csv or .xlsx")
    count = 0
    with closing(lines):  # before the file is closed
        for line, cells in lines:
            if not any(cells):
                continue
            count += 1
            if count > ROWS_MAX + 1:
                raise FileRefused(f"{path} has more than {ROWS_MAX:,} rows; export a shorter time")
            yield line, cells


def _csv_lines(path: str | Path | Stream, file: BinaryIO) -> Generator[tuple[int, list[str]], None, None]:
    wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    file.seek(0)
    text = io.TextIOWrapper(file, encoding="utf-16" if wide else "utf-8-sig", newline="")
    at = 0
    try:
        reader = csv.reader(text, delimiter=_separator(text), strict=True)
        for cells in reader:
            line, at = at + 1, reader.line_num
            yield line, [_plain(cell.strip()) for cell in cells[:COLUMNS_MAX]]
    except UnicodeError:
        raise FileRefused(f"{path}: near line {at + 1}: not UTF-8; save it as 'CSV UTF-8' or as a workbook") from None
    except csv.Error:
        raise FileRefused(f"{path}: line {at + 1} is not a line of a CSV file") from None
    finally:
        text.detach()


def _separator(text: TextIO) -> str:
    """Return the separator that splits one of the first lines into the most cells."""
    lines = [text.readline(1 << 16) for _ in range(_LINES_PROBED)]
    text.seek(0)
    return max(_SEPARATORS, key=lambda separator: max(line.count(separator) for line in lines))


def _plain(cell: str) -> str:
    """Return a CSV cell as intended: without the apostrophe that keeps a spreadsheet from running it."""
    if _SCIENTIFIC.fullmatch(cell):
        return LOST_DIGITS
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@") else cell


def _workbook_lines(
    path: str | Path | Stream, file: BinaryIO, name: str | None
) -> Generator[tuple[int, list[str]], None, None]:
    with _workbook(path, file) as sheets:
        sheet = next(one for one in sheets if name in (None, one.title))
        sheet.reset_dimensions()  # what the file says about its size may be wrong
        for line, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
            yield line, [_cell_text(cell) for cell in cells[:COLUMNS_MAX]]


@contextmanager
def _workbook(path: str | Path | Stream, file: BinaryIO) -> Iterator[list[Any]]:
    """Open a workbook and yield its visible sheets, at least one; whatever fails meanwhile counts as a broken file."""
    refused = FileRefused(f"{path} is not a workbook that can be read")
    try:
        with zipfile.ZipFile(file) as packed:
            if sum(part.file_size for part in packed.infolist()) > UNPACKED_BYTES_MAX:
                raise FileRefused(f"{path} unpacks to more than {UNPACKED_BYTES_MAX >> 20} MB; export a shorter time")
    except (OSError, zipfile.BadZipFile):
        raise refused from None
    import openpyxl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # styles and validations that openpyxl does not know don't matter here
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            try:
                sheets = [one for one in book.worksheets if one.sheet_state == "visible"]
                if not sheets:
                    raise refused
                yield sheets
            finally:
                book.close()
    except FileRefused:
        raise
    except Exception:  # a broken workbook raises anything, and the text may contain its cells
        raise refused from None


def _cell_text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, (int, float)):
        if abs(cell) >= _DIGITS_KEPT:
            return LOST_DIGITS
        # As a spreadsheet shows it: what was computed (0.1 + 0.2) has more digits than the 15 that it keeps.
        return str(int(cell)) if cell == int(cell) else f"{Decimal(format(cell, '.15g')):f}"
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ") if cell.time() != time.min else cell.date().isoformat()
    return str(cell).strip()
