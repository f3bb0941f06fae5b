"""Make the workbook that `batchpay template` writes, of the rules: python -m tests.support.template_workbook."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from openpyxl import Workbook
from openpyxl.comments import Comment
from openpyxl.styles import Font, PatternFill
from openpyxl.worksheet.datavalidation import DataValidation

from batchpay.intake import template
from batchpay.intake.header import EXAMPLE_MARK, HELPER_SHEET, NOTE_COLUMN
from batchpay.intake.template import EXAMPLE
from batchpay.schemas.catalogue import rules
from batchpay.schemas.columns import COLUMNS, DATES, MONEY, REQUIRED
from batchpay.schemas.tables import CHOICES, STATES
from batchpay.writing.xlsx import column_letters

PATH = Path(template.__file__).with_name("template.xlsx")
CHECK_COLUMN = "_check"
ROWS_PREPARED = 1000
_BY_STATE = dict.fromkeys(("billingState", "shippingState"), (*STATES["US"], *STATES["CA"]))
_CHOICES = {**CHOICES, **_BY_STATE, "recurringAgreementFlag": ("1", "0")}


def workbook() -> Any:
    """Make the workbook."""
    workbook = Workbook()
    workbook.properties.created = workbook.properties.modified = datetime(2026, 1, 1)  # noqa: DTZ001 - as XLSX has it
    sheet: Any = workbook.active
    sheet.title = "payments"
    header = (NOTE_COLUMN, *COLUMNS, CHECK_COLUMN)
    words = _words()
    for at, name in enumerate(header):
        letters = column_letters(at)
        cell = sheet.cell(1, at + 1, name)
        cell.font = Font(bold=True)
        cell.comment = Comment(words[name], "batchpay", height=140, width=320)
        if name in REQUIRED:
            cell.fill = PatternFill("solid", fgColor="FFFFF2CC")
        sheet.column_dimensions[letters].width = max(12, len(name) + 2)
        number_format = _format_of(name)
        for row in range(2, ROWS_PREPARED + 2) if name == CHECK_COLUMN else (2,):
            filled = sheet.cell(row, at + 1)
            filled.number_format = number_format
            if name == CHECK_COLUMN:
                filled.value = _check_formula(column_letters(header.index("achRoutingNumber")), row)
            else:
                filled.value = _example_value(name)
                filled.font = Font(italic=True, color="FF808080")
        sheet.column_dimensions[letters].number_format = number_format
    sheet.freeze_panes = "B2"
    sheet.page_setup.paperSize, sheet.page_setup.orientation = sheet.PAPERSIZE_LETTER, "landscape"
    sheet.print_title_rows = "1:1"
    _add_choices(workbook, sheet, header)
    return workbook


def _words() -> dict[str, str]:
    """Return each column's comment, from the rules themselves."""
    words: dict[str, list[str]] = {name: [] for name in COLUMNS}
    for rule in rules():
        if (
            rule.column in words
            and rule.severity == "error"
            and rule.code not in ("characters", "whitespace", "length")
        ):
            words[rule.column].append(rule.words.replace("`", ""))
    notes = {name: "\n".join(lines) or "any text" for name, lines in words.items()}
    notes[NOTE_COLUMN] = f"not sent\na row that says {EXAMPLE_MARK} here is not a payment"
    notes[CHECK_COLUMN] = "not sent\ntries the check digit of the routing number"
    return notes


def _format_of(name: str) -> str:
    """Return a column's number format: text for whatever could lose a zero or become a date, so it stays as typed."""
    if name in MONEY:
        return "#,##0.00"
    if name in DATES:
        return "mm/dd/yyyy"
    return "General" if name == CHECK_COLUMN else "@"


def _example_value(name: str) -> str | float | None:
    if name == NOTE_COLUMN:
        return EXAMPLE_MARK
    value = EXAMPLE.get(name)
    return float(value) if value is not None and name in MONEY else value


def _check_formula(column: str, row: int) -> str:
    """Return the ABA check digit as a formula: weights 3, 7, 1 over nine digits, divisible by 10."""
    cell = f"{column}{row}"
    weighed = "+".join(f"{weight}*MID({cell},{at},1)" for at, weight in enumerate((3, 7, 1) * 3, 1))
    return (
        f'=IF({cell}="","",IF(LEN({cell})<>9,"not nine digits",IFERROR(IF(MOD({weighed},10)=0,"ok","wrong"),"wrong")))'
    )


def _add_choices(workbook: Any, sheet: Any, header: tuple[str, ...]) -> None:
    """Put the closed lists on a hidden sheet, and a drop-down on every column that has one."""
    lists = workbook.create_sheet(HELPER_SHEET)
    lists.sheet_state = "veryHidden"
    for at, (name, choices) in enumerate(_CHOICES.items()):
        for row, choice in enumerate(choices, 1):
            lists.cell(row, at + 1, choice).number_format = "@"
        source = column_letters(at)
        validation = DataValidation(
            type="list",
            formula1=f"{HELPER_SHEET}!${source}$1:${source}${len(choices)}",
            allow_blank=True,
            showErrorMessage=True,
            errorTitle=name,
            error="Choose from the list.",
        )
        column = column_letters(header.index(name))
        validation.add(f"{column}2:{column}{ROWS_PREPARED + 1}")
        sheet.add_data_validation(validation)


if __name__ == "__main__":
    workbook().save(PATH)
