"""Builds samples/spreadsheet.xlsx: a workbook as people keep them, its internal dates fixed so its bytes repeat."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime

from openpyxl import Workbook
from openpyxl.styles import Font
from openpyxl.worksheet.worksheet import Worksheet

from tests.support.sample_plan import ODD_CELLS, SPREADSHEET_SHEET, SPREADSHEET_TITLE

_HEADER_ROW = 3
_TEXT_FORMAT, _AMOUNT_FORMAT, _DATE_FORMAT = "@", "0.00", "mm/dd/yyyy"
_CREATED = b"2026-01-02T09:00:00Z"
_ZIP_DATE = (2026, 1, 2, 9, 0, 0)


def spreadsheet_bytes(header: Sequence[str], rows: Sequence[Mapping[str, str]]) -> bytes:
    """Return a workbook with a title above the header, amounts and dates as typed cells, the rest as text cells."""
    workbook = Workbook()
    sheet = workbook.active
    assert isinstance(sheet, Worksheet)
    sheet.title = SPREADSHEET_SHEET
    sheet["A1"] = SPREADSHEET_TITLE
    sheet["A1"].font = Font(bold=True, size=14)
    for column, name in enumerate(header, start=1):
        sheet.cell(_HEADER_ROW, column, name).font = Font(bold=True)
    for number, row in enumerate(rows, start=1):
        for column, name in enumerate(header, start=1):
            _write(sheet, _HEADER_ROW + number, column, name, row[name])
    for odd in ODD_CELLS:
        cell = sheet.cell(_HEADER_ROW + odd.row, header.index(odd.column) + 1)
        cell.number_format = "General"
        cell.value = odd.value  # type: ignore[assignment]
    sheet.freeze_panes = f"A{_HEADER_ROW + 1}"
    file = io.BytesIO()
    workbook.save(file)
    return _with_fixed_dates(file.getvalue())


def _write(sheet: Worksheet, sheet_row: int, column: int, name: str, text: str) -> None:
    if not text:
        return
    cell = sheet.cell(sheet_row, column)
    if name == "amount":
        cell.value, cell.number_format = float(text), _AMOUNT_FORMAT
    elif name == "gatewayId":
        cell.value = int(text)
    elif name == "recurringStartDate":
        cell.value = datetime.strptime(text, "%m/%d/%Y")  # noqa: DTZ007 a calendar date has no zone
        cell.number_format = _DATE_FORMAT
    else:
        cell.value, cell.number_format = text, _TEXT_FORMAT


def _with_fixed_dates(workbook: bytes) -> bytes:
    """Return the same parts with fixed dates, uncompressed: deflate's output differs from one zlib to another."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(workbook)) as source, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "docProps/core.xml":
                content = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", _CREATED, content)
            part = zipfile.ZipInfo(name, _ZIP_DATE)
            part.create_system = 3  # the default differs between operating systems
            target.writestr(part, content)
    return file.getvalue()
