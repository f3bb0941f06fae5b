"""The parts of an XLSX: what they would unpack to, its sheets, its number formats.

A file of a few kilobytes can demand gigabytes, so the zip directory is checked first.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from posixpath import join, normpath
from typing import BinaryIO
from xml.etree import ElementTree
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from batchpay.errors import FileRefused
from batchpay.intake.xlsx.number_formats import matters, shows_unit

ENTRIES_MAX = 10_000
UNPACKED_BYTES_MAX = 3 << 30
RATIO_MAX = 150
UNPACKED_BYTES_FREE = 32 << 20
"""Below this many bytes the ratio is not checked."""
_BUILT_IN = {9: "0%", 10: "0.00%", 11: "0.00E+00", 12: "# ?/?", 13: "# ??/??", 48: "##0.0E+0"}
_BUILT_IN |= dict.fromkeys((2, 4, 39, 40, 43), "0.00") | dict.fromkeys((5, 6, 42), '"$"0')
_BUILT_IN |= dict.fromkeys((7, 8, 44), '"$"0.00')
"""Built-in formats, which a workbook names without defining them, as far as they matter here (ECMA-376, 18.8.30)."""
_SMALL_XML_BYTES_MAX = 16 << 20

BROKEN = (
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


def open_archive(file: BinaryIO, *, macros: bool = False) -> zipfile.ZipFile:
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
    if not macros and any(name.endswith("vbaproject.bin") for name in names):
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
    relations = _parts_of(archive, "worksheet")  # a chart may have a sheet of its own
    sheets: list[SheetEntry] = []
    for element in _xml(archive, _workbook_path(archive)).iter():
        if _local(element.tag) == "sheet":
            key = next((value for name, value in element.items() if _local(name) == "id" and "}" in name), "")
            state = element.get("state", "visible")
            sheets.append(SheetEntry(element.get("name", ""), state, part_named(archive, relations.get(key, ""))))
    return sheets


def part_for(archive: zipfile.ZipFile, kind: str) -> str:
    """Return the name of the workbook's part that has its `styles` or `sharedStrings`, '' where it has none."""
    paths = (*_parts_of(archive, kind).values(), f"xl/{kind}.xml")
    return next(filter(None, (part_named(archive, path) for path in paths)), "")


def _parts_of(archive: zipfile.ZipFile, kind: str) -> dict[str, str]:
    """Return the paths of the workbook's parts of a kind, by the names that it has for them."""
    folder, _, file_name = _workbook_path(archive).rpartition("/")
    paths: dict[str, str] = {}
    for relation in _xml(archive, f"{folder}/_rels/{file_name}.rels"):
        if relation.get("Type", "").endswith(f"/{kind}"):
            paths[relation.get("Id", "")] = normpath(f"/{join(folder, relation.get('Target', ''))}").lstrip("/")
    return paths


@dataclass(frozen=True)
class Styles:
    """Number formats of a workbook's cells."""

    xml: bytes
    """A part that has them alone, by which a library tells dates from numbers."""
    deceptive: dict[str, str]
    """Formats that show, or may show, other digits than a number's own or a text, by the index in a cell's `s`."""
    of_dollars: dict[str, str]
    """Those that show decimals or a mark of dollars."""


def read_styles(archive: zipfile.ZipFile) -> Styles:
    """Read the number formats; raises FileRefused where they can't be read."""
    codes: dict[int, str] = {}
    of_cells: list[int] = []
    path = part_for(archive, "styles")
    try:
        for element in _xml(archive, path) if path else ():
            kind = _local(element.tag)
            if kind == "numFmts":
                codes |= {int(entry.get("numFmtId", "")): entry.get("formatCode", "") for entry in element}
            elif kind == "cellXfs":
                of_cells = [int(entry.get("numFmtId", "0")) for entry in element]
    except ValueError:
        raise FileRefused("has number formats that can't be read, so leading zeros may be lost") from None
    defined = "".join(f'<numFmt numFmtId="{at}" formatCode={quoteattr(code)}/>' for at, code in codes.items())
    cells = "".join(f'<xf numFmtId="{number}"/>' for number in of_cells)
    xml = f"<styleSheet><numFmts>{defined}</numFmts><cellXfs>{cells}</cellXfs></styleSheet>"
    codes = _BUILT_IN | codes
    by_style = {str(at): codes.get(number, "") for at, number in enumerate(of_cells)}
    deceptive, of_dollars = (
        {style: code for style, code in by_style.items() if is_one(code)} for is_one in (matters, shows_unit)
    )
    return Styles(xml.encode(), deceptive, of_dollars)


def counts_from_1904(archive: zipfile.ZipFile) -> bool:
    """Whether the workbook's dates count from 1904, as old ones of a Macintosh do."""
    elements = _xml(archive, _workbook_path(archive)).iter()
    return any(one.get("date1904") in ("1", "true") for one in elements if _local(one.tag) == "workbookPr")


def _workbook_path(archive: zipfile.ZipFile) -> str:
    for relation in _xml(archive, "_rels/.rels"):
        if relation.get("Type", "").endswith("/officeDocument"):
            return relation.get("Target", "").lstrip("/")
    return "xl/workbook.xml"


def part_named(archive: zipfile.ZipFile, path: str) -> str:
    """Return the name of a part as the archive spells it, '' where it has none (names of parts ignore case)."""
    wanted = path.lower().replace("/./", "/").lstrip("/")
    return next((name for name in archive.namelist() if name.lstrip("/").lower() == wanted), "")


def _xml(archive: zipfile.ZipFile, path: str) -> ElementTree.Element:
    """Read a part that is small; raises FileRefused."""
    try:
        with archive.open(part_named(archive, path)) as stream:
            data = stream.read(_SMALL_XML_BYTES_MAX + 1)
        if len(data) > _SMALL_XML_BYTES_MAX:
            raise FileRefused(f"contains a part of more than {_SMALL_XML_BYTES_MAX >> 20} MiB; it is not read")
        refuse_doctype(data)
        return ElementTree.fromstring(data)  # noqa: S314  document types were refused
    except (*BROKEN, ElementTree.ParseError):
        raise FileRefused("is a broken XLSX") from None


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def refuse_doctype(block: bytes) -> None:
    """Refuse XML that declares entities: no spreadsheet program writes them."""
    if b"!" in block and (b"<!DOCTYPE" in block or b"<!ENTITY" in block):
        raise FileRefused("has a document type in its XML; it is not read")
