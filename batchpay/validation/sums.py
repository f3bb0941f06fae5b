"""Rows that are sums of the rows above them: a total with bank details filled down would be paid on top of its parts.

A file is taken as groups of rows, each up to its total; a total may also be of all rows so far.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from batchpay.payment import Totals
from batchpay.schemas.catalogue import ROW_SUM, ROW_TOTAL
from batchpay.schemas.columns import ACCOUNT, MAYBE_TOTAL, PAYMENT_ID, ROUTING, SUM, TOTAL
from batchpay.schemas.rule import RuleOptions
from batchpay.schemas.words import meaning, words
from batchpay.text import column_name

_CALLED = ("invoiceNumber", PAYMENT_ID, "achNameOnCheck")
"""Columns in which every row is looked through for a word of a total; the others are where the amount is a sum."""
_WORDS_OF_TOTAL_MAX = 3
_BETWEEN = re.compile(r"[\s:_.-]+")


class Sums:
    """The rows of one file in their order, chunk by chunk."""

    def __init__(self, options: RuleOptions) -> None:
        rule_of = {TOTAL: ROW_TOTAL, MAYBE_TOTAL: ROW_TOTAL, SUM: ROW_SUM}
        self._marks = [mark for mark, rule in rule_of.items() if rule.name not in options.rules_off]
        self._words = [
            change(word) for word in words("total") for change in (str, str.title, str.upper, str.capitalize)
        ]
        self._found: dict[int, tuple[str, str]] = {}
        """By row, the mark of one that is a sum or is called one, and the message."""
        self._since, self._all = Totals(), Totals()
        """What there is since the latest total, and in the whole file so far; totals are in neither."""
        self._above: Mapping[str, Any] = {}
        """The last row of the chunk before."""

    def add(self, rows: pl.DataFrame, cents: pl.Series) -> None:
        """Look through a chunk of the first pass; an amount that can't be read is null."""
        amounts = cents.fill_null(0)
        up_to, start = amounts.cum_sum(), 0
        while self._marks and start < rows.height:
            rest = amounts[start:]
            sums = up_to[start:] - rest - (up_to[start - 1] if start else 0)
            hits = (rest > 0) & ((rest == sums + self._since.cents) | (rest == sums + self._all.cents))
            offset = int(hits.arg_max() or 0) if hits.any() else len(rest)
            between = Totals(int((rest[:offset] > 0).sum()), int(rest[:offset].sum()))
            self._since, self._all, at = self._since + between, self._all + between, start + offset
            if at < rows.height:
                own = Totals(1, int(amounts[at]))
                if self._is_total(
                    rows.row(at, named=True), rows.row(at - 1, named=True) if at else self._above, own.cents
                ):
                    self._since = Totals()
                else:
                    self._since, self._all = self._since + own, self._all + own
            start = at + 1
        if self._marks:
            self._called(rows)
            self._above = rows.row(-1, named=True)

    def _is_total(self, row: Mapping[str, Any], above: Mapping[str, Any], cents: int) -> bool:
        """Judge a row whose amount is that of all rows since the latest total, or of all; note it where it is one."""
        count = (self._since if self._since.cents == cents else self._all).rows
        called = _called_total(row, above)
        repeats = all(row[name] and row[name] == above.get(name) for name in (ROUTING, ACCOUNT))
        if count < 2:  # a group of one, if it is called a total; else the same amount twice
            return called is not None and repeats
        above_it = f"the sum of the {count:,} rows above"
        if called is None:
            mark, told = SUM, f"is {above_it}, make sure that it is a payment of its own"
        elif repeats:
            mark, told = TOTAL, f"{called} and has {above_it}, whose bank details it repeats: take it out"
        else:
            mark, told = MAYBE_TOTAL, f"{called} and has {above_it}, make sure that it is a payment"
        self._found[row["_row"]] = mark, told
        return called is not None or repeats  # another row is added up like any: it may be a payment

    def _called(self, rows: pl.DataFrame) -> None:
        """Note rows that are called a total, word for word, and have no sum."""
        called = pl.any_horizontal(pl.col(_CALLED).is_in(self._words))
        for number, *cells in rows.select("_row", *_CALLED).filter(called).iter_rows():
            name, word = next(found for found in zip(_CALLED, cells, strict=True) if found[1] in self._words)
            message = f"is called {word} in {name}, make sure that it is a payment and no total"
            self._found.setdefault(number, (MAYBE_TOTAL, message))

    def marked(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Mark the rows that were found, in this pass or a later one."""
        found = self._found.keys() & set(rows["_row"].to_list()) if self._found else ()
        for mark in self._marks:
            texts = {row: self._found[row][1] for row in found if self._found[row][0] == mark}
            if texts:
                told = rows["_row"].replace_strict(texts, default=None, return_dtype=pl.String)
                rows = rows.with_columns(told.alias(mark))
        return rows


def _called_total(row: Mapping[str, Any], above: Mapping[str, Any]) -> str | None:
    """Return which cell of a row is or begins with a word of a total, where the row above has none there."""
    for name, cell in row.items():
        if isinstance(cell, str) and not name.startswith("_") and _is_called_total(cell):
            other = above.get(name)
            if not (isinstance(other, str) and _is_called_total(other)):
                return f"is called a total in {column_name(name)}"
    return None


def _is_called_total(cell: str) -> bool:
    parts = _BETWEEN.split(cell.strip())[:_WORDS_OF_TOTAL_MAX]
    return any(meaning("total", "".join(parts[: count + 1])) is not None for count in range(len(parts)))
