"""Texts with columns in braces: they put cells together (`{Date}-{Vendor}`), or take one apart (`{City}, {State}`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

_PART = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with names of columns in braces."""

    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in their order."""
        return tuple(self._pieces[1::2])

    @property
    def problem(self) -> str | None:
        """What is wrong with the text, or None."""
        if any(brace in piece for piece in self._pieces[::2] for brace in "{}"):
            return "has a brace without its partner"
        if not self.names or not all(name.strip() for name in self.names):
            return "names no column, write one in braces, like {Vendor}"
        return None

    @property
    def adjoining(self) -> bool:
        """Whether two parts have nothing between them, so that nobody can tell where the first one ends."""
        return not all(self._pieces[2:-1:2])

    @property
    def _pieces(self) -> list[str]:
        """Texts and, at the odd places between them, names."""
        return _PART.split(self.text)

    def put_together(self, cells: pl.DataFrame) -> pl.Series:
        """The cells of columns by their names in their places, null where one is blank."""
        pieces = [pl.col(piece) if at % 2 else pl.lit(piece) for at, piece in enumerate(self._pieces)]
        return cells.select(pl.concat_str(pieces)).to_series()

    def taken_apart(self, cells: pl.Series) -> pl.DataFrame:
        """Each column's part of the cells, all null where a cell does not fit or fits in more than one way.

        The parts are read as short as they can be, from the front, and as long: where both are the same there is only
        one way.
        """
        short, long = (cells.str.extract_groups(self._expression(lazy)).struct.unnest() for lazy in ("?", ""))
        is_certain = pl.all_horizontal(pl.col(name) == long[name] for name in short.columns)
        parts = short.select(pl.when(is_certain).then(pl.col(name)) for name in short.columns)
        return parts.rename(dict(zip(short.columns, self.names, strict=True)))

    def _expression(self, lazy: str) -> str:
        parts = (f"(?P<p{at}>(?s:.)+{lazy})" if at % 2 else re.escape(piece) for at, piece in enumerate(self._pieces))
        return f"^{''.join(parts)}$"


def first_that_fits(patterns: Sequence[Pattern], cells: pl.Series) -> pl.DataFrame:
    """Take cells apart by the first of several patterns, all of the same columns, that fits in one way alone."""
    names = patterns[0].names
    parts = patterns[0].taken_apart(cells)
    for pattern in patterns[1:]:
        is_open = parts[names[0]].is_null() & cells.is_not_null()
        if is_open.any():
            more = pattern.taken_apart(cells.set(~is_open, None))
            parts = parts.select(pl.coalesce(pl.col(name), more[name]).alias(name) for name in names)
    return parts
