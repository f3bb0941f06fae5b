"""What LibreOffice shows and saves is read as a person sees it there."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest
from openpyxl import Workbook

from batchpay.intake.source import open_source
from batchpay.intake.template import write_template
from batchpay.intake.xlsx.number_formats import matters, shown
from tests.support.office import converted, needs_libreoffice
from tests.support.payment_files import HEADER, VALID

pytestmark = needs_libreoffice
NUMBERS = (0, 5, 42, 21000021, 1234567890)
FORMATS = (
    "General", "0", "00000", "000000000", "000-00-0000", r"000\-00\-0000", '"00"0', "[$-409]0000000000", "0000000000_)",
    "_(* 0000000000_)", r"[<=99999]00000;00000\-0000", '0000000000;-0000000000;"-"', "[Red]000000", "0#######",
    "#00000",
    r"0000\ 0000", "[>100]000;0", "[>100]000;[<5]00;0000", "??0000", "(000) 000-0000", '000"-"00',
    "[Blue][<100]0000;[Red]00000",
    "@", "0.00", "000000.00", "#,##0", "000,000", "_-* #,##0.00_-", '"A-"0000', "0.00E+00", "0%", "#,##0,", "# ?/?",
)  # fmt: skip


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Numbers as LibreOffice shows them, and workbooks that it saved."""
    folder = tmp_path_factory.mktemp("office")
    shapes, payments, template = (folder / f"{name}.xlsx" for name in ("shapes", "payments", "template"))
    book = Workbook()
    sheet: Any = book.active
    for row, code in enumerate(FORMATS, 1):
        for column, number in enumerate(NUMBERS, 1):
            sheet.cell(row, column, number).number_format = code
    book.save(shapes)
    _payments(payments)
    write_template(template)
    as_shown = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true"
    (text,) = converted([shapes], as_shown, folder, "csv")
    return {"shapes": text} | {path.stem: path for path in converted([payments, template], "xlsx", folder)}


def _payments(path: Path) -> None:
    """Titles, numbers under formats with zeros, hidden helper sheet, a total that adds up, a note."""
    book = Workbook()
    sheet: Any = book.active
    sheet.append(["Payments of May"])
    sheet.append([])
    sheet.append(list(HEADER))
    typed = {"amount": 1381.12, "achAccountNumber": 12345678, "achRoutingNumber": 21000021}
    formats = {"amount": "#,##0.00", "achAccountNumber": "[$-409]0000000000", "achRoutingNumber": "000000000_)"}
    for row in range(4, 7):
        for column, (name, cell) in enumerate(VALID.items(), 1):
            sheet.cell(row, column, typed.get(name, cell)).number_format = formats.get(name, "@")
    sheet.cell(7, 1, "Total")
    sheet.cell(7, HEADER.index("amount") + 1, "=SUM(D4:D6)")
    sheet.cell(9, 3, "checked by Jane")
    book.save(path)


def test_numbers_are_read_as_they_are_shown(office: dict[str, Path]) -> None:
    """A program that is not ours tells what a person sees: of each format it is that, or the cell is an error."""
    with office["shapes"].open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == len(FORMATS)
    for code, cells in zip(FORMATS, rows, strict=True):
        for number, seen in zip(NUMBERS, cells, strict=True):
            ours = shown(code, number)
            digits = seen.strip().replace(",", "").removesuffix(".00")
            assert ours in (digits, None) or (ours == str(number) and digits == "-"), (code, number)
            assert ours == str(number) or matters(code)
        assert (shown(code, 21000021) is None) == (code in FORMATS[-5:]), code


def test_a_workbook_that_it_saved(office: dict[str, Path]) -> None:
    """Zeros, the total and the note are what they were before it was saved there."""
    with open_source(str(office["payments"])) as source:
        assert len(source.notes) == 1 and source.notes[0].startswith("the header was found in row 3; not read: ")
        frame = pl.concat(source.chunks())
        assert (source.end.total_cents, source.end.total_line) == (414336, 7)
    assert frame["achAccountNumber"].to_list() == ["0012345678"] * 3 + [None]
    assert frame["achRoutingNumber"].to_list() == ["021000021"] * 3 + [None]
    assert frame["_no_payment"].null_count() == 3
    marks = [name for name in frame.columns if name.startswith(("_fault", "_warn"))]
    assert not any(frame[name].is_not_null().any() for name in marks)


def test_the_helper_sheet_of_the_template_is_not_counted(office: dict[str, Path]) -> None:
    """LibreOffice saves a sheet that nobody can show as one that is hidden: it is still ours, and nobody's business."""
    assert openpyxl.load_workbook(office["template"])["lists"].sheet_state == "hidden"
    with open_source(str(office["template"])) as source:
        assert source.notes == ()
