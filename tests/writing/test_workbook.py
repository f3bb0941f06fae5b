"""A workbook as a finance person would have made it: numbers that add up, dates, text where zeros count, a filter."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from batchpay.writing.atomic import atomic_writer
from batchpay.writing.columns import Column, Kind, columns
from batchpay.writing.table import write_table
from batchpay.writing.xlsx import Formula, Workbook
from batchpay.writing.xlsx_parts import Style

HEADER = ("row", "account", "amount", "state", "sent_at", "message")
KINDS = {
    "row": Kind.INTEGER, "amount": Kind.AMOUNT, "state": Kind.STATE, "sent_at": Kind.INSTANT, "message": Kind.WRAP,
}  # fmt: skip
ROWS = [
    ("1", "0012345678", "1381.12", "accepted", "2026-11-21T03:00:00.250Z", "fine"),
    ("2", "=1+1", "007.50", "in_doubt", None, "a long reason " * 20),
    ("3", "x", "12", "declined", "yesterday", None),
]


def sheet_of(path: Path) -> Any:
    return openpyxl.load_workbook(path).active


def test_cells_have_the_kind_of_their_column(tmp_path: Path) -> None:
    """Amounts are numbers, times are dates, identifiers stay text; what is not of its column's kind stays as it is."""
    path = tmp_path / "r.xlsx"
    write_table(path, columns(HEADER, KINDS), ROWS)
    sheet = sheet_of(path)
    first, second, third = ([cell.value for cell in row] for row in sheet.iter_rows(min_row=2))
    assert first[:4] == [1, "0012345678", 1381.12, "accepted"]
    assert abs((first[4] - datetime(2026, 11, 21, 3, 0, 0, 250_000)).total_seconds()) < 0.01  # noqa: DTZ001 - a cell
    assert second[1:3] == ["=1+1", "007.50"]
    assert sheet["B3"].data_type == "s"
    assert (third[2], third[4]) == ("12", "yesterday")
    assert sheet["C2"].number_format == "#,##0.00"
    assert sheet["B2"].number_format == "@"


def test_a_sheet_can_be_read_and_filtered(tmp_path: Path) -> None:
    """The header is frozen, filtered and repeated on paper; widths fit; states have colors beside their words."""
    path = tmp_path / "r.xlsx"
    write_table(path, columns(HEADER, KINDS), ROWS)
    sheet = sheet_of(path)
    assert sheet.freeze_panes == "A2"
    assert sheet.auto_filter.ref == "A1:F4"
    assert sheet.print_title_rows == "$1:$1"
    assert sheet.page_setup.orientation == "landscape"
    assert sheet.column_dimensions["B"].width >= len("0012345678")
    assert sheet.column_dimensions["F"].width == 60
    assert sheet["F3"].alignment.wrap_text
    colors = {sheet[f"D{row}"].fill.fgColor.rgb for row in (2, 3, 4)}
    assert len(colors) == 3


def test_a_choice_is_a_drop_down(tmp_path: Path) -> None:
    """A cell that a person fills in offers what may stand there, and nothing covers it."""
    path = tmp_path / "d.xlsx"
    header = [Column("row", Kind.INTEGER), Column("decision", Kind.INPUT, ("accepted", "declined"))]
    with atomic_writer(path) as file, Workbook(file) as book:
        sheet = book.sheet("doubts", header)
        sheet.row(["1", None])
    sheet = sheet_of(path)
    (validation,) = sheet.data_validations.dataValidation
    assert (validation.formula1, str(validation.sqref)) == ('"accepted,declined"', "B2")
    assert sheet["B2"].value is None


def test_a_page_stands_in_front_of_the_table_that_it_sums(tmp_path: Path) -> None:
    """Its formulas have their values beside them, and name the table."""
    path = tmp_path / "s.xlsx"
    with atomic_writer(path) as file, Workbook(file) as book:
        book.sheet("results", [Column("amount", Kind.AMOUNT)]).row(["12.50"])
        page = book.page("Summary", [20, 12])
        page.line(("total", Style.LABEL), (Formula("SUM(results!A2:A2)", "12.50"), Style.SUM))
    formulas, values = openpyxl.load_workbook(path), openpyxl.load_workbook(path, data_only=True)
    assert formulas.sheetnames == ["Summary", "results"]
    assert (formulas["Summary"]["B1"].value, values["Summary"]["B1"].value) == ("=SUM(results!A2:A2)", 12.5)


def test_a_workbook_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    """What stood there before stays."""
    path = tmp_path / "r.xlsx"
    path.write_text("before")
    with pytest.raises(ValueError, match="half"), atomic_writer(path) as file, Workbook(file) as book:
        book.sheet("results", [Column("a")])
        raise ValueError("half")
    assert path.read_text() == "before"
