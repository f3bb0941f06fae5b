"""What a file says about its amounts besides the numbers, their currency and unit: used or an error, never dropped.

A currency stands in a header (`Amount (GBP)`), a column that nothing uses (`Curr.`), the format of a number in a map or
of a cell in a workbook. One that contradicts currencyCode is the fault `currency_mark`. Where no amount of the whole
file has decimals or a currency's mark, they may be dollars or cents: without a word on the unit each is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import polars as pl

from batchpay.intake.maps.formats import NumberFormat
from batchpay.schemas import amount_text
from batchpay.schemas.amount_text import CODES, OTHER_CURRENCY, OTHER_TEXT, UNIT_UNKNOWN
from batchpay.schemas.columns import CURRENCY, DECIMALS, FAULT
from batchpay.schemas.tables import CURRENCY_NAMES, NO_DECIMALS
from batchpay.schemas.words import header_means, meaning, parts_of
from batchpay.text import column_name

_AMOUNT, _CODE = "amount", "currencyCode"
_NOT_IN_HEADERS = ("all", "top", "try", "won", "pound", "pounds")
"""Currencies that are words: `Amount Won`."""
_FEW = 100
_SAID = {**CODES, **{name.lower(): code for code, name in CURRENCY_NAMES.items()}}


class AmountEvidence:
    """What is known of the amounts of one file, and what of a chunk contradicts it.

    `columns` has what the file calls the columns of amounts, by the names of its own cells in a chunk; `number` is how
    a map says that they are written, `carried` are the columns that are not used.
    """

    def __init__(self, columns: Mapping[str, str], number: NumberFormat | None, carried: Sequence[str]) -> None:
        self._cells = [pl.col(column) for column in columns]
        self._is_ours = _AMOUNT in columns
        self._number = number or NumberFormat()
        header = ", ".join(columns.values())
        words = parts_of(header)
        # One or two letters may mean anything.
        said = [word for word in words if word.lower() in _SAID and (len(word) > 2 or not word.isalpha())]
        self._of_header = next((word for word in said if word.lower() not in _NOT_IN_HEADERS), None)
        parts = (" ".join(words[at : at + count]) for count in (1, 2, 3) for at in range(len(words)))
        units = {meaning("unit", part.lstrip("$€£")) for part in parts}  # `amount_cents`, `Amount (in minor units)`
        unit = next((unit for unit in ("thousands", "dollars", "cents") if unit in units), None)
        self._told = (
            f"column {column_name(header).replace(';', ' ')} says {unit}" if unit in ("cents", "thousands") else ""
        )
        self._beside = [name for name in carried if (header_means(name) or "").startswith(_CODE)]
        self._is_known: bool | None = bool(self._number.unit or unit) or None
        """Whether the unit of the amounts is known; None before the file was read as far as that takes."""

    def chunks(self, read: Callable[[], Iterator[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
        """Mark chunks of the file; it is read twice only where the first chunk has no amount with decimals."""
        chunks = read()
        if self._is_known is None:
            first = next(chunks, None)
            self._is_known = first is None or self._shows_unit(first)
            if first is not None and self._is_known:
                chunks = chain([first], chunks)
            elif first is not None:
                self._is_known = any(map(self._shows_unit, read()))
                chunks = read()
        for chunk in chunks:
            yield self._marked(chunk)
            del chunk  # free some megabytes while waiting for the next one

    def _shows_unit(self, chunk: pl.DataFrame) -> bool:
        """Whether an amount of a chunk has decimals or a currency's mark."""
        decimals = pl.any_horizontal(cell.str.contains(DECIMALS) for cell in self._cells).any()
        marks = pl.any_horizontal(map(amount_text.has_currency, self._cells)).any()
        # Nearly always one of the first rows decides; looking for marks takes longest.
        return any(rows.select(shows).item() for shows in (decimals, marks) for rows in (chunk.head(_FEW), chunk))

    def _marked(self, chunk: pl.DataFrame) -> pl.DataFrame:
        faults = [*self._other_currencies(chunk), *self._other_units(chunk)]
        if not faults:
            return chunk
        name = FAULT + _AMOUNT
        given = [pl.col(name)] if name in chunk.columns else []
        marked = chunk.select(pl.when(pl.col(_AMOUNT).is_not_null()).then(pl.coalesce(*given, *faults))).to_series()
        if CURRENCY + _AMOUNT in chunk.columns:
            # A rejects file has no formats: a row that comes back must still say what it is in.
            shown = [
                pl.when(marked.is_not_null()).then(pl.concat_str(cell, pl.lit(" "), CURRENCY + _AMOUNT))
                for cell in self._cells
            ]
            chunk = chunk.with_columns(pl.coalesce(text, cell) for text, cell in zip(shown, self._cells, strict=True))
            chunk = chunk.drop(CURRENCY + _AMOUNT)
        return chunk if marked.null_count() == len(marked) else chunk.with_columns(marked.alias(name))

    def _other_currencies(self, chunk: pl.DataFrame) -> Iterator[pl.Expr]:
        """Yield faults of amounts that are marked with another currency than they have."""
        marks = [pl.lit(self._of_header)] if self._of_header else []
        if self._number.currency:
            is_marked = pl.any_horizontal(
                cell.str.contains(self._number.currency, literal=True) for cell in self._cells
            )
            marks.append(pl.when(is_marked).then(pl.lit(self._number.currency)))
        marks += [pl.col(name).str.strip_chars(" .") for name in self._beside if name in chunk.columns]
        code = pl.col(_CODE) if _CODE in chunk.columns else pl.lit(None, pl.String)
        if CURRENCY + _AMOUNT in chunk.columns:
            shown = pl.col(CURRENCY + _AMOUNT)
            marks.append(shown)
            is_other = shown.is_not_null() & ~shown.str.to_lowercase().is_in(list(_SAID))
            yield pl.when(is_other).then(pl.lit(f"format: {OTHER_TEXT}"))
        for mark in marks:
            codes = mark.str.to_lowercase().replace_strict(_SAID, default=None, return_dtype=pl.String)
            yield pl.when(amount_text.contradicts(codes, code)).then(
                pl.format(f"currency_mark: {OTHER_CURRENCY}", mark)
            )

    def _other_units(self, chunk: pl.DataFrame) -> Iterator[pl.Expr]:
        """Yield faults of amounts of which nobody knows whether they are dollars."""
        has_no_cents = pl.col(_CODE).is_in(list(NO_DECIMALS)) if _CODE in chunk.columns else pl.lit(value=False)
        if self._number.unit == "cents":
            yield pl.when(has_no_cents).then(pl.lit("format: is said to be in cents, and its currency has none"))
        elif self._told and not self._number.unit:
            yield pl.lit(f"{UNIT_UNKNOWN}another unit than dollars: {self._told}, {_STATE_IT}")
        elif not self._is_known:
            written = "^(?:0|[1-9][0-9]*)$" if self._is_ours else "[0-9]"  # of what the rules refuse they say why
            is_whole = pl.any_horizontal(cell.str.contains(written) for cell in self._cells)
            is_whole &= ~has_no_cents.fill_null(value=False)
            told = f"{UNIT_UNKNOWN}dollars or in cents: no amount of the file has decimals, {_STATE_IT}"
            yield pl.when(is_whole).then(pl.lit(told))


_STATE_IT = "state it with --amounts-in dollars, cents or thousands, or in the map ([formats.amount] unit)"
