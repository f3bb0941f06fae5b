"""Columns of a sheet as text, along with faults: the values of the library, corrected by what the scan found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from batchpay.intake.cell_form import CellForm
from batchpay.intake.xlsx.cell_scan import CellRef, Sheet
from batchpay.intake.xlsx.cells import IDENTIFIERS, LOST_ZERO, NUMERIC_ACCOUNT, TEXT_FORMULA, render, render_as
from batchpay.schemas.columns import ACCOUNT, COLUMNS, FAULT, MONEY, ROUTING, SUGGEST, WARN

_NO_FORMULAS = (*MONEY, *IDENTIFIERS)
_Found = list[tuple[int, str]]
"""Rows of a column, ascending, with what was found there."""


class ColumnRenderer:
    """Renders rows of typed cells; `forms` says for each column what they are to become.

    The library leaves out `columns_before`, the columns before the first one with a cell; the scan counts them.
    `all_rows` rereads the sheet from its first row: called once, and only where account numbers are numbers.
    """

    def __init__(
        self,
        forms: Sequence[CellForm],
        scan: Sheet,
        columns_before: int,
        all_rows: Callable[[], Iterator[Sequence[Any]]],
    ) -> None:
        self._forms = forms
        self._columns_before = columns_before
        self._errors = self._by_column(scan.errors.items())
        self._formulas = self._by_column(
            (place, TEXT_FORMULA if is_text else "formula") for place, is_text in scan.formulas.items()
        )
        self._styles = self._by_column(scan.styles.items())
        self._all_rows = all_rows

    def columns(self, rows: Sequence[Sequence[Any]], first_row: int) -> dict[str, Sequence[str]]:
        """Render consecutive sheet rows: `c0` and so on, and their marks where they occur; '' is a blank cell."""
        columns: dict[str, Sequence[str]] = {}
        faults: dict[str, Sequence[str]] = {}
        for at, values in enumerate(zip(*rows, strict=True)):
            texts, codes, suggestions = self._column(at, values, first_row)
            columns[f"c{at}"] = texts
            warnings: dict[int, str] = {}
            if NUMERIC_ACCOUNT in codes.values() and not self._zeros_were_lost:
                warnings = {row: code for row, code in codes.items() if code == NUMERIC_ACCOUNT}
                codes = {row: code for row, code in codes.items() if code != NUMERIC_ACCOUNT}
            for kind, found in ((FAULT, codes), (SUGGEST, suggestions), (WARN, warnings)):
                if found:
                    faults[f"{kind}c{at}"] = [found.get(row, "") for row in range(len(values))]
        return columns | faults

    @cached_property
    def _zeros_were_lost(self) -> bool:
        """Whether a routing number in the sheet has lost its zero: then account numbers have lost theirs, too."""
        for at in (at for at, form in enumerate(self._forms) if form.target == ROUTING):
            formats = dict(self._styles[at])
            for row, cells in enumerate(self._all_rows(), 1):
                is_number = type(cells[at]) in (int, float)
                if is_number and render(cells[at], ROUTING, number_format=formats.get(row))[1] == LOST_ZERO:
                    return True
        return False

    def _by_column(self, found: Iterable[tuple[CellRef, str]]) -> list[_Found]:
        columns: list[_Found] = [[] for _ in self._forms]
        for (row, column), text in sorted(found):
            at = column - 1 - self._columns_before
            if 0 <= at < len(columns):
                columns[at].append((row, text))
        return columns

    def _column(
        self, at: int, values: Sequence[Any], first_row: int
    ) -> tuple[Sequence[str], dict[int, str], dict[int, str]]:
        form = self._forms[at]
        target = form.target
        end = first_row + len(values)
        codes: dict[int, str] = {}
        suggestions: dict[int, str] = {}
        texts: Sequence[str] = values
        if set(map(type, values)) != {str}:
            styles: list[str | None] = [None] * len(values)
            for row, style in _between(self._styles[at], first_row, end):
                styles[row - first_row] = style
            texts = _rendered(values, form, styles, codes, suggestions)
        for row, code in _between(self._formulas[at], first_row, end):
            text = texts[row - first_row]
            if target in _NO_FORMULAS or (target in COLUMNS and not text):
                codes[row - first_row] = code
                if code == TEXT_FORMULA and text and target != ACCOUNT:
                    suggestions[row - first_row] = text
        if errors := _between(self._errors[at], first_row, end):
            texts = list(texts)
            for row, text in errors:
                texts[row - first_row] = text
                if target in COLUMNS:
                    codes[row - first_row] = "error_cell"
        return texts, codes, suggestions


def _between(found: _Found, first_row: int, end_row: int) -> _Found:
    return found[bisect_left(found, (first_row, "")) : bisect_left(found, (end_row, ""))]


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
