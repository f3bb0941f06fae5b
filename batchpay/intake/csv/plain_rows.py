"""Which rows of a block hold nothing but plain text, told by their bytes: forms.PLAIN is shown of all cells at once.

A character of a cell stands in the bytes of its row, and a cell begins and ends beside a separator, a quotation mark or
a line's end. So a row is plain whose bytes are plain characters, without a blank at such a border. A row may be plain
and not be told so, never the other way.
"""

from __future__ import annotations

import polars as pl

from batchpay.intake.csv.byte_proof import BLANK, BREAK, MARK, RETURN, Octets
from batchpay.schemas.forms import TEXT_BYTES_MAX

_DELETE = 0x7F


def plain_rows(octets: Octets, lengths: pl.DataFrame) -> pl.Series:
    """Flag the rows of a block, each of them one line, whose cells all have the form PLAIN; needs each cell's bytes."""
    odd = [_with_blanks_at_borders(octets, lengths.height * lengths.width), *_with_odd_characters(octets)]
    most = lengths.max().row(0)
    long = [column for column, count in zip(lengths.columns, most, strict=True) if (count or 0) > TEXT_BYTES_MAX]
    odd += [(lengths[column] > TEXT_BYTES_MAX).arg_true() for column in long]
    rows = pl.concat(odd)
    plain = pl.Series([True]).new_from_index(0, lengths.height)
    return plain.scatter(rows, values=False) if len(rows) else plain


def _with_blanks_at_borders(octets: Octets, cells: int) -> pl.Series:
    """Number the rows with a blank where a cell begins or ends; a separator within a quoted cell is no border."""
    blanks = octets.all == BLANK
    at_first = pl.Series([0] if blanks.first() else [], dtype=pl.UInt32)
    blanks = blanks.slice(1).head(-1)  # the last byte is a line break
    odd = blanks & _beside(octets.line_ends | octets.marks if octets.mark_count else octets.line_ends)
    found = odd if octets.are_all_quoted(cells) else odd | (blanks & _beside(octets.borders))
    if not found.any():
        return at_first
    looked_at = found | octets.breaks.slice(1).head(-1)
    if octets.mark_count and found is not odd:
        looked_at |= octets.marks.slice(1).head(-1)
    few = octets.all.slice(1).head(-1).filter(looked_at)
    is_open = (few == MARK).cum_sum() % 2 == (0 if octets.marks.first() else 1)
    odd = (few == BLANK) & (odd.filter(looked_at) | ~is_open)
    return pl.concat([at_first, (few == BREAK).cum_sum().filter(odd).cast(pl.UInt32)])


def _beside(flags: pl.Series) -> pl.Series:
    """Flag the bytes before or after which a flagged one stands; the first and the last one are left out."""
    return flags.head(-2) | flags.slice(2)


def _with_odd_characters(octets: Octets) -> list[pl.Series]:
    """Number the rows with a character that is not plain; a carriage return is known to end a line."""
    odd = []
    if octets.control_count != octets.break_count + octets.return_count:
        odd.append(((octets.all < BLANK) & ~octets.breaks & (octets.all != RETURN)).arg_true())
    high = octets.all >= _DELETE
    wrong = _are_not_plain(octets.all.filter(high))
    if wrong.any():
        odd.append(high.arg_true().gather(wrong.arg_true()))
    if not odd:
        return []
    ends = octets.breaks.arg_true()
    return [ends.search_sorted(places) for places in odd]


def _are_not_plain(octets: pl.Series) -> pl.Series:
    """Flag, in UTF-8 of which the bytes of ASCII are left out, those by which a character is not one of PLAIN's.

    Plain are À-ſ but for ÂÃÄÅ, Ạ-ỹ with their neighbors, and the dashes and quotation marks from U+2010 on.
    """
    second, third = octets.shift(-1, fill_value=0), octets.shift(-2, fill_value=0)
    later_byte = (octets >= 0x80) & (octets < 0xC0)
    latin = (octets >= 0xC3) & (octets <= 0xC5) & ~((octets == 0xC3) & (second >= 0x82) & (second <= 0x85))
    vietnamese = (octets == 0xE1) & ((second == 0xBA) | (second == 0xBB))
    typographic = (octets == 0xE2) & (second == 0x80) & (third >= 0x90) & (third <= 0xA7) & (third != 0x91)
    return ~(later_byte | latin | vietnamese | typographic)
