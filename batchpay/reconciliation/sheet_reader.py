"""Reading a sheet that a person or another program filled in: CSV, XLSX or Parquet, a line of texts at a time.

Amounts, dates and account endings are read as gateways, banks and spreadsheets write them, without guessing amounts.
Not for payment files (batchpay.intake reads those, with their rules): only what `resolve` and `reconcile` read back.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO, TextIO

from batchpay.errors import FileRefused
from batchpay.intake.streams import memory_file
from batchpay.intake.xlsx.child import sheet_rows, visible_sheets
from batchpay.payment import parse_cents
from batchpay.schemas.tables import CURRENCIES_OF
from batchpay.writing.atomic import FileOrPath, Stream

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+", re.ASCII)
_GROUPED = re.compile(r"[0-9]{1,3}(?:([,.' ])[0-9]{3})(?:\1[0-9]{3})*", re.ASCII)
_MARKS = re.compile(r"([^0-9.,'()+-]*)(.*?)([^0-9.,'()+-]*)")
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2212": "-", "\u2019": "'"})
_SLASHED = re.compile(r"([0-9]{1,2})[/.\-]([0-9]{1,2})[/.\-]([0-9]{2}|[0-9]{4})\b.*", re.ASCII)
_FROM_THE_YEAR = re.compile(r"([0-9]{4})(?:([-/.])([0-9]{1,2})\2([0-9]{1,2})|([0-9]{2})([0-9]{2}))(?![0-9])", re.ASCII)
_NAMED_MONTH = ("%d-%b-%Y", "%d %b %Y", "%d-%b-%y", "%b %d, %Y", "%B %d, %Y", "%d %B %Y", "%b %d %Y")
_DAYS_NAME = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? +", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r",? +[0-9]{1,2}:[0-9]{2}.*", re.ASCII)
_NOTHING = re.compile(r"[$€£¥]? ?[-\u2013\u2014]?")
"""What a spreadsheet shows for zero, or leaves blank."""
_DIGITS_MAX = 18


def foreign_cents(text: str) -> int | None:
    """Return the cents of an amount as others write it, None where it is not one or has fractions of a cent.

    Reads a currency's sign or code, separators of thousands (`,` `.` `'` or a blank), a decimal comma, and a negative
    amount as `-5.00`, `5.00-`, `(5.00)`, `5.00 DR`. Before three digits a single comma separates thousands and a single
    point separates decimals, so `1.234` has fractions of a cent and is not read.
    """
    if (cents := parse_cents(text)) is not None:  # as nearly all are written
        return cents
    number = text.translate(_SPACES).strip()
    negative = False
    if number.startswith("(") and number.endswith(")"):
        number, negative = number[1:-1].strip(), True
    if number[-2:].upper() in ("DR", "CR"):
        negative ^= number[-2:].upper() == "DR"
        number = number[:-2].strip()
    number = _without_currency(number)
    for sign in ("-", "+"):
        if number.startswith(sign) or number.endswith(sign):
            negative ^= sign == "-"
            number = number.removeprefix(sign) if number.startswith(sign) else number.removesuffix(sign)
            break
    plain = _plain_number(_without_currency(number.strip()))
    if plain is None or len(plain) > _DIGITS_MAX:
        return None
    exact = Decimal(plain) * 100
    if exact != exact.to_integral_value():
        return None
    return -int(exact) if negative else int(exact)


def side_cents(text: str) -> int | None:
    """Return the cents in a column for one direction, 0 where it is blank or has the dash that spreadsheets show."""
    return 0 if _NOTHING.fullmatch(text.translate(_SPACES).strip()) else foreign_cents(text)


def _without_currency(number: str) -> str:
    found = _MARKS.fullmatch(number)
    before, plain, after = found.groups() if found else ("", number, "")
    if before.strip().lower() in CURRENCIES_OF:
        return f"{plain}{after}".strip()
    return f"{before}{plain}".strip() if after.strip().lower() in CURRENCIES_OF else number


def _plain_number(number: str) -> str | None:
    """Return digits with a point before the decimals, or None."""
    whole, decimals = number, ""
    at = max(number.rfind("."), number.rfind(","))
    mark = number[at] if at >= 0 else ""
    if mark and number.count(mark) == 1 and (mark == "." or len(number) - at - 1 != 3):
        whole, decimals = number[:at], number[at + 1 :]
    grouped = _GROUPED.fullmatch(whole)
    if grouped:
        whole = whole.replace(grouped[1], "")
    plain = f"{whole}.{decimals}" if decimals else whole
    return plain if _NUMBER.fullmatch(plain) else None


def last_four_of(text: str) -> str:
    """Return the last four characters of an account as others show it (`xxxx-1234`), blank where it shows fewer.

    A spreadsheet that took the four digits for a number has dropped leading zeros: they are restored.
    """
    shown = "".join(character for character in text if character.isalnum())
    tail = shown[-4:]
    return tail.zfill(4) if tail.isdecimal() else ""


def day_comes_first(texts: Iterable[str]) -> bool | None:
    """Whether a file has 31/12/2026 rather than 12/31/2026: some first part can't be a month, every second can.

    None where each part of every date could be a month.
    """
    found = [match for match in map(_SLASHED.fullmatch, texts) if match]
    if any("." in match[0][:6] for match in found):
        return True
    firsts, seconds = ({int(match[at]) for match in found} for at in (1, 2))
    if max(seconds, default=0) > 12 or not found:
        return False
    return True if max(firsts) > 12 else None


def foreign_date(text: str, *, day_first: bool = False, pattern: str | None = None) -> date | None:
    """Read a date as others write it, None where it is not one. If given, only `pattern` (strptime's) is tried."""
    text = text.strip()
    patterns = (pattern,) if pattern else _NAMED_MONTH
    if not pattern:
        found = _FROM_THE_YEAR.match(text)
        if found:
            return _date(int(found[1]), int(found[3] or found[5]), int(found[4] or found[6]))
        match = _SLASHED.fullmatch(text)
        if match:
            year = int(match[3]) + (2000 if len(match[3]) == 2 else 0)
            first, second = int(match[1]), int(match[2])
            return _date(year, second, first) if day_first else _date(year, first, second)
        text = _TIME.sub("", text[day.end() :] if (day := _DAYS_NAME.match(text)) else text)
    for one in patterns:
        try:
            return datetime.strptime(text, one).date()  # noqa: DTZ007 - a day has no zone
        except ValueError:
            continue
    return None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


BYTES_MAX = 256 << 20
ROWS_MAX = 500_000
COLUMNS_MAX = 500
LOST_DIGITS = "#####"
"""Replaces a number that a spreadsheet can't hold: of more than 15 digits it keeps the first 15."""
_SEPARATORS = (",", ";", "\t", "|")
_WORKBOOKS = (".xlsx", ".xlsm")
_LINES_PROBED = 20
_DIGITS_KEPT = 10**15
_SCIENTIFIC = re.compile(r"[0-9](?:[.,][0-9]+)?E\+?[0-9]+", re.ASCII)
SheetLines = Generator[tuple[int, list[str]], None, None]
"""Lines of a sheet as they are read: number and cells."""


def read_sheet(path: FileOrPath, sheet: str | None = None) -> SheetLines:
    """Yield the lines of a sheet as (line, cells), without blank lines; raises FileRefused.

    Cells are texts without white space at their ends. Numbers and dates of a workbook become plain digits and ISO 8601.
    In a workbook it is the first visible sheet, or the one that `sheet` names.
    """
    with opened(path) as file:
        yield from _lines(path, file, sheet)


def sheet_names(path: FileOrPath) -> list[str]:
    """Name the visible sheets of a workbook; none where the file is not a workbook; raises FileRefused."""
    if Path(str(path)).suffix.lower() not in _WORKBOOKS:
        return []
    with opened(path) as file, _descriptor(file) as descriptor:
        return visible_sheets(str(path), descriptor)


@contextmanager
def opened(path: FileOrPath) -> Iterator[BinaryIO]:
    """Open a file that a person names, at its start; raises FileRefused for one that is empty or too large."""
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


def _require_bounded(path: FileOrPath, file: BinaryIO) -> None:
    """Refuse an empty file, or one larger than any export, before any of it is read."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size == 0:
        raise FileRefused(f"{path} is empty")
    if size > BYTES_MAX:
        raise FileRefused(f"{path} is larger than {BYTES_MAX >> 20} MB; export a shorter time")


def _lines(path: FileOrPath, file: BinaryIO, sheet: str | None) -> Iterator[tuple[int, list[str]]]:
    ending = Path(str(path)).suffix.lower()
    if ending in _WORKBOOKS:
        lines = _workbook_lines(path, file, sheet)
    elif ending in (".csv", ".txt", ".tsv"):
        lines = _csv_lines(path, file)
    elif ending in (".parquet", ".pq"):
        lines = _parquet_lines(path, file)
    else:
        raise FileRefused(f"{path}: a sheet must be .csv or .xlsx (or an export .parquet)")
    count = 0
    with closing(lines):  # before the file is closed
        for line, cells in lines:
            if not any(cells):
                continue
            count += 1
            if count > ROWS_MAX + 1:
                raise FileRefused(f"{path} has more than {ROWS_MAX:,} rows; export a shorter time")
            yield line, cells


def _csv_lines(path: FileOrPath, file: BinaryIO) -> SheetLines:
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
    if "E" in cell and _SCIENTIFIC.fullmatch(cell):
        return LOST_DIGITS
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@") else cell


def _workbook_lines(path: FileOrPath, file: BinaryIO, name: str | None) -> SheetLines:
    with _descriptor(file) as descriptor, closing(sheet_rows(str(path), descriptor, [name])) as rows:
        for line, cells in rows:
            yield line, [_cell_text(cell) for cell in cells[:COLUMNS_MAX]]


def _parquet_lines(path: FileOrPath, file: BinaryIO) -> SheetLines:
    import polars as pl  # few exports are Parquet

    from batchpay.writing.parquet_pages import BrokenPages, check_pages

    try:
        with _descriptor(file) as descriptor:
            check_pages(descriptor)
        file.seek(0)
        frame = pl.read_parquet(file)
    except (BrokenPages, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise FileRefused(f"{path} is a broken Parquet file") from None  # what was said may quote the file
    yield 1, frame.columns[:COLUMNS_MAX]
    for line, cells in enumerate(frame.iter_rows(), 2):
        yield line, [_cell_text(cell) for cell in cells[:COLUMNS_MAX]]


@contextmanager
def _descriptor(file: BinaryIO) -> Iterator[int]:
    """Open for the child what may be in this process only."""
    try:
        yield file.fileno()
    except io.UnsupportedOperation:
        with open(memory_file(), "wb", buffering=0) as copy:  # noqa: PTH123 - a descriptor
            copy.write(file.read())
            yield copy.fileno()


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
    return str(cell).strip()
