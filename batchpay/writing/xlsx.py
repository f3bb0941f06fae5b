"""Writing a workbook row by row, straight into its file, as a finance person would have made it.

openpyxl would put every row into a temporary file on the disk first, and rows contain account numbers. Identifiers are
text cells in the text format, so that no spreadsheet drops leading zeros or runs a formula; amounts are numbers, times
are dates, the header is frozen and filtered, and widths fit. CSV and Parquet have only the text of a column's kind.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import BinaryIO, Self

from batchpay.errors import WrongUse

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
TEXT_MAX = 32_767
"""Characters that a spreadsheet cell can hold; anything longer is cut."""
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_ZIP_DATE = (2026, 1, 1, 0, 0, 0)
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


_FONTS = (
    '<font><sz val="11"/><name val="Calibri"/></font>',
    '<font><b/><sz val="11"/><name val="Calibri"/></font>',
    '<font><b/><sz val="16"/><name val="Calibri"/></font>',
)
_FILLS = ("", "", "FFFFC7CE", "FFE7E9ED", "FFE2F0D9", "FFFFF2CC", "FFDDEBF7", "FFFFFBE6")
"""The first two are the format's own; then red, gray, green, amber, blue, and the yellow of a cell to fill in."""


class Style(Enum):
    """The cell formats: number format (4 is `#,##0.00`, 49 text, 3 `#,##0`), font and fill, and how it is aligned."""

    DEFAULT = (0, 0, 0, "")
    TEXT = (49, 0, 0, "")
    BAD = (49, 0, 2, "")
    HEAD = (49, 1, 3, '<alignment vertical="center" wrapText="1"/>')
    AMOUNT = (4, 0, 0, '<alignment horizontal="right" indent="1"/>')
    INTEGER = (1, 0, 0, '<alignment horizontal="right" indent="1"/>')
    INSTANT = (164, 0, 0, '<alignment horizontal="left"/>')
    WRAP = (49, 0, 0, '<alignment vertical="top" wrapText="1"/>')
    GOOD = (49, 0, 4, "")
    DOUBT = (49, 1, 5, "")
    WAITING = (49, 0, 6, "")
    INPUT = (49, 0, 7, "")
    TITLE = (49, 2, 0, "")
    LABEL = (49, 1, 0, "")
    SUM = (4, 1, 0, "")
    COUNT = (3, 0, 0, "")


_PLACES = {style: at for at, style in enumerate(Style)}
"""Where each stands in the workbook's list."""


def styles() -> str:
    """Return the cell formats, in the order of Style."""
    fills = '<fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>' + "".join(
        f'<fill><patternFill patternType="solid"><fgColor rgb="{color}"/><bgColor indexed="64"/></patternFill></fill>'
        for color in _FILLS[2:]
    )
    formats = "".join(
        f'<xf numFmtId="{number}" fontId="{font}" fillId="{fill}" borderId="0" xfId="0" applyNumberFormat="1"'
        f' applyFont="1" applyFill="1" applyAlignment="1">{aligned}</xf>'
        for number, font, fill, aligned in (style.value for style in Style)
    )
    return (
        f'<styleSheet xmlns="{MAIN}">'
        '<numFmts count="1"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd\\ hh:mm:ss"/></numFmts>'
        f'<fonts count="{len(_FONTS)}">{"".join(_FONTS)}</fonts><fills count="{len(_FILLS)}">{fills}</fills>'
        '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        f'<cellXfs count="{len(Style)}">{formats}</cellXfs>'
        '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
    )


def escaped(text: str) -> str:
    """Return a text as XML, with `_x0001_` for what XML can't hold, as spreadsheets write it."""
    text = _UNSAFE.sub(lambda match: f"_x{ord(match[0]):04X}_", text[:TEXT_MAX])
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def column_letters(at: int) -> str:
    """Return the letters of a column counted from 0: `A`, `Z`, `AA`."""
    letters = ""
    at += 1
    while at:
        at, rest = divmod(at - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def entry(name: str) -> zipfile.ZipInfo:
    """Return an archive entry that is identical every time it is written."""
    info = zipfile.ZipInfo(name, _ZIP_DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    return info


def relations(*targets: tuple[str, str]) -> str:
    """Return relations rId1 and so on, each a kind and its target."""
    each = "".join(
        f'<Relationship Id="rId{number}" Type="{DOCUMENT}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{each}</Relationships>'


def content_types(sheets: int, commented: Sequence[int]) -> str:
    """Return the kind of each part; `commented` are the numbers of the sheets with comments."""
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    overrides = {"/xl/workbook.xml": "sheet.main", "/xl/styles.xml": "styles"}
    overrides |= {f"/xl/worksheets/sheet{number}.xml": "worksheet" for number in range(1, sheets + 1)}
    overrides |= {f"/xl/comments{number}.xml": "comments" for number in commented}
    each = "".join(f'<Override PartName="{part}" ContentType="{kind}.{name}+xml"/>' for part, name in overrides.items())
    return (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="vml" ContentType="application/vnd.openxmlformats-officedocument.vmlDrawing"/>'
        f"{each}</Types>"
    )


def comments_part(comments: Sequence[tuple[int, int, str]]) -> str:
    """Return comments on cells: row from 1, column from 0, text."""
    each = "".join(
        f'<comment ref="{column_letters(column)}{row}" authorId="0"><text><t xml:space="preserve">{escaped(text)}'
        "</t></text></comment>"
        for row, column, text in comments
    )
    return (
        f'<comments xmlns="{MAIN}"><authors><author>batchpay</author></authors>'
        f"<commentList>{each}</commentList></comments>"
    )


def drawing_part(comments: Sequence[tuple[int, int, str]]) -> str:
    """Return the notes in which a spreadsheet shows the comments."""
    shapes = "".join(
        f'<v:shape id="c{at}" type="#note" style="position:absolute;width:180pt;height:60pt;visibility:hidden" '
        'fillcolor="#ffffe1" o:insetmode="auto"><v:fill color2="#ffffe1"/><v:textbox/>'
        f'<x:ClientData ObjectType="Note"><x:Row>{row - 1}</x:Row><x:Column>{column}</x:Column></x:ClientData>'
        "</v:shape>"
        for at, (row, column, _) in enumerate(comments)
    )
    return (
        '<xml xmlns:v="urn:schemas-microsoft-com:vml" xmlns:o="urn:schemas-microsoft-com:office:office" '
        'xmlns:x="urn:schemas-microsoft-com:office:excel">'
        '<v:shapetype id="note" coordsize="21600,21600" o:spt="202" '
        f'path="m,l,21600r21600,l21600,xe"><v:stroke joinstyle="miter"/></v:shapetype>{shapes}</xml>'
    )


class Kind(Enum):
    """How the cells of a column look in a workbook; a text that is not of the kind stays text."""

    TEXT = auto()
    """Text, whatever it looks like: identifiers, accounts, names."""
    AMOUNT = auto()
    DIFFERENCE = auto()
    """An amount that may be negative."""
    INTEGER = auto()
    INSTANT = auto()
    """A time in UTC, given as ISO 8601."""
    STATE = auto()
    WRAP = auto()
    """A long text, wrapped."""
    INPUT = auto()
    """A cell that a person fills in."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `choices` are offered as a drop-down."""

    name: str
    kind: Kind = Kind.TEXT
    choices: Sequence[str] = ()


def columns(header: Iterable[str], kinds: Mapping[str, Kind]) -> list[Column]:
    """Return columns by name; those without a kind are text."""
    return [Column(name, kinds.get(name, Kind.TEXT)) for name in header]


ROWS_MAX = 1_048_576
COMMENTS_MAX = 5_000
"""Spreadsheet programs become slow with more; further cells are only red."""
_ROWS_MEASURED = 200
"""Widths fit the first rows; a column can't be made wider once its rows are written."""
_WIDTH_MIN, _WIDTH_MAX, _WIDTH_WRAPPED = 8, 48, 60
_AMOUNT = re.compile(r"(?:0|[1-9][0-9]{0,11})\.[0-9]{2}", re.ASCII)
"""An amount that a number shows exactly as written; any other stays text."""
_DIFFERENCE = re.compile(f"-?{_AMOUNT.pattern}", re.ASCII)
_INTEGER = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)
_EPOCH = datetime(1899, 12, 30, tzinfo=UTC)
_DAY_S = 86_400


_STYLES = {
    Kind.TEXT: Style.TEXT, Kind.AMOUNT: Style.AMOUNT, Kind.DIFFERENCE: Style.AMOUNT, Kind.INTEGER: Style.INTEGER,
    Kind.INSTANT: Style.INSTANT,
    Kind.WRAP: Style.WRAP, Kind.INPUT: Style.INPUT,
}  # fmt: skip
_NUMBERS = {Kind.AMOUNT: _AMOUNT, Kind.DIFFERENCE: _DIFFERENCE, Kind.INTEGER: _INTEGER}
"""Texts that a number shows exactly as written."""
_STATES = {
    "accepted": Style.GOOD, "matched": Style.GOOD, "declined": Style.BAD, "rejected": Style.BAD,
    "in_doubt": Style.DOUBT, "in doubt": Style.DOUBT, "pending": Style.WAITING, "sending": Style.DOUBT,
    "amount differs": Style.BAD, "status differs": Style.BAD, "missing there": Style.BAD, "there again": Style.BAD,
    "unknown here": Style.BAD, "unreadable": Style.BAD, "in doubt, found": Style.DOUBT,
    "in doubt, not found": Style.DOUBT, "perhaps there": Style.DOUBT,
    "not sent or declined": Style.WAITING, "of another batch": Style.WAITING,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula with its current value, for programs that don't calculate."""

    text: str
    value: str
    style: Style = Style.SUM


Cell = str | Formula | None


class Workbook:
    """A workbook being written: its sheets are written one after the other, and it is complete after the `with`."""

    def __init__(self, file: BinaryIO) -> None:
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._sheets: list[Sheet] = []

    def sheet(self, title: str, columns: Sequence[Column] = (), widths: Sequence[int] = ()) -> Sheet:
        """Begin a table with a header, or without columns a page that is laid out by its lines, of these widths.

        The sheet before it is finished.
        """
        if self._sheets:
            self._sheets[-1].finish()
        self._sheets.append(Sheet(self._archive, len(self._sheets) + 1, title, columns, widths))
        return self._sheets[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            # Closed even if writing failed, or the archive itself complains when it is garbage-collected.
            try:
                self._sheets[-1].abandon()
            finally:
                self._archive.close()

    def _finish(self) -> None:
        """Write everything that follows the last row."""
        self._sheets[-1].finish()
        for sheet in self._sheets:
            sheet.write_comments()
        # A page that summarizes a table is written after it but placed before it.
        shown = sorted(self._sheets, key=lambda sheet: bool(sheet.columns))
        names = "".join(
            f'<sheet name="{escaped(sheet.title)}" sheetId="{sheet.number}" r:id="rId{sheet.number}"/>'
            for sheet in shown
        )
        titles = "".join(
            f'<definedName name="_xlnm.Print_Titles" localSheetId="{at}">\'{escaped(sheet.title)}\'!$1:$1</definedName>'
            f'<definedName name="_xlnm._FilterDatabase" localSheetId="{at}" hidden="1">'
            f"'{escaped(sheet.title)}'!$A$1:${column_letters(len(sheet.columns) - 1)}${sheet.rows}</definedName>"
            for at, sheet in enumerate(shown)
            if sheet.columns
        )
        targets = [("worksheet", f"worksheets/sheet{sheet.number}.xml") for sheet in self._sheets]
        commented = [sheet.number for sheet in self._sheets if sheet.comments]
        texts = {
            "[Content_Types].xml": content_types(len(self._sheets), commented),
            "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{DOCUMENT}"><sheets>{names}</sheets>'
            f'{f"<definedNames>{titles}</definedNames>" if titles else ""}<calcPr fullCalcOnLoad="1"/></workbook>',
            "xl/_rels/workbook.xml.rels": relations(*targets, ("styles", "styles.xml")),
            "xl/styles.xml": styles(),
        }
        for name, text in texts.items():
            self._archive.writestr(entry(name), XML + text)


class Sheet:
    """One sheet; only its comments, and the first rows until the widths are known, are held in memory."""

    def __init__(
        self,
        archive: zipfile.ZipFile,
        number: int,
        title: str,
        columns: Sequence[Column],
        widths: Sequence[int],
    ) -> None:
        self.number, self.title, self.columns = number, title, columns
        self.rows = 0
        self.comments: list[tuple[int, int, str]] = []
        self._archive = archive
        self._widths = list(widths)
        self._waiting: list[str] | None = []
        """Rows written before the widths were known."""
        self._part = archive.open(entry(f"xl/worksheets/sheet{number}.xml"), "w", force_zip64=True)
        if columns:
            self._widths = [max(_WIDTH_MIN, len(column.name) + 4) for column in columns]
            self._put([_cell(at, 1, column.name, Style.HEAD) for at, column in enumerate(columns)])

    def row(self, cells: Sequence[str | None], wrong: Mapping[int, str] | None = None) -> None:
        """Write a row of the table; the cells in `wrong` (by position) are red and carry the text as a comment."""
        if self.rows >= ROWS_MAX:
            raise WrongUse(f"an XLSX workbook can have at most {ROWS_MAX - 1:,} rows; write CSV or Parquet")
        wrong = wrong or {}
        number, columns = self.rows + 1, self.columns
        written = [
            _cell(at, number, cell, Style.BAD)
            if at in wrong
            else _typed(at, number, cell, columns[at].kind)
            if at < len(columns)
            else _cell(at, number, cell, Style.TEXT)
            for at, cell in enumerate(cells)
        ]
        if self._waiting is not None:
            self._measure(cells)
        self._put(written)
        room = COMMENTS_MAX - len(self.comments)
        self.comments += [(number, column, text) for column, text in wrong.items()][:room]

    def line(self, *cells: tuple[Cell, Style] | Formula) -> None:
        """Write a row of a page, each cell with its style."""
        number = self.rows + 1
        styled = ((one, one.style) if isinstance(one, Formula) else one for one in cells)
        self._put([_cell(at, number, cell, style) for at, (cell, style) in enumerate(styled)])

    def finish(self) -> None:
        """End the sheet."""
        self._flush()
        last = f"{column_letters(len(self.columns) - 1)}{max(self.rows, 1)}" if self.columns else ""
        tail = f'<autoFilter ref="A1:{last}"/>' if last else ""
        choices = [(at, column.choices) for at, column in enumerate(self.columns) if column.choices]
        if choices and self.rows > 1:
            lists = "".join(
                '<dataValidation type="list" allowBlank="1" showErrorMessage="1" '
                f'sqref="{column_letters(at)}2:{column_letters(at)}{self.rows}">'
                f"<formula1>&quot;{escaped(','.join(names))}&quot;</formula1></dataValidation>"
                for at, names in choices
            )
            tail += f'<dataValidations count="{len(choices)}">{lists}</dataValidations>'
        tail += (
            '<pageMargins left="0.4" right="0.4" top="0.6" bottom="0.6" header="0.3" footer="0.3"/>'
            f'<pageSetup paperSize="1" orientation="{"landscape" if self.columns else "portrait"}"'
            ' fitToWidth="1" fitToHeight="0"/>'
            "<headerFooter><oddFooter>&amp;L&amp;F&amp;RPage &amp;P of &amp;N</oddFooter></headerFooter>"
        )
        if self.comments:
            tail += '<legacyDrawing r:id="rId2"/>'
        self._part.write(f"</sheetData>{tail}</worksheet>".encode())
        self._part.close()

    def abandon(self) -> None:
        """Give up on the sheet halfway."""
        self._part.close()

    def write_comments(self) -> None:
        """Write the parts that hold the comments."""
        if not self.comments:
            return
        texts = {
            f"xl/worksheets/_rels/sheet{self.number}.xml.rels": relations(
                ("comments", f"../comments{self.number}.xml"),
                ("vmlDrawing", f"../drawings/vmlDrawing{self.number}.vml"),
            ),
            f"xl/comments{self.number}.xml": comments_part(self.comments),
            f"xl/drawings/vmlDrawing{self.number}.vml": drawing_part(self.comments),
        }
        for name, text in texts.items():
            self._archive.writestr(entry(name), XML + text)

    def _measure(self, cells: Sequence[str | None]) -> None:
        for at, cell in enumerate(cells[: len(self._widths)]):
            if cell is not None and len(cell) + 2 > self._widths[at]:
                wrapped = at < len(self.columns) and self.columns[at].kind is Kind.WRAP
                self._widths[at] = min(len(cell) + 2, _WIDTH_WRAPPED if wrapped else _WIDTH_MAX)

    def _put(self, cells: Sequence[str]) -> None:
        self.rows += 1
        row = f'<row r="{self.rows}">{"".join(cells)}</row>'
        if self._waiting is None:
            self._part.write(row.encode())
            return
        self._waiting.append(row)
        if len(self._waiting) > _ROWS_MEASURED:
            self._flush()

    def _flush(self) -> None:
        """Write the head of the sheet, now that the widths are known, and the rows that waited for it."""
        if self._waiting is None:
            return
        columns = "".join(
            f'<col min="{at}" max="{at}" width="{width}" customWidth="1"/>' for at, width in enumerate(self._widths, 1)
        )
        pane = '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>' if self.columns else ""
        selected = ' tabSelected="1"' if not self.columns else ""
        self._part.write(
            f'{XML}<worksheet xmlns="{MAIN}" xmlns:r="{DOCUMENT}">'
            '<sheetPr><pageSetUpPr fitToPage="1"/></sheetPr>'
            f'<sheetViews><sheetView{selected} workbookViewId="0">{pane}</sheetView></sheetViews>'
            f'<sheetFormatPr defaultRowHeight="15"/><cols>{columns}</cols><sheetData>{"".join(self._waiting)}'.encode()
        )
        self._waiting = None


def _typed(at: int, row: int, cell: str | None, kind: Kind) -> str:
    """Write a cell of a column of this kind; a text that is not of the kind stays text, exactly as it is."""
    if cell is None:
        return _cell(at, row, None, Style.INPUT if kind is Kind.INPUT else Style.TEXT)
    if kind is Kind.STATE:
        return _cell(at, row, cell, _STATES.get(cell, Style.TEXT))
    is_number = kind in _NUMBERS and _NUMBERS[kind].fullmatch(cell)
    if (value := cell if is_number else _days(cell) if kind is Kind.INSTANT else None) is not None:
        return f'<c r="{column_letters(at)}{row}" s="{_PLACES[_STYLES[kind]]}"><v>{value}</v></c>'
    return _cell(at, row, cell, _STYLES[kind] if kind in (Kind.WRAP, Kind.INPUT) else Style.TEXT)


def _cell(at: int, row: int, cell: Cell, style: Style) -> str:
    place = f'<c r="{column_letters(at)}{row}" s="{_PLACES[style]}"'
    if cell is None:
        return f"{place}/>"
    if isinstance(cell, Formula):
        return f"{place}><f>{escaped(cell.text)}</f><v>{cell.value}</v></c>"
    if style in (Style.AMOUNT, Style.SUM, Style.INTEGER, Style.COUNT):
        return f"{place}><v>{cell}</v></c>"
    return f'{place} t="inlineStr"><is><t xml:space="preserve">{escaped(cell)}</t></is></c>'


def _days(text: str) -> str | None:
    """Return the days from the spreadsheet's epoch to a time in UTC, or None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return f"{(moment - _EPOCH).total_seconds() / _DAY_S:.8f}"
