"""The empty payment file that `batchpay template` writes: every column explained, closed lists as drop-downs.

Two columns are ours and never read as cells of a payment: `_note`, where `example` marks a row that is not a payment,
and `_check`, a formula that checks the routing number's check digit as it is typed. The workbook is a file of the
package; tests/support/template_workbook.py makes it of the rules.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from batchpay.errors import WrongUse
from batchpay.intake.header import EXAMPLE_MARK, NOTE_COLUMN
from batchpay.schemas.columns import COLUMNS
from batchpay.writing.atomic import atomic_writer
from batchpay.writing.table import write_table

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
            file.write(files("batchpay.intake").joinpath("template.xlsx").read_bytes())
    else:
        raise WrongUse(f"{path}: the name of a template must end in .xlsx or .csv")
