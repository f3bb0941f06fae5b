"""The grammar of a CSV file, exactly: cells of a record, the header, the separator. Slow and sure; reader.py is fast.

A quotation mark opens a quoted cell only as the first character of the cell; elsewhere it is a character like others. A
quoted cell ends at a mark that is not doubled, and then the separator or the line's end must follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from batchpay.errors import FileRefused
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


class OpenQuote(Exception):
    """The text ends inside a quoted cell of the record that begins at `first` (an index of a line)."""

    def __init__(self, first: int) -> None:
        super().__init__("open quotation mark")
        self.first = first


@dataclass
class Records:
    """Records of a piece of a file: the physical line on which each begins, and its cells."""

    lines: list[int] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Dialect:
    """What the head of a CSV file says."""

    separator: str
    names: tuple[str, ...]
    data_at: int
    """Bytes before the first data row."""
    data_line: int
    """Physical line of the first data row."""
    has_mark: bool
    """Whether the file begins with a byte order mark."""


def split_records(name: str, block: bytes, separator: str, first_line: int, most: int | None = None) -> Records:
    """Split whole lines into records, blank lines left out; raises OpenQuote, or FileRefused with the line."""
    raw = _lines(block)
    found = Records()
    at = 0
    while at < len(raw) and (most is None or len(found.cells) < most):
        at = _take_record(name, raw, at, separator, first_line, found)
    return found


def part_lines(
    name: str, block: bytes, separator: str, first_line: int, width: int, *, trust_unquoted: bool
) -> tuple[list[bytes], list[int], Records]:
    """Part whole lines into those that look like one plain row each, with their numbers, and the records of the rest.

    A plain row's cells are as many as the header's, its quotation marks come in pairs, and it ends as the first line
    does; a line without such marks may be trusted to. Whether it is what it looks like is for the caller to prove.
    Raises as split_records does.
    """
    raw = _lines(block)
    mark = separator.encode()
    has_return = bool(raw) and raw[0].endswith(b"\r")
    plain: list[bytes] = []
    numbers: list[int] = []
    rest = Records()
    at = 0
    while at < len(raw):
        line = raw[at]
        looks_plain = line.find(b"\r") == (len(line) - 1 if has_return else -1)
        if looks_plain and (b'"' in line or not trust_unquoted):
            parts = line.split(b'"')
            separators = sum(part.count(mark) for part in parts[::2])
            looks_plain = separators == width - 1 and len(parts) % 2 == 1
        if looks_plain:
            plain.append(line)
            numbers.append(first_line + at)
            at += 1
        else:
            at = _take_record(name, raw, at, separator, first_line, rest)
    return plain, numbers, rest


def _lines(block: bytes) -> list[bytes]:
    raw = block.split(b"\n")
    if raw and not raw[-1]:
        raw.pop()
    return raw


def _take_record(name: str, raw: Sequence[bytes], at: int, separator: str, first_line: int, found: Records) -> int:
    """Split the record that begins at a line, unless that is blank; gives the index of the line after it."""
    first = at
    text = _decode(name, raw[at], first_line + at)
    if '"' in text:
        cells, at = _quoted_record(name, raw, at, separator, first_line)
    else:
        cells, at = text.removesuffix("\r").split(separator), at + 1
    if cells != [""] or '"' in text:
        found.lines.append(first_line + first)
        found.cells.append(cells)
    return at


def _quoted_record(name: str, raw: Sequence[bytes], at: int, separator: str, first_line: int) -> tuple[list[str], int]:
    """Read one record that has quotation marks; gives its cells and the index of the line after it."""
    first, position = at, 0
    text = _decode(name, raw[at], first_line + at)
    cells: list[str] = []
    while True:
        if text[position : position + 1] != '"':
            end = text.find(separator, position)
            if end < 0:
                cells.append(text[position:].removesuffix("\r"))
                return cells, at + 1
            cells.append(text[position:end])
            position = end + 1
            continue
        parts: list[str] = []
        position += 1
        while True:
            end = text.find('"', position)
            if end < 0:
                parts += (text[position:], "\n")
                at, position = at + 1, 0
                if at == len(raw):
                    raise OpenQuote(first)
                text = _decode(name, raw[at], first_line + at)
            elif text.startswith('""', end):
                parts.append(text[position : end + 1])
                position = end + 2
            else:
                parts.append(text[position:end])
                position = end + 1
                break
        cells.append("".join(parts))
        if text[position:] in ("", "\r"):
            return cells, at + 1
        if not text.startswith(separator, position):
            raise FileRefused(
                f"{name}: line {first_line + at}: text stands after a closing quotation mark, so where the cells end "
                "can't be known"
            )
        position += len(separator)


def _decode(name: str, raw: bytes, line: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise FileRefused(f"{name}: line {line} is not UTF-8 (say --encoding, for instance cp1252)") from None


def refuse_wide(name: str, head: bytes) -> None:
    """Refuse UTF-16 and UTF-32 by their marks, and what is not a text at all."""
    for mark, encoding in _WIDE.items():
        if head.startswith(mark):
            raise FileRefused(f"{name}: is {encoding.upper()}, not UTF-8 (say --encoding {encoding})")
    at = head.find(b"\0")
    if at >= 0:
        line = head.count(b"\n", 0, at) + 1
        raise FileRefused(f"{name}: line {line} holds a NUL byte: no text, or another encoding (say --encoding)")


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
        if b"\r" in text and b'"' not in text:
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
    return Dialect(separator, tuple(names), at + used, line + head.count(b"\n", at, at + used), has_mark)


def _choose(name: str, rest: bytes, line: int, candidates: Sequence[str]) -> tuple[str, list[str], int]:
    """Take the separator that yields the most known names, else the most cells."""
    best: tuple[tuple[int, int], str, list[str]] | None = None
    for separator in candidates:
        try:
            found = split_records(name, rest, separator, line, most=1)
        except (OpenQuote, FileRefused) as error:
            refusal = error
            continue
        names = found.cells[0]
        rank = (sum(known in COLUMNS for known in names), len(names))
        if best is None or rank > best[0]:
            best = (rank, separator, names)
    if best is None:
        if isinstance(refusal, FileRefused):
            raise refusal
        raise FileRefused(f"{name}: line {line}: a quotation mark in the header is never closed")
    breaks = 1 + sum(cell.count("\n") for cell in best[2])
    end = -1
    for _ in range(breaks):
        end = rest.find(b"\n", end + 1)
        if end < 0:
            return best[1], best[2], len(rest)
    return best[1], best[2], end + 1
