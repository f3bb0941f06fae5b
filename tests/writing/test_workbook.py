"""A workbook as a finance person would have made it; and a Parquet file's own words, before polars believes them."""

from __future__ import annotations

import os
import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest

from batchpay.intake.own_output import first_row
from batchpay.writing.atomic import atomic_writer
from batchpay.writing.parquet_pages import BrokenPages, check_pages
from batchpay.writing.table import write_table
from batchpay.writing.xlsx import Column, Formula, Kind, Style, Workbook, columns
from tests.support.damaged_parquet import count_below_zero

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
        page = book.sheet("Summary", widths=[20, 12])
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


def written(folder: Path, rows: int = 50, **options: Any) -> Path:
    """A file of every kind of column, with nulls."""
    path = folder / "a.parquet"
    pl.DataFrame(
        {
            "text": [f"{at} of many" for at in range(rows)],
            "few": pl.Series([("a", "b", None)[at % 3] for at in range(rows)], dtype=pl.Categorical),
            "long": ["x" * 3000] * rows,
            "number": range(rows),
            "money": pl.Series([Decimal("12.50")] * rows),
            "float": pl.Series([0.5, None] * rows, dtype=pl.Float64).head(rows),
            "flag": pl.Series([True, None] * rows, dtype=pl.Boolean).head(rows),
            "day": pl.Series([date(2026, 12, 1)] * rows, dtype=pl.Date),
            "nested": pl.Series([[{"a": 1}, {"a": 2}]] * rows, dtype=pl.List(pl.Struct({"a": pl.Int64}))),
        }
    ).write_parquet(path, **options)
    return path


def check(path: Path) -> None:
    with path.open("rb") as file:
        check_pages(file.fileno())


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "zstd", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("options", [{}, {"row_group_size": 7}, {"data_page_size": 100}, {"statistics": "full"}])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_a_good_file_passes(tmp_path: Path, compression: str, options: dict[str, Any], rows: int) -> None:
    """However it is written, also with header texts of thousands of characters and with no row."""
    check(written(tmp_path, rows, compression=compression, **options))


def test_a_count_below_zero(tmp_path: Path) -> None:
    """A page with fewer values than none made polars ask for 2^61 bytes, and the process was gone."""
    for page in range(5):
        path = written(tmp_path, compression="uncompressed")
        count_below_zero(path, page)
        with pytest.raises(BrokenPages):
            check(path)


def test_an_output_that_was_damaged_is_none_of_ours(tmp_path: Path) -> None:
    """Results and rejects that lie in the way are looked into as well."""
    path = written(tmp_path, compression="uncompressed")
    assert first_row(path) is not None
    count_below_zero(path)
    assert first_row(path) is None


def test_cut_off_anywhere(tmp_path: Path) -> None:
    """The end of a file that has none is looked for in vain."""
    path = written(tmp_path)
    for size in range(0, path.stat().st_size, 97)[::-1]:
        os.truncate(path, size)
        with pytest.raises(BrokenPages):
            check(path)


def test_whatever_the_bytes_are_it_ends_in_one_way(tmp_path: Path) -> None:
    """Damage passes, where no page says what can't be, or is told as damage."""
    whole, chance, found = written(tmp_path, compression="uncompressed").read_bytes(), random.Random(7), 0
    path = tmp_path / "damaged.parquet"
    for _ in range(300):
        content = bytearray(whole)
        for at in chance.sample(range(len(content) - 3000, len(content)), 3):
            content[at] = chance.randrange(256)
        path.write_bytes(content)
        try:
            check(path)
        except BrokenPages:
            found += 1
    assert found > 100
