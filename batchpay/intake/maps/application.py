"""A map at work on the chunks of one file: expressions over whole columns, and faults where a cell is not certain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from batchpay.intake.header import Header
from batchpay.intake.maps.mapping import DIRECTION, SHIPPING_FROM_BILLING
from batchpay.intake.maps.mapping import Mapping as ColumnMap
from batchpay.intake.maps.patterns import Pattern, first_that_fits
from batchpay.schemas.columns import ACCOUNT, CELL_MARKS, FAULT, MAP_FAULT, PAYMENT_ID, READ_FLAGS, REQUIRED, SUGGEST
from batchpay.text import column_name


class Application:
    """What a map makes of the rows of a file: `own` is the file's header, `header` the one that the rules see."""

    def __init__(self, mapping: ColumnMap, own: Header, header: Header) -> None:
        self._mapping = mapping
        self._targets = (*header.columns, *header.carried)
        self._own_of = mapping.own_of(own)
        self._inner = {name: place for name, place in zip(own.names, own.internal, strict=True) if place is not None}
        self._names = {place: name for name, place in self._inner.items()}
        self._told_of = {place: mapping.told_of(name) for name, place in self._inner.items()}
        in_id = mapping.templates[PAYMENT_ID].names if PAYMENT_ID in mapping.templates else ()
        self.counting = CountingColumns({name: self._inner[name] for name in in_id})

    def chunks(self, own: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Add the mapped columns to chunks of the file's own cells."""
        for chunk in own:
            self.counting.look(chunk)
            yield self._mapped(chunk)
            del chunk  # some megabytes, while the next one is waited for

    def _mapped(self, chunk: pl.DataFrame) -> pl.DataFrame:
        made = _Made(chunk)
        for name, patterns in self._mapping.split.items():
            made.split(patterns, chunk[self._inner[name]], _plain(name))
        for target, pattern in self._mapping.templates.items():
            cells = {name: chunk[self._inner[name]] for name in pattern.names}
            made.put_together(target, pattern, pl.DataFrame(cells))
        if self._mapping.signed is not None:
            made.texts[DIRECTION] = self._mapping.signed.direction(self._cells("amount", made))
        for target in self._targets:
            self._map(target, made)
        if self._mapping.shipping_from_billing:
            for ours, theirs in SHIPPING_FROM_BILLING.items():
                if theirs in made.texts and ours not in self._mapping.fixed:
                    is_blank = made.texts[ours].is_null()
                    made.texts[ours] = made.texts[ours].zip_with(~is_blank, made.texts[theirs])
        marks = {name: column for name, column in self._marks(made).items() if column.null_count() < chunk.height}
        # What the reader has marked is said of the cells as they stand in the file.
        given = [name for name in chunk.columns if name.startswith(CELL_MARKS) or name in READ_FLAGS]
        found = {**made.texts, **marks}
        return chunk.drop(given).with_columns(column.alias(name) for name, column in found.items())

    def _map(self, target: str, made: _Made) -> None:
        """Give a column its text: the fixed one, or that of its cells, read or translated, else the default."""
        mapping = self._mapping
        if target in mapping.fixed:
            made.texts[target] = made.constant(mapping.fixed[target])
            return
        cells = made.texts[target] = self._cells(target, made)
        written = mapping.numbers.get(target) or mapping.dates.get(target)
        if written is not None and target in self._own_of:
            reading = written.read(cells, f"column {_plain(self._names[self._own_of[target]])}")
            made.texts[target] = reading.text.zip_with(reading.text.is_not_null(), cells)
            made.wrong[target] = reading.wrong
        if target in mapping.values:
            made.translate(target, cells, mapping.values[target])
        if target in mapping.defaults:
            text = made.texts[target]
            made.texts[target] = text.zip_with(text.is_not_null(), made.constant(mapping.defaults[target]))

    def _cells(self, target: str, made: _Made) -> pl.Series:
        """The cells that a column is made of, before they are read."""
        if target in made.texts:
            return made.texts[target]
        return made.chunk[self._own_of[target]] if target in self._own_of else made.constant("")

    def _marks(self, made: _Made) -> dict[str, pl.Series]:
        """The faults and suggestions of the columns as the rules see them: the reader's, then the map's own."""
        marks: dict[str, pl.Series] = {}
        told = [
            (kind + target, made.chunk[name])
            for name in made.chunk.columns
            for kind in CELL_MARKS
            if name.startswith(kind)
            for target in self._told_of.get(name.removeprefix(kind), ())
            if (kind, target) != (SUGGEST, ACCOUNT)  # a suggestion is printed and logged
        ]
        told += [(FAULT + target, f"{MAP_FAULT}: " + wrong) for target, wrong in made.wrong.items()]
        for name, column in told:
            marks[name] = column if name not in marks else marks[name].zip_with(marks[name].is_not_null(), column)
        return marks


class _Made:
    """What a map has made of a chunk so far: `texts` by column, and words in `wrong` where a cell is not certain."""

    def __init__(self, chunk: pl.DataFrame) -> None:
        self.chunk = chunk
        self.texts: dict[str, pl.Series] = {}
        self.wrong: dict[str, pl.Series] = {}

    def constant(self, text: str) -> pl.Series:
        """The same text in every row; a blank one is one that is not given."""
        return pl.Series([text or None], dtype=pl.String).new_from_index(0, self.chunk.height)

    def put_together(self, target: str, pattern: Pattern, cells: pl.DataFrame) -> None:
        """Make a text of cells: all of a paymentId must be there, of others none or all."""
        bad = pl.any_horizontal(pl.all().is_null() | (pl.all().str.strip_chars() != pl.all()))
        if target != PAYMENT_ID:
            bad &= pl.any_horizontal(pl.all().is_not_null())
        told = _plain(", ".join(dict.fromkeys(pattern.names)))
        words = f"is made of {told}, and one of these cells is blank or has blanks at an end"
        self.wrong[target] = cells.select(pl.when(bad).then(pl.lit(words))).to_series()
        self.texts[target] = pattern.put_together(cells)

    def split(self, patterns: Sequence[Pattern], cells: pl.Series, name: str) -> None:
        """Take cells apart.

        Where one can't be split for certain the first column has the fault, and the others no second one: what is
        required has the whole cell.
        """
        parts = first_that_fits(patterns, cells)
        first = patterns[0].names[0]
        is_open = parts[first].is_null() & cells.is_not_null()
        told = _plain(" or ".join(pattern.text for pattern in patterns))
        words = f"column {name} does not split into {told} in one way alone"
        self.wrong[first] = pl.select(pl.when(is_open).then(pl.lit(words))).to_series()
        for target in parts.columns:
            is_whole = is_open if target in REQUIRED else None
            self.texts[target] = parts[target] if is_whole is None else cells.zip_with(is_whole, parts[target])

    def translate(self, target: str, cells: pl.Series, values: Mapping[str, str]) -> None:
        """Put what the map gives in the place of cells that it lists, to the letter."""
        is_listed = cells.is_in(list(values)).fill_null(value=False)
        given = cells.replace({value: ours or None for value, ours in values.items()})
        self.texts[target] = given.zip_with(is_listed, self.texts[target])
        if target in self.wrong:
            self.wrong[target] = self.wrong[target].set(is_listed, None)


class CountingColumns:
    """Which columns of a paymentId's template only count the rows of the file: 1, 2, 3 and so on."""

    def __init__(self, columns: Mapping[str, str] | None = None) -> None:
        """Look at columns, whose names in a chunk are given by the file's names of them."""
        self._columns = dict(columns or {})
        self._rows = 0

    def look(self, chunk: pl.DataFrame) -> None:
        """Look at the next rows; a later reading shows the same."""
        self._rows = max(self._rows, int(chunk["_row"][-1]) if chunk.height else 0)
        for name, place in list(self._columns.items()):
            cells = chunk[place]  # blank in a row of totals
            if not (cells.is_null() | cells.cast(pl.Int64, strict=False).eq_missing(chunk["_row"])).all():
                del self._columns[name]

    @property
    def note(self) -> str | None:
        """What the person should be told, or None."""
        if not self._columns or self._rows < 2:
            return None
        names = ", ".join(map(column_name, sorted(self._columns)))
        return (
            f"paymentId is made of {names}, which only counts the rows of this file: correct rows in place, and never "
            "put one in, take one out or sort, for then the same payments have other paymentIds and can be paid again"
        )


def _plain(text: str) -> str:
    """A text out of the file or the map, fit for a message, in which a semicolon ends an entry."""
    return column_name(text).replace(";", " ")
