"""Columns of a sheet as text, along with faults: the values of the library, corrected by what the scan found.

A typed cell becomes the text that will be sent, or a marked fault (RULES.md: Typed cells).
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from batchpay.intake.header import CellForm, has_check_digit
from batchpay.intake.xlsx.number_formats import hides_digits, is_scaled, other_text, shown
from batchpay.schemas.columns import (
    ACCOUNT,
    COLUMNS,
    CURRENCY,
    DATES,
    DECIMALS,
    DIGITS_MATTER,
    DOUBTED,
    FAULT,
    FLAGS,
    MONEY,
    ROUTING,
    SUGGEST,
    WARN,
)

LOST_ZERO, TEXT_FORMULA = "leading_zero", "text_formula"
NUMERIC_ACCOUNT = "numeric_account"
"""An account number in a numeric cell, shown without leading zeros: nobody knows whether it lost some."""
IDENTIFIERS = ("paymentId", "gatewayId", "achAccountNumber", "achRoutingNumber", "achCheckNumber")
"""Like money columns, these may not be computed by a formula: the user may see a value other than the cached one."""
_WHOLE_MAX = 2**53

Typed = str | int | float | bool | datetime.date | datetime.time | datetime.timedelta
Cell = tuple[str | None, str | None, str | None]
"""Text, code of a fault, suggestion."""


def render(value: Typed, column: str, *, number_format: str | None = None) -> Cell:
    """Render one cell of a column; carried columns have no faults.

    `number_format` is given only where a number may be shown with other digits than its own, or with a text.
    """
    known = column in COLUMNS
    if isinstance(value, str):
        return value or None, None, None
    if isinstance(value, bool):
        if column in FLAGS:
            return str(int(value)), None, None
        return str(value).upper(), None, None
    if isinstance(value, (int, float)):
        number = float(value)
        if known:
            return _number(number, column, number_format)
        seen = shown(number_format, int(number)) if number_format and number >= 0 and _is_whole(number) else None
        return seen or plain_number(number), None, None
    if isinstance(value, datetime.date):
        return _date(value, column, known)
    return str(value), "format" if known else None, None


def render_as(value: Typed, form: CellForm, *, number_format: str | None = None) -> Cell:
    """Render one cell like the texts of its column."""
    if form.date is not None and isinstance(value, datetime.date) and not _is_timed(value):
        return value.strftime(form.date), None, None
    text, fault, suggestion = render(value, form.target, number_format=number_format)
    if text is not None and isinstance(value, (int, float)) and form.target in MONEY:
        text = (text.removesuffix(".00") if form.is_whole else text).replace(".", form.decimal)
    return text, fault, suggestion


def plain_value(value: Typed) -> str | int | float | bool | None:
    """Return a cell of a sheet that is no payment file: dates as ISO 8601, None for a blank one."""
    if isinstance(value, float) and _is_whole(value):
        return int(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ") if _is_timed(value) else value.date().isoformat()
    return (value if isinstance(value, (str, int, float)) else str(value)) if value != "" else None


def plain_number(value: float) -> str:
    """Return a number as a person would write it: `12`, `12.5`."""
    return str(int(value)) if _is_whole(value) else repr(value)


def _number(value: float, column: str, number_format: str | None) -> Cell:
    if column in MONEY:
        return _money(value, number_format)
    if abs(value) >= 1e15 and column in DIGITS_MATTER:
        # Written so that nobody takes it for the number: it comes back in the rejects, as a text like any other.
        return f"{value:.14E}", "precision", None
    if not _is_whole(value):
        return plain_number(value), "format", None
    digits = str(int(value))
    if number_format is not None and value >= 0 and hides_digits(number_format):
        seen = shown(number_format, int(value))
        if seen is None and column in DIGITS_MATTER:
            return (DOUBTED if column == ACCOUNT else "") + digits, "precision", None
        digits = seen or digits
    elif column == ACCOUNT:
        return digits, NUMERIC_ACCOUNT, None
    if column == ROUTING and len(digits) <= 8:
        is_one = len(digits) == 8 and digits.isdigit() and has_check_digit(digits)
        return digits, LOST_ZERO, f"0{digits}" if is_one else None
    return digits, None, None


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value == round(value) and abs(value) < _WHOLE_MAX


def _money(value: float, number_format: str | None) -> Cell:
    cents = round(value * 100) if math.isfinite(value) and abs(value) < _WHOLE_MAX / 1000 else None
    if cents is None or abs(value - cents / 100) > 1e-9 or (number_format and is_scaled(number_format)):
        return plain_number(value), "format", None
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}", None, None


def _date(value: datetime.date, column: str, known: bool) -> Cell:
    if _is_timed(value):
        return str(value), "format" if known else None, None
    if column in DATES:
        return value.strftime("%m/%d/%Y"), None, None
    # In any other known column the spreadsheet turned something that was typed into a date.
    return f"{value:%Y-%m-%d}", "format" if known else None, None


def _is_timed(value: datetime.date) -> bool:
    return isinstance(value, datetime.datetime) and value.time() != datetime.time()


if TYPE_CHECKING:
    from batchpay.intake.xlsx.pieces import CellRef, SheetPiece

_AMOUNT = "amount"
_DECIMALS = re.compile(DECIMALS)
_NO_FORMULAS = (*MONEY, *IDENTIFIERS)
_Found = list[tuple[int, str]]
"""Rows of a column, with what was found there."""


class ColumnRenderer:
    """Renders rows of typed cells; `forms` says for each column what they are to become.

    There are `columns_before` columns before the sheet's first one with a value. `pieces` rereads the sheet from its
    first row: only where account numbers are numbers, or the first amounts are whole ones.
    """

    def __init__(
        self, forms: Sequence[CellForm], columns_before: int, pieces: Callable[..., Iterator[SheetPiece]]
    ) -> None:
        self._forms = forms
        self._columns_before = columns_before
        self._pieces = pieces

    def columns(self, piece: SheetPiece) -> dict[str, Sequence[str]]:
        """Render consecutive sheet rows: `c0` and so on, and their marks where they occur; '' is a blank cell."""
        special = piece.special
        errors = self._by_column(special.errors.items())
        formulas = self._by_column(
            (place, TEXT_FORMULA if is_text else "formula") for place, is_text in special.formulas.items()
        )
        styles = self._by_column(special.styles.items())
        columns: dict[str, Sequence[str]] = {}
        faults: dict[str, Sequence[str]] = {}
        for at, values in enumerate(zip(*piece.rows, strict=True)):
            form = self._forms[at]
            if form.target == _AMOUNT and _are_whole(values) and not self._shows_dollars:
                form = replace(form, is_whole=True)
            texts, codes, suggestions = self._column(
                form, values, piece.first_row, errors[at], formulas[at], styles[at]
            )
            warnings: dict[int, str] = {}
            if numeric := [row for row, code in codes.items() if code == NUMERIC_ACCOUNT]:
                if self._zeros_were_lost:
                    texts = list(texts)
                    for row in numeric:
                        texts[row] = DOUBTED + texts[row]
                else:
                    warnings = {row: codes.pop(row) for row in numeric}
            columns[f"c{at}"] = texts
            marks: dict[int, str] = {}
            if form.target == _AMOUNT:
                marks = {row - piece.first_row: text for row, code in styles[at] if (text := other_text(code))}
            for kind, found in ((FAULT, codes), (SUGGEST, suggestions), (WARN, warnings), (CURRENCY, marks)):
                if found:
                    faults[f"{kind}c{at}"] = [found.get(row, "") for row in range(len(values))]
        return columns | faults

    @cached_property
    def _zeros_were_lost(self) -> bool:
        """Whether a routing number in the sheet has lost its zero: then account numbers have lost theirs, too."""
        routing = [at for at, form in enumerate(self._forms) if form.target == ROUTING]
        for piece in self._pieces() if routing else ():
            styles = self._by_column(piece.special.styles.items())
            for at in routing:
                formats = dict(styles[at])
                for row, cells in enumerate(piece.rows, piece.first_row):
                    is_number = type(cells[at]) in (int, float)
                    if is_number and render(cells[at], ROUTING, number_format=formats.get(row))[1] == LOST_ZERO:
                        return True
        return False

    @cached_property
    def _shows_dollars(self) -> bool:
        """Whether an amount of the sheet has decimals, or is shown with them or with a mark of dollars."""
        amounts = [at for at, form in enumerate(self._forms) if form.target == _AMOUNT]
        for piece in self._pieces(of_dollars=True):
            styles = self._by_column(piece.special.styles.items())
            if any(styles[at] or not _are_whole([cells[at] for cells in piece.rows]) for at in amounts):
                return True
        return False

    def _by_column(self, found: Iterable[tuple[CellRef, str]]) -> list[_Found]:
        columns: list[_Found] = [[] for _ in self._forms]
        for (row, column), text in found:
            at = column - 1 - self._columns_before
            if 0 <= at < len(columns):
                columns[at].append((row, text))
        return columns

    @staticmethod
    def _column(
        form: CellForm, values: Sequence[Any], first_row: int, errors: _Found, formulas: _Found, formats: _Found
    ) -> tuple[Sequence[str], dict[int, str], dict[int, str]]:
        target = form.target
        codes: dict[int, str] = {}
        suggestions: dict[int, str] = {}
        texts: Sequence[str] = values
        if set(map(type, values)) != {str}:
            styles: list[str | None] = [None] * len(values)
            for row, style in formats:
                styles[row - first_row] = style
            texts = _rendered(values, form, styles, codes, suggestions)
        for row, code in formulas:
            text = texts[row - first_row]
            if target in _NO_FORMULAS or (target in COLUMNS and not text):
                codes[row - first_row] = code
                if code == TEXT_FORMULA and text and target != ACCOUNT:
                    suggestions[row - first_row] = text
        if errors:
            texts = list(texts)
            for row, text in errors:
                texts[row - first_row] = text
                if target in COLUMNS:
                    codes[row - first_row] = "error_cell"
        return texts, codes, suggestions


def _are_whole(cells: Sequence[Any]) -> bool:
    """Whether no cell is an amount with decimals."""
    return not any(
        cell != round(cell) if type(cell) is float and math.isfinite(cell) else _DECIMALS.search(cell)
        for cell in cells
        if type(cell) in (float, str)
    )


def _rendered(
    values: Sequence[Any],
    form: CellForm,
    styles: Sequence[str | None],
    codes: dict[int, str],
    suggestions: dict[int, str],
) -> list[str]:
    """Render cells of any kind, each distinct one once; faults go to `codes` and `suggestions`."""
    # The type is part of what distinguishes cells, since 1, 1.0 and TRUE are equal.
    cells = list(zip(map(type, values), values, styles, strict=True))
    known = {cell: render_as(cell[1], form, number_format=cell[2]) for cell in set(cells)}
    for found, place in ((codes, 1), (suggestions, 2)):
        texts = {cell: text for cell, rendered in known.items() if (text := rendered[place]) is not None}
        if texts:
            found.update((row, texts[cell]) for row, cell in enumerate(cells) if cell in texts)
    texts = {cell: rendered[0] or "" for cell, rendered in known.items()}
    return [texts[cell] for cell in cells]
