"""Whatever a page shows equals `--json` of the command line: doubts, reconciliations, lists, batches of others."""

from __future__ import annotations

import io
import re
from decimal import Decimal
from typing import Any

import pytest

from batchpay.text import money
from tests.support.in_process import Caller
from tests.web.house import ROWS, WRONG, House, csv_of
from tests.web.test_doubts import CREDIT
from tests.workflows.desk import ACCEPTED, IN_DOUBT


def shown(amount: str) -> str:
    """An amount of our JSON as a page writes it."""
    return money(round(float(amount) * 100))


@pytest.fixture
def sent(house: House) -> tuple[House, str, str]:
    """A house with a batch of which one row was left out and two are in doubt: its file, its batch."""
    house.answer = lambda reference: IN_DOUBT if reference in ("INV-C", "INV-E") else ACCEPTED
    file_id = house.sent(*ROWS, CREDIT, WRONG, partial="yes")
    return house, file_id, house.file(file_id)["batch"]


def test_in_doubt(sent: tuple[House, str, str], call: Caller) -> None:
    """Each row with its reference, place, amount, payee and account, in the command line's order; their sum above."""
    house, _, batch = sent
    found = call("resolve", batch, "--json")
    page = house.page("lee", "/doubts")
    total = shown(found["amount"]["in_doubt"])
    assert f"{found['in_doubt']} payments, {total}; batch {batch}" in page
    at = 0
    for one in found["rows_in_doubt"]:
        row = f"{one['invoiceNumber']} line {one['line']} {shown(one['amount'])} {one['direction'].lower()}"
        assert page.index(row) > at
        at = page.index(row)
        assert f"{one['name']} account {one['account']}" in page[at:]
        assert one["why"] in page[at:]


def test_reconciled(sent: tuple[House, str, str], call: Caller) -> None:
    """Every verdict with rows and amounts of both sides, their sums, and what becomes of rows in doubt."""
    house, _, batch = sent
    lines = ["invoiceNumber,amount,status,date", "INV-A,10.00,paid,2099-01-01", "INV-B,20.05,paid,2099-01-01"]
    lines += ["INV-C,30.25,paid,2099-01-01", "INV-X,7.77,paid,2099-01-01"]
    content = "\n".join(lines).encode() + b"\n"
    (house.site.home / "bank.csv").write_bytes(content)
    house.post("maria", f"/batches/{batch}/reconcile", export=(io.BytesIO(content), "bank.csv"))
    found = call("reconcile", batch, "--against", str(house.site.home / "bank.csv"), "--json")["reconciliation"]
    page = house.page("lee", f"/batches/{batch}/reconcile")

    def both(sides: dict[str, Any]) -> str:
        return " ".join(f"{sides[side]['rows']} {shown(sides[side]['amount'])}" for side in ("here", "there"))

    told = {name: sides for name, sides in found["verdicts"].items() if sides["here"]["rows"] or sides["there"]["rows"]}
    assert len(told) >= 4
    for name, sides in told.items():
        assert f"{name.replace('_', ' ')} {both(sides)}" in page
    assert f"total {both(found)}" in page


def test_lists(sent: tuple[House, str, str], call: Caller) -> None:
    """A run, files, what waits for approval, and history have the numbers of `status` and of a dry run."""
    house, file_id, batch = sent
    found = call("status", batch, "--json")
    run = house.page("maria", f"/files/{file_id}/run")
    names = {"accepted": "accepted", "in_doubt": "in doubt", "pending": "waiting", "rejected": "left out"}
    for state, name in names.items():
        assert f"{name} {found[state]} {shown(found['amount'][state])}" in run
    assert f"the file {found['rows']} {shown(found['amount']['total'])}" in run
    # Money out and money in are not one figure.
    told = re.search(r"(\d+) payments? accepted of (\d+), paid out ([\d,.]+\d), collected ([\d,.]+\d)", run)
    assert told and list(map(int, told.groups()[:2])) == [found["accepted"], found["valid"]]
    sides = [Decimal(one.replace(",", "")) for one in told.groups()[2:]]
    assert sum(sides) == Decimal(found["amount"]["accepted"]) and sides[1] == 0, "the debit is in doubt"
    home = house.page("lee", "/")
    assert f"pay.csv 2 payments in doubt finished {found['valid']} Send {found['credit']['rows']} credits, USD" in home
    assert f"{shown(found['credit']['amount'])} · Collect 1 debit, USD {shown(found['debit']['amount'])} · net" in home
    history = house.page("lee", "/history")
    accepted = f"{found['valid']} {found['accepted']} {shown(found['amount']['accepted'])}"
    assert f"{batch} {found['in_doubt']} payments in doubt {accepted}" in history
    other = {"paymentId": "Z", "invoiceNumber": "INV-Z", "amount": "1234.56"}
    (house.site.home / "z.csv").write_bytes(csv_of(other))
    dry = call("submit", str(house.site.home / "z.csv"), "--dry-run", "--json")["to_send"]
    asked = house.ask(other)
    assert f"{dry['total']['rows']} Send 1 credit, USD {shown(dry['total']['amount'])}" in house.page(
        "daniel", "/to-approve"
    )
    page = house.page("daniel", f"/files/{asked}/approve")
    for side in ("DEBIT", "CREDIT"):
        assert f"{dry[side]['rows']} {shown(dry[side]['amount'])}" in page


def test_a_batch_of_the_command_line(house: House, call: Caller) -> None:
    """What was never uploaded has a page as well, with the same states."""
    (house.site.home / "cron.csv").write_bytes(csv_of(*ROWS))
    sent = call("submit", str(house.site.home / "cron.csv"), "--yes", "--json")
    found = call("status", sent["batch"], "--json")
    page = house.page("lee", f"/batches/{sent['batch']}")
    for state, name in (("accepted", "accepted"), ("pending", "waiting")):
        assert f"{name} {found[state]} {shown(found['amount'][state])}" in page
    assert f"the file {found['rows']} {shown(found['amount']['total'])}" in page
