"""The fixed parts of a workbook: cell formats, the table of contents, comments and their drawings."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from enum import IntEnum

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
TEXT_MAX = 32_767
"""Characters that a spreadsheet cell can hold; anything longer is cut."""
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_ZIP_DATE = (2026, 1, 1, 0, 0, 0)
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


class Style(IntEnum):
    """Positions of the cell formats in the workbook's list."""

    DEFAULT = 0
    TEXT = 1
    WRONG = 2
    HEAD = 3
    AMOUNT = 4
    INTEGER = 5
    INSTANT = 6
    WRAP = 7
    GOOD = 8
    BAD = 9
    DOUBT = 10
    WAITING = 11
    INPUT = 12
    TITLE = 13
    LABEL = 14
    SUM = 15
    COUNT = 16


_FONTS = (
    '<font><sz val="11"/><name val="Calibri"/></font>',
    '<font><b/><sz val="11"/><name val="Calibri"/></font>',
    '<font><b/><sz val="16"/><name val="Calibri"/></font>',
)
_FILLS = ("", "", "FFFFC7CE", "FFE7E9ED", "FFE2F0D9", "FFFFF2CC", "FFDDEBF7", "FFFFFBE6")
"""The first two are the format's own; then red, gray, green, amber, blue, and the yellow of a cell to fill in."""
_FORMATS: dict[Style, tuple[int, int, int, str]] = {
    Style.DEFAULT: (0, 0, 0, ""),
    Style.TEXT: (49, 0, 0, ""),
    Style.WRONG: (49, 0, 2, ""),
    Style.HEAD: (49, 1, 3, '<alignment vertical="center" wrapText="1"/>'),
    Style.AMOUNT: (4, 0, 0, '<alignment horizontal="right" indent="1"/>'),
    Style.INTEGER: (1, 0, 0, '<alignment horizontal="right" indent="1"/>'),
    Style.INSTANT: (164, 0, 0, '<alignment horizontal="left"/>'),
    Style.WRAP: (49, 0, 0, '<alignment vertical="top" wrapText="1"/>'),
    Style.GOOD: (49, 0, 4, ""),
    Style.BAD: (49, 0, 2, ""),
    Style.DOUBT: (49, 1, 5, ""),
    Style.WAITING: (49, 0, 6, ""),
    Style.INPUT: (49, 0, 7, ""),
    Style.TITLE: (49, 2, 0, ""),
    Style.LABEL: (49, 1, 0, ""),
    Style.SUM: (4, 1, 0, ""),
    Style.COUNT: (3, 0, 0, ""),
}
"""Number format, font and fill of each style, and how it is aligned. 4 is `#,##0.00`, 49 text, 3 `#,##0`."""


def styles() -> str:
    """Return the cell formats, in the order of Style."""
    fills = '<fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>' + "".join(
        f'<fill><patternFill patternType="solid"><fgColor rgb="{color}"/><bgColor indexed="64"/></patternFill></fill>'
        for color in _FILLS[2:]
    )
    formats = "".join(
        f'<xf numFmtId="{number}" fontId="{font}" fillId="{fill}" borderId="0" xfId="0" applyNumberFormat="1"'
        f' applyFont="1" applyFill="1" applyAlignment="1">{aligned}</xf>'
        for number, font, fill, aligned in (_FORMATS[style] for style in Style)
    )
    return (
        f'<styleSheet xmlns="{MAIN}">'
        '<numFmts count="1"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd\\ hh:mm:ss"/></numFmts>'
        f'<fonts count="{len(_FONTS)}">{"".join(_FONTS)}</fonts><fills count="{len(_FILLS)}">{fills}</fills>'
        '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        f'<cellXfs count="{len(_FORMATS)}">{formats}</cellXfs>'
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
