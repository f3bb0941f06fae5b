"""Writing a workbook row by row, straight into its file, as a finance person would have made it.

openpyxl would put every row into a temporary file on the disk first, and rows contain account numbers. Identifiers are
text cells in the text format, so that no spreadsheet drops leading zeros or runs a formula; amounts are numbers, times
are dates, the header is frozen and filtered, and widths fit.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, Self

from batchpay.errors import WrongUse
from batchpay.writing import xlsx_parts as parts
from batchpay.writing.columns import Column, Kind
from batchpay.writing.xlsx_parts import Style, column_letters, escaped

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

    def sheet(self, title: str, columns: Sequence[Column]) -> Sheet:
        """Begin a table with a header; the sheet before it is finished."""
        return self._begin(title, columns, ())

    def page(self, title: str, widths: Sequence[int]) -> Sheet:
        """Begin a sheet without a header, laid out by its rows."""
        return self._begin(title, (), widths)

    def _begin(self, title: str, columns: Sequence[Column], widths: Sequence[int]) -> Sheet:
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
            "[Content_Types].xml": parts.content_types(len(self._sheets), commented),
            "_rels/.rels": parts.relations(("officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook xmlns="{parts.MAIN}" xmlns:r="{parts.DOCUMENT}"><sheets>{names}</sheets>'
            f'{f"<definedNames>{titles}</definedNames>" if titles else ""}<calcPr fullCalcOnLoad="1"/></workbook>',
            "xl/_rels/workbook.xml.rels": parts.relations(*targets, ("styles", "styles.xml")),
            "xl/styles.xml": parts.styles(),
        }
        for name, text in texts.items():
            self._archive.writestr(parts.entry(name), parts.XML + text)


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
        self._part = archive.open(parts.entry(f"xl/worksheets/sheet{number}.xml"), "w", force_zip64=True)
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
            _cell(at, number, cell, Style.WRONG)
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

    def line(self, *cells: tuple[Cell, Style]) -> None:
        """Write a row of a page, each cell with its style."""
        number = self.rows + 1
        self._put([_cell(at, number, cell, style) for at, (cell, style) in enumerate(cells)])

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
            f"xl/worksheets/_rels/sheet{self.number}.xml.rels": parts.relations(
                ("comments", f"../comments{self.number}.xml"),
                ("vmlDrawing", f"../drawings/vmlDrawing{self.number}.vml"),
            ),
            f"xl/comments{self.number}.xml": parts.comments_part(self.comments),
            f"xl/drawings/vmlDrawing{self.number}.vml": parts.drawing_part(self.comments),
        }
        for name, text in texts.items():
            self._archive.writestr(parts.entry(name), parts.XML + text)

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
            f'{parts.XML}<worksheet xmlns="{parts.MAIN}" xmlns:r="{parts.DOCUMENT}">'
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
    if kind in _NUMBERS and _NUMBERS[kind].fullmatch(cell):
        return f'<c r="{column_letters(at)}{row}" s="{_STYLES[kind].value}"><v>{cell}</v></c>'
    if kind is Kind.INSTANT and (days := _days(cell)) is not None:
        return f'<c r="{column_letters(at)}{row}" s="{_STYLES[kind].value}"><v>{days}</v></c>'
    return _cell(at, row, cell, _STYLES[kind] if kind in (Kind.WRAP, Kind.INPUT) else Style.TEXT)


def _cell(at: int, row: int, cell: Cell, style: Style) -> str:
    place = f'<c r="{column_letters(at)}{row}" s="{style.value}"'
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
