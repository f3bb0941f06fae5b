"""What is at the end of a file: a totals row, which is not a payment, and a last line that may be cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.columns import DIRECTION, FAULT, MAP_FAULT, MONEY, NO_PAYMENT, QUOTATION, REQUIRED
from batchpay.text import money

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
