"""Columns that are carried and not used, and what they say about money: a word that says no is an error in its row.

Everything else is listed for whoever signs: what a file says is used, asked, refused, or at least told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import polars as pl

from batchpay.schemas.catalogue import ROW_STATUS
from batchpay.schemas.columns import CELL_MARKS, COLUMNS, PAY_ON, ROW_MARKS, STATUS
from batchpay.schemas.rule import RuleOptions
from batchpay.schemas.words import evidence, header_means, says_no
from batchpay.text import column_name

_WORDS_MAX = 12
"""A column with more different cells than that is no list of words."""
_CELLS_MAX = 2_000
"""This many different cells of a column are kept; of one with more only the name is told."""
_SHOWN_MAX = 5
_NAMES_MAX = 10
_CHARACTERS_MAX = 24
_KINDS = ("status", "direction", "date", "currency", "schedule")
"""What columns are evidence of, in the order in which they are told."""


class Carried:
    """The carried columns of one file, chunk by chunk, but for those that a map uses all the same."""

    def __init__(self, options: RuleOptions, used: Collection[str]) -> None:
        self._not_told = {*ROW_MARKS, *COLUMNS, *used}
        self._checks_status = ROW_STATUS.name not in options.rules_off
        self._cells: dict[str, Counter[str] | None] = {}
        """By column, how often each different cell is there; None where there are too many, or it is of nothing."""
        self._pays_on_days = False

    def marked(self, chunk: pl.DataFrame) -> pl.DataFrame:
        """Mark the rows of which a column headed as a status says that they are no payments."""
        marks: list[pl.Expr] = []
        for name in self._carried(chunk) if self._checks_status else ():
            if header_means(name) != "status":
                continue
            told = {
                cell: f"{column_name(name)} says {word}, so it is no payment: take the row out, or empty that cell"
                for cell in chunk[name].drop_nulls().unique()
                if (word := says_no(cell)) is not None
            }
            if told:
                marks.append(pl.col(name).replace_strict(told, default=None, return_dtype=pl.String))
        return chunk.with_columns(pl.coalesce(marks).alias(STATUS)) if marks else chunk

    def add(self, chunk: pl.DataFrame) -> None:
        """Count what the columns of a chunk of the first pass say."""
        self._pays_on_days |= PAY_ON in chunk.columns and chunk[PAY_ON].null_count() < chunk.height
        for name in self._carried(chunk):
            counted = self._cells.setdefault(name, Counter())
            if counted is None:
                continue
            most = _CELLS_MAX if evidence(name) else _WORDS_MAX
            if chunk[name].head(_CELLS_MAX).n_unique() <= most + 1:
                counts = chunk[name].drop_nulls().value_counts(name="count")
                counted.update(dict(counts.iter_rows()) if counts.height <= most else {})
                if counts.height <= most and len(counted) <= most:
                    continue
            self._cells[name] = None

    def note(self) -> str | None:
        """Return the summary's line on what is not used, evidence of money first; None if there is nothing."""
        of_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        others = []
        for name, cells in self._cells.items():
            kind = evidence(name, cells or ())
            if kind is None or (cells is not None and not cells):  # a column without a cell says nothing
                others.append(column_name(name))
            else:
                of_kind[kind].append(f"{kind} in {column_name(name)}{_shown(kind, cells)}")
        if of_kind["date"] and not self._pays_on_days:
            of_kind["date"][-1] += ", and all rows would be sent today"
        more = [f"and {len(others) - _NAMES_MAX:,} more"] if len(others) > _NAMES_MAX else []
        told = [*(one for kind in _KINDS for one in of_kind[kind]), ", ".join([*others[:_NAMES_MAX], *more])]
        return f"not used of this file: {'; '.join(filter(None, told))}" if self._cells else None

    def _carried(self, chunk: pl.DataFrame) -> Iterator[str]:
        return (
            name for name in chunk.columns if name not in self._not_told and not name.startswith(("_", *CELL_MARKS))
        )


def _shown(kind: str, cells: Counter[str] | None) -> str:
    """Return what a column of evidence has: days from first to last, or its most frequent words."""
    if cells is None:
        return ""
    if kind == "date":
        from batchpay.intake.maps.evidence import dates  # few files have such a column

        ways = dates(pl.Series([*cells], dtype=pl.String))
        if ways.best and ways.best[0].count == len(cells):
            days = ways.best[0].texts.str.to_date("%m/%d/%Y").sort().dt.strftime("%m/%d/%Y")
            return f" ({days[0]} to {days[-1]})"
    most = sorted(cells.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{_short(word)} {count:,}" for word, count in most[:_SHOWN_MAX]]
    more = [f"{len(cells) - _SHOWN_MAX:,} more"] if len(cells) > _SHOWN_MAX else []
    return f" ({', '.join([*words, *more])})"


def _short(word: str) -> str:
    """Return a word without what may be an account number."""
    return "".join("*" if one.isdigit() else one for one in word[:_CHARACTERS_MAX] if one.isprintable())
