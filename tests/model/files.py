"""Payment files as people make them, and the files that the program writes, read back."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from tests.model.business import Row

_SAME = {
    "gatewayId": "1001",
    "billingFirstName": "Ada", "billingLastName": "Byron", "shippingFirstName": "Ada", "shippingLastName": "Byron",
    "achNameOnCheck": "Ada Byron", "achRoutingNumber": "021000021", "achAccountType": "PERSONAL",
    "achDepositType": "CHECKING", "achAgreementFlag": "1",
}  # fmt: skip
_RECURRING = {
    "recurringBillingCycle": "MONTHLY", "recurringEndOfMonth": "N", "recurringNumOfPayments": "3",
    "recurringAgreementFlag": "1",
}  # fmt: skip
COLUMNS = (
    "paymentId", "transactionType", "recurringIndicator", "invoiceNumber", "amount", "achAccountNumber",
    "billingInternalId", "recurringStartDate", *_RECURRING, *_SAME, "walk",
)  # fmt: skip
"""`walk` is a column of the person's own, which is carried into results and rejects."""


def cells(row: Row, columns: Sequence[str] = COLUMNS) -> list[str]:
    """Return a row's cells, in the order of the columns."""
    recurring = _RECURRING if row.start else dict.fromkeys(_RECURRING, "")
    values = {
        **_SAME, **recurring,
        "paymentId": row.payment_id, "transactionType": row.direction, "invoiceNumber": row.invoice,
        "recurringIndicator": "TRUE" if row.start else "FALSE", "amount": row.amount, "achAccountNumber": row.account,
        "billingInternalId": f"E{row.number}", "recurringStartDate": row.start, "walk": f"E{row.number}",
        "payOn": row.pay_on,
    }  # fmt: skip
    return [values[name] for name in columns]


def write_file(path: Path, rows: Sequence[Row]) -> None:
    """Write a payment file in the format that its name implies."""
    columns = (*COLUMNS, *(["payOn"] if any(row.pay_on for row in rows) else []))
    table = [list(columns), *(cells(row, columns) for row in rows)]
    if path.suffix == ".xlsx":
        import openpyxl

        book = openpyxl.Workbook()
        sheet = book.active
        assert sheet is not None
        for place, line in enumerate(table, start=1):
            for column, text in enumerate(line, start=1):
                cell = sheet.cell(place, column, text or None)
                cell.number_format = "@"
        book.save(path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(table)


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the lines of a results or rejects file (CSV, or a workbook next to it), by column."""
    if path.suffix == ".xlsx":
        import openpyxl

        sheet = openpyxl.load_workbook(path, read_only=True).active
        assert sheet is not None
        table = [["" if value is None else str(value) for value in line] for line in sheet.iter_rows(values_only=True)]
        return [dict(zip(table[0], line, strict=False)) for line in table[1:]]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, lines: Sequence[dict[str, str]]) -> None:
    """Write lines as CSV, by column."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def number_of(line: dict[str, str]) -> int:
    """Return the payment that a line of a results or rejects file is about."""
    return int(line["walk"].removeprefix("E"))
