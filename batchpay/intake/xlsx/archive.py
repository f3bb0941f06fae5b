"""Inspecting an XLSX before a library does: what it would unpack to, and the cells whose kind the value does not show.

A spreadsheet library returns an error cell as blank and a formula's cached value as if it were typed; and a file of a
few kilobytes can demand gigabytes. So the zip directory is checked first, then the sheet's XML is read as a stream,
with a few searches over whole blocks instead of a parser: fast where nothing special is in them.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import IO, BinaryIO
from xml.etree import ElementTree
from xml.parsers import expat

from batchpay.errors import FileRefused
from batchpay.intake.streams import ahead
from batchpay.intake.xlsx.number_formats import matters

ENTRIES_MAX = 10_000
UNPACKED_BYTES_MAX = 3 << 30
RATIO_MAX = 150
UNPACKED_BYTES_FREE = 32 << 20
"""Below this many bytes the ratio is not checked."""
_BUILT_IN = {9: "0%", 10: "0.00%", 11: "0.00E+00", 12: "# ?/?", 13: "# ??/??", 48: "##0.0E+0"}
"""Built-in formats, which a workbook names without defining them, if they matter here (ECMA-376, 18.8.30)."""
_SMALL_XML_BYTES_MAX = 64 << 20

_BROKEN = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError, ValueError, RuntimeError, NotImplementedError,
    expat.ExpatError,
)  # fmt: skip
"""Exceptions that a broken archive or broken XML raises."""


@dataclass(frozen=True)
class SheetEntry:
    """A worksheet of a workbook."""

    name: str
    state: str
    """`visible`, `hidden`, or `veryHidden`: only a program can hide or show such a sheet."""
    path: str


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open the zip directory of an XLSX; raises FileRefused for bombs, other kinds of spreadsheets and broken files."""
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError):
        raise FileRefused("is a broken XLSX, or cut off") from None
    entries = archive.infolist()
    names = {entry.filename.lstrip("/").lower() for entry in entries}
    for name, what in _OTHER_KINDS.items():
        if name in names:
            raise FileRefused(f"is {what}")
    if any(name.endswith("vbaproject.bin") for name in names):
        raise FileRefused("contains macros (.xlsm); save it as .xlsx without them")
    if "[content_types].xml" not in names:
        raise FileRefused("is a zip archive, not an XLSX workbook")
    unpacked = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if len(entries) > ENTRIES_MAX:
        raise FileRefused(f"contains {len(entries)} parts; more than {ENTRIES_MAX} are not read")
    if unpacked > UNPACKED_BYTES_MAX or (unpacked > UNPACKED_BYTES_FREE and unpacked > RATIO_MAX * packed):
        raise FileRefused(f"unpacks from {packed >> 10} KiB to {unpacked >> 20} MiB; it is not read")
    return archive


_OTHER_KINDS = {
    "xl/workbook.bin": "a binary workbook (.xlsb); save it as .xlsx",
    "mimetype": "an OpenDocument file (.ods); save it as .xlsx",
    "word/document.xml": "a Word document",
    "ppt/presentation.xml": "a presentation",
}


def list_sheets(archive: zipfile.ZipFile) -> list[SheetEntry]:
    """List the worksheets with the parts that contain them."""
    workbook_path = _workbook_path(archive)
    folder, _, file_name = workbook_path.rpartition("/")
    relations: dict[str, str] = {}
    for relation in _xml(archive, f"{folder}/_rels/{file_name}.rels"):
        target = relation.get("Target", "")
        relations[relation.get("Id", "")] = target.lstrip("/") if target.startswith("/") else f"{folder}/{target}"
    sheets: list[SheetEntry] = []
    for element in _xml(archive, workbook_path).iter():
        if _local(element.tag) == "sheet":
            key = next((value for name, value in element.items() if _local(name) == "id" and "}" in name), "")
            state = element.get("state", "visible")
            sheets.append(SheetEntry(element.get("name", ""), state, _part(archive, relations.get(key, ""))))
    return sheets


def number_formats(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return number formats that show, or may show, other digits than a number's own, by the index in a cell's `s`."""
    path = _part(archive, "xl/styles.xml")
    if not path:
        return {}
    codes = dict(_BUILT_IN)
    of_cells: list[int] = []
    try:
        for element in _xml(archive, path):
            kind = _local(element.tag)
            if kind == "numFmts":
                codes |= {int(entry.get("numFmtId", "")): entry.get("formatCode", "") for entry in element}
            elif kind == "cellXfs":
                of_cells = [int(entry.get("numFmtId", "0")) for entry in element]
    except ValueError:
        raise FileRefused("has number formats that can't be read, so leading zeros may be lost") from None
    return {str(at): codes[number] for at, number in enumerate(of_cells) if matters(codes.get(number, ""))}


def scan_sheet(archive: zipfile.ZipFile, path: str, formats: dict[str, str]) -> SheetScan:
    """Scan a sheet's XML for special cells and hidden rows; raises FileRefused where its cells are too far out."""
    try:
        with archive.open(path) as stream:
            found = scan_blocks(ahead(read_blocks(stream)), formats)
        if found is None:
            with archive.open(path) as stream:
                found = scan_tags(read_blocks(stream), formats)
    except _BROKEN:
        raise FileRefused("is a broken XLSX") from None
    return found


def _workbook_path(archive: zipfile.ZipFile) -> str:
    for relation in _xml(archive, "_rels/.rels"):
        if relation.get("Type", "").endswith("/officeDocument"):
            return relation.get("Target", "").lstrip("/")
    return "xl/workbook.xml"


def _part(archive: zipfile.ZipFile, path: str) -> str:
    """Return the name of a part as the archive spells it, '' where it has none (names of parts ignore case)."""
    wanted = path.lower().replace("/./", "/").lstrip("/")
    return next((name for name in archive.namelist() if name.lstrip("/").lower() == wanted), "")


def _small(archive: zipfile.ZipFile, path: str) -> bytes:
    try:
        with archive.open(_part(archive, path)) as stream:
            data = stream.read(_SMALL_XML_BYTES_MAX + 1)
    except _BROKEN:
        raise FileRefused("is a broken XLSX") from None
    if len(data) > _SMALL_XML_BYTES_MAX:
        raise FileRefused(f"contains a part of more than {_SMALL_XML_BYTES_MAX >> 20} MiB; it is not read")
    refuse_doctype(data)
    return data


def _xml(archive: zipfile.ZipFile, path: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(_small(archive, path))  # noqa: S314  document types were refused
    except ElementTree.ParseError:
        raise FileRefused("is a broken XLSX") from None


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


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
class SheetScan:
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


def scan_blocks(blocks: Iterable[bytes], formats: dict[str, str]) -> SheetScan | None:
    """Search whole blocks; None where the XML, or a format of cells that name none, needs `scan_tags`."""
    if _FIRST_STYLE in formats:
        return None
    found = SheetScan()
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


def scan_tags(blocks: Iterable[bytes], formats: dict[str, str]) -> SheetScan:
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
            raise FileRefused(f"contains a row of more than {_ROW_BYTES_MAX >> 20} MiB; it is not read")
    yield kept


def _special_cells(block: bytes, found: SheetScan) -> None:
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
        self._found = SheetScan()
        self._row = 0
        self._column = 0
        self._is_error = False
        self._text: list[str] | None = None

    def read(self, blocks: Iterable[bytes]) -> SheetScan:
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
