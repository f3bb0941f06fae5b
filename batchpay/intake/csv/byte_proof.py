"""What the bytes of a CSV block prove, apart from its cells: counted at memory speed, by polars.

Each test is applied to all bytes at the same time, as flags of one bit each. What is before or after a byte is the same
flags shifted by one (`head` and `slice`, which copy nothing): extracting bytes costs many times as much.
"""

from __future__ import annotations

from functools import cached_property

import polars as pl
from nanoarrow import bool_, uint8
from nanoarrow.c_array import c_array_from_buffers

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
        closing = _every_second(self.mark_count)
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


def _every_second(count: int) -> pl.Series:
    """Make this many flags, an even number, every second one true: marks that close what the one before opened."""
    return pl.Series(c_array_from_buffers(bool_(), count, [None, b"\xaa" * -(-count // 8)]))
