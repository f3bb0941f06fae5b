"""A map applied to the chunks of one file: expressions over whole columns, and faults where a cell is not certain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from batchpay.intake.header import Header
from batchpay.intake.maps.formats import Pattern, first_that_fits
from batchpay.intake.maps.mapping import SHIPPING_FROM_BILLING
from batchpay.intake.maps.mapping import Mapping as ColumnMap
from batchpay.payment import Direction, Totals
from batchpay.schemas import checks
from batchpay.schemas.columns import (
    ACCOUNT,
    BARE_ROW,
    CELL_MARKS,
    DIRECTION,
    FAULT,
    MAP_FAULT,
    NO_PAYMENT,
    PAYMENT_ID,
    REQUIRED,
    SUGGEST,
)
from batchpay.text import column_name

_WORD_CHARACTERS = 20


class Application:
    """Applies a map to the rows of a file: `own` is the file's header, `header` the one that the rules see."""

    def __init__(self, mapping: ColumnMap, own: Header, header: Header) -> None:
        self._mapping = mapping
        self._targets = (*header.columns, *header.carried)
        self._own_of = mapping.own_of(own)
        self._inner = {name: place for name, place in zip(own.names, own.internal, strict=True) if place is not None}
        self._names = {place: name for name, place in self._inner.items()}
        self._reported_for = {place: mapping.reported_for(name) for name, place in self._inner.items()}
        in_id = mapping.templates[PAYMENT_ID].names if PAYMENT_ID in mapping.templates else ()
        self.left_out: dict[str, Totals] = {}
        """What the latest complete reading left out, by word."""
        self.counting = CountingColumns({name: self._inner[name] for name in in_id})

    def chunks(self, own: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Add the mapped columns to chunks of the file's own cells."""
        for chunk in own:
            self.counting.check(chunk)
            yield self._mapped(chunk)
            del chunk  # free some megabytes while waiting for the next one

    def payments(self, chunks: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Leave rows out of the mapped chunks that are no payments, as the map says."""
        found: dict[str, Totals] = {}
        for chunk in chunks:
            yield self._payments(chunk, found)
            del chunk  # as above
        self.left_out.clear()
        self.left_out |= found

    def _payments(self, chunk: pl.DataFrame, found: dict[str, Totals]) -> pl.DataFrame:
        """Count and leave out rows that are no payments; mark those of which the map does not say what they are."""
        rows = self._mapping.rows
        assert rows is not None, "otherwise every row is a payment"
        words = chunk[self._inner[rows.column]].fill_null("")
        is_left_out = words.is_in(rows.left_out)
        is_open = ~is_left_out & ~words.is_in(rows.payments)
        if is_open.any():
            shown = words.str.replace_all("[0-9]{4,}", "****").str.slice(0, _WORD_CHARACTERS).replace("", "nothing")
            told = pl.format(
                "column {} has {}, and the map does not say whether that is a payment ([rows])",
                pl.lit(_plain(rows.column)),
                pl.lit(shown),
            )
            marks = pl.select(pl.when(pl.lit(is_open)).then(told)).to_series()
            given = chunk.get_column(NO_PAYMENT, default=marks)
            chunk = chunk.with_columns(given.zip_with(given.is_not_null(), marks).alias(NO_PAYMENT))
        before = sum(found.values(), Totals()).rows
        cents = chunk.select(checks.cents(pl.col("amount"))).to_series() if "amount" in chunk.columns else words
        for word in rows.left_out:
            if (those := words == word).any():
                added = cents.filter(those).cast(pl.Int128, strict=False).sum()
                found[word] = found.get(word, Totals()) + Totals(int(those.sum()), int(added or 0))
        number = pl.col("_row") - before - pl.lit(is_left_out.cast(pl.UInt32).cum_sum())
        return chunk.with_columns(number.cast(pl.UInt32)).filter(~is_left_out)

    def _mapped(self, chunk: pl.DataFrame) -> pl.DataFrame:
        made = _MappedChunk(chunk)
        for name, patterns in self._mapping.split.items():
            made.split(patterns, chunk[self._inner[name]], _plain(name))
        for target, pattern in self._mapping.templates.items():
            cells = {name: chunk[self._inner[name]] for name in pattern.names}
            made.combined(target, pattern, pl.DataFrame(cells))
        signed, by_sign = self._mapping.signed, None
        if self._mapping.sides:
            made.take_side({side: chunk[self._inner[name]] for side, name in self._mapping.sides.items()})
        elif signed is not None:
            by_sign = signed.direction(self._cells("amount", made))
            if DIRECTION not in self._own_of:
                made.texts[DIRECTION] = by_sign
        for target in self._targets:
            self._map(target, made)
        if by_sign is not None and DIRECTION in self._own_of:
            made.compare(by_sign, _plain(self._names[self._own_of[DIRECTION]]))
        if self._mapping.shipping_from_billing:
            for ours, theirs in SHIPPING_FROM_BILLING.items():
                if theirs in made.texts and ours not in self._mapping.fixed:
                    is_blank = made.texts[ours].is_null()
                    made.texts[ours] = made.texts[ours].zip_with(~is_blank, made.texts[theirs])
        marks = {name: column for name, column in self._marks(made).items() if column.null_count() < chunk.height}
        # The reader's marks describe the cells as they are in the file.
        given = [name for name in chunk.columns if name.startswith(CELL_MARKS) or name == BARE_ROW]
        found = {**made.texts, **marks}
        return chunk.drop(given).with_columns(column.alias(name) for name, column in found.items())

    def _map(self, target: str, made: _MappedChunk) -> None:
        """Set a column's text: the fixed one, or that of its cells, read or translated, else the default."""
        mapping = self._mapping
        if target in mapping.fixed:
            made.texts[target] = made.constant(mapping.fixed[target])
            return
        cells = made.texts[target] = self._cells(target, made)
        written = mapping.numbers.get(target) or mapping.dates.get(target)
        if written is not None and target in self._own_of:
            told = " or ".join(mapping.sides.values()) if target == "amount" else ""
            reading = written.read(cells, f"column {_plain(told or self._names[self._own_of[target]])}")
            made.texts[target] = reading.text.zip_with(reading.text.is_not_null(), cells)
            before = made.wrong.get(target, reading.wrong)
            made.wrong[target] = before.zip_with(before.is_not_null(), reading.wrong)
        if target in mapping.values:
            made.translate(target, cells, mapping.values[target])
        if target in mapping.defaults:
            text = made.texts[target]
            made.texts[target] = text.zip_with(text.is_not_null(), made.constant(mapping.defaults[target]))

    def _cells(self, target: str, made: _MappedChunk) -> pl.Series:
        """Return the cells that a column is made from, before they are read."""
        if target in made.texts:
            return made.texts[target]
        return made.chunk[self._own_of[target]] if target in self._own_of else made.constant("")

    def _marks(self, made: _MappedChunk) -> dict[str, pl.Series]:
        """Return the faults and suggestions by columns as the rules see them: the reader's, then the map's own."""
        marks: dict[str, pl.Series] = {}
        told = [
            (kind + target, made.chunk[name])
            for name in made.chunk.columns
            for kind in CELL_MARKS
            if name.startswith(kind)
            for target in self._reported_for.get(name.removeprefix(kind), ())
            if (kind, target) != (SUGGEST, ACCOUNT)  # a suggestion is printed and logged
        ]
        told += [(FAULT + target, f"{MAP_FAULT}: " + wrong) for target, wrong in made.wrong.items()]
        for name, column in told:
            marks[name] = column if name not in marks else marks[name].zip_with(marks[name].is_not_null(), column)
        return marks


class _MappedChunk:
    """A partly mapped chunk: `texts` by column, and messages in `wrong` where a cell is not certain."""

    def __init__(self, chunk: pl.DataFrame) -> None:
        self.chunk = chunk
        self.texts: dict[str, pl.Series] = {}
        self.wrong: dict[str, pl.Series] = {}

    def constant(self, text: str) -> pl.Series:
        """Return the same text for every row; a blank one counts as not given."""
        return pl.Series([text or None], dtype=pl.String).new_from_index(0, self.chunk.height)

    def take_side(self, sides: Mapping[str, pl.Series]) -> None:
        """Take the amount of each row from the side that has one, and the direction with it; a zero is none."""
        cells = pl.DataFrame(sides)
        has = {side: pl.col(side).str.contains(r"[1-9\p{L}]").fill_null(value=False) for side in sides}
        by = [pl.when(is_there).then(pl.lit(side)) for side, is_there in has.items()]
        by += [pl.when(pl.col(side).is_not_null()).then(pl.lit(side)) for side in sides]  # a zero alone
        self.texts[DIRECTION] = cells.select(pl.coalesce(by)).to_series()
        amount = pl.coalesce(pl.when(self.texts[DIRECTION] == side).then(pl.col(side)) for side in sides)
        self.texts["amount"] = cells.select(amount).to_series()
        words = "both columns, of debits and of credits, have an amount"
        both = pl.all_horizontal(has.values()) & pl.lit(len(sides) == len(Direction))
        self.wrong["amount"] = cells.select(pl.when(both).then(pl.lit(words))).to_series()

    def compare(self, by_sign: pl.Series, name: str) -> None:
        """Mark rows whose amount has a sign that contradicts the direction that a column states."""
        stated = self.texts[DIRECTION]
        is_wrong = (stated != by_sign).fill_null(value=False) & stated.is_in(list(Direction))
        words = pl.format("column {} says {}, and the sign of the amount says {}", pl.lit(name), stated, by_sign)
        self.wrong[DIRECTION] = pl.select(pl.when(is_wrong).then(words)).to_series()

    def combined(self, target: str, pattern: Pattern, cells: pl.DataFrame) -> None:
        """Combine cells into a text: all cells of a paymentId must have a value, of others none or all."""
        bad = pl.any_horizontal(pl.all().is_null() | (pl.all().str.strip_chars() != pl.all()))
        if target != PAYMENT_ID:
            bad &= pl.any_horizontal(pl.all().is_not_null())
        told = _plain(", ".join(dict.fromkeys(pattern.names)))
        words = f"is made of {told}, and one of these cells is blank or has blanks at an end"
        self.wrong[target] = cells.select(pl.when(bad).then(pl.lit(words))).to_series()
        self.texts[target] = pattern.combined(cells)

    def split(self, patterns: Sequence[Pattern], cells: pl.Series, name: str) -> None:
        """Split cells.

        Where one can't be split with certainty the first column has the fault, and the others no second one: required
        columns get the whole cell.
        """
        parts = first_that_fits(patterns, cells)
        first = patterns[0].names[0]
        is_open = parts[first].is_null() & cells.is_not_null()
        told = _plain(" or ".join(pattern.text for pattern in patterns))
        words = f"column {name} does not split into {told} in exactly one way"
        self.wrong[first] = pl.select(pl.when(is_open).then(pl.lit(words))).to_series()
        for target in parts.columns:
            is_whole = is_open if target in REQUIRED else None
            self.texts[target] = parts[target] if is_whole is None else cells.zip_with(is_whole, parts[target])

    def translate(self, target: str, cells: pl.Series, values: Mapping[str, str]) -> None:
        """Replace cells that the map lists, exactly as written, by its values."""
        is_listed = cells.is_in(list(values)).fill_null(value=False)
        given = cells.replace({value: ours or None for value, ours in values.items()})
        self.texts[target] = given.zip_with(is_listed, self.texts[target])
        if target in self.wrong:
            self.wrong[target] = self.wrong[target].set(is_listed, None)


class CountingColumns:
    """Which columns of a paymentId's template only count the rows of the file: 1, 2, 3 and so on."""

    def __init__(self, columns: Mapping[str, str] | None = None) -> None:
        """Watch columns: their names in a chunk, by the file's names."""
        self._columns = dict(columns or {})
        self._rows = 0

    def check(self, chunk: pl.DataFrame) -> None:
        """Check the next rows; a later reading shows the same."""
        self._rows = max(self._rows, int(chunk["_row"][-1]) if chunk.height else 0)
        for name, place in list(self._columns.items()):
            cells = chunk[place]  # blank in a row of totals
            if not (cells.is_null() | cells.cast(pl.Int64, strict=False).eq_missing(chunk["_row"])).all():
                del self._columns[name]

    @property
    def note(self) -> str | None:
        """The note for the user, or None."""
        if not self._columns or self._rows < 2:
            return None
        names = ", ".join(map(column_name, sorted(self._columns)))
        return (
            f"paymentId is made of {names}, which only counts the rows of this file: correct rows in place, and never "
            "insert, delete or sort rows: the same payments would get other paymentIds and could be paid again"
        )


def _plain(text: str) -> str:
    """Return a text from the file or the map, fit for a message, in which a semicolon ends an entry."""
    return column_name(text).replace(";", " ")
