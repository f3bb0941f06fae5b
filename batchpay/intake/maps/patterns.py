"""Texts with columns in braces: they combine cells (`{Date}-{Vendor}`), or split one (`{City}, {State}`)."""

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
        """The columns, in order."""
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
        """Whether two parts have nothing between them, so that the end of the first one can't be known."""
        return not all(self._pieces[2:-1:2])

    @property
    def _pieces(self) -> list[str]:
        """Texts and, at the odd indexes, names."""
        return _PART.split(self.text)

    def combined(self, cells: pl.DataFrame) -> pl.Series:
        """Combine the cells of the named columns into one text, null where one is blank."""
        pieces = [pl.lit(cells[piece] if at % 2 else piece) for at, piece in enumerate(self._pieces)]
        return cells.select(pl.concat_str(pieces)).to_series()

    def split_cells(self, cells: pl.Series) -> pl.DataFrame:
        """Split cells into each column's part, all null where a cell does not fit or fits in more than one way.

        From the front the parts are matched as short as possible, and as long as possible: where both agree there is
        only one way.
        """
        short, long = (cells.str.extract_groups(self._expression(lazy)).struct.unnest() for lazy in ("?", ""))
        is_certain = pl.all_horizontal(pl.col(name) == long[name] for name in short.columns)
        parts = short.select(pl.when(is_certain).then(pl.col(name)) for name in short.columns)
        return parts.rename(dict(zip(short.columns, self.names, strict=True)))

    def _expression(self, lazy: str) -> str:
        parts = (f"(?P<p{at}>(?s:.)+{lazy})" if at % 2 else re.escape(piece) for at, piece in enumerate(self._pieces))
        return f"^{''.join(parts)}$"


def first_that_fits(patterns: Sequence[Pattern], cells: pl.Series) -> pl.DataFrame:
    """Split cells by the first of several patterns, all with the same columns, that fits in exactly one way."""
    names = patterns[0].names
    parts = patterns[0].split_cells(cells)
    for pattern in patterns[1:]:
        is_open = parts[names[0]].is_null() & cells.is_not_null()
        if is_open.any():
            more = pattern.split_cells(cells.set(~is_open, None))
            parts = parts.select(pl.coalesce(pl.col(name), more[name]).alias(name) for name in names)
    return parts
