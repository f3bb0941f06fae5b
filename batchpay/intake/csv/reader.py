"""Reading a CSV file as chunks of text, fast, and with proof that no cell moved.

The file is read in blocks that end at the end of a line. polars splits a block into cells; then the bytes are counted:
cells + separators + line ends + quotation marks must equal the block, to the byte. A short row (which polars pads
silently), a blank line, a stray quotation mark make the sum smaller and never larger, so nothing can cancel out. Where
the count is off, or polars refuses the block, grammar.py reads the block instead.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import polars as pl
from nanoarrow import bool_, uint8
from nanoarrow.c_array import c_array_from_buffers

from batchpay.errors import FileRefused
from batchpay.intake.csv.encodings import proposed
from batchpay.intake.csv.grammar import (
    BYTE_ORDER_MARK,
    HEADER_BYTES_MAX,
    CsvDialect,
    Lines,
    NotUtf8,
    OpenQuote,
    Records,
)
from batchpay.intake.header import Header
from batchpay.intake.streams import OpenFile, ahead, in_blocks, recoded, sha256_of, unpacked
from batchpay.intake.table_rows import (
    FileEnd,
    OneContent,
    OneReading,
    changed_meanwhile,
    finish_chunk,
    with_text_formulas,
)
from batchpay.schemas.columns import BARE_ROW, QUOTATION, RAGGED
from batchpay.text import counted

MARK, RETURN, BREAK, BLANK, EQUALS = b'"\r\n ='
BACKSLASH = b"\\"


class Octets:
    """The bytes of a block of whole lines, the last of which ends with a line break."""

    def __init__(self, block: bytes, separator: str) -> None:
        self.block = block
        self.all = pl.Series(c_array_from_buffers(uint8(), len(block), [None, block]))  # copies nothing
        self.separator = ord(separator)
        self.breaks = self.all == BREAK

    @cached_property
    def marks(self) -> pl.Series:
        """Flags of the quotation marks."""
        return self.all == MARK

    @cached_property
    def break_count(self) -> int:
        """How many lines there are."""
        return int(self.breaks.sum())

    @cached_property
    def mark_count(self) -> int:
        """How many quotation marks there are."""
        return int(self.marks.sum())

    @cached_property
    def control_count(self) -> int:
        """How many ASCII control characters there are, except DEL: line breaks included."""
        return int((self.all < BLANK).sum())

    @cached_property
    def return_count(self) -> int:
        """How many carriage returns there are."""
        return int((self.all == RETURN).sum()) if self.control_count != self.break_count else 0

    @cached_property
    def borders(self) -> pl.Series:
        """Flags of the separators and line breaks: outside of quotation marks a cell begins after each."""
        return (self.all == self.separator) | self.breaks

    @cached_property
    def ends(self) -> pl.Series:
        """Flags of the separators and line ends: outside of quotation marks a cell ends before each."""
        return self.borders | (self.all == RETURN) if self.return_count else self.borders

    def returns_end_lines(self) -> bool:
        """Return whether every carriage return is followed by a line break."""
        if not self.return_count:
            return True
        return int(((self.all == RETURN).head(-1) & self.breaks.slice(1)).sum()) == self.return_count

    @cached_property
    def opened(self) -> pl.Series:
        """For each quotation mark, whether it follows a separator or the beginning of a line."""
        return self._before_marks(self.borders, at_first=True)

    @cached_property
    def closed(self) -> pl.Series:
        """For each quotation mark, whether a separator or a line end follows it."""
        return self._after_marks(self.ends)

    def marks_at_borders(self) -> bool:
        """Return whether every mark that is not doubled is where a cell begins or ends."""
        if not self.mark_count:
            return True
        if self.mark_count % 2:
            return False
        # Every second one true, as of marks that close what the one before opened.
        closing = pl.Series(c_array_from_buffers(bool_(), self.mark_count, [None, b"\xaa" * -(-self.mark_count // 8)]))
        if (self.opened | closing).all() and (self.closed | ~closing).all():
            return True
        opened = self.opened | self._before_marks(self.marks, at_first=False)
        closed = self.closed | self._after_marks(self.marks)
        return (opened | closing).all() and (closed | ~closing).all()

    @cached_property
    def has_doubled_marks(self) -> bool:
        """Whether some mark follows another: within a quoted cell, or as an empty quoted cell."""
        return bool(self.mark_count) and (self.marks.head(-1) & self.marks.slice(1)).any()

    def may_have_text_formulas(self) -> bool:
        """Return whether some cell may be like `="00123"`: one with a mark in it, and a mark that follows a `=`."""
        if not self.mark_count or (self.marks_at_borders() and not self.has_doubled_marks):
            return False
        return ((self.all == EQUALS).head(-1) & self.marks.slice(1)).any()

    def cells_are_bare(self) -> bool:
        """Return whether no cell has a mark, a backslash or a control character, in a block of one line per row."""
        if self.control_count != self.break_count + self.return_count or not self.returns_end_lines():
            return False
        return not self.has_doubled_marks and self.marks_at_borders() and BACKSLASH not in self.block

    def _before_marks(self, flags: pl.Series, *, at_first: bool) -> pl.Series:
        """Return for each quotation mark the flag of the byte before it."""
        before = flags.head(-1).filter(self.marks.slice(1))
        return pl.concat([pl.Series([at_first]), before], rechunk=True) if self.marks.first() else before

    def _after_marks(self, flags: pl.Series) -> pl.Series:
        """Return for each quotation mark the flag of the byte after it; the last byte is not a mark."""
        return flags.slice(1).filter(self.marks.head(-1))


CHUNK_ROWS = 40_000
BLOCK_BYTES = (1 << 20, 24 << 20)
"""The fewest and the most bytes of a block; between them it is sized for CHUNK_ROWS rows."""
PIECE_BYTES = 2 << 20
"""A block with an irregular row is reread in pieces of this size: splitting row by row takes much memory."""
OPEN_BYTES_MAX = 4 << 20
"""A quoted cell that is not closed within this many bytes is taken for an unpaired quotation mark."""


@dataclass(frozen=True)
class CsvText:
    """A CSV file as a stream of UTF-8 bytes that can be read from the start again."""

    file: OpenFile
    packing: str | None = None
    encoding: str | None = None

    def plain(self) -> Iterator[bytes]:
        """Unpack the file from its first byte."""
        return unpacked(in_blocks(self.file.reader()), self.packing, self.file.name, self.file.size)

    def blocks(self) -> Iterator[bytes]:
        """Unpack and re-encode the file from its first byte."""
        return recoded(self.plain(), self.encoding, self.file.name)

    @contextmanager
    def naming_encodings(self) -> Iterator[None]:
        """Add to the refusal of a file that is not UTF-8 which encodings it may be in."""
        try:
            yield
        except NotUtf8 as error:
            raise FileRefused(f"{error}{proposed(self.plain())}") from None

    def head(self) -> bytes:
        """Return enough of the beginning to contain the header."""
        head = b""
        blocks = self.blocks()
        while len(head) < HEADER_BYTES_MAX and (block := next(blocks, None)) is not None:
            head += block
        return head


class CsvReader:
    """The data rows of a CSV file below a header that was read before."""

    def __init__(self, text: CsvText, head: bytes, dialect: CsvDialect, header: Header) -> None:
        self._text = text
        self._name = text.file.name
        self._content = OneContent(self._name)
        self._header = header
        self._dialect = dialect
        self._separator = dialect.separator
        self._places = [f"c{at}" for at in range(len(header.names))]
        self._schema = dict.fromkeys(self._places, pl.String)
        self.end = FileEnd()
        self._before_data = head[: dialect.data_at]
        self._block_bytes = _block_bytes(head)
        self._is_unfinished = False
        """Whether the last line has no line break."""
        self._has_irregular_rows = False
        """Where one block has irregular rows the next ones likely do too: they are not tried as a whole."""
        self._text_digest = b""
        """SHA-256 of the text, of the latest complete reading."""

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in file order; raises FileRefused with the line where the file can't be read."""
        reading = self._content.reading()
        with self._text.naming_encodings():
            yield from ahead(self._chunks(reading))
        reading.end()  # here, and not in the thread that reads ahead: the caller may not want all of it

    def digest(self) -> bytes:
        """Return the SHA-256 of the file's bytes, unpacked, whatever their encoding."""
        if self._text.encoding is None and self._text_digest:
            return self._text_digest
        return sha256_of(self._text.plain())

    def _chunks(self, reading: OneReading) -> Iterator[pl.DataFrame]:
        row, line = 0, self._dialect.data_line
        left = b""
        self._header.examples.restart()
        for octets, is_last in self._blocks(reading):
            octets = Octets(left + octets.block, self._separator) if left else octets
            whole, left = self._split(octets, line, is_last, is_proven=reading.is_again)
            line += octets.break_count - left.count(b"\n")
            if is_last and self._is_unfinished:
                self.end.unfinished_line = max(line - 1, self._dialect.data_line)  # of a lone header: its own
                last = whole.tail(1)
                self.end.is_cut = any(
                    last[name].null_count() < last.height for name in {RAGGED, QUOTATION} & {*last.columns}
                )
            frame = finish_chunk(self._name, whole, self._places, self._header, row)
            if octets.may_have_text_formulas():
                frame = with_text_formulas(frame, self._header.own)
            row += frame.height
            del octets, whole  # free the memory while the next block is read
            if frame.height:
                yield frame
            del frame

    def _blocks(self, reading: OneReading) -> Iterator[tuple[Octets, bool]]:
        """Cut the stream after the header into blocks of whole lines; the flag marks the last one."""
        digest = sha256()  # of the bytes: the same bytes are the same cells
        pieces: list[bytes] = []
        held = 0
        skipped = 0
        finished = True
        for piece in self._text.blocks():
            digest.update(piece)
            finished = piece.endswith(b"\n") if piece else finished
            if before := self._before_data[skipped : skipped + len(piece)]:
                if not piece.startswith(before):
                    raise changed_meanwhile(self._name)
                piece, skipped = piece[len(before) :], skipped + len(before)
            held += len(piece)
            if held < self._block_bytes:
                pieces.append(piece)
                continue
            end = piece.rfind(b"\n") + 1
            block = b"".join((*pieces, piece[:end]))
            octets = Octets(block, self._separator)
            cut = _row_end(octets)
            if not cut and held > BLOCK_BYTES[1] + OPEN_BYTES_MAX:
                raise FileRefused(f"{self._name}: contains a line longer than {held >> 20} MiB")
            pieces = [block[cut:], piece[end:]]
            held -= cut
            if cut:
                ready = [octets if cut == len(block) else Octets(block[:cut], self._separator)]
                del octets, block, piece  # free the memory while the block is split
                reading.add(digest.digest())
                yield ready.pop(), False
        self._is_unfinished = not finished
        if not finished:
            pieces.append(b"\n" if held else b"")
        self._text_digest = digest.digest()
        reading.add(self._text_digest)
        yield Octets(b"".join(pieces), self._separator), True

    def _split(self, octets: Octets, line: int, is_last: bool, *, is_proven: bool) -> tuple[pl.DataFrame, bytes]:
        """Split a block into cells by place, with `_line`; what follows an open quotation mark is left over.

        `is_proven` means that an earlier reading had the same bytes: if no row was irregular then, none is now.
        """
        block = octets.block
        at = block.find(b"\0")
        if at >= 0:
            line += block.count(b"\n", 0, at)
            raise FileRefused(f"{self._name}: line {line} contains a NUL byte")
        fast = None if self._has_irregular_rows else self._fast(octets, line, is_proven=is_proven)
        if fast is not None:
            return fast, b""
        self._has_irregular_rows = True
        frames: list[pl.DataFrame] = []
        left, rest = b"", memoryview(block)
        while rest:
            piece = bytes(rest[:PIECE_BYTES])
            if len(piece) < len(rest):
                piece = piece[: _row_end(Octets(piece, self._separator))] or bytes(rest)
            rest = rest[len(piece) :]
            piece = left + piece
            frame, left = self._piece(piece, line, is_last=is_last and not rest)
            line += piece.count(b"\n", 0, len(piece) - len(left))
            frames.append(frame)
        return pl.concat(frames, how="diagonal") if frames else self._empty(), left

    def _piece(self, piece: bytes, line: int, *, is_last: bool) -> tuple[pl.DataFrame, bytes]:
        """Split a piece with an irregular row; a last record that may continue is left for the next piece."""
        taken, is_overlong = piece, len(piece) > OPEN_BYTES_MAX
        while True:
            try:
                return self._mixed(taken, line, is_last=is_last, is_overlong=is_overlong), piece[len(taken) :]
            except OpenQuote as error:
                at = 0
                for _ in range(error.first):
                    at = piece.find(b"\n", at) + 1
                taken, is_last = piece[:at], False
                if not taken and len(piece) > OPEN_BYTES_MAX + 2 * PIECE_BYTES:
                    raise FileRefused(
                        f"{self._name}: line {line}: a quotation mark is opened and never closed, and where the record "
                        "ends can't be known"
                    ) from None

    def _mixed(self, piece: bytes, line: int, **ends: bool) -> pl.DataFrame:
        """Let polars split the rows that look plain, and split only the others one by one."""
        lines = Lines(self._name, piece, self._separator, line, len(self._places), **ends)
        for trust_unquoted in (True, False):
            plain, numbers, irregular = lines.separated(trust_unquoted=trust_unquoted)
            plain.append(b"")
            fast = self._fast(Octets(b"\n".join(plain), self._separator), 0)
            if fast is not None and fast.height == len(numbers):
                fast = fast.with_columns(pl.Series("_line", numbers, dtype=pl.UInt32))
                return (
                    pl.concat([fast, self._slow(irregular)], how="diagonal").sort("_line") if irregular.cells else fast
                )
        return self._slow(lines.records())

    def _fast(self, octets: Octets, line: int, *, is_proven: bool = False) -> pl.DataFrame | None:
        """Let polars split the block; None where it can't be proven that every cell is where it should be."""
        block = octets.block
        if not block:
            return self._empty()
        if block.startswith(BYTE_ORDER_MARK):
            return None  # polars drops it, but inside a file it belongs to a cell
        try:
            frame = pl.read_csv(
                block, has_header=False, schema=self._schema, separator=self._separator, raise_if_empty=False
            )
        except pl.exceptions.PolarsError:
            return None
        if not is_proven and not self._is_faithful(octets, frame):
            return None
        rows, breaks = frame.height, octets.break_count
        if breaks == rows:
            lines = pl.int_range(line, line + rows, dtype=pl.UInt32)
        else:
            with_breaks = frame.select(pl.all().str.contains("\n", literal=True).any()).row(0)
            broken = [place for place, found in zip(self._places, with_breaks, strict=True) if found]
            inside = pl.sum_horizontal(pl.col(broken).str.count_matches("\n", literal=True)).cast(pl.UInt32)
            lines = (pl.int_range(rows, dtype=pl.UInt32) + inside.cum_sum() - inside + line).cast(pl.UInt32)
        if octets.has_doubled_marks:  # an empty cell in quotation marks is not a null yet
            with_empty = frame.select((pl.all() == "").any()).row(0)
            empty = [place for place, found in zip(self._places, with_empty, strict=True) if found]
            frame = frame.with_columns(pl.when(pl.col(place) != "").then(pl.col(place)) for place in empty)
        frame = frame.with_columns(lines.alias("_line"))
        # A later reading builds the requests of all rows. A tab as the separator would count as a control character.
        if is_proven and breaks == rows and octets.separator >= BLANK and octets.cells_are_bare():
            frame = frame.with_columns(pl.repeat(True, pl.len()).alias(BARE_ROW))  # a literal would copy all columns
        return frame

    def _is_faithful(self, octets: Octets, frame: pl.DataFrame) -> bool:
        """Return whether it is proven that polars put every cell of a block where it should be."""
        rows = frame.height
        if octets.return_count and not (octets.return_count == rows and octets.returns_end_lines()):
            return False
        # Each cell is followed by a separator or a line end.
        beside = octets.mark_count + octets.return_count + len(self._places) * rows
        missing = sum(frame.select(pl.all().str.len_bytes().sum()).row(0)) + beside - len(octets.block)
        if missing:
            may_be_doubled = octets.mark_count and octets.break_count == rows
            if not may_be_doubled or self._doubled_quotes(octets.block, frame) != missing:
                return False
        return octets.marks_at_borders()  # polars silently drops a mark inside a quoted cell

    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**self._schema, "_line": pl.UInt32})

    def _doubled_quotes(self, block: bytes, frame: pl.DataFrame) -> int:
        """Count the quotation marks in cells of the lines that have doubled ones; -1 where polars misread one.

        Every row is one line here. Marks that this count does not find are single ones in an unquoted cell, and polars
        takes such a mark for an opening one: it matters where a separator follows in what polars took for the cell.
        """
        numbers, lines = _lines_with(block, b'""')
        rows = frame[numbers]
        with_mark = rows.select(pl.all().str.contains('"', literal=True).any()).row(0)
        if not any(with_mark):
            return 0
        marked = pl.col([place for place, found in zip(self._places, with_mark, strict=True) if found])
        doubtful = rows.select(
            marked.str.contains('"', literal=True) & marked.str.contains(self._separator, literal=True)
        )
        if not self._confirmed(rows, lines, doubtful):
            return -1
        return int(rows.select(pl.sum_horizontal(marked.str.count_matches('"', literal=True).sum())).item())

    def _confirmed(self, rows: pl.DataFrame, lines: list[bytes], doubtful: pl.DataFrame) -> bool:
        """Return whether cells with a mark and a separator in them are those that the standard library's reader finds.

        It knows the grammar of grammar.py and refuses more; and cells that polars moved come after such a cell.
        """
        at = doubtful.select(pl.any_horizontal(pl.all()).fill_null(value=False).arg_true()).to_series()
        try:
            exact = list(csv.reader((lines[row].decode() for row in at), delimiter=self._separator, strict=True))
        except csv.Error:
            return False
        if len(exact) != len(at) or any(len(cells) != len(self._places) for cells in exact):
            return False
        for flag in doubtful[at].iter_columns():
            place, found = self._places.index(flag.name), flag.arg_true()
            if [exact[row][place] for row in found] != rows[flag.name].gather(at.gather(found)).to_list():
                return False
        return True

    def _slow(self, records: Records) -> pl.DataFrame:
        """Make a frame of records that were split one by one; a row that does not fit the table is marked."""
        width = len(self._places)
        ragged: list[str | None] = [None] * len(records.cells)
        surplus: list[list[str] | None] = [None] * len(records.cells)
        missing: list[int | None] = [None] * len(records.cells)
        for at, cells in enumerate(records.cells):
            if len(cells) != width:
                if at not in records.malformed:
                    ragged[at] = f"the row has {counted(len(cells), 'cell')} and the header {width}"
                surplus[at] = cells[width:] or None
                missing[at] = max(0, width - len(cells)) or None
                records.cells[at] = (cells + [""] * width)[:width]
        columns = zip(*records.cells, strict=True) if records.cells else ((),) * width
        frame = pl.DataFrame(
            {place: [cell or None for cell in column] for place, column in zip(self._places, columns, strict=True)},
            schema=self._schema,
        ).with_columns(pl.Series("_line", records.lines, dtype=pl.UInt32))
        quotation = [records.malformed.get(at) for at in range(len(records.cells))]
        marks = (
            pl.Series("_ragged", ragged, dtype=pl.String),
            pl.Series("_quotation", quotation, dtype=pl.String),
            pl.Series("_surplus", surplus, dtype=pl.List(pl.String)),
            pl.Series("_missing", missing, dtype=pl.UInt32),
        )
        return frame.with_columns(column for column in marks if column.null_count() < len(column))


def _lines_with(block: bytes, what: bytes) -> tuple[list[int], list[bytes]]:
    """Return the lines that contain something: their numbers from 0, and the lines."""
    numbers: list[int] = []
    lines: list[bytes] = []
    number, counted, at = 0, 0, block.find(what)
    while at >= 0:
        start, end = block.rfind(b"\n", 0, at) + 1, block.index(b"\n", at) + 1
        number += block.count(b"\n", counted, start)
        counted = start
        numbers.append(number)
        lines.append(block[start:end])
        at = block.find(what, end)
    return numbers, lines


def _row_end(octets: Octets) -> int:
    """Find the end of the last line that seems to end a row: an even number of quotation marks before it."""
    block = octets.block
    end = block.rfind(b"\n") + 1
    odd = (octets.mark_count - block.count(b'"', end)) % 2
    cut = end
    for _ in range(1000):
        if not odd or not cut:
            break
        before = block.rfind(b"\n", 0, cut - 1) + 1
        odd ^= block.count(b'"', before, cut) % 2
        cut = before
    return cut if not odd and cut else end


def _block_bytes(head: bytes) -> int:
    lines = max(1, head.count(b"\n"))
    least, most = BLOCK_BYTES
    return min(most, max(least, len(head) // lines * CHUNK_ROWS))
