"""Rows that fail for what stands elsewhere: in the same file, or in an earlier batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from batchpay.schemas.catalogue import PAYMENT_ID_DUPLICATE, ROW_DUPLICATE, RuleFacts
from batchpay.validation.compiled_rules import Hit, row_hit
from batchpay.validation.duplicates import FrameSpool, bits_of

Late = tuple[str, str, str]
"""Column, code and message of a failure that was found outside the rules."""


class LateRows:
    """Rows that fail for what stands elsewhere: in the same file, or in an earlier batch."""

    def __init__(self, rows: int, by_id: pl.Series, alike: pl.Series, elsewhere: Mapping[int, Late]) -> None:
        self._in_file = [(PAYMENT_ID_DUPLICATE, bits_of(rows, by_id)), (ROW_DUPLICATE, bits_of(rows, alike))]
        self._elsewhere = elsewhere
        self._bits = bits_of(rows, pl.Series([*elsewhere], dtype=pl.UInt32))
        for _, bits in self._in_file:
            self._bits |= bits
        self.any = bool(self._bits.any())

    def among(self, rows: pl.Series) -> pl.Series:
        """Tell which of these rows fail."""
        return self._bits.gather(rows - 1)

    def hits(self, rows: pl.Series) -> list[Hit]:
        """Give what these rows break."""
        hits = [row_hit(facts, bits.gather(rows - 1)) for facts, bits in self._in_file]
        found = [self._elsewhere.get(row) for row in rows.to_list()]
        for column, code in sorted({(late[0], late[1]) for late in found if late}):
            texts = [late[2] if late and late[:2] == (column, code) else None for late in found]
            told = pl.Series(texts, dtype=pl.String)
            facts = RuleFacts(column, code, "error", "H", "", "")
            hits.append(row_hit(facts, told.is_not_null(), told))
        return [hit for hit in hits if hit.flag.any()]


def merged(rejected: FrameSpool, late: FrameSpool) -> Iterator[pl.DataFrame]:
    """Lay rows that were rejected late among the others, in row order; a late one holds all of its row's reasons."""
    later = _Waiting(late)
    for frame in rejected:
        among = later.up_to(int(frame["_row"].to_list()[-1]))
        yield frame.join(among, on="_row", how="anti").vstack(among).sort("_row") if among.height else frame
    yield from later.rest()


class _Waiting:
    """Frames in row order, taken up to a row at a time."""

    def __init__(self, frames: FrameSpool) -> None:
        self._frames = iter(frames)
        self._next = next(self._frames, None)

    def up_to(self, row: int) -> pl.DataFrame:
        """Take the rows up to and with this one."""
        taken = pl.DataFrame()
        while self._next is not None:
            within = self._next.filter(pl.col("_row") <= row)
            beyond = self._next.filter(pl.col("_row") > row)
            taken = taken.vstack(within) if taken.width else within
            self._next = beyond if beyond.height else next(self._frames, None)
            if beyond.height:
                break
        return taken

    def rest(self) -> Iterator[pl.DataFrame]:
        """Take what is left."""
        if self._next is not None:
            yield self._next
            yield from self._frames
