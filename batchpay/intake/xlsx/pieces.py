"""A sheet in pieces of some thousand rows, so that memory does not grow with the sheet.

A spreadsheet library reads a workbook whole. So the sheet's XML is read as a stream, cut between rows, and given to the
library as one small workbook after another; shared texts are kept compactly, and looked up afterwards. The library
returns an error cell as blank and a formula's cached value as if it were typed: such cells are found in the XML by a
few searches over whole pieces, fast where nothing special is in them. XML that is written in an uncommon way (prefixes,
cells that don't state their position) is first rewritten in the common one.
"""

from __future__ import annotations

import io
import re
import zipfile
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from typing import IO, Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook

from batchpay.errors import FileRefused
from batchpay.intake.streams import ahead
from batchpay.intake.xlsx.archive import (
    BROKEN,
    SheetEntry,
    counts_from_1904,
    part_for,
    read_styles,
    refuse_doctype,
)
from batchpay.writing.xlsx import column_letters

PIECE_ROWS = 10_000
"""Few enough that the parent checks the first rows while the next are still being rendered."""
COLUMNS_MAX = 702
"""Columns A to ZZ."""
CELLS_MAX = 60_000_000
"""A full million rows of payments have fifty million."""
TEXTS_BYTES_MAX = 96 << 20
"""Of all shared texts of a workbook: a million rows with eight different texts each have less."""
_BLOCK_BYTES = 2 << 20
_ROW_BYTES_MAX = 32 << 20
_GAP_ROWS = 1_000
"""The library makes blank rows of a gap; across a longer one a sheet is cut."""
_MAIN = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_ROW = re.compile(rb"<row\b[^>]*>")
_NUMBER = re.compile(rb'<row\b[^>]*?\br="([0-9]{1,10})"')
_CELL = b'<c r="'
_LETTERS = re.compile(rb"[A-Z]{1,3}(?=[0-9])")
_UNCOMMON_HEAD = re.compile(rb"<!|<\?(?!xml )|encoding=.(?!utf-8)|xmlns:[^=]+=.%b" % _MAIN, re.IGNORECASE)
_HIDDEN = re.compile(rb'\bhidden="(?:1|true)"')
_ERROR_MARK = re.compile(rb't="e"')
_FORMULA_MARK = re.compile(rb"<f[ />]")
_ERROR = re.compile(rb'(<c\b([^>]*\bt="e"[^>]*)>(?:\s*<f\b[^>]*?(?:/>|>[^<]*</f>))?\s*<v>)([^<]*)(?=</v>)')
_FORMULA = re.compile(rb"<c\b([^>]*)>\s*<f(?: [^>]*)?>?([^<]*)")
_TEXT_ALONE = re.compile(rb"(\"|&quot;)[^\"]*\1")
_REFERENCE = re.compile(rb'\br="([A-Z]{1,3})([0-9]{1,10})"')
_NUMERIC_CELL = re.compile(rb'<c(?=\s)(?!.*\bt="(?!n")).*?\ss="([0-9]+)"', re.DOTALL)
_NUMBER_OF_TEXT = re.compile(rb' t="s"><v>([0-9]+)')
_SHARED = re.compile(rb'(<c r="[A-Z0-9]+"[^>]*?) t="s"[^>]*>(?:\s*<f\b[^>]*?(?:/>|>[^<]*</f>))?\s*<v[^>]*>([0-9]+)')
_SHOWN = b' t="str"><v>'
_PLAIN_TEXT = re.compile(rb'<si><t(?: xml:space="preserve">|>(?!\s)(?![^<]*\s<))([^<]*)</t></si>')
_TEXT = re.compile(rb"<si[\s/>]")
_QUOTES = {'"': "&quot;"}
_CARRIAGE_RETURN = {"\r": "&#13;"}
_UNREAD = _CARRIAGE_RETURN | {"_x": "_x005F_x"}
"""What the library reads as another character, were it not written so."""
_FIRST_STYLE = "0"
"""The style of a cell that names none."""
_KEPT = ("sheetData", "sst", "row", "c", "f", "v", "is", "si", "t", "r", "rPh")
"""Elements of a sheet's rows and of shared texts that matter."""
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PARTS = {
    "[Content_Types].xml": "<Types/>",
    "_rels/.rels": f'<Relationships><Relationship Id="r" Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/>'
    "</Relationships>",
    "xl/_rels/workbook.xml.rels": f'<Relationships><Relationship Id="r" Type="{_RELATIONS}/worksheet" '
    'Target="worksheets/sheet1.xml"/></Relationships>',
}
_BOOK = (
    f'<workbook xmlns:r="{_RELATIONS}"><workbookPr%s/><sheets><sheet name="s" sheetId="1" r:id="r"/></sheets>'
    "</workbook>"
)

CellRef = tuple[int, int]
"""Row and column of a cell, both from 1."""


@dataclass
class SpecialCells:
    """Cells of a piece whose kind the value does not show."""

    errors: dict[CellRef, str] = field(default_factory=dict)
    formulas: dict[CellRef, bool] = field(default_factory=dict)
    """Whether each is only a text, as in `="00123"`."""
    styles: dict[CellRef, str] = field(default_factory=dict)
    """Number formats that may show other digits or a text, of the numeric cells that have one."""


class SheetPiece(NamedTuple):
    """Consecutive rows of a sheet, blank ones among them: typed cells from the sheet's first column to its last."""

    first_row: int
    rows: list[list[Any]]
    special: SpecialCells


@dataclass
class Extent:
    """Where a sheet has values, and which of its rows can't be seen."""

    first_column: int = COLUMNS_MAX + 1
    last_column: int = 0
    last_row: int = 0
    hidden_rows: array[int] = field(default_factory=lambda: array("Q"))


class PiecedSheet:
    """A sheet of a workbook; raises FileRefused while it is read, where it is broken or its cells are too far out."""

    def __init__(self, archive: zipfile.ZipFile, entry: SheetEntry) -> None:
        self.name = entry.name
        self._archive, self._path = archive, entry.path
        self._styles = read_styles(archive)
        self._is_1904 = counts_from_1904(archive)
        self._is_common = True

    @cached_property
    def extent(self) -> Extent:
        """Read the sheet once to measure it."""
        found = self._measured()
        if found is None:
            self._is_common = False
            found = self._measured()
        assert found is not None, "rewritten XML is common"
        return found

    def pieces(self, *, of_dollars: bool = False) -> Iterator[SheetPiece]:
        """Read the sheet's rows in order, with values or without; on request with the formats that show dollars."""
        extent = self.extent
        for block in self._rows() if extent.last_column else ():
            for first, last, xml in _cut(block):
                yield self._piece(first, last, xml, extent, of_dollars=of_dollars)

    def _rows(self) -> Iterator[bytes]:
        return _whole(_part(self._archive, self._path, common=self._is_common), b"sheetData", b"<row")

    def _measured(self) -> Extent | None:
        found = Extent()
        may_be_uncommon = self._is_common
        if may_be_uncommon and (
            _FIRST_STYLE in self._styles.deceptive or not _has_common_head(self._archive, self._path)
        ):
            return None
        for block in self._rows():
            rows = _ROW.findall(block)
            numbers = list(map(int, _NUMBER.findall(b"".join(rows))))
            if may_be_uncommon and not _is_common(block, len(rows), len(numbers)):
                return None
            if numbers != sorted({*numbers, found.last_row}.difference({found.last_row})):
                raise FileRefused("is a broken XLSX")
            found.hidden_rows.extend(
                number for row, number in zip(rows, numbers, strict=True) if b"hidden=" in row and _HIDDEN.search(row)
            )
            _reach(found, block, numbers)
        return found

    def _piece(self, first: int, last: int, xml: bytes, extent: Extent, *, of_dollars: bool) -> SheetPiece:
        special = SpecialCells()
        _find_special(xml, special)
        if special.errors:
            xml = _ERROR.sub(rb"\1#N/A", xml)  # the library refuses a sheet with an error that it does not know
        if formats := self._styles.of_dollars if of_dollars else self._styles.deceptive:
            special.styles.update(_styled_cells(xml, formats))
        # One row more, so that the library makes all rows as wide as the sheet.
        ends = dict.fromkeys(column_letters(column - 1) for column in (extent.first_column, extent.last_column))
        fence = "".join(f'<c r="{letters}{last + 1}"><v>0</v></c>' for letters in ends)
        if b't="s"' in xml:
            xml = self._texts.put_into(xml)
        sheet = _read(xml + f'<row r="{last + 1}">{fence}</row>'.encode(), self._styles.xml, is_1904=self._is_1904)
        rows = self._values(sheet)
        if sheet.start is None or sheet.end is None or sheet.start[0] + 1 < first:
            raise FileRefused("is a broken XLSX")
        if (sheet.start[1] + 1, sheet.end[1] + 1, sheet.end[0]) != (extent.first_column, extent.last_column, last):
            raise FileRefused("is a broken XLSX")  # some cell is outside what was measured: columns would be shifted
        if sum(cell != "" for cell in rows.pop()) > len(ends):
            raise FileRefused("is a broken XLSX")  # the last row's cells say that they are in the next one
        blank_before = sheet.start[0] + 1 - first
        blank = [""] * (extent.last_column - extent.first_column + 1)
        return SheetPiece(first, [*(blank for _ in range(blank_before)), *rows], special)

    def _values(self, sheet: CalamineSheet) -> list[list[Any]]:
        try:
            return sheet.to_python(skip_empty_area=True)
        except (OverflowError, ValueError):
            row = 0
            try:
                for _ in sheet.iter_rows():
                    row += 1
            except (OverflowError, ValueError):
                pass
            raise FileRefused(
                f"sheet {self.name!r}: row {row + 1} has a number that is shown as a time outside the calendar; format "
                "the cell as text and type it again"
            ) from None

    @cached_property
    def _texts(self) -> SharedTexts:
        return SharedTexts(self._archive)


class SharedTexts:
    """The texts that a workbook keeps once and its cells name by number."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._blocks: list[tuple[int, bytes, array[int]]] = []
        """Number of the first text, all texts, and where each begins and ends."""
        path = part_for(archive, "sharedStrings")
        if not path:
            raise FileRefused("is a broken XLSX")
        count, size = 0, 0
        for block in _whole(_part(archive, path, common=_has_common_head(archive, path)), b"sst", b"<si"):
            texts = _texts_of(block)
            ends = array("I", accumulate(map(len, texts), initial=0))
            self._blocks.append((count, b"".join(texts), ends))
            count, size = count + len(texts), size + ends[-1] + ends.itemsize * len(ends)
            if size > TEXTS_BYTES_MAX:
                raise FileRefused(
                    f"contains more than {TEXTS_BYTES_MAX >> 20} MiB of different texts, the first {count:,} among "
                    "them; it is not read: save it as CSV"
                )

    def put_into(self, xml: bytes) -> bytes:
        """Put each text into the cells that name it by number, so that the library need not know the others."""
        if xml.count(b' t="s"><v>') != xml.count(b' t="s"'):
            xml = _SHARED.sub(rb'\1 t="s"><v>\2', xml)
        parts = _NUMBER_OF_TEXT.split(xml)
        numbers = sorted({int(digits) for digits in parts[1::2]})
        shown: dict[bytes, bytes] = {}
        for first, texts, ends in self._blocks:
            here = numbers[bisect_left(numbers, first) : bisect_left(numbers, first + len(ends) - 1)]
            shown |= {b"%d" % at: _SHOWN + texts[ends[at - first] : ends[at - first + 1]] for at in here}
        try:
            parts[1::2] = map(shown.__getitem__, parts[1::2])
        except KeyError:
            raise FileRefused("is a broken XLSX") from None
        return b"".join(parts)


def _texts_of(block: bytes) -> list[bytes]:
    """Return some shared texts as XML: plain ones as they are, others as the library reads them."""
    count = len(_TEXT.findall(block))
    plain: list[bytes] = _PLAIN_TEXT.findall(block)
    if len(plain) == count and b"_x" not in block and b"\r" not in block:
        return plain
    cells = "".join(f'<row r="{at + 1}"><c r="A{at + 1}" t="s"><v>{at}</v></c></row>' for at in range(count))
    found = _read(cells.encode(), b"", texts=b"<sst>%b</sst>" % block).to_python()
    if len(found) != count:
        raise FileRefused("is a broken XLSX")
    return [escape(str(row[0]), _UNREAD).encode("utf-8", "surrogatepass") for row in found]


def _read(rows: bytes, styles: bytes, *, texts: bytes = b"", is_1904: bool = False) -> CalamineSheet:
    """Have the library read a workbook of these rows."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as book:
        for name, part in _PARTS.items():
            book.writestr(name, part)
        book.writestr("xl/workbook.xml", _BOOK % (' date1904="1"' if is_1904 else ""))
        book.writestr("xl/worksheets/sheet1.xml", b"<worksheet><sheetData>%b</sheetData></worksheet>" % rows)
        for name, given in (("styles", styles), ("sharedStrings", texts)):
            if given:
                book.writestr(f"xl/{name}.xml", given)
    out.seek(0)
    try:
        return CalamineWorkbook.from_filelike(out).get_sheet_by_index(0)
    except CalamineError:
        raise FileRefused("is a broken XLSX") from None


def _part(archive: zipfile.ZipFile, path: str, *, common: bool) -> Iterator[bytes]:
    """Read a part's XML in blocks, rewritten in the common form where it is not."""
    try:
        with archive.open(path) as stream:
            blocks = ahead(_read_blocks(stream), quick_s=0)
            yield from blocks if common else _CommonForm().of(blocks)
    except BROKEN:
        raise FileRefused("is a broken XLSX") from None


def _read_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(_BLOCK_BYTES):
        refuse_doctype(block)
        yield block


def _whole(blocks: Iterable[bytes], within: bytes, begin: bytes) -> Iterator[bytes]:
    """Recut what is within an element into blocks that begin where one of its members does, so that none is split."""
    kept, has_begun = b"", False
    for block in blocks:
        kept += block
        if not has_begun:
            start = kept.find(b"<" + within)
            end = kept.find(b">", start)
            if start < 0 or end < 0:
                continue
            has_begun = True
            if kept[end - 1 : end] == b"/":
                return
            kept = kept[end + 1 :]
        if (end := kept.find(b"</" + within)) >= 0:
            if kept[:end].strip():
                yield kept[:end]
            return
        cut = kept.rfind(begin)
        if cut > 0:
            yield kept[:cut]
            kept = kept[cut:]
        elif len(kept) > _ROW_BYTES_MAX:
            raise FileRefused(f"contains a row of more than {_ROW_BYTES_MAX >> 20} MiB; it is not read")
    raise FileRefused("is a broken XLSX")


def _has_common_head(archive: zipfile.ZipFile, path: str) -> bool:
    try:
        with archive.open(path) as stream:
            head = stream.read(_BLOCK_BYTES)
    except BROKEN:
        raise FileRefused("is a broken XLSX") from None
    at = max(head.find(b"<sheetData"), head.find(b"<sst"))
    return at >= 0 and _UNCOMMON_HEAD.search(head, 0, head.find(b">", at)) is None


def _is_common(block: bytes, rows: int, numbers: int) -> bool:
    """Whether each row and cell states its position, and nothing hides or shows tags in another way."""
    if not rows or numbers < rows or b"<!" in block or b"<?" in block or b"='" in block:
        return False
    return block.count(b"<c") == block.count(b'<c r="')


def _reach(found: Extent, block: bytes, numbers: list[int]) -> None:
    """Note how far these rows extend; raises FileRefused where that is further than any sheet of payments."""
    places: set[bytes] = set()
    kinds = [kind for kind in (b"<v", b"<is") if kind in block]
    for row in block.split(b"<row"):
        for kind in kinds:
            if (value := row.rfind(kind)) > 0:
                at = row.rfind(_CELL, 0, value) + len(_CELL)
                places.add(row[at : at + 4])
                at = row.rfind(_CELL, 0, row.find(kind)) + len(_CELL)
                places.add(row[at : at + 4])
    columns = [_column_number(letters[0]) for letters in map(_LETTERS.match, places) if letters]
    if len(columns) < len(places):
        raise FileRefused("is a broken XLSX")
    found.first_column = min([found.first_column, *columns])
    found.last_column = max([found.last_column, *columns])
    found.last_row = max(numbers, default=found.last_row)
    if found.last_column > COLUMNS_MAX or found.last_row * found.last_column > CELLS_MAX:
        raise FileRefused(f"has cells up to row {found.last_row}, column {found.last_column}; it is not read")


def _cut(block: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield consecutive rows of a block with the numbers of the first and the last one."""
    starts: list[int] = []
    numbers: list[int] = []
    for row in _NUMBER.finditer(block):
        number = int(row[1])
        if numbers and (len(numbers) == PIECE_ROWS or number > numbers[-1] + _GAP_ROWS):
            yield numbers[0], numbers[-1], block[starts[0] : row.start()]
            starts, numbers = [], []
        starts.append(row.start())
        numbers.append(number)
    if numbers:
        yield numbers[0], numbers[-1], block[starts[0] :]


def _find_special(block: bytes, found: SpecialCells) -> None:
    if _ERROR_MARK.search(block):
        for cell in _ERROR.finditer(block):
            found.errors[_place(cell[2])] = cell[3].decode("utf-8", "replace")
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


class _CommonForm:
    """Rewrites XML by an XML parser: no prefixes, every cell with its position and its style."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._row = 0
        self._column = 0
        self._depth = 0
        """How many elements around have text that matters."""
        parser = self._parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype

    def of(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the rewritten part."""
        for block in blocks:
            self._parser.Parse(block, False)
            yield self._taken()
        self._parser.Parse(b"", True)
        yield self._taken()

    def _taken(self) -> bytes:
        text, self._out = "".join(self._out), []
        return text.encode("utf-8", "surrogatepass")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if name not in _KEPT:
            return
        kept: dict[str, str] = {key: attributes[key] for key in ("t", "hidden", "xml:space") if key in attributes}
        if name == "row":
            self._row, self._column = int(attributes.get("r", self._row + 1)), 0
            kept = {"r": str(self._row), **kept}
        elif name == "c":
            if "r" in attributes:
                self._row, self._column = _place(f' r="{attributes["r"]}"'.encode())
            else:
                self._column += 1
            kept = {
                "r": f"{column_letters(self._column - 1)}{self._row}",
                "s": attributes.get("s", _FIRST_STYLE),
                **kept,
            }
        elif name in ("f", "v", "t"):
            self._depth += 1
        shown = "".join(f' {key}="{escape(value, _QUOTES)}"' for key, value in kept.items())
        self._out.append(f"<{name}{shown}>")

    def _end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        if name in _KEPT:
            self._depth -= name in ("f", "v", "t")
            self._out.append(f"</{name}>")

    def _characters(self, data: str) -> None:
        if self._depth:
            self._out.append(escape(data, _CARRIAGE_RETURN))

    def _doctype(self, *_: object) -> None:
        raise FileRefused("has a document type in its XML; it is not read")
