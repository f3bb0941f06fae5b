"""The next file of an earlier one's payees: what stays is kept, what differs is blank, and who came back is marked."""

from __future__ import annotations

import csv
import stat
from pathlib import Path

import openpyxl
import pytest

from batchpay.errors import WrongUse
from batchpay.schemas.columns import COLUMNS
from batchpay.workflows.requests import CheckOptions, file_request
from batchpay.workflows.template import NextFile, make_next
from tests.workflows.desk import Desk
from tests.workflows.test_returned_accounts import took_in

NOVEMBER = [
    {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00", "achAccountNumber": "000123456"},
    {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "20.00", "achAccountNumber": "000123456"},
    {"paymentId": "P-3", "invoiceNumber": "A-3", "amount": "1000", "achAccountNumber": "777888"},
    {"paymentId": "P-4", "invoiceNumber": "A-4", "amount": "30.00", "achRoutingNumber": "021000022"},
]


def following(desk: Desk, name: str, path: Path) -> NextFile:
    """Make the next file of November's."""
    request = file_request(str(path), None, CheckOptions(), desk.settings)
    return make_next(desk.folder / name, request, desk.settings, replace=False)


@pytest.mark.usefixtures("on_both")
def test_the_next_file_has_one_row_an_account(desk: Desk) -> None:
    """A wrong amount keeps nobody out, a wrong bank does; a closed account is named."""
    path = desk.file("november.csv", *NOVEMBER)
    batch = desk.submit(path).batch
    took_in(desk, batch, "R02")
    made = following(desk, "december.csv", path)
    assert made == NextFile(rows=2, left_out=1, same_account=1, marked=1)
    target = desk.folder / "december.csv"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    first, second = csv.DictReader(target.read_text("utf-8").splitlines())
    assert first["_note"].startswith(
        "achAccountNumber: the bank sent a payment to this account back with R02 of 11/27/2026"
    )
    assert [first[name] for name in ("achAccountNumber", "amount", "invoiceNumber", "payOn")] == [
        "000123456",
        "",
        "",
        "",
    ]
    assert first["achNameOnCheck"]
    assert (second["_note"], second["achAccountNumber"], second["amount"]) == ("", "777888", "")
    ids = {first["paymentId"], second["paymentId"]}
    assert len(ids) == 2
    assert ids.isdisjoint({"P-1", "P-2", "P-3"})
    with pytest.raises(WrongUse, match="already exists"):
        following(desk, "december.csv", path)


def test_as_a_workbook_with_drop_downs(desk: Desk) -> None:
    """Zeros in front stay, and the check of the routing number stands beside each row."""
    following(desk, "december.xlsx", desk.file("november.csv", *NOVEMBER))
    sheet = openpyxl.load_workbook(desk.folder / "december.xlsx")["payments"]
    header = [cell.value for cell in sheet[1]]
    assert header[1 : len(COLUMNS) + 1] == list(COLUMNS)
    row = dict(zip(header, (cell for cell in sheet[2]), strict=True))
    assert (row["achAccountNumber"].value, row["achAccountNumber"].number_format) == ("000123456", "@")
    assert row["amount"].value is None
    assert str(row["_check"].value).startswith("=IF(")
    assert sheet.data_validations.dataValidation


def test_a_file_without_a_payee_makes_none(desk: Desk) -> None:
    """Nothing is written."""
    with pytest.raises(WrongUse, match="there is no payee to keep"):
        following(desk, "december.csv", desk.file("november.csv", NOVEMBER[3]))
    assert not (desk.folder / "december.csv").exists()
