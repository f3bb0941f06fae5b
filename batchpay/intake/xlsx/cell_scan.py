"""Finding cells in a sheet's XML whose kind the value does not show: errors, formulas, formats; and hidden rows.

Two ways to the same answer: searches over whole blocks, fast where nothing special is in them, and tag by tag for XML
that is written in an uncommon way (prefixes, cells that don't state their position).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import IO
from xml.parsers import expat

from batchpay.errors import FileRefused

COLUMNS_MAX = 702
"""Columns A to ZZ; a cell beyond makes libraries allocate a sheet of that size."""
_BLOCK_BYTES = 4 << 20
_ROW_BYTES_MAX = 64 << 20
CELLS_MAX = 60_000_000
"""A library allocates a sheet from its first to its last cell; a full million rows of payments have fifty million."""
_ROW = re.compile(rb"<row\b[^>]*>")
_NUMBER = re.compile(rb'<row\b[^>]*?\br="([0-9]{1,10})"')
_CELL = re.compile(rb"<c[\s/>]")
_COLUMN = re.compile(rb' r="([A-Z]+)')
_UNCOMMON_CELL = re.compile(rb'<c(?! r="A?[A-Z][0-9])(?![a-z])')
"""A cell that does not begin with a position in the columns A to AZ.

Full sheets of up to 52 columns are within CELLS_MAX, so only wider ones are measured column by column.
"""
_HIDDEN = re.compile(rb'\bhidden="(?:1|true)"')
_ERROR_MARK = re.compile(rb't="e"')
_FORMULA_MARK = re.compile(rb"<f[ />]")
_ERROR = re.compile(rb'<c\b([^>]*\bt="e"[^>]*)>(?:\s*<f\b[^>]*?(?:/>|>[^<]*</f>))?\s*<v>([^<]*)</v>')
_FORMULA = re.compile(rb"<c\b([^>]*)>\s*<f(?: [^>]*)?>?([^<]*)")
_TEXT_ALONE = re.compile(rb"(\"|&quot;)[^\"]*\1")
_REFERENCE = re.compile(rb'\br="([A-Z]{1,3})([0-9]{1,10})"')
_NUMERIC_CELL = re.compile(rb'<c(?=\s)(?!.*\bt="(?!n")).*?\ss="([0-9]+)"', re.DOTALL)
_FIRST_STYLE = "0"
"""The style of a cell that names none."""

CellRef = tuple[int, int]
"""Row and column of a cell, both from 1."""


@dataclass
class Sheet:
    """What a scan found in a sheet."""

    errors: dict[CellRef, str] = field(default_factory=dict)
    formulas: dict[CellRef, bool] = field(default_factory=dict)
    """Whether each is only a text, as in `="00123"`."""
    styles: dict[CellRef, str] = field(default_factory=dict)
    """Number formats that may show other digits, of the numeric cells that have one."""
    hidden_rows: list[int] = field(default_factory=list)
    last_row: int = 0
    last_column: int = 0

    def reaches(self, row: int, column: int) -> None:
        """Note how far the sheet extends; raises FileRefused where a library would allocate gigabytes for it."""
        self.last_row = max(self.last_row, row)
        self.last_column = max(self.last_column, column)
        if self.last_column > COLUMNS_MAX or self.last_row * self.last_column > CELLS_MAX:
            raise FileRefused(f"has cells up to row {self.last_row}, column {self.last_column}; it is not read")


def read_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Read a part's XML to its end, a few megabytes at a time."""
    while block := stream.read(_BLOCK_BYTES):
        yield block


def scan_blocks(blocks: Iterable[bytes], formats: dict[str, str]) -> Sheet | None:
    """Search whole blocks; None where the XML, or a format of cells that name none, needs `scan_tags`."""
    if _FIRST_STYLE in formats:
        return None
    found = Sheet()
    has_data = False
    for block in _whole_rows(blocks):
        refuse_doctype(block)
        has_data = has_data or b"<sheetData" in block
        rows = _ROW.findall(block)
        numbers = list(map(int, _NUMBER.findall(b"".join(rows))))
        if len(numbers) < len(rows):
            return None
        found.hidden_rows += [
            number for row, number in zip(rows, numbers, strict=True) if b"hidden=" in row and _HIDDEN.search(row)
        ]
        columns = {b"AZ"}
        if _UNCOMMON_CELL.search(block):
            if block.count(b' r="') < len(_CELL.findall(block)) + len(rows):
                return None
            columns.update(_COLUMN.findall(block))
        found.reaches(max(numbers, default=0), max(map(_column_number, columns)))
        _special_cells(block, found)
        if formats:
            found.styles.update(_styled_cells(block, formats))
    return found if has_data else None


def scan_tags(blocks: Iterable[bytes], formats: dict[str, str]) -> Sheet:
    """Read the XML tag by tag, placing cells by counting where they don't state their position."""
    return _Tags(formats).read(blocks)


def refuse_doctype(block: bytes) -> None:
    """Refuse XML that declares entities: no spreadsheet program writes them."""
    if b"!" in block and (b"<!DOCTYPE" in block or b"<!ENTITY" in block):
        raise FileRefused("has a document type in its XML; it is not read")


def _whole_rows(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Recut XML into blocks that begin at a row, so that no cell is split."""
    kept = b""
    for block in blocks:
        kept += block
        cut = kept.rfind(b"<row")
        if cut > 0:
            yield kept[:cut]
            kept = kept[cut:]
        elif len(kept) > _ROW_BYTES_MAX:
            raise FileRefused(f"holds a row of more than {_ROW_BYTES_MAX >> 20} MiB; it is not read")
    yield kept


def _special_cells(block: bytes, found: Sheet) -> None:
    if _ERROR_MARK.search(block):
        for cell in _ERROR.finditer(block):
            found.errors[_place(cell[1])] = cell[2].decode("utf-8", "replace")
    if _FORMULA_MARK.search(block):
        for cell in _FORMULA.finditer(block):
            found.formulas[_place(cell[1])] = bool(_TEXT_ALONE.fullmatch(cell[2].strip()))


def _styled_cells(block: bytes, formats: dict[str, str]) -> Iterator[tuple[CellRef, str]]:
    """Yield numeric cells of these styles with their formats."""
    for style in _style_of(tuple(formats)).finditer(block):
        tag = block[block.rfind(b"<", 0, style.start()) : block.find(b">", style.end())]
        cell = _NUMERIC_CELL.match(tag)
        if cell and cell[1].decode() in formats:
            yield _place(tag), formats[cell[1].decode()]


@cache
def _style_of(numbers: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(rf's="(?:{"|".join(numbers)})"'.encode())


def _place(attributes: bytes) -> CellRef:
    match = _REFERENCE.search(attributes)
    if match is None:
        raise FileRefused("is a broken XLSX")
    return int(match[2]), _column_number(match[1])


@cache
def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


class _Tags:
    """The handlers of an XML parser, and its position in the sheet."""

    def __init__(self, formats: dict[str, str]) -> None:
        self._formats = formats
        self._found = Sheet()
        self._row = 0
        self._column = 0
        self._is_error = False
        self._text: list[str] | None = None

    def read(self, blocks: Iterable[bytes]) -> Sheet:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype
        for block in blocks:
            parser.Parse(block, False)
        parser.Parse(b"", True)
        return self._found

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if name == "row":
            self._row, self._column = int(attributes.get("r", self._row + 1)), 0
            if attributes.get("hidden") in ("1", "true"):
                self._found.hidden_rows.append(self._row)
        elif name == "c":
            self._cell(attributes)
        elif name == "f":
            self._found.formulas[self._row, self._column] = False
            self._text = []
        elif name == "v" and self._is_error:
            self._text = []

    def _cell(self, attributes: dict[str, str]) -> None:
        if "r" in attributes:
            self._row, self._column = _place(f' r="{attributes["r"]}"'.encode())
        else:
            self._column += 1
        self._found.reaches(self._row, self._column)
        kind = attributes.get("t", "n")
        self._is_error = kind == "e"
        style = attributes.get("s", _FIRST_STYLE)
        if kind == "n" and style in self._formats:
            self._found.styles[self._row, self._column] = self._formats[style]

    def _end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        if self._text is None or name not in ("f", "v"):
            return
        text, self._text = "".join(self._text), None
        if name == "v":
            self._found.errors[self._row, self._column] = text
        else:
            self._found.formulas[self._row, self._column] = bool(_TEXT_ALONE.fullmatch(text.strip().encode()))

    def _characters(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def _doctype(self, *_: object) -> None:
        raise FileRefused("has a document type in its XML; it is not read")
