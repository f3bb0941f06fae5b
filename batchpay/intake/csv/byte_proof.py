"""What the bytes of a block of CSV tell before and beside its cells: counted at the speed of memory, by polars."""

from __future__ import annotations

import polars as pl
from nanoarrow import uint8
from nanoarrow.c_array import c_array_from_buffers

_MARK, _RETURN, _BREAK = b'"\r\n'
_AROUND = (_MARK, _RETURN, _BREAK)
_LINE_BREAK = pl.Series([_BREAK], dtype=pl.UInt8)


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
