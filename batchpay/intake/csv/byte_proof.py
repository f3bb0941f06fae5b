"""What the bytes of a block of CSV tell before and beside its cells: counted at the speed of memory, by polars."""

from __future__ import annotations

import polars as pl
from nanoarrow import uint8
from nanoarrow.c_array import c_array_from_buffers

_BLANK, _MARK, _RETURN, _BREAK, _DELETE = b' "\r\n\x7f'
_AROUND = (_MARK, _RETURN, _BREAK)
_LINE_BREAK = pl.Series([_BREAK], dtype=pl.UInt8)
_ODD_AFTER_LEAD = {
    0xC2: (0x80, 0xA0), 0xC3: (0x82, 0x85), 0xE1: (0x9A, 0x9A), 0xE2: (0x80, 0x82), 0xE3: (0x80, 0x80),
    0xEF: (0xBB, 0xBF),
}  # fmt: skip
"""How all control characters, white space, U+FFFD, zero-width and bidirectional marks beyond ASCII begin in UTF-8, and
the letters that text decoded twice is known by: a first byte and the range of the second. Others begin so too,
quotation marks of books and the euro sign among them."""


class Octets:
    """The bytes of a block of whole lines."""

    def __init__(self, block: bytes) -> None:
        self._all = pl.Series(c_array_from_buffers(uint8(), len(block), [None, block]))  # copies nothing

    def count(self, octet: bytes) -> int:
        """How often a byte stands in the block."""
        return int((self._all == octet[0]).sum())

    def around_marks(self) -> tuple[pl.Series, pl.Series]:
        """The bytes before and after each quotation mark; before the first byte stands a line break."""
        marks = self._all == _MARK
        before, after = self._before(marks), self._after(marks)
        return (pl.concat([_LINE_BREAK, before]) if marks[0] else before), after

    def is_plain(self, control_bytes: int) -> bool:
        """Tell whether cells hold no character that the rules for every text forbid, nor white space but blanks.

        Around the cells stand so many control bytes. May be False where this is so.
        """
        if int((self._all < _BLANK).sum()) != control_bytes or (self._all == _DELETE).any():
            return False
        for lead, (least, most) in _ODD_AFTER_LEAD.items():
            leads = self._all == lead
            if leads.any() and self._after(leads).is_between(least, most).any():
                return False
        return True

    def _before(self, chosen: pl.Series) -> pl.Series:
        return self._all.head(-1).filter(chosen.slice(1))

    def _after(self, chosen: pl.Series) -> pl.Series:
        return self._all.slice(1).filter(chosen.head(-1))


def marks_at_borders(before: pl.Series, after: pl.Series, separator: str) -> bool:
    """Tell by the bytes around it whether every mark that is not doubled stands where a cell begins or ends."""
    borders = (ord(separator), *_AROUND)
    opened, closed = before.gather_every(2), after.gather_every(2, 1)
    return len(opened) == len(closed) and bool(
        (opened != _RETURN).all() and opened.is_in(borders).all() and closed.is_in(borders).all()
    )


def has_doubled_marks(after: pl.Series) -> bool:
    """Tell whether some mark follows another: within a quoted cell, or as an empty one."""
    return bool((after == _MARK).any())
