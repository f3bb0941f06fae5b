"""What kind of payment file some bytes are, recognized by the first of them, whatever the name says."""

from __future__ import annotations

from enum import StrEnum

from batchpay.errors import FileRefused

HEAD_BYTES = 512
"""This many first bytes are enough to recognize the kind."""


class Kind(StrEnum):
    """The kinds of payment files."""

    CSV = "csv"
    PARQUET = "parquet"
    XLSX = "xlsx"


_NAMES = {Kind.CSV: "a CSV file", Kind.PARQUET: "a Parquet file", Kind.XLSX: "an XLSX file"}
_MAGIC = (
    (b"PAR1", Kind.PARQUET),
    (b"PK\x03\x04", Kind.XLSX),
)
_REFUSED_MAGIC = (
    (b"\xd0\xcf\x11\xe0", "an old Excel file (.xls) or one protected by a password; save it as .xlsx without one"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"SQLite format 3", "a database"),
    (b"BZh", "packed with bzip2; batchpay reads gzip and zstd"),
    (b"\xfd7zXZ", "packed with xz; batchpay reads gzip and zstd"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"ARROW1", "an Arrow file; save it as Parquet"),
)
_WEB_PAGE = "a web page, whatever its name says; open it in a spreadsheet program and save it as .xlsx"
_REFUSED_TEXT = (
    (b"{\\rtf", "a text document (RTF)"),
    (b"<!doctype", _WEB_PAGE),
    (b"<html", _WEB_PAGE),
    (b"<head", _WEB_PAGE),
    (b"<table", _WEB_PAGE),
    (b"mime-version:", _WEB_PAGE),
    (b"<?xml", "XML; save it as .xlsx"),
    (b"<office:document", "an OpenDocument file (.fods); save it as .xlsx"),
    (b"id;pwxl", "a SYLK file (.slk); save it as .xlsx"),
    (b"id;pscalc", "a SYLK file (.slk); save it as .xlsx"),
    (b'table0,1"', "a DIF file; save it as .xlsx"),
    (b'{"', "JSON; batchpay reads CSV, XLSX and Parquet"),
    (b'[{"', "JSON; batchpay reads CSV, XLSX and Parquet"),
)
"""How text files of other kinds begin, in lower case and without blanks and line breaks."""
_SPREADSHEET_XML = {
    b"urn:oasis:names:tc:opendocument": "an OpenDocument file (.fods); save it as .xlsx",
    b"excel.sheet": "an XML spreadsheet; save it as .xlsx",
    b"urn:schemas-microsoft-com:office:spreadsheet": "an XML spreadsheet; save it as .xlsx",
}
_PACKINGS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))


def kind_of(head: bytes, name: str, asked: str | None = None) -> tuple[Kind, str | None]:
    """Return the kind and the packing; raises FileRefused for any other, or one that was not requested."""
    if not head:
        raise FileRefused(f"{name}: is empty")
    for magic, what in _REFUSED_MAGIC:
        if head.startswith(magic):
            raise FileRefused(f"{name}: is {what}")
    text = b"".join(head.removeprefix(b"\xef\xbb\xbf").split()).lower()
    for beginning, what in _REFUSED_TEXT:
        if text.startswith(beginning):
            exact = (kind for word, kind in _SPREADSHEET_XML.items() if word in text)
            raise FileRefused(f"{name}: is {next(exact, what)}")
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), Kind.CSV)
    if asked is not None and kind != asked:
        raise FileRefused(
            f"{name}: is not {_NAMES[Kind(asked)]}" + ("" if kind is Kind.CSV else f" but {_NAMES[kind]}")
        )
    packing = next((packing for magic, packing in _PACKINGS if head.startswith(magic)), None)
    return kind, packing
