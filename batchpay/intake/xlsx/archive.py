"""Inspecting an XLSX before a library does: what it would unpack to, and the cells whose kind the value does not show.

A spreadsheet library returns an error cell as blank and a formula's cached value as if it were typed; and a file of a
few kilobytes can demand gigabytes. So the zip directory is checked first, then the sheet's XML is read as a stream,
with a few searches over whole blocks instead of a parser: fast where nothing special is in them.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from typing import BinaryIO
from xml.etree import ElementTree
from xml.parsers import expat

from batchpay.errors import FileRefused
from batchpay.intake.prefetch import ahead
from batchpay.intake.xlsx.cell_scan import Sheet, read_blocks, refuse_doctype, scan_blocks, scan_tags
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
        raise FileRefused("holds macros (.xlsm); save it as .xlsx without them")
    if "[content_types].xml" not in names:
        raise FileRefused("is a zip archive, not an XLSX file")
    unpacked = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if len(entries) > ENTRIES_MAX:
        raise FileRefused(f"holds {len(entries)} parts; more than {ENTRIES_MAX} are not read")
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


def scan_sheet(archive: zipfile.ZipFile, path: str, formats: dict[str, str]) -> Sheet:
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
        raise FileRefused(f"holds a part of more than {_SMALL_XML_BYTES_MAX >> 20} MiB; it is not read")
    refuse_doctype(data)
    return data


def _xml(archive: zipfile.ZipFile, path: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(_small(archive, path))  # noqa: S314  document types were refused
    except ElementTree.ParseError:
        raise FileRefused("is a broken XLSX") from None


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
