"""A collection of odd workbooks, none of them payments: no crash, and every cell that openpyxl sees is seen."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.xlsx.columns import render
from tests.support.payment_files import DATA, cells, read

FOLDER = DATA / "xlsx_edge"
FILES = sorted(path for path in FOLDER.glob("*.*") if path.suffix in (".xlsx", ".xls", ".xlsb", ".ods"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the collection of odd workbooks is not here")

REFUSED = {
    "gh548_incorrect_sst_unique_count.xls": "old Excel",
    "issue127.xls": "old Excel",
    "malformed_format.xls": "old Excel",
    "xls_wrong_decimals.xls": "old Excel",
    "pass_protected.xlsx": "password",
    "issue127.xlsb": r"\.xlsb",
    "issue127.ods": r"\.ods",
    "empty_sheet.xlsx": "no header",
    "errors.xlsx": "no header",
}
"""Other kinds of files, and sheets without a header."""
COMPARED = ("temperature.xlsx", "table-multiple.xlsx", "string-ref.xlsx", "merged_range.xlsx")
"""Sheets that openpyxl reads as well, with the header in the first row."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_read_or_refused(path: Path) -> None:
    """Every workbook is read, or refused in one line that says why."""
    if path.name in REFUSED:
        with pytest.raises(FileRefused, match=REFUSED[path.name]) as refusal:
            read(str(path))
        assert "\n" not in str(refusal.value)
    else:
        read(str(path))


@pytest.mark.parametrize("name", COMPARED)
def test_agrees_with_openpyxl(name: str) -> None:
    """No cell is lost or another's against a second library."""
    from openpyxl import load_workbook

    book = load_workbook(FOLDER / name, data_only=True)
    sheet = next(sheet for sheet in book.worksheets if sheet.sheet_state == "visible")
    rows = list(sheet.iter_rows(values_only=True))
    expected = [tuple(_text(cell) for cell in row) for row in rows[1:] if any(cell is not None for cell in row)]
    assert cells(str(FOLDER / name)) == expected


def _text(cell: Any) -> str:
    if isinstance(cell, (str, int, float, datetime.date)):
        return render(cell, "memo")[0] or ""
    return "" if cell is None else str(cell)
