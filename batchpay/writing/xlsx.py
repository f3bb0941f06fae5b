"""Writing an XLSX of text cells, row by row, straight into its file.

openpyxl would put every row into a temporary file on the disk first, and rows hold account numbers. Every cell is a
text cell in the text format, so that no spreadsheet takes leading zeros away or runs a formula.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Self

from batchpay.errors import WrongUse

ROWS_MAX = 1_048_576
TEXT_MAX = 32_767
"""Characters that a cell of a spreadsheet can hold; what is longer is cut."""
COMMENTS_MAX = 5_000
"""Spreadsheet programs grow slow with more; the cells are red all the same."""
_TEXT, _WRONG, _HEAD = 1, 2, 3
_ZIP_DATE = (2026, 1, 1, 0, 0, 0)
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


class SheetWriter:
    """A workbook of one sheet under way, finished at the end of a `with`; only its comments are held in memory."""

    def __init__(self, file: BinaryIO, title: str) -> None:
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._title = title
        self._rows = 0
        self._comments: list[tuple[int, int, str]] = []
        self._sheet = self._archive.open(_entry("xl/worksheets/sheet1.xml"), "w", force_zip64=True)
        self._sheet.write(
            f'{_XML}<worksheet xmlns="{_MAIN}" xmlns:r="{_DOCUMENT}"><sheetViews><sheetView workbookViewId="0">'
            '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>'
            '<sheetFormatPr defaultRowHeight="15"/><sheetData>'.encode()
        )

    def header(self, names: Sequence[str]) -> None:
        """Write the first row, in bold."""
        self._write(names, dict.fromkeys(range(len(names)), _HEAD))

    def row(self, cells: Sequence[str | None], wrong: Mapping[int, str] | None = None) -> None:
        """Write a row; the cells in `wrong` (by position) are red and carry the text as a comment."""
        if self._rows >= ROWS_MAX:
            raise WrongUse(f"an XLSX holds {ROWS_MAX - 1:,} rows at most; write CSV or Parquet")
        wrong = wrong or {}
        self._write(cells, dict.fromkeys(wrong, _WRONG))
        room = COMMENTS_MAX - len(self._comments)
        self._comments += [(self._rows, column, text) for column, text in wrong.items()][:room]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish()
        else:
            self._sheet.close()
            self._archive.close()

    def _finish(self) -> None:
        drawing = '<legacyDrawing r:id="rId2"/>' if self._comments else ""
        self._sheet.write(f"</sheetData>{drawing}</worksheet>".encode())
        self._sheet.close()
        parts = {
            "[Content_Types].xml": _content_types(bool(self._comments)),
            "_rels/.rels": _relations(("officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_DOCUMENT}"><sheets>'
            f'<sheet name="{_escaped(self._title)}" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _relations(("worksheet", "worksheets/sheet1.xml"), ("styles", "styles.xml")),
            "xl/styles.xml": _styles(),
        }
        if self._comments:
            parts["xl/worksheets/_rels/sheet1.xml.rels"] = _relations(
                ("comments", "../comments1.xml"), ("vmlDrawing", "../drawings/vmlDrawing1.vml")
            )
            parts["xl/comments1.xml"] = self._comments_part()
            parts["xl/drawings/vmlDrawing1.vml"] = self._drawing_part()
        for name, text in parts.items():
            self._archive.writestr(_entry(name), _XML + text)
        self._archive.close()

    def _write(self, cells: Sequence[str | None], styles: Mapping[int, int]) -> None:
        self._rows += 1
        parts = [f'<row r="{self._rows}">']
        for column, cell in enumerate(cells):
            style = styles.get(column, _TEXT)
            place = f'<c r="{column_letters(column)}{self._rows}" s="{style}"'
            if cell is not None:
                parts.append(f'{place} t="inlineStr"><is><t xml:space="preserve">{_escaped(cell)}</t></is></c>')
            else:
                parts.append(f"{place}/>")
        parts.append("</row>")
        self._sheet.write("".join(parts).encode())

    def _comments_part(self) -> str:
        comments = "".join(
            f'<comment ref="{column_letters(column)}{row}" authorId="0"><text><t xml:space="preserve">{_escaped(text)}'
            "</t></text></comment>"
            for row, column, text in self._comments
        )
        return (
            f'<comments xmlns="{_MAIN}"><authors><author>batchpay</author></authors>'
            f"<commentList>{comments}</commentList></comments>"
        )

    def _drawing_part(self) -> str:
        shapes = "".join(
            f'<v:shape id="c{at}" type="#note" style="position:absolute;width:180pt;height:60pt;visibility:hidden" '
            'fillcolor="#ffffe1" o:insetmode="auto"><v:fill color2="#ffffe1"/><v:textbox/>'
            f'<x:ClientData ObjectType="Note"><x:Row>{row - 1}</x:Row><x:Column>{column}</x:Column></x:ClientData>'
            "</v:shape>"
            for at, (row, column, _) in enumerate(self._comments)
        )
        return (
            '<xml xmlns:v="urn:schemas-microsoft-com:vml" xmlns:o="urn:schemas-microsoft-com:office:office" '
            'xmlns:x="urn:schemas-microsoft-com:office:excel">'
            '<v:shapetype id="note" coordsize="21600,21600" o:spt="202" '
            f'path="m,l,21600r21600,l21600,xe"><v:stroke joinstyle="miter"/></v:shapetype>{shapes}</xml>'
        )


def column_letters(at: int) -> str:
    """The letters of a column counted from 0: `A`, `Z`, `AA`."""
    letters = ""
    at += 1
    while at:
        at, rest = divmod(at - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _escaped(text: str) -> str:
    """A text as XML, with `_x0001_` for what XML can't hold, as spreadsheets write it."""
    text = _UNSAFE.sub(lambda match: f"_x{ord(match[0]):04X}_", text[:TEXT_MAX])
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _ZIP_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    return entry


def _relations(*targets: tuple[str, str]) -> str:
    relations = "".join(
        f'<Relationship Id="rId{number}" Type="{_DOCUMENT}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{relations}</Relationships>'


def _content_types(with_comments: bool) -> str:
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    comments = (
        '<Default Extension="vml" ContentType="application/vnd.openxmlformats-officedocument.vmlDrawing"/>'
        f'<Override PartName="/xl/comments1.xml" ContentType="{kind}.comments+xml"/>'
    )
    return (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{kind}.styles+xml"/>'
        f"{comments if with_comments else ''}</Types>"
    )


def _styles() -> str:
    """Four cell formats: the default, text, text on red (wrong), bold (header)."""
    red = '<fill><patternFill patternType="solid"><fgColor rgb="FFFFC7CE"/><bgColor indexed="64"/></patternFill></fill>'
    text = '<xf numFmtId="49" fontId="{font}" fillId="{fill}" borderId="0" xfId="0" applyFill="1"/>'
    return (
        f'<styleSheet xmlns="{_MAIN}"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
        '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>'
        '<fills count="3"><fill><patternFill patternType="none"/></fill>'
        '<fill><patternFill patternType="gray125"/></fill>'
        f'{red}</fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        '<cellXfs count="4">'
        '<xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
        f"{text.format(font=0, fill=0)}{text.format(font=0, fill=2)}{text.format(font=1, fill=0)}</cellXfs>"
        '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
    )
