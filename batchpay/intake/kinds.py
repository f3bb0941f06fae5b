"""What kind of payment file some bytes are, told by the first of them, whatever the name says."""

from __future__ import annotations

from enum import StrEnum

from batchpay.errors import FileRefused

HEAD_BYTES = 512
"""So many first bytes are enough to tell."""


class Kind(StrEnum):
    """The kinds of payment files."""

    CSV = "csv"
    PARQUET = "parquet"
    XLSX = "xlsx"


_MAGIC = (
    (b"PAR1", Kind.PARQUET),
    (b"PK\x03\x04", Kind.XLSX),
)
_REFUSED_MAGIC = (
    (b"\xd0\xcf\x11\xe0", "an old Excel file (.xls) or one protected by a password; save it as .xlsx without one"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"%PDF", "a PDF"),
    (b"SQLite format 3", "a database"),
    (b"BZh", "packed with bzip2; batchpay reads gzip and zstd"),
    (b"\xfd7zXZ", "packed with xz; batchpay reads gzip and zstd"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"ARROW1", "an Arrow file; save it as Parquet"),
    (b"{\\rtf", "a text document (RTF)"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
    (b"<?xml", "XML"),
)
_FLAT_OPEN_DOCUMENT = b"urn:oasis:names:tc:opendocument"
_PACKINGS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))


def kind_of(head: bytes, name: str, asked: str | None = None) -> tuple[Kind, str | None]:
    """Tell the kind and the packing; raises FileRefused where it is none, or not the kind that was asked for."""
    if not head:
        raise FileRefused(f"{name}: is empty")
    for magic, what in _REFUSED_MAGIC:
        if head.startswith(magic):
            if _FLAT_OPEN_DOCUMENT in head:
                what = "an OpenDocument file (.fods); save it as .xlsx"
            raise FileRefused(f"{name}: is {what}")
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), Kind.CSV)
    if asked is not None and kind != asked:
        raise FileRefused(f"{name}: is not a {asked} file" + ("" if kind is Kind.CSV else f" but {kind}"))
    packing = next((packing for magic, packing in _PACKINGS if head.startswith(magic)), None)
    return kind, packing
