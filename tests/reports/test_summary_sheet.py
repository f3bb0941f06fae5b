"""The summary of a results workbook: it adds up by formulas, ties to the file, and names who did what."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from batchpay.payment import State
from batchpay.reports.results import write_results
from tests.support.ledger_factory import Planned, add_batch, ledger_in
from tests.support.office import converted, needs_libreoffice

ROWS = [
    Planned(1, amount_cents=1250),
    Planned(2, State.DECLINED, 700, "CREDIT"),
    Planned(3, State.IN_DOUBT, 99_999, "CREDIT"),
    Planned(4, State.PENDING, 1),
    Planned(6, amount_cents=138_112, direction="CREDIT"),
]
LINES = {
    "accepted": (1, 12.5, 1, 1381.12, 2, 1393.62),
    "declined": (0, 0, 1, 7, 1, 7),
    "in doubt": (0, 0, 1, 999.99, 1, 999.99),
    "pending": (1, 0.01, 0, 0, 1, 0.01),
    "sending": (0, 0, 0, 0, 0, 0),
    "rejected": (None, None, None, None, 1, 50),
    "total": (2, 12.51, 3, 2388.11, 6, 2450.62),
    "the file has": (None, None, None, None, 6, 2450.62),
    "difference": (None, None, None, None, 0, 0),
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A workbook of results with rows in every state and one rejected."""
    path = tmp_path / "pay.results.xlsx"
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, ROWS, rejected=[(5, 5_000, "amount.format")], stopped="signal")
        write_results(ledger, ledger.find(name), path)
    return path


def lines_of(sheet: Any) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row[1:7] for row in sheet.iter_rows(values_only=True) if row[0] in LINES}


def test_what_stands_beside_the_formulas_is_right(results: Path) -> None:
    """A program that does not calculate shows the ledger's own figures, states and directions apart."""
    book = openpyxl.load_workbook(results, data_only=True)
    assert book.sheetnames == ["Summary", "results"]
    assert lines_of(book["Summary"]) == LINES
    assert "control total" in next(row for row in book["Summary"].iter_rows(values_only=True) if row[0] == "state")
    facts = {row[0]: str(row[1]) for row in book["Summary"].iter_rows(values_only=True) if row[0]}
    assert facts["batch"].endswith(", test")
    assert facts["seal"] == "none: sent without a plan"
    assert facts["submitted by"].startswith("tester, ")


def test_every_sum_is_a_formula_over_the_results(results: Path) -> None:
    """Whoever changes a row sees the sum change: no figure of a state is a constant."""
    sheet = openpyxl.load_workbook(results)["Summary"]
    formulas = lines_of(sheet)
    for state in ("accepted", "declined", "in doubt", "pending", "sending", "total"):
        assert all(str(cell).startswith("=") for cell in formulas[state]), state
    assert "results!$H$2:$H$6" in formulas["accepted"][1]


@needs_libreoffice
def test_libreoffice_calculates_the_same(results: Path, tmp_path: Path) -> None:
    """The formulas, calculated by a spreadsheet from the rows alone, give the ledger's figures to the cent."""
    bare = tmp_path / "bare.xlsx"
    with zipfile.ZipFile(results) as source, zipfile.ZipFile(bare, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            if name.endswith("sheet2.xml"):  # without values the program must calculate
                text = re.sub(rb"(</f>)<v>[^<]*</v>", rb"\1", text)
            target.writestr(name, text)
    (calculated,) = converted([bare], "csv", tmp_path)
    with calculated.open(newline="", encoding="utf-8") as file:
        lines = {row[0]: row[1:7] for row in csv.reader(file) if row and row[0] in LINES}
    shown = {name: tuple(float(cell.replace(",", "")) if cell else None for cell in row) for name, row in lines.items()}
    assert shown == LINES
