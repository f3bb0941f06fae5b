"""What the head of a CSV file says: its encoding's mark, its separator, and where its header is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchpay.errors import FileRefused
from batchpay.intake.csv.grammar import first_record
from batchpay.intake.header import canonical_name
from batchpay.schemas.columns import COLUMNS
from batchpay.text import column_name

SEPARATORS = (",", ";", "\t", "|")
HEADER_BYTES_MAX = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WIDE = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


@dataclass(frozen=True)
class Dialect:
    """What the head of a CSV file says."""

    separator: str
    names: tuple[str, ...]
    data_at: int
    """Bytes before the first data row."""
    data_line: int
    """Physical line of the first data row."""


def refuse_wide(name: str, head: bytes) -> None:
    """Refuse UTF-16 and UTF-32 by their marks, and what is not a text at all."""
    for mark, encoding in _WIDE.items():
        if head.startswith(mark):
            raise FileRefused(f"{name}: is {encoding.upper()}, not UTF-8 (use --encoding {encoding})")
    at = head.find(b"\0")
    if at >= 0:
        line = head.count(b"\n", 0, at) + 1
        raise FileRefused(f"{name}: line {line} contains a NUL byte: not text, or another encoding (use --encoding)")


def read_dialect(name: str, head: bytes) -> Dialect:
    """Find the separator and the header in the first bytes of a file; raises FileRefused where there is none."""
    refuse_wide(name, head)
    has_mark = head.startswith(BYTE_ORDER_MARK)
    at = len(BYTE_ORDER_MARK) if has_mark else 0
    line, forced = 1, None
    while True:
        end = head.find(b"\n", at)
        raw = head[at:] if end < 0 else head[at:end]
        text = raw.removesuffix(b"\r")
        if b"\r" in text and (b'"' not in text or b"\n" not in head):
            raise FileRefused(f"{name}: line {line}: lines end with CR alone (old Macintosh); save it with LF or CRLF")
        if text.lower().startswith(b"sep=") and forced is None and len(text.decode("utf-8", "replace")) == 5:
            forced = chr(text[4])
        elif text.strip(b" \t"):
            break
        if end < 0:
            raise FileRefused(f"{name}: has no header" if at or text else f"{name}: is empty")
        at, line = end + 1, line + 1
    if forced is not None and (forced in '"\r\n ' or not forced.isascii()):
        raise FileRefused(f"{name}: line {line - 1}: {column_name(forced)!r} can't separate cells")
    separator, names, used = _choose(name, head[at:], line, [forced] if forced else SEPARATORS)
    return Dialect(separator, tuple(names), at + used, line + head.count(b"\n", at, at + used))


def _choose(name: str, rest: bytes, line: int, candidates: Sequence[str]) -> tuple[str, list[str], int]:
    """Take the separator that yields the most known names, else the most cells."""
    best: tuple[tuple[int, int], str, list[str], int] | None = None
    for separator in candidates:
        try:
            names, lines = first_record(name, rest, separator, line)
        except FileRefused as error:
            refusal = error
            continue
        rank = (sum(canonical_name(own) in COLUMNS for own in names), len(names))
        if best is None or rank > best[0]:
            best = (rank, separator, names, lines)
    if best is None:
        raise refusal
    _, separator, names, lines = best
    end = -1
    for _ in range(lines):
        end = rest.find(b"\n", end + 1)
        if end < 0:
            return separator, names, len(rest)
    return separator, names, end + 1
