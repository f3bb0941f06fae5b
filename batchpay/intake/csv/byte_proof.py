"""What the bytes of a block of CSV tell before and beside its cells: counted at the speed of memory, by polars."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl
from nanoarrow import uint8
from nanoarrow.c_array import c_array_from_buffers

MARK, RETURN, BREAK, BLANK = b'"\r\n '
_LINE_BREAK = pl.Series([BREAK], dtype=pl.UInt8)
_FEW = 30
"""Where at most one byte of so many is a quotation mark, some cells are without."""


@dataclass(frozen=True, slots=True, eq=False)
class Around:
    """Some bytes of a block in their order, each with those before and after it."""

    octets: pl.Series
    before: pl.Series
    after: pl.Series

    def only(self, octet: int) -> Around:
        """Leave out all bytes but one."""
        kept = self.octets == octet
        return Around(self.octets.filter(kept), self.before.filter(kept), self.after.filter(kept))


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
        """How many control characters of ASCII there are, but for its last one: line breaks among them."""
        return int((self.all < BLANK).sum())

    @cached_property
    def return_count(self) -> int:
        """How many carriage returns there are."""
        return int((self.all == RETURN).sum()) if self.control_count != self.break_count else 0

    def returns_end_lines(self) -> bool:
        """Tell whether every carriage return stands before a line break."""
        return not self.return_count or bool((self._around(self.all == RETURN).after == BREAK).all())

    @cached_property
    def around_marks(self) -> Around:
        """The quotation marks and what stands beside them."""
        if self.mark_count * _FEW > len(self.all):
            return self._around(self.marks)
        return self.around_blanks_and_marks.only(MARK)  # a part of what is needed anyway

    @cached_property
    def around_blanks_and_marks(self) -> Around:
        """The blanks, line breaks and quotation marks, and what stands beside them."""
        return self._around(self._blanks | self.marks)

    @property
    def around_blanks(self) -> Around:
        """The blanks and line breaks, and what stands beside them."""
        return self._around(self._blanks)

    def has_marks_after(self, octet: bytes) -> bool:
        """Tell whether a quotation mark follows this byte somewhere; a search of the block takes ten times as long."""
        return bool((self.around_marks.before == octet[0]).any())

    def are_all_quoted(self, cells: int) -> bool:
        """Tell whether each of so many cells is in quotation marks: an opening mark follows a separator or a break."""
        if self.mark_count < 2 * cells:
            return False
        opened = self.around_marks.before.gather_every(2)
        return int(one_of(opened, self.separator, BREAK).sum()) == cells

    @property
    def _blanks(self) -> pl.Series:
        return self.breaks | (self.all == BLANK)

    def _around(self, chosen: pl.Series) -> Around:
        """Give the flagged bytes but the last one of the block; before its first byte stands a line break."""
        inner = chosen.head(-1)
        before = self.all.head(-2).filter(chosen.slice(1).head(-1))
        return Around(
            self.all.head(-1).filter(inner),
            pl.concat([_LINE_BREAK, before]) if inner.first() else before,
            self.all.slice(1).filter(inner),
        )


def one_of(octets: pl.Series, *those: int) -> pl.Series:
    """Flag the bytes that are one of a few."""
    flags = octets == those[0]
    for octet in those[1:]:
        flags |= octets == octet
    return flags


def marks_at_borders(marks: Around, separator: int) -> bool:
    """Tell by the bytes around it whether every mark that is not doubled stands where a cell begins or ends."""
    borders = (separator, MARK, BREAK)
    opened, closed = marks.before.gather_every(2), marks.after.gather_every(2, 1)
    return len(opened) == len(closed) and bool(
        one_of(opened, *borders).all() and one_of(closed, *borders, RETURN).all()
    )


def has_doubled_marks(marks: Around) -> bool:
    """Tell whether some mark follows another: within a quoted cell, or as an empty one."""
    return bool((marks.after == MARK).any())
