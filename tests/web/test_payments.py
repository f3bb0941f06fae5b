"""Every payment is seen before it is approved: masked, found fast, the same for whoever prepares and approves."""

from __future__ import annotations

import csv
import io
import re
from contextlib import closing
from pathlib import Path

import pytest

from batchpay.errors import LedgerDamaged
from batchpay.web.payments_table import Payments, remove_tables, table_path
from batchpay.web.spool import KEPT_S
from tests.web.house import ROWS, House

ACCOUNTS = ("648443924", "888777666")
MANY = [
    {"paymentId": f"P{n}", "invoiceNumber": f"INV-{n}", "amount": f"{n}.00", "achNameOnCheck": f"Payee {n % 400}"}
    for n in range(1, 251)
]


def changed(house: House) -> str:
    """Ask for the approval of 250 payments, of which one goes to an account that its payee never had."""
    house.policy(variance=True)
    house.sent(*({**row, "paymentId": f"{row['paymentId']}b", "invoiceNumber": f"B-{n}"} for n, row in enumerate(MANY)))
    rows = [dict(row) for row in MANY]
    rows[170]["achAccountNumber"] = ACCOUNTS[1]
    return house.ask(*rows)


def test_the_one_changed_account_is_found_among_all(house: House) -> None:
    """By its flag, by name, amount and last four; nobody sees a whole number, nowhere, nor is one on the disk."""
    file_id = changed(house)
    base = f"/files/{file_id}/approve"
    for name, path in (
        ("daniel", base),
        ("maria", f"/files/{file_id}/payments"),
        ("lee", f"/files/{file_id}/payments"),
    ):
        page = house.page(name, path)
        assert "Payments to send 250" in page and "1 changed account" in page
        page = house.page(name, f"{path}?flag=changed_account")
        assert "172 Payee 171 INV-171 171.00 USD send ****7666 new changed account" in page and "Payee 170" not in page
    for sought in ("payee 171", "171.00", "7666", "****7666 Payee"):
        page = house.page("daniel", f"{base}?find={sought}")
        assert "172 Payee 171 INV-171 171.00 USD" in page and "1 payment with" in page, sought
    assert "0 payments with" in house.page("daniel", f"{base}?find=nobody")
    kept = table_path(house.site.home, file_id).read_bytes()
    everything = (
        kept
        + house.get("daniel", f"{base}?sort=amount").data
        + house.get("maria", f"/files/{file_id}/payments.csv").data
    )
    assert not [one for one in (*ACCOUNTS, "Payee") if one.encode() in (everything if one in ACCOUNTS else kept)]


def test_a_payment_is_found_as_the_page_writes_it(house: House) -> None:
    """The amount that the table shows, 1,503.52, found nothing; nor did a name that was typed without its accent."""
    row = {"amount": "1503.52", "achNameOnCheck": "Inés Lefèvre", "paymentId": "F1", "invoiceNumber": "INV 7/1"}
    file_id = house.ask(row, row | {"paymentId": "F2", "invoiceNumber": "", "amount": "2.00", "achNameOnCheck": "Bo"})
    for sought in ("1,503.52", "1503.52", "Lefèvre, Inés", "lefevre", "inv 7/1", "f1", "F2"):
        page = house.page("daniel", f"/files/{file_id}/approve?find={sought}")
        assert "1 payment with" in page and ("Bo F2" if sought == "F2" else "Lefèvre INV 7/1") in page, sought


def test_a_block_is_the_next_hundred_of_its_order(house: House) -> None:
    """What is scrolled to is what the order says; the download has all payments in the order of the file."""
    file_id = changed(house)
    first = house.page("daniel", f"/files/{file_id}/payments?sort=amount")
    assert first.index("250.00 USD") < first.index("249.00 USD")
    rows = house.get("daniel", f"/files/{file_id}/payments/rows?sort=amount&from=2").get_data(as_text=True)
    assert re.findall(r'number">([0-9.]+) USD', rows) == [f"{n}.00" for n in range(50, 0, -1)]
    told = list(csv.DictReader(io.StringIO(house.get("lee", f"/files/{file_id}/payments.csv").get_data(as_text=True))))
    assert [row["amount"] for row in told] == [row["amount"] for row in MANY]
    assert [row["flags"] for row in told if "changed" in row["flags"]] == ["changed_account"]
    with closing(house.ledger()) as ledger:
        day = f"{ledger.batches()[0].registered_at.astimezone():%m/%d/%Y}"
    seen = [row["first_seen"] for row in told]
    assert seen == [*[day] * 170, "new", *[day] * 79], "an account that its payee never had"
    assert f"****3924 {day}" in first
    house.get("daniel", f"/files/{file_id}/payments/rows?from=9999")
    house.get("daniel", "/files/0000/payments/rows", 404)


def test_a_table_is_of_its_seal_and_says_what_was_learned_since(house: House) -> None:
    """One that was put in its place is not shown; another file that is paid meanwhile is told."""
    file_id = changed(house)
    assert "Since then" not in house.page("daniel", f"/files/{file_id}/approve")
    other = house.sent(*ROWS)
    assert "Since then 1 file was registered or released" in house.page("daniel", f"/files/{file_id}/approve")
    path = table_path(house.site.home, file_id)
    with closing(house.ledger()) as ledger:
        table = Payments(path, other, ledger)
        with pytest.raises(LedgerDamaged):
            table.block("", "", 0)
        table.close()
    path.write_bytes(table_path(house.site.home, other).read_bytes())
    assert "Payments to send" not in house.page("daniel", f"/files/{file_id}/approve")


def test_a_table_is_evidence_until_the_details_are_purged(house: House) -> None:
    """What was decided on outlives the upload; what nobody decided on goes with it."""
    decided, left = house.sent(*ROWS), house.upload({"paymentId": "Z", "invoiceNumber": "Z", "amount": "1.00"})
    house.now[0] += KEPT_S + 1
    batch = house.file(decided)["batch"]
    remove_tables(house.store, {batch})
    kept: list[Path] = sorted(house.site.home.glob("payments/*.db"))
    assert kept == [table_path(house.site.home, decided)] and left not in str(kept)
    assert "Payments to send 3" in house.page("lee", f"/files/{decided}/payments")
    remove_tables(house.store, set())
    assert not sorted(house.site.home.glob("payments/*.db"))
