"""The empty payment file that `batchpay template` writes: every column explained, closed lists as drop-downs.

Two columns are ours and never read as cells of a payment: `_note`, where `example` marks a row that is not a payment,
and `_check`, a formula that checks the routing number's check digit as it is typed. The workbook is a file of the
package; tests/support/template_workbook.py makes it of the rules.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from batchpay.errors import WrongUse
from batchpay.intake.header import EXAMPLE_MARK, NOTE_COLUMN
from batchpay.schemas.columns import COLUMNS
from batchpay.writing.atomic import atomic_writer
from batchpay.writing.table import write_table
from batchpay.writing.xlsx import column_letters, escaped

# An account of only zeros is refused: the example can't be paid even if its mark is removed.
EXAMPLE = {
    "gatewayId": "1001", "transactionType": "DEBIT", "recurringIndicator": "FALSE", "invoiceNumber": "INV-1001",
    "currencyCode": "USD", "amount": "12.50", "billingFirstName": "Ada", "billingLastName": "Example",
    "shippingFirstName": "Ada", "shippingLastName": "Example", "achNameOnCheck": "Ada Example",
    "achAccountNumber": "000000000", "achRoutingNumber": "021000021", "achAccountType": "PERSONAL",
    "achDepositType": "CHECKING", "achSecCode": "PPD", "achAgreementFlag": "1",
}  # fmt: skip


def write_template(path: str | Path, rows: Sequence[Sequence[str | None]] = ()) -> None:
    """Write the empty payment file, XLSX or CSV by the name's extension; raises WrongUse for any other.

    `rows` (a note, then every column) stand in it instead of the example. What a spreadsheet prepares is a thousand.
    """
    ending = Path(path).suffix.lower()
    if ending == ".csv":
        example = [EXAMPLE_MARK, *(EXAMPLE.get(name) for name in COLUMNS)]
        write_table(path, (NOTE_COLUMN, *COLUMNS), rows or [example])
    elif ending == ".xlsx":
        content = files("batchpay.intake").joinpath("template.xlsx").read_bytes()
        with atomic_writer(path) as file:
            file.write(_filled(content, rows) if rows else content)
    else:
        raise WrongUse(f"{path}: the name of a template must end in .xlsx or .csv")


_SHEET = "xl/worksheets/sheet1.xml"
_COLUMN_STYLE = re.compile(r'<col [^>]*style="(\d+)" min="(\d+)"')
_ROW = re.compile(r'<row r="(\d+)">(.*?)</row>')
_CHECK = re.compile(r'<c r="[A-Z]+\d+"(?: s="\d+")?><f>.*$')


def _filled(workbook: bytes, rows: Sequence[Sequence[str | None]]) -> bytes:
    """Return the workbook with rows as text cells in the formats of their columns, and the check beside them."""
    filled = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(workbook)) as blank, zipfile.ZipFile(filled, "w", zipfile.ZIP_DEFLATED) as target:
        for part in blank.infolist():
            content = blank.read(part)
            target.writestr(part, _with_rows(content.decode(), rows) if part.filename == _SHEET else content)
    return filled.getvalue()


def _with_rows(sheet: str, rows: Sequence[Sequence[str | None]]) -> str:
    styles = {int(at): style for style, at in _COLUMN_STYLE.findall(sheet)}
    prepared = {int(number): cells for number, cells in _ROW.findall(sheet) if number != "1"}
    for number, row in enumerate(rows, 2):
        cells = [
            f'<c r="{column_letters(at)}{number}" s="{styles[at + 1]}" t="inlineStr">'
            f'<is><t xml:space="preserve">{escaped(cell)}</t></is></c>'
            for at, cell in enumerate(row)
            if cell
        ]
        check = _CHECK.search(prepared.get(number, ""))
        prepared[number] = "".join(cells) + (check[0] if check else "")
    head, _, rest = sheet.partition('<row r="2">')
    written = "".join(f'<row r="{number}">{cells}</row>' for number, cells in prepared.items())
    return f"{head}{written}</sheetData>{rest.partition('</sheetData>')[2]}"
