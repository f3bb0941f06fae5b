"""The return files of the sandbox: what a bank says of payments that came back, as CSV and as NACHA records."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
import requests

from batchpay.errors import WrongUse
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from tests.support.sandbox_requests import TIMEOUT_S, control, pay, payment_body, recurring_body, with_cell


def returned(url: str, form: str = "csv") -> str:
    answer = requests.get(f"{url}/_sandbox/returns", {"format": form}, timeout=TIMEOUT_S)
    return answer.text


def lines(url: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(returned(url))))


def story(url: str) -> None:
    """A closed account, an account one that its bank changed, a refused credit to savings; one that stays paid."""
    pay(url, payment_body("77001990052", invoiceNumber="INV-1", amount="20.00"))
    pay(url, payment_body("77002990081", invoiceNumber="INV-2", amount="30.00"))
    credit = with_cell(payment_body("77003990073", transactionType="CREDIT", amount="1.05"), "ach.achAccountType", None)
    credit = with_cell(credit, "ach.achDepositType", "SAVINGS")
    pay(url, with_cell(credit, "ach.achAccountType", "PERSONAL"))
    pay(url, payment_body("1234567890"))


def test_a_portal_lists_what_came_back(url: str) -> None:
    """One line a payment, with its reference and invoice; a change has no amount, and only its correction is whole."""
    story(url)
    told = lines(url)
    assert [line["Return Code"] for line in told] == ["R02", "C01", "R23"]
    assert [line["Amount"] for line in told] == ["20.00", "0.00", "1.05"]
    assert [line["Invoice Number"] for line in told] == ["INV-1", "INV-2", ""]
    assert [line["Corrected Data"] for line in told] == ["", "77002997781", ""]
    assert all(line["Transaction ID"].startswith("SBX") and line["Account Number"][:4] == "****" for line in told)


def test_a_nacha_file_has_its_records_and_totals(url: str) -> None:
    """Blocks of ten records of 94; the entry names account and amount, the addenda code and the payee's bank.

    Positions as Nacha's file layout has them, counted from 1.
    """
    story(url)
    text = returned(url, "ach")
    records = text.split("\r\n")[:-1]
    assert (len(records) % 10, {len(record) for record in records}) == (0, {94})
    assert [record[0] for record in records] == [*"1", *"5678" * 3, *"9", *"9" * 6]
    closed, changed, refused = (records[at : at + 4] for at in (1, 5, 9))
    assert (closed[1][1:3], closed[1][12:29].rstrip(), closed[1][29:39]) == ("26", "77001990052", "0000002000")
    assert (closed[1][39:54].rstrip(), closed[1][54:76].rstrip()) == ("INV-1", "Zoe O'Brien")
    assert (closed[2][1:6], closed[2][27:35]) == ("99R02", "01100019")
    assert (changed[0][50:53], changed[1][29:39]) == ("COR", "0" * 10)
    assert (changed[2][1:6], changed[2][35:64].rstrip()) == ("98C01", "77002997781")
    assert (refused[0][1:4], refused[1][1:3]) == ("220", "31")
    assert closed[3][:44] == "8225000002" + "0009100001" + "000000002000" + "000000000000"
    assert refused[3][20:44] == "000000000000" + "000000000105"
    control_record = records[13]
    assert control_record[1:13] == "000003" + "000002"
    assert control_record[13:55] == "00000006" + "0027300003" + "000000002000" + "000000000105"


@pytest.mark.parametrize(("code", "corrected"), [
    ("C02", "021000021"), ("C03", "021000021   1234567790"), ("C05", "37"), ("C06", "1234567790          37"),
    ("C07", "0210000211234567790       37"),
])  # fmt: skip
def test_each_change_has_its_own_layout(url: str, code: str, corrected: str) -> None:
    """Corrected Data holds one, two or three fields, each at its place. A fault rule lets any payment come back."""
    control(url, "POST", "faults", [{"fault": "returned", "code": code}])
    pay(url, payment_body("1234567890"))
    assert lines(url)[0]["Corrected Data"] == corrected


def test_a_recurring_payment_comes_back_each_time(url: str) -> None:
    """Only what was due by the sandbox's clock."""
    body: Any = with_cell(recurring_body(), "ach.achAccountNumber", "77001990051")
    pay(url, body)
    assert lines(url) == []
    control(url, "POST", "clock", {"now": "2030-03-01T12:00:00Z"})
    assert [line["Return Date"] for line in lines(url)] == ["2030-01-31", "2030-02-28"]


def test_a_reset_brings_nothing_back(url: str) -> None:
    """And a form that there is not is refused by name."""
    story(url)
    control(url, "POST", "reset")
    assert lines(url) == []
    assert control(url, "GET", "returns?format=pdf") == {"error": "csv or ach"}


@pytest.mark.parametrize("name", ["returns.csv", "returns.ACH"])
def test_the_file_is_kept_up_to_date(tmp_path: Path, name: str) -> None:
    """With --returns each payment that comes back is in the file, its owner's alone; no --db holds it."""
    file = tmp_path / name
    with running(Options(port=0, returns=file, db=tmp_path / "sandbox.db")) as url:
        assert not file.exists()
        story(url)
        assert file.read_bytes().decode() == returned(url, "csv" if name.endswith("csv") else "ach")
    assert file.stat().st_mode & 0o777 == 0o600
    assert all(b"77001990052" not in one.read_bytes() for one in tmp_path.iterdir() if one != file)
    with running(Options(port=0, returns=file)):  # a later start takes its own file's place
        pass


@pytest.mark.parametrize("name", ["payments.csv", "returns.pdf"])
def test_another_file_is_left_alone(tmp_path: Path, name: str) -> None:
    """A payment file that is named by mistake is not written over, and a name must say the form."""
    file = tmp_path / name
    file.write_text("paymentId,amount\n")
    with pytest.raises(WrongUse, match="--returns"), running(Options(port=0, returns=file)):
        pass
