"""Payments that were declined or came back, as a file to correct: what may be paid again, and nothing else."""

from __future__ import annotations

import csv
import io
import re
from contextlib import closing
from typing import Any

import openpyxl
import polars as pl
import pytest

from batchpay.ledger.facts import FactKind, NewFact
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor, Environment
from batchpay.web import spool
from batchpay.workflows.returns import take_returns
from batchpay.writing.atomic import Stream
from tests.support.ach_files import ach_file, entry
from tests.web.house import House, csv_of
from tests.workflows.desk import ACCEPTED, COLUMNS, DECLINED, IN_DOUBT, PLAIN

OUTCOMES = {"INV-B": DECLINED, "INV-E": IN_DOUBT}


def payment(letter: str, number: int, **changed: str) -> dict[str, str]:
    """A payment to an account of its own."""
    own = {"paymentId": letter, "invoiceNumber": f"INV-{letter}", "amount": f"{number}0.00"}
    return PLAIN | own | {"achAccountNumber": f"64844392{number}", "achNameOnCheck": f"Payee {letter}"} | changed


PAYMENTS = [payment(letter, at) for at, letter in enumerate("ABCDE", 1)]
PAYMENTS[3]["transactionType"] = "DEBIT"


def came_back(house: House, *lines: str, **options: Any) -> None:
    """The bank says what came back: a code, an invoice number and an amount each."""
    today = house.site.ledger().today().isoformat()
    text = "\n".join(["Return Date,Return Code,Invoice Number,Amount", *(f"{today},{line}" for line in lines)])
    file = Stream("returns.csv", io.BytesIO(text.encode()))
    take_returns(file, house.site.settings, Actor("sam", "desk"), **options)


def downloaded(house: House, file_id: str) -> bytes:
    """What the button gives."""
    assert f'href="/files/{file_id}/unpaid?as=file"' in house.get("maria", f"/files/{file_id}/unpaid").text
    return bytes(house.get("maria", f"/files/{file_id}/unpaid?as=file").data)


def rows_of(content: bytes) -> list[dict[str, str]]:
    """The rows of a CSV."""
    return list(csv.DictReader(io.StringIO(content.decode())))


def upload(house: House, content: bytes, name: str = "pay.to-correct.csv") -> str:
    """Upload a file as it is; gives its id."""
    answer = house.post("maria", "/files", file=(io.BytesIO(content), name))
    house.work()
    return answer.headers["Location"].rsplit("/", 1)[1]


def written(rows: list[dict[str, str]]) -> bytes:
    """Write rows as they were downloaded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def send(house: House, file_id: str) -> None:
    """Have an uploaded file approved and sent."""
    house.post("maria", f"/files/{file_id}/ask")
    house.approve(file_id)
    house.work()


def test_what_may_be_paid_again_is_corrected_and_paid_once(house: House) -> None:
    """Of five payments two come back as a file; what was not corrected, or was put in by hand, is refused."""
    house.answer = lambda reference: OUTCOMES.get(reference, ACCEPTED)
    file_id = house.sent(*PAYMENTS)
    came_back(house, "R03,INV-C,30.00", "R10,INV-D,40.00")
    house.answer = lambda reference: ACCEPTED
    assert "Make a file of these to correct" in house.page("maria", f"/files/{file_id}/run")
    assert "Make a file of these to correct" in house.page("maria", f"/returns?batch={house.file(file_id)['batch']}")
    page = house.page("maria", f"/files/{file_id}/unpaid")
    assert (
        "2 payments declined or returned" in page
        and "Left out 1 Payment To or from Amount Why line 5 Payee D 40.00 it came back with R10" in page
    )
    assert "collect no more before there is a new agreement" in page
    rows = rows_of(downloaded(house, file_id))
    assert [*rows[0]] == ["_row", "_line", "_errors", "_warnings", "_suggestions", *COLUMNS]
    assert [{name: row[name] for name in COLUMNS if name in PLAIN} for row in rows] == [
        {name: one[name] for name in COLUMNS if name in PLAIN} for one in PAYMENTS[1:3]
    ]
    declined, returned = (row["_errors"] for row in rows)
    assert declined == "row: declined: the gateway declined it: No funds"
    assert returned.startswith("achAccountNumber: returned: it came back with R03 of ")
    assert "ask the payee for the account again, it passes with another routing or account number alone" in returned
    assert "downloaded the declined and returned payments" in house.page("lee", "/audit")
    assert house.facts(upload(house, written(rows), "uncorrected.csv"))["counts"] == {"achAccountNumber.returned": 1}
    corrected = [row | {"achAccountNumber": f"7484439{row['_row']}"} for row in rows]
    by_hand = [*rows, *({**dict.fromkeys(rows[0], ""), **PAYMENTS[at]} for at in (0, 3, 4))]
    found = house.facts(upload(house, written(by_hand), "by-hand.csv"))
    assert (found["valid"], found["counts"]) == (1, {"achAccountNumber.returned": 2, "paymentId.duplicate": 2})
    again = upload(house, written(corrected))
    assert house.facts(again)["would_send"] == 2
    send(house, again)
    assert house.arrived == {"INV-A": 1, "INV-B": 2, "INV-C": 2, "INV-D": 1, "INV-E": 1}
    page = house.page("maria", f"/files/{file_id}/unpaid")
    assert "None of these payments can be paid again" in page and page.count("it is a payment again in line") == 2
    house.get("daniel", f"/files/{file_id}/unpaid", 403)


def test_what_a_person_recorded_as_declined_is_corrected_too(house: House) -> None:
    """It was told as paid again, by itself: what may have been paid after all counts as earlier."""
    house.answer = lambda reference: OUTCOMES.get(reference, ACCEPTED)
    file_id = house.sent(*PAYMENTS)
    batch = house.file(file_id)["batch"]
    (attempt,) = re.findall('name="attempt-5" value="([^"]+)"', house.get("sam", "/doubts").text)
    form = {"what-5": "declined", "attempt-5": attempt, "reason": "not in the portal", "password": True}
    house.post("sam", f"/doubts/{batch}", **form)
    rows = {row["_line"]: row["_errors"] for row in rows_of(downloaded(house, file_id))}
    assert rows["3"] == "row: declined: the gateway declined it: No funds"
    assert "Sam Reyes" in rows["6"] and "recorded that it was declined: not in the portal, look it up" in rows["6"]


def test_what_nobody_can_say_of_stays_out(house: House) -> None:
    """What a night took in waits for a person, and a recurring payment for the gateway's schedule."""
    monthly = {"recurringIndicator": "TRUE", "recurringStartDate": "12/31/2098", "recurringBillingCycle": "MONTHLY"}
    monthly |= {"recurringEndOfMonth": "N", "recurringNumOfPayments": "3", "recurringAgreementFlag": "1"}
    file_id = house.sent(PAYMENTS[0], payment("M", 2, **monthly), PAYMENTS[2])
    came_back(house, "R02,INV-M,20.00")
    came_back(house, "R02,INV-A,10.00", unattended=True)
    page = house.page("maria", f"/files/{file_id}/unpaid")
    assert "nobody has confirmed this" in page and "the gateway pays it again and again" in page
    assert "Download" not in page and "None of these payments can be paid again" in page
    came_back(house, "C01,INV-C,0.00")
    assert "Left out 2" in house.page("maria", f"/files/{file_id}/unpaid"), "a change is no return"


def test_a_debit_without_money_may_be_tried_three_times(house: House) -> None:
    """The row says so, passes as it is, and is left out while its next try stands."""
    debit = payment("A", 1, transactionType="DEBIT")
    first = house.sent(debit, PAYMENTS[1])
    came_back(house, "R01,INV-A,10.00")
    (row,) = rows_of(content := downloaded(house, first))
    assert "row: returned: " in row["_errors"] and "it passes as it is, try 2 of 3, within 180 days" in row["_errors"]
    send(house, second := upload(house, content))
    assert "it is a payment again in line 2 of batch" in house.page("maria", f"/files/{first}/unpaid")
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        fact = NewFact(FactKind.RETURNED, house.file(second)["batch"], 1, "R01", ledger.today(), 1000, 2)
        ledger.record_facts([fact], Environment.TEST, "returns.csv", "ab", "sam", unattended=False)
    for file_id in (first, second):
        (row,) = rows_of(downloaded(house, file_id))
        assert "try 3 of 3" in row["_errors"]


def test_a_bill_that_was_paid_to_another_account_is_a_payment_again(house: House) -> None:
    """Without a paymentId the bill to the right account is another one: it was offered, and paid, a second time."""
    bill = payment("A", 1, paymentId="")
    house.answer = lambda reference: DECLINED if reference == "INV-A" else ACCEPTED
    file_id = house.sent(bill, PAYMENTS[1])
    (row,) = rows_of(downloaded(house, file_id))
    house.answer = lambda reference: ACCEPTED
    send(house, upload(house, written([row | {"achAccountNumber": "74844391"}])))
    assert house.arrived["INV-A"] == 2
    assert "it is a payment again in row 1 of batch" in house.page("maria", f"/files/{file_id}/unpaid")
    send(house, upload(house, csv_of(payment("O", 1, paymentId="", invoiceNumber="INV-A")), "other.csv"))


def test_what_the_bank_corrected_is_in_the_file_alone(house: House) -> None:
    """As in the rejects of a check: not on the page, and not in the history."""
    file_id = house.sent(*PAYMENTS[:3])
    today = house.site.ledger().today().isoformat()
    text = "Return Date,Return Code,Invoice Number,Amount,Corrected Data\n"
    text += f"{today},R03,INV-C,30.00,\n{today},C01,INV-C,0.00,7700299778\n"
    take_returns(Stream("returns.csv", io.BytesIO(text.encode())), house.site.settings, Actor("sam", "desk"))
    (row,) = rows_of(downloaded(house, file_id))
    assert row["_suggestions"] == "achAccountNumber: 7700299778"
    assert all("7700299778" not in house.page("maria", path) for path in (f"/files/{file_id}/unpaid", "/audit"))


def agree(house: House, file_id: str) -> None:
    """Answer what the page asks of a file's columns, if it asks anything, and agree."""
    while house.file(file_id)["proposal"] and house.file(file_id)["state"] == "refused":
        proposal = spool.unseal_json(house.site.ledger(), file_id, "proposal", house.file(file_id)["proposal"])
        needed = [one for one in proposal["questions"] if one["needed"]]
        answers: Any = {f"answer.{one['about']}: {one['question']}": (one["choices"] or ["1001"])[0] for one in needed}
        house.post("maria", f"/files/{file_id}/map", **answers or {"agreed": "yes"})
        house.work()


@pytest.mark.parametrize("kind", ["xlsx", "parquet", "ach", "csv"])
def test_the_file_has_the_form_of_the_upload(house: House, kind: str) -> None:
    """A workbook and a Parquet file stay what they are; others are a CSV with their own header and separator."""
    outcomes = iter((DECLINED, DECLINED, ACCEPTED))
    house.answer = lambda reference: next(outcomes)
    if kind == "ach":
        entries = [entry("22", 1000 * at, f"64844392{at}", payment_id=f"P{at}", name=f"Payee {at}") for at in (1, 2)]
        content = ach_file(
            [*entries, entry("22", 3000, "648443929", payment_id="INV-C", name="Payee 3")], effective=" " * 6
        )
    else:
        rows = [[one.get(name) for name in COLUMNS] for one in PAYMENTS[:3]]
        frame, out = pl.DataFrame(rows, COLUMNS, orient="row"), io.BytesIO()
        if kind == "xlsx":
            book = openpyxl.Workbook()
            sheet = book.worksheets[0]
            for line in (COLUMNS, *rows):
                sheet.append(list(line))
            book.save(out)
        else:
            frame.write_parquet(out) if kind == "parquet" else frame.write_csv(out, separator=";")
        content = out.getvalue()
    agree(house, file_id := upload(house, content, f"pay.{kind}"))
    send(house, file_id)
    made = downloaded(house, file_id)
    name = f"pay.to-correct.{kind if kind in ('xlsx', 'parquet') else 'csv'}"
    assert name in house.get("maria", f"/files/{file_id}/unpaid?as=file").headers["Content-Disposition"]
    assert kind != "csv" or made.startswith(b"_row;_line;_errors;_warnings;_suggestions;paymentId;")
    agree(house, again := upload(house, made, name))
    assert (house.file(again)["state"], house.facts(again)["would_send"]) == ("checked", 2)


def test_an_upload_is_kept_until_its_payments_can_no_longer_come_back(house: House) -> None:
    """It went after thirty days, and a debit comes back for sixty: the page says so once it is gone."""
    house.answer = lambda reference: DECLINED
    sent, other = house.sent(), house.upload(PAYMENTS[0])
    path = f"/files/{sent}/unpaid"
    house.now[0] += spool.KEPT_S + 1
    assert spool.sweep(house.store) == 1 and not spool.place(house.site.home, other).exists()
    house.clients.clear()  # sessions have ended as well
    assert "3 payments" in house.page("maria", path)
    assert spool.sweep(house.store, {"another"}) == 0
    house.now[0] += spool.RETURNABLE_S - spool.KEPT_S
    assert spool.sweep(house.store) == 1
    house.clients.clear()
    assert "no longer here" in (page := house.page("maria", path)) and "in your own file instead" in page
    house.get("maria", f"{path}?as=file", 503)


def test_an_upload_goes_with_the_details_of_its_batch(house: House) -> None:
    """What a purge deletes from the ledger does not stay here, with account numbers."""
    sent = house.sent()
    house.now[0] += spool.KEPT_S + 1
    assert spool.sweep(house.store, {house.file(sent)["batch"]}) == 1


def test_nothing_is_given_out_while_a_run_is_under_way(house: House) -> None:
    """A payment that is being sent may be declined the next moment. Of what was all paid there is nothing."""
    house.get("maria", f"/files/{house.ask()}/unpaid", 409)
    file_id = house.sent(*PAYMENTS[:1])
    assert "Nothing of this file was declined" in house.page("maria", f"/files/{file_id}/unpaid")
    assert "Make a file" not in house.page("maria", f"/files/{file_id}/run")
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'sending' WHERE id = ?", (file_id,))
    house.get("maria", f"/files/{file_id}/unpaid", 409)
