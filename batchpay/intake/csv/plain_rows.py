"""Which rows of a block are nothing but plain text, from their bytes: proves forms.PLAIN for all cells together.

A character of a cell is in the bytes of its row, and a cell begins and ends next to a separator, a quotation mark or a
line end. So a row is plain if its bytes are plain characters, without a blank at such a border. A plain row may go
unrecognized, but a row that is not plain is never flagged.
"""

from __future__ import annotations

import polars as pl

from batchpay.intake.csv.byte_proof import BLANK, BREAK, MARK, RETURN, Octets
from batchpay.schemas.forms import TEXT_BYTES_MAX

_DELETE = 0x7F


def plain_rows(octets: Octets, lengths: pl.DataFrame) -> pl.Series:
    """Flag the rows of a block, one line each, whose cells all have the form PLAIN; `lengths` are bytes per cell."""
    not_plain = [_with_blanks_at_borders(octets, lengths.height * lengths.width), *_with_other_characters(octets)]
    most = lengths.max().row(0)
    long = [column for column, count in zip(lengths.columns, most, strict=True) if (count or 0) > TEXT_BYTES_MAX]
    not_plain += [(lengths[column] > TEXT_BYTES_MAX).arg_true() for column in long]
    rows = pl.concat(not_plain)
    plain = pl.Series([True]).new_from_index(0, lengths.height)
    return plain.scatter(rows, values=False) if len(rows) else plain


def _with_blanks_at_borders(octets: Octets, cells: int) -> pl.Series:
    """Return the numbers of rows with a blank where a cell begins or ends; a quoted separator is not a border."""
    blanks = octets.all == BLANK
    at_first = pl.Series([0] if blanks.first() else [], dtype=pl.UInt32)
    blanks = blanks.slice(1).head(-1)  # the last byte is a line break
    not_plain = blanks & _beside(octets.line_ends | octets.marks if octets.mark_count else octets.line_ends)
    found = not_plain if octets.are_all_quoted(cells) else not_plain | (blanks & _beside(octets.borders))
    if not found.any():
        return at_first
    relevant = found | octets.breaks.slice(1).head(-1)
    if octets.mark_count and found is not not_plain:
        relevant |= octets.marks.slice(1).head(-1)
    selected = octets.all.slice(1).head(-1).filter(relevant)
    is_open = (selected == MARK).cum_sum() % 2 == (0 if octets.marks.first() else 1)
    not_plain = (selected == BLANK) & (not_plain.filter(relevant) | ~is_open)
    return pl.concat([at_first, (selected == BREAK).cum_sum().filter(not_plain).cast(pl.UInt32)])


def _beside(flags: pl.Series) -> pl.Series:
    """Flag the bytes next to a flagged one; the first and the last byte are left out."""
    return flags.head(-2) | flags.slice(2)


def _with_other_characters(octets: Octets) -> list[pl.Series]:
    """Return the numbers of rows with a character that is not plain; a carriage return is known to end a line."""
    not_plain = []
    if octets.control_count != octets.break_count + octets.return_count:
        not_plain.append(((octets.all < BLANK) & ~octets.breaks & (octets.all != RETURN)).arg_true())
    high = octets.all >= _DELETE
    wrong = _are_not_plain(octets.all.filter(high))
    if wrong.any():
        not_plain.append(high.arg_true().gather(wrong.arg_true()))
    if not not_plain:
        return []
    ends = octets.breaks.arg_true()
    return [ends.search_sorted(places) for places in not_plain]


def _are_not_plain(octets: pl.Series) -> pl.Series:
    """Flag, in UTF-8 without its ASCII bytes, the bytes that show a character outside PLAIN.

    Plain are À-ſ except ÂÃÄÅ, Ạ-ỹ with their neighbors, and the dashes and quotation marks from U+2010 on.
    """
    second, third = octets.shift(-1, fill_value=0), octets.shift(-2, fill_value=0)
    later_byte = (octets >= 0x80) & (octets < 0xC0)
    latin = (octets >= 0xC3) & (octets <= 0xC5) & ~((octets == 0xC3) & (second >= 0x82) & (second <= 0x85))
    vietnamese = (octets == 0xE1) & ((second == 0xBA) | (second == 0xBB))
    typographic = (octets == 0xE2) & (second == 0x80) & (third >= 0x90) & (third <= 0xA7) & (third != 0x91)
    return ~(later_byte | latin | vietnamese | typographic)
