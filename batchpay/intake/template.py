"""The empty payment file that `batchpay template` writes: every column explained, closed lists as drop-downs.

Two columns are ours and never read as cells of a payment: `_note`, where `example` marks a row that is not a payment,
and `_check`, a formula that checks the routing number's check digit as it is typed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batchpay.errors import WrongUse
from batchpay.intake.header import EXAMPLE_MARK, HELPER_SHEET, NOTE_COLUMN
from batchpay.schemas.catalogue import rules
from batchpay.schemas.columns import COLUMNS, DATES, MONEY, REQUIRED
from batchpay.schemas.tables import CHOICES, STATES
from batchpay.writing.atomic import atomic_writer
from batchpay.writing.table import write_table
from batchpay.writing.xlsx_parts import column_letters

CHECK_COLUMN = "_check"
ROWS_PREPARED = 1000
_BY_STATE = dict.fromkeys(("billingState", "shippingState"), (*STATES["US"], *STATES["CA"]))
_CHOICES = {**CHOICES, **_BY_STATE, "recurringAgreementFlag": ("1", "0")}
# An account of only zeros is refused: the example can't be paid even if its mark is removed.
EXAMPLE = {
    "gatewayId": "1001", "transactionType": "DEBIT", "recurringIndicator": "FALSE", "invoiceNumber": "INV-1001",
    "currencyCode": "USD", "amount": "12.50", "billingFirstName": "Ada", "billingLastName": "Example",
    "shippingFirstName": "Ada", "shippingLastName": "Example", "achNameOnCheck": "Ada Example",
    "achAccountNumber": "000000000", "achRoutingNumber": "021000021", "achAccountType": "PERSONAL",
    "achDepositType": "CHECKING", "achSecCode": "PPD", "achAgreementFlag": "1",
}  # fmt: skip


def write_blank(path: str | Path) -> None:
    """Write the empty payment file, XLSX or CSV by the name's extension; raises WrongUse for any other."""
    ending = Path(path).suffix.lower()
    if ending == ".csv":
        write_table(path, (NOTE_COLUMN, *COLUMNS), [[EXAMPLE_MARK, *(EXAMPLE.get(name) for name in COLUMNS)]])
    elif ending == ".xlsx":
        with atomic_writer(path) as file:
            _workbook().save(file)
    else:
        raise WrongUse(f"{path}: the name of a template must end in .xlsx or .csv")


def _workbook() -> Any:
    from openpyxl import Workbook
    from openpyxl.comments import Comment
    from openpyxl.styles import Font, PatternFill

    workbook = Workbook()
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
    from openpyxl.worksheet.datavalidation import DataValidation

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
