"""What the rows of a table are: payments, examples, blank ones; and rows that are not payments, with one message."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.header import EXAMPLE_MARK, OWN, UNNAMED, Header
from batchpay.schemas.columns import (
    ACCOUNT,
    COLUMNS,
    FAULT,
    NO_PAYMENT,
    QUOTATION,
    RAGGED,
    ROW_MARKS,
    STRAY,
    SUGGEST,
    TEXT_FORMULA,
)
from batchpay.writing.xlsx_parts import column_letters

_FIRST_VISIBLE = "!"
"""A text that sorts before it begins with white space."""
_LOOKED_AT = 3
_NOTE_CELLS_MAX = _LOOKED_AT - 1
"""A row with this few cells has a blank one among any _LOOKED_AT columns."""
_COLUMNS_MIN = 6
"""In a narrower table a row with few cells may well be a payment."""


def finish_chunk(
    file: str,
    frame: pl.DataFrame,
    places: Sequence[str],
    header: Header,
    rows_before: int,
    *,
    first_column: int | None = None,
) -> pl.DataFrame:
    """Drop rows without a cell and example rows, number the rest, name the columns; ours are left out.

    `file` is its name, `places` are the columns of the frame in the header's order. `first_column` is the position of
    the first one in a sheet, from 0; None where the file is not a sheet. Raises FileRefused where another table begins.
    """
    names = dict(zip(places, header.internal, strict=True))
    if header.note_at is not None:
        is_example = pl.col(places[header.note_at]).str.strip_chars().str.to_lowercase().eq_missing(EXAMPLE_MARK)
        examples, frame = frame.filter(is_example), frame.filter(~is_example)
        header.examples.count += examples.height
        header.examples.with_account += _with_account(examples, names)
    own = [place for place, name in names.items() if name is not None]
    if not any(frame.get_column(place).null_count() == 0 for place in own):
        # A cell whose value is not known, such as a formula never calculated, is not blank.
        marks = [name for name in frame.columns if name in ROW_MARKS or name.startswith(FAULT)]
        unlike_blank = pl.any_horizontal(pl.col([*own, *marks]).is_not_null())
        frame = frame.filter(unlike_blank)
    unnamed = {place: str(name) for place, name in names.items() if str(name).startswith(UNNAMED)}
    stray = [
        pl.when(pl.col(place).is_not_null()).then(_stray_cell(int(name.removeprefix(UNNAMED)) - 1, first_column))
        for place, name in unnamed.items()
        if frame.get_column(place).null_count() < frame.height
    ]
    if stray:
        frame = frame.with_columns(pl.coalesce(stray).alias(STRAY))
    titles = {place: header.names[at] for at, place in enumerate(places) if names[place]}
    frame, second = _with_non_payments(frame, titles)
    if second is not None:
        where = "" if second["_line"] is None else f"{'line' if first_column is None else 'row'} {second['_line']}: "
        raise FileRefused(f"{file}: {where}another header, in another order: submit each of the two tables by itself")
    extra = [name for name in frame.columns if name not in names and name != "_line"]
    return frame.select(
        pl.int_range(rows_before + 1, rows_before + 1 + pl.len(), dtype=pl.UInt32).alias("_row"),
        "_line",
        *(pl.col(place).alias(str(names[place])) for place in own),
        *extra,
    )


def with_text_formulas(frame: pl.DataFrame, own: Sequence[str]) -> pl.DataFrame:
    """Mark cells like `="00123"`, as programs write them for spreadsheets, and suggest the text, but no account number.

    `own` are the user's own columns as the frame names them; those only carried are left alone.
    """
    known = [name for name in own if name in COLUMNS or name.startswith(OWN)]
    may_be = frame.select(pl.col(name).str.starts_with('="').any() for name in known)  # rare, and the pattern is slow
    found = frame.select(pl.col(one.name).str.extract(TEXT_FORMULA) for one in may_be if one.any())
    marks: dict[str, pl.Series] = {}
    for text in found:
        if text.null_count() < frame.height:
            code = pl.select(pl.when(pl.lit(text.is_not_null())).then(pl.lit("text_formula"))).to_series()
            given = frame.get_column(FAULT + text.name, default=code)
            marks[FAULT + text.name] = code.zip_with(code.is_not_null(), given)
            if text.name != ACCOUNT:
                earlier = frame.get_column(SUGGEST + text.name, default=text)
                marks[SUGGEST + text.name] = text.zip_with(text.is_not_null(), earlier)
    return frame.with_columns(column.alias(name) for name, column in marks.items())


def _with_account(rows: pl.DataFrame, names: dict[str, str | None]) -> int:
    """Count rows whose account number is not all zeros, as it is in the template's example."""
    places = [place for place, name in names.items() if name == ACCOUNT]
    return sum(int(rows[place].str.contains("[^0 ]").sum()) for place in places)


def _with_non_payments(frame: pl.DataFrame, titles: dict[str, str]) -> tuple[pl.DataFrame, dict[str, Any] | None]:
    """Mark rows that nobody can have meant as a payment: what is wrong with them is reported in one message.

    A clean chunk is checked in three columns only. `titles` names the user's own columns as the file does. Also return
    the row, if there is one, that is a header of these columns in another order.
    """
    if len(titles) < _COLUMNS_MIN or not frame.height:
        return frame, None
    checked = sorted(titles, key=lambda place: frame.get_column(place).null_count())[:_LOOKED_AT]
    may_be_note = reduce(or_, [(frame[place] < _FIRST_VISIBLE).fill_null(value=True) for place in checked])
    may_be_header = frame[checked[0]].is_in(list(titles.values())).fill_null(value=False)
    at = (may_be_note | may_be_header).arg_true()
    if not len(at):
        return frame, None
    rows, own = frame[at], list(titles)
    marked = [name for name in rows.columns if name in (RAGGED, QUOTATION) or name.startswith(FAULT)]
    reason = rows.select(
        pl.when(pl.any_horizontal(pl.lit(value=False), *(pl.col(name).is_not_null() for name in marked)))
        .then(None)
        .when(_is_header(titles))
        .then(pl.lit("is the header again, delete the row"))
        .when(_filled(own) <= _NOTE_CELLS_MAX)
        .then(_what_is_there(rows, own))
    ).to_series()
    second = rows.filter(reason.is_null() & rows.select(_names_columns(titles)).to_series()).head(1).to_dicts()
    if reason.null_count() == len(reason):
        return frame, next(iter(second), None)
    marks = pl.Series(NO_PAYMENT, [None], dtype=pl.String).new_from_index(0, frame.height).scatter(at, reason)
    frame = frame.with_columns(marks)
    if STRAY in frame.columns:  # the one message says where the cell is
        frame = frame.with_columns(pl.when(pl.col(NO_PAYMENT).is_null()).then(STRAY).alias(STRAY))
    return frame, next(iter(second), None)


def _filled(own: Sequence[str]) -> pl.Expr:
    return pl.sum_horizontal((pl.col(place).str.strip_chars() != "").fill_null(value=False) for place in own)


def _is_header(titles: dict[str, str]) -> pl.Expr:
    return pl.all_horizontal(pl.col(place).fill_null("").eq(title) for place, title in titles.items())


def _names_columns(titles: dict[str, str]) -> pl.Expr:
    """Whether at least three cells are names of columns."""
    names = [title for title in titles.values() if title.strip()]
    return pl.sum_horizontal(pl.col(place).is_in(names) for place in titles) >= _LOOKED_AT


def _what_is_there(rows: pl.DataFrame, own: Sequence[str]) -> pl.Expr:
    stray = [pl.col(STRAY) + " and the row holds no payment"] if STRAY in rows.columns else []
    counted = [
        pl.when(_filled(own) == count).then(pl.lit(words))
        for count, words in enumerate(("holds nothing but blanks", "holds one cell and no payment"))
    ]
    reason = pl.coalesce(*stray, *counted, pl.lit("holds two cells and no payment"))
    return reason + pl.lit(", delete the row, or fill it in if it is a payment")


def _stray_cell(at: int, first_column: int | None) -> pl.Expr:
    """Describe where a cell is that belongs to no column of the header."""
    if first_column is None:
        return pl.lit(f"cell {at + 1} of the row is in a column without a name")
    return pl.format("cell {}{} is in a column without a name", pl.lit(column_letters(first_column + at)), "_line")
