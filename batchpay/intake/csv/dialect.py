"""What the head of a CSV file shows: its byte order mark, its separator, and where its header is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from batchpay.errors import FileRefused
from batchpay.intake.csv.grammar import first_record
from batchpay.intake.header import HEADER_NAMES_ENOUGH, HEADER_ROWS_MAX, known_names, title_notes
from batchpay.schemas.columns import COLUMNS
from batchpay.text import column_name

SEPARATORS = (",", ";", "\t", "|")
HEADER_BYTES_MAX = 1 << 20
_TITLE_BYTES_MAX = 1 << 16
"""A header below titles is searched for in this many bytes from the start of a line."""
_QUOTED = re.compile(rb'"(?:[^"]|"")*"')
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WIDE = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


@dataclass(frozen=True)
class Dialect:
    """What the head of a CSV file shows."""

    separator: str
    names: tuple[str, ...]
    data_at: int
    """Bytes before the first data row."""
    data_line: int
    """Physical line of the first data row."""
    notes: tuple[str, ...] = ()
    """Notes for the user about what is above the header."""


def refuse_wide(name: str, head: bytes) -> None:
    """Refuse UTF-16 and UTF-32 by their byte order marks, and anything that is not text at all."""
    for mark, encoding in _WIDE.items():
        if head.startswith(mark):
            raise FileRefused(f"{name}: is {encoding.upper()}, not UTF-8 (use --encoding {encoding})")
    at = head.find(b"\0")
    if at >= 0:
        line = head.count(b"\n", 0, at) + 1
        raise FileRefused(f"{name}: line {line} contains a NUL byte: not text, or another encoding (use --encoding)")


def read_dialect(name: str, head: bytes, known: Sequence[str] = COLUMNS) -> Dialect:
    """Find the separator and the header in the first bytes of a file; raises FileRefused where there is none.

    The header is the first record with enough known names; above it there may be titles, but no payments. Where no
    record has enough, it is the first one.
    """
    refuse_wide(name, head)
    at, line, forced = _first_text(name, head)
    candidates = [forced] if forced else SEPARATORS
    end = head.find(b"\n", at)
    text = _QUOTED.sub(b"", head[at:] if end < 0 else head[at:end].removesuffix(b"\r"))
    if b"\r" in text:
        raise FileRefused(f"{name}: line {line}: lines end with CR alone (old Macintosh); save it with LF or CRLF")
    titles: list[tuple[int, bytes]] = []
    start, number, first = at, line, at
    while len(titles) < HEADER_ROWS_MAX and start < len(head):
        begin = head[start:] if start == first else head[start : start + _TITLE_BYTES_MAX]
        found = _choose(name, begin, number, candidates, known)
        if isinstance(found, _Found) and found.known >= HEADER_NAMES_ENOUGH:
            mark = found.separator.encode()
            counts = [(row, sum(bool(cell.strip(b' \t\r"')) for cell in raw.split(mark))) for row, raw in titles]
            notes = title_notes(name, "line", number, counts, found.names)
            used = start + found.bytes
            lines = head.count(b"\n", start, used)
            return Dialect(found.separator, tuple(found.names), used, number + lines, notes)
        end = head.find(b"\n", start)
        end = len(head) if end < 0 else end
        titles.append((number, head[start:end]))
        start, number = end + 1, number + 1
    only = _choose(name, head[first:], line, candidates, known)
    if not isinstance(only, _Found):
        raise only
    return Dialect(
        only.separator, tuple(only.names), first + only.bytes, line + head.count(b"\n", first, first + only.bytes)
    )


def _first_text(name: str, head: bytes) -> tuple[int, int, str | None]:
    """Skip blank lines and a `sep=` line; return where the first text begins, its line, and the separator named."""
    at = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    line, forced = 1, None
    while True:
        end = head.find(b"\n", at)
        text = (head[at:] if end < 0 else head[at:end]).removesuffix(b"\r")
        if text.lower().startswith(b"sep=") and forced is None and len(text.decode("utf-8", "replace")) == 5:
            forced = chr(text[4])
            if forced in '"\r\n ' or not forced.isascii():
                raise FileRefused(f"{name}: line {line}: {column_name(forced)!r} can't separate cells")
        elif text.strip(b" \t"):
            return at, line, forced
        if end < 0:
            raise FileRefused(f"{name}: has no header" if at or text else f"{name}: is empty")
        at, line = end + 1, line + 1


class _Found(NamedTuple):
    """A record that may be the header."""

    known: int
    """How many of its cells are known names."""
    separator: str
    names: list[str]
    bytes: int


def _choose(name: str, rest: bytes, line: int, candidates: Sequence[str], known: Sequence[str]) -> _Found | FileRefused:
    """Return the separator that yields the most known names, else the most cells; or why none yields a record."""
    best: _Found | FileRefused | None = None
    for separator in candidates:
        try:
            names, lines = first_record(name, rest, separator, line)
        except FileRefused as error:
            best = best or error
            continue
        count = known_names(names, known)
        if not isinstance(best, _Found) or (count, len(names)) > (best.known, len(best.names)):
            best = _Found(count, separator, names, _bytes_of(rest, lines))
    assert best is not None, "there is always a candidate"
    return best


def _bytes_of(rest: bytes, lines: int) -> int:
    end = -1
    for _ in range(lines):
        end = rest.find(b"\n", end + 1)
        if end < 0:
            return len(rest)
    return end + 1
