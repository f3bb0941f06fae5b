"""What the rows of a table are: payments, examples, blank ones; a totals row at its end; rows that are not payments.

One reading decides: every later reading of a file must yield the same cells as the first complete one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

import polars as pl
from nanoarrow.c_array_stream import c_array_stream

from batchpay.errors import FileRefused
from batchpay.intake.header import EXAMPLE_MARK, OWN, UNNAMED, Header
from batchpay.schemas import checks
from batchpay.schemas.columns import (
    ACCOUNT,
    COLUMNS,
    DIRECTION,
    FAULT,
    MAP_FAULT,
    MONEY,
    NO_PAYMENT,
    QUOTATION,
    RAGGED,
    REQUIRED,
    ROW_MARKS,
    STRAY,
    SUGGEST,
    TEXT_FORMULA,
)
from batchpay.text import money
from batchpay.writing.xlsx import column_letters

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
        accounts = [examples[place] for place, name in names.items() if name == ACCOUNT]  # the template's is all zeros
        header.examples.with_account += sum(int(cells.str.contains("[^0 ]").sum()) for cells in accounts)
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
        raise FileRefused(f"{file}: {where}another header, in another order: submit each of the two tables separately")
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
        .when(pl.all_horizontal(pl.col(place).fill_null("").eq(title) for place, title in titles.items()))
        .then(pl.lit("is the header again, delete the row"))
        .when(_filled(own) <= _NOTE_CELLS_MAX)
        .then(_what_is_there(rows, own))
    ).to_series()
    known = [title for title in titles.values() if title.strip()]
    names_columns = pl.sum_horizontal(pl.col(place).is_in(known) for place in titles) >= _LOOKED_AT
    second = rows.filter(reason.is_null() & rows.select(names_columns).to_series()).head(1).to_dicts()
    if reason.null_count() == len(reason):
        return frame, next(iter(second), None)
    marks = pl.Series(NO_PAYMENT, [None], dtype=pl.String).new_from_index(0, frame.height).scatter(at, reason)
    frame = frame.with_columns(marks)
    if STRAY in frame.columns:  # the one message says where the cell is
        frame = frame.with_columns(pl.when(pl.col(NO_PAYMENT).is_null()).then(STRAY).alias(STRAY))
    return frame, next(iter(second), None)


def _filled(own: Sequence[str]) -> pl.Expr:
    return pl.sum_horizontal((pl.col(place).str.strip_chars() != "").fill_null(value=False) for place in own)


def _what_is_there(rows: pl.DataFrame, own: Sequence[str]) -> pl.Expr:
    stray = [pl.col(STRAY) + " and the row has no payment"] if STRAY in rows.columns else []
    counted = [
        pl.when(_filled(own) == count).then(pl.lit(words))
        for count, words in enumerate(("has nothing but blanks", "has one cell and no payment"))
    ]
    reason = pl.coalesce(*stray, *counted, pl.lit("has two cells and no payment"))
    return reason + pl.lit(", delete the row, or fill it in if it is a payment")


def _stray_cell(at: int, first_column: int | None) -> pl.Expr:
    """Describe where a cell is that belongs to no column of the header."""
    if first_column is None:
        return pl.lit(f"cell {at + 1} of the row is in a column without a name")
    return pl.format("cell {}{} is in a column without a name", pl.lit(column_letters(first_column + at)), "_line")


_AMOUNT = "amount"
_AMOUNT_FAULT = f"{FAULT}amount"
_LABEL = re.compile(r"\b(sub|grand)?[ -]?totals?\b|\bsum\b", re.IGNORECASE)
_NUMBER = re.compile(r"\$? ?([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(\.[0-9]+)?")
_ROWS_MAX = 20
"""How many notes and subtotals there may be at the end of a file."""


@dataclass
class FileEnd:
    """What the latest reading found at the end of the file; known once all of it was read."""

    total_cents: int | None = None
    """The total that a totals row states for the rows before it."""
    total_line: int | None = None
    """Where that row is: a CSV's line or a sheet's row."""
    is_net: bool = False
    """Whether it is the sum of these rows by the signs that the file gives them."""
    unfinished_line: int | None = None
    """The last line, where it has no line break."""
    is_cut: bool = False
    """Whether that line lacks cells."""

    def total_place(self, line_word: str) -> str:
        """Name the totals row so that a person finds it; `line_word` is what a row's position is called in the file."""
        return "the last row" if self.total_line is None else f"{line_word} {self.total_line}"

    def note(self, line_word: str) -> str:
        """Note that a totals row was left out."""
        place, total = self.total_place(line_word), money(self.total_cents or 0)
        return f"{place} is the {'net ' if self.is_net else ''}total of the rows before it, {total}, and no payment"


def without_totals_row(
    chunks: Iterator[pl.DataFrame], own_of: Mapping[str, str], end: FileEnd, negative: str | None = None
) -> Iterator[pl.DataFrame]:
    """Leave out the last row if it is a total; only notes may follow it.

    `own_of` names the file's own columns by ours, as chunks have them; `negative` is the direction of negative amounts
    where the file writes the direction as a sign. A chunk whose last row is not a candidate, like nearly every one, is
    passed on unchanged.
    """
    end.total_cents, end.total_line, end.is_net = None, None, False
    needed = list(dict.fromkeys(own_of[name] for name in REQUIRED if name in own_of and name != _AMOUNT))
    if not needed:  # not a table of payments: any of its rows would be a total
        yield from chunks
        return
    rows, net_cents, held = 0, 0, None
    for chunk in chunks:
        net_cents += _net_cents(chunk, negative) if negative else 0
        if held is not None and _at_end(chunk, needed) == chunk.height:
            chunk, held = pl.concat([held, chunk], how="diagonal"), None
        if held is not None:
            yield held
            rows += held.height
        count = _at_end(chunk, needed)
        held = chunk.tail(count) if count else None
        if count < chunk.height:
            yield chunk.head(chunk.height - count) if count else chunk
            rows += chunk.height - count
        del chunk  # free some megabytes while waiting for the next one
    if held is None:
        return
    totals = [at for at, row in enumerate(held.iter_rows(named=True)) if _total(row, needed) is not None]
    if totals and rows + totals[-1]:
        at = totals[-1]
        end.total_cents, end.total_line = _total(held.row(at, named=True), needed), held["_line"][at]
        if negative:
            stated_cents = _net_cents(held.slice(at, 1), negative)
            end.is_net = net_cents - _net_cents(held.slice(at), negative) == stated_cents
        after = held.slice(at + 1).with_columns(pl.col("_row") - 1)
        held = held.head(at).vstack(after)
    if held.height:
        yield held


def _at_end(chunk: pl.DataFrame, needed: list[str]) -> int:
    """Count the rows at the end of a chunk that may be totals, or are notes under one."""
    count = 0
    while count < min(chunk.height, _ROWS_MAX):
        row = chunk.row(chunk.height - count - 1, named=True)
        if row.get(NO_PAYMENT) is None and _total(row, needed) is None:
            break
        count += 1
    return count


def _total(row: Mapping[str, Any], needed: list[str]) -> int | None:
    """Return the cents of a row with an amount and nothing else that a payment needs, except a word like Total."""
    match = _NUMBER.fullmatch((row.get(_AMOUNT) or "").strip())
    labels = [text for name in needed if (text := (row[name] or "").strip())]
    if match is None or len(labels) > 1 or not all(map(_LABEL.search, labels)):
        return None
    wrong = [
        name for name in row if name.startswith(FAULT) and row[name] and _counts(name.removeprefix(FAULT), row[name])
    ]
    if wrong or row.get(QUOTATION) or row.get("_surplus"):
        return None
    cents = Decimal(match[1].replace(",", "") + (match[2] or "")) * 100
    nearest = round(cents)
    # A spreadsheet adds in binary: the remaining error is far less than a tenth of a cent.
    return nearest if abs(cents - nearest) < Decimal("0.1") else None


def _net_cents(rows: pl.DataFrame, negative: str) -> int:
    """Add up the amounts that can be read, with the file's own signs."""
    readable = rows.filter(pl.col(_AMOUNT_FAULT).is_null()) if _AMOUNT_FAULT in rows.columns else rows
    sign = pl.when(pl.col(DIRECTION) == negative).then(-1).otherwise(1)
    return int(readable.select((checks.cents(pl.col(_AMOUNT)).cast(pl.Int128) * sign).sum()).item())


def _counts(column: str, fault: str) -> bool:
    """Whether a fault shows that a row is not a total: of a map's faults, which expect a payment, only the amount's."""
    return column == _AMOUNT if fault.startswith(MAP_FAULT) else column not in MONEY


class OneContent:
    """What the first complete reading of a file yielded: every later one must yield the same, chunk by chunk.

    A file may change between two readings, or during one. A chunk that differs is not yielded: the caller relies on the
    rows that were checked, and what was checked would not be what is registered.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.digests: list[bytes] | None = None
        """One per chunk, each of everything so far; None until one reading is complete."""

    def reading(self) -> OneReading:
        """Begin a reading."""
        return OneReading(self)


class OneReading:
    """One reading of a file."""

    def __init__(self, content: OneContent) -> None:
        self._content = content
        self._digests: list[bytes] = []
        self.is_again = content.digests is not None
        """Whether the file was read completely before: then this reading yields the same, or is refused."""

    def add(self, digest: bytes) -> None:
        """Add the digest of everything up to the end of a chunk that is about to be yielded; raises FileRefused."""
        place, first = len(self._digests), self._content.digests
        self._digests.append(digest)
        if first is not None and first[place : place + 1] != [digest]:
            raise changed_meanwhile(self._content.name)

    def end(self) -> None:
        """Note the end of the file; raises FileRefused where the first reading had more."""
        if self._content.digests is None:
            self._content.digests = self._digests
        elif len(self._content.digests) != len(self._digests):
            raise changed_meanwhile(self._content.name)


def one_content(name: str, chunks: Callable[[], Iterator[pl.DataFrame]]) -> Callable[[], Iterator[pl.DataFrame]]:
    """Compare the readings of a file by its rows: each counts with its number, its line and every cell."""
    content, seed = OneContent(name), secrets.randbits(63)

    def held_together() -> Iterator[pl.DataFrame]:
        digest, reading = hashlib.blake2b(digest_size=32), content.reading()
        for chunk in chunks():
            counted = [name for name in chunk.columns if not name.startswith("_") or name in ("_row", "_line")]
            for part in c_array_stream(chunk.select(counted).hash_rows(seed)):
                digest.update(part.view().buffer(1))
            reading.add(digest.digest())
            yield chunk
            del chunk  # free some megabytes while waiting for the next one
        reading.end()

    return held_together


def changed_meanwhile(name: str) -> FileRefused:
    """Return the refusal of a file that has changed."""
    return FileRefused(f"{name} changed while it was being read; nothing was registered")
