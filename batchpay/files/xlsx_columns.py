"""Columns of a sheet as text, with faults beside: the values of the library, corrected by what the scan found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchpay.files.xlsx_cells import IDENTIFIERS, Cell, render
from batchpay.files.xlsx_tags import Sheet
from batchpay.schemas.columns import COLUMNS, MONEY

_NO_FORMULAS = (*MONEY, *IDENTIFIERS)


class ColumnRenderer:
    """Renders rows of typed cells; `targets` names the column that each stands for in the rules."""

    def __init__(self, targets: Sequence[str], scan: Sheet) -> None:
        self._targets = targets
        places = range(len(targets))
        self._errors: list[dict[int, str]] = [{} for _ in places]
        self._formulas: list[list[int]] = [[] for _ in places]
        self._styles: list[dict[int, str]] = [{} for _ in places]
        for (row, column), text in scan.errors.items():
            if column <= len(targets):
                self._errors[column - 1][row] = text
        for row, column in sorted(scan.formulas):
            if column <= len(targets):
                self._formulas[column - 1].append(row)
        for (row, column), code in scan.styles.items():
            if column <= len(targets):
                self._styles[column - 1][row] = code

    def columns(self, rows: Sequence[Sequence[Any]], first_row: int) -> dict[str, list[str | None]]:
        """Render consecutive sheet rows: `c0` and so on, and fault columns where they occur."""
        columns: dict[str, list[str | None]] = {}
        faults: dict[str, list[str | None]] = {}
        for at, values in enumerate(zip(*rows, strict=True)):
            texts, codes, suggestions = self._column(at, values, first_row)
            columns[f"c{at}"] = texts
            if codes:
                faults[f"_fault.c{at}"] = [codes.get(row) for row in range(len(values))]
            if suggestions:
                faults[f"_suggest.c{at}"] = [suggestions.get(row) for row in range(len(values))]
        return columns | faults

    def _column(
        self, at: int, values: Sequence[Any], first_row: int
    ) -> tuple[list[str | None], dict[int, str], dict[int, str]]:
        target = self._targets[at]
        codes: dict[int, str] = {}
        suggestions: dict[int, str] = {}
        if set(map(type, values)) == {str}:
            texts: list[str | None] = [value or None for value in values]
        else:
            texts = self._typed(at, values, first_row, codes, suggestions)
        end = first_row + len(values)
        for row in self._formulas[at]:
            if first_row <= row < end and target in COLUMNS:
                blank = texts[row - first_row] is None
                if target in _NO_FORMULAS or blank:
                    codes[row - first_row] = "formula"
        for row, text in self._errors[at].items():
            if first_row <= row < end:
                texts[row - first_row] = text
                if target in COLUMNS:
                    codes[row - first_row] = "error_cell"
        return texts, codes, suggestions

    def _typed(
        self, at: int, values: Sequence[Any], first_row: int, codes: dict[int, str], suggestions: dict[int, str]
    ) -> list[str | None]:
        target, styles = self._targets[at], self._styles[at]
        known: dict[tuple[type, Any, str | None], Cell] = {}
        texts: list[str | None] = []
        for row, value in enumerate(values):
            if value.__class__ is str:
                texts.append(value or None)
                continue
            style = styles.get(first_row + row)
            key = (value.__class__, value, style)
            cell = known.get(key)
            if cell is None:
                cell = known[key] = render(value, target, zero_format=style)
            texts.append(cell[0])
            if cell[1] is not None:
                codes[row] = cell[1]
            if cell[2] is not None:
                suggestions[row] = cell[2]
        return texts
