"""The exact grammar of a CSV file: cells of a record. Slow but sure; reader.py is fast. Also its dialect.

A quotation mark as the first character of a cell opens a quoted cell; it may appear nowhere else. A quoted cell ends at
a mark that is not doubled, and the separator or the line end must follow. A record that breaks this is malformed: its
cells are not known, and its end is known only where what follows proves it. The one exception is a whole cell such as
`="00123"`, which programs write so that a spreadsheet keeps the zeros: it ends before the next separator.

The standard library's reader is no help here: it treats a mark inside an unquoted cell as an ordinary character, so
`78.07"Table, round"`, whose separator is missing, becomes two cells and every cell after it is in the wrong column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from batchpay.errors import FileRefused
from batchpay.intake.bank_files import HEAD_BYTES, refuse_bank_file
from batchpay.intake.header import HEADER_NAMES_ENOUGH, HEADER_ROWS_MAX, known_names, title_notes
from batchpay.schemas.columns import COLUMNS
from batchpay.text import column_name, counted

TEXT_FORMULA = re.compile('="[^"]*"')
"""A cell that a spreadsheet treats as a formula whose value is the text in it."""


class OpenQuote(Exception):
    """The end of the record that begins at `first` (an index of a line) is not known until more was read."""

    def __init__(self, first: int) -> None:
        super().__init__("more of the file is needed")
        self.first = first


class NotUtf8(FileRefused):
    """A line is in another encoding: which one it may be is for the caller to say, who has the whole file."""


class _Malformed(Exception):
    """A record breaks the grammar at the line `at`; `what` says how. `is_open` means that a cell never ends."""

    def __init__(self, at: int, what: str, *, is_open: bool = False) -> None:
        super().__init__(what)
        self.at = at
        self.what = what
        self.is_open = is_open


@dataclass
class Records:
    """Records of a piece of a file: the physical line on which each begins, and its cells.

    A malformed one has its line as a single cell, and its reason in `malformed`, by its index among the records.
    """

    lines: list[int] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)
    malformed: dict[int, str] = field(default_factory=dict)


class Lines:
    """Whole lines of a piece of a file, and the records in them.

    `is_last` means that nothing follows, `is_overlong` that enough of the first record was searched: a cell of it that
    doesn't end here never ends.
    """

    def __init__(
        self,
        name: str,
        block: bytes,
        separator: str,
        first_line: int,
        width: int,
        *,
        is_last: bool = True,
        is_overlong: bool = False,
    ) -> None:
        self._name = name
        self._raw = block.split(b"\n")
        if self._raw and not self._raw[-1]:
            self._raw.pop()
        self._separator = separator
        self._first_line = first_line
        self._width = width
        self._is_last = is_last
        self._is_overlong = is_overlong

    def records(self) -> Records:
        """Split all records, without blank lines; raises OpenQuote, or FileRefused with the line."""
        found = Records()
        at = 0
        while at < len(self._raw):
            at = self._take_record(at, found)
        return found

    def separated(self, *, trust_unquoted: bool) -> tuple[list[bytes], list[int], Records]:
        """Separate lines that look like one plain row each, with their numbers, from the records of the rest.

        A plain row has as many cells as the header, its quotation marks come in pairs, and it ends as the first line
        does; with `trust_unquoted` a line without such marks is assumed to. Whether it is what it looks like is for
        the caller to prove. Raises as `records` does.
        """
        raw = self._raw
        mark = self._separator.encode()
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
                looks_plain = separators == self._width - 1 and len(parts) % 2 == 1
            if looks_plain:
                plain.append(line)
                numbers.append(self._first_line + at)
                at += 1
            else:
                at = self._take_record(at, rest)
        return plain, numbers, rest

    def _take_record(self, at: int, found: Records) -> int:
        """Split the record that begins at a line, unless that is blank; return the index of the line after it."""
        text = self._decode(at).removesuffix("\r")
        if not text:
            return at + 1
        if '"' in text:
            try:
                cells, end = self._record(at)
            except _Malformed as error:
                self._prove_end(at, error)
                found.malformed[len(found.cells)] = error.what
                cells, end = [text], at + 1
            except OpenQuote:
                raise OpenQuote(at) from None
        else:
            cells, end = text.split(self._separator), at + 1
        found.lines.append(self._first_line + at)
        found.cells.append(cells)
        return end

    def _record(self, at: int) -> tuple[list[str], int]:
        """Read the record at a line; return its cells and the index of the line after it; raises _Malformed."""
        text, first, position = self._decode(at), at, 0
        cells: list[str] = []
        while True:
            if text[position : position + 1] != '"':
                end = text.find(self._separator, position)
                cell = text[position:].removesuffix("\r") if end < 0 else text[position:end]
                if '"' in cell and not TEXT_FORMULA.fullmatch(cell):
                    raise _Malformed(at, "there is a quotation mark inside a cell that does not begin with one")
                cells.append(cell)
                if end < 0:
                    return cells, at + 1
                position = end + 1
                continue
            cell, at, position = self._quoted_cell(first, at, position + 1)
            text = self._decode(at)
            cells.append(cell)
            if text[position:] in ("", "\r"):
                return cells, at + 1
            if not text.startswith(self._separator, position):
                raise _Malformed(at, "there is text after a closing quotation mark")
            position += len(self._separator)

    def _quoted_cell(self, first: int, at: int, position: int) -> tuple[str, int, int]:
        """Read a cell after its opening mark; return its text, the line index where it ends, and the position there."""
        text = self._decode(at)
        parts: list[str] = []
        while True:
            end = text.find('"', position)
            if end < 0:
                parts += (text[position:], "\n")
                at, position = at + 1, 0
                if at == len(self._raw) and not (self._is_last or (self._is_overlong and first == 0)):
                    raise OpenQuote(first)
                if at == len(self._raw):
                    raise _Malformed(first, "a quotation mark is opened and never closed", is_open=True)
                text = self._decode(at)
            elif text.startswith('""', end):
                parts.append(text[position : end + 1])
                position = end + 2
            else:
                return "".join((*parts, text[position:end])), at, end + 1

    def _prove_end(self, at: int, error: _Malformed) -> None:
        """Prove that a malformed record is its first line and no more; raises FileRefused where that is not certain.

        The next line must begin a record with the header's number of cells. Where a quoted cell continued over lines
        before the fault was found, all of those must be such records.
        """
        following = self._following(at)
        if following is None:
            proven = not error.is_open  # a cell that is open at the file's end: it was cut off
        elif error.at > at:
            proven = self._records_end(at + 1, error.at) is not None
        else:
            proven = self._begins_record(following)
        if not proven:
            raise FileRefused(
                f"{self._name}: line {self._first_line + at}: {error.what}, and where the record ends can't be known"
            )

    def _following(self, at: int) -> int | None:
        """Return the index of the next line that is not blank, None at the end of the file; OpenQuote asks for more."""
        for line in range(at + 1, len(self._raw)):
            if self._raw[line].strip(b"\r"):
                return line
        if not self._is_last:
            raise OpenQuote(at)
        return None

    def _records_end(self, at: int, last: int) -> int | None:
        """Return where the records that begin at these lines end; None if one lacks the header's number of cells.

        A valid record over several lines needs no check: its later lines have an odd number of marks, rows an even one.
        """
        any_record = False
        while at <= last:
            if not self._raw[at].strip(b"\r"):
                at += 1
                continue
            try:
                cells, at = self._record(at)
            except _Malformed:
                return None
            if len(cells) != self._width:
                return None
            any_record = True
        return at if any_record else None

    def _begins_record(self, at: int) -> bool:
        """Whether a record with the header's number of cells begins at a line, even if malformed itself."""
        try:
            return len(self._record(at)[0]) == self._width
        except _Malformed as error:
            text = self._decode(at)
            outside = sum(part.count(self._separator) for part in text.split('"')[::2])
            return error.at == at and self._width - 1 in (text.count(self._separator), outside)

    def _decode(self, at: int) -> str:
        try:
            return self._raw[at].decode("utf-8")
        except UnicodeDecodeError:
            line = self._first_line + at
            raise NotUtf8(f"{self._name}: line {line} is not UTF-8") from None


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
class CsvDialect:
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


def read_dialect(name: str, head: bytes, known: Sequence[str] = COLUMNS) -> CsvDialect:
    """Find the separator and the header in the first bytes of a file; raises FileRefused where there is none.

    The header is the first record with enough known names; above it there may be titles, but no payments. Where no
    record has enough, it is the first one.
    """
    refuse_wide(name, head)
    refuse_bank_file(name, head[:HEAD_BYTES].decode("utf-8", "replace"))
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
            above = [
                (row, [cell.decode("utf-8", "replace") for part in raw.split(mark) if (cell := part.strip(b' \t\r"'))])
                for row, raw in titles
            ]
            notes = title_notes(name, "line", number, above, found.names)
            used = start + found.bytes
            lines = head.count(b"\n", start, used)
            return CsvDialect(found.separator, tuple(found.names), used, number + lines, notes)
        end = head.find(b"\n", start)
        end = len(head) if end < 0 else end
        titles.append((number, head[start:end]))
        start, number = end + 1, number + 1
    only = _choose(name, head[first:], line, candidates, known)
    if not isinstance(only, _Found):
        raise only
    return CsvDialect(
        only.separator, tuple(only.names), first + only.bytes, line + head.count(b"\n", first, first + only.bytes)
    )


def with_trailing_cells(name: str, head: bytes, dialect: CsvDialect) -> CsvDialect:
    """Widen the header where every row of the head has as many cells more, all of them empty: each ends with commas."""
    block = head[dialect.data_at :][:_TITLE_BYTES_MAX]
    block = block[: block.rfind(b"\n") + 1] or block
    width = len(dialect.names)
    lines, found, at = Lines(name, block, dialect.separator, dialect.data_line, width, is_last=False), Records(), 0
    with suppress(OpenQuote, FileRefused):
        while at < block.count(b"\n") and (not found.cells or len(found.cells[0]) > width):
            at = lines._take_record(at, found)
    more = {len(cells) - width for cells in found.cells}
    if len(more) != 1 or max(more) < 1 or any(any(cells[width:]) for cells in found.cells):
        return dialect
    note = f"every row has {counted(max(more), 'empty cell')} more than the header: read as if the header had as many"
    return replace(dialect, names=(*dialect.names, *("",) * max(more)), notes=(*dialect.notes, note))


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
            names, lines = Lines(name, rest, separator, line, width=0)._record(0)
        except (_Malformed, FileRefused) as error:
            if isinstance(error, _Malformed):
                error = FileRefused(f"{name}: line {line + error.at}: {error.what}, in the header")
            best = best or error
            continue
        count = known_names(names, known)
        if not isinstance(best, _Found) or (count, len(names)) > (best.known, len(best.names)):
            taken = b"\n".join(rest.split(b"\n", lines)[:lines])
            best = _Found(count, separator, names, min(len(rest), len(taken) + 1))
    assert best is not None, "there is always a candidate"
    return best
