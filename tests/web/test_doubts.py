"""In doubt: one person says what became of a payment; to send it again takes two; none is sent twice by mistake."""

from __future__ import annotations

import io
import re
from typing import Any

import openpyxl
import pytest

from batchpay.gateway.credentials import Credentials
from batchpay.payment import Outcome
from batchpay.settings import Secret
from batchpay.workflows.resolve import Proposal, RowDecision, Signature, settle
from batchpay.workflows.resume import resume
from batchpay.workflows.run import RunRequest
from tests.web.house import ROWS, House, words_of
from tests.workflows.desk import ACCEPTED, ANN, IN_DOUBT, Quiet


class Yes:
    """A person at a terminal who agrees."""

    def show(self, found: Proposal) -> None:
        """Looks."""

    def sign(self) -> Signature:
        """Says who and why."""
        return Signature("Ann", "seen")

    def confirm(self, sent_again: int) -> None:
        """Agrees."""


def said(house: House, row: int, decision: str) -> Any:
    """The form's fields for a row, as the page has them now."""
    page = house.get("sam", "/doubts").get_data(as_text=True)
    (sent,) = re.findall(f'name="sent-{row}" value="([^"]+)"', page)
    return {f"what-{row}": decision, f"sent-{row}": sent}


CREDIT = {"paymentId": "E", "invoiceNumber": "INV-E", "amount": "50.00"}


@pytest.fixture
def doubtful(house: House) -> tuple[House, str, str]:
    """A house where the answers about a debit and a credit got lost: its file, its batch."""

    def answer(reference: str) -> Outcome:
        return IN_DOUBT if reference in ("INV-C", "INV-E") else ACCEPTED

    house.answer = answer
    file_id = house.sent(*ROWS, CREDIT)
    house.answer = lambda reference: ACCEPTED
    return house, file_id, house.file(file_id)["batch"]


def test_doubts_are_seen_everywhere(doubtful: tuple[House, str, str]) -> None:
    """No page says finished over a doubt; credits stand first, since there money leaves."""
    house, file_id, _ = doubtful
    assert house.file(file_id)["state"] == "done"
    run = words_of(house.get("maria", f"/files/{file_id}/run"))
    assert "2 payments, 80.25, are in doubt" in run
    assert "Finished" not in run
    assert "2 payments in doubt" in words_of(house.get("maria", "/"))
    page = words_of(house.get("lee", "/doubts"))
    assert page.index("INV-E") < page.index("INV-C")
    assert "money leaves us" in page
    assert "What became of it" not in page


def test_one_person_settles_with_a_reason_and_a_password(doubtful: tuple[House, str, str]) -> None:
    """The ledger says who and how they know; without a reason or with a wrong password nothing is recorded."""
    house, _, batch = doubtful
    house.post("maria", f"/doubts/{batch}", 403, **said(house, 3, "accepted"), reason="seen", password=True)
    form: Any = {"reference-3": "GW-77", **said(house, 3, "accepted"), **said(house, 4, "declined")}
    house.post("sam", f"/doubts/{batch}", 400, **form, reason="", password=True)
    house.post("sam", f"/doubts/{batch}", 400, reason="seen", password=True)
    house.post("sam", f"/doubts/{batch}", 401, **form, reason="seen", password="wrong")
    account = words_of(house.post("sam", f"/doubts/{batch}", 409, **form, reason="account 648443924", password=True))
    assert "account number" in account
    assert not house.events("resolved")
    house.post("sam", f"/doubts/{batch}", **form, reason="seen in the portal", password=True)
    (event,) = house.events("resolved")
    assert event["who"].startswith("Sam Reyes (sam@")
    assert event["why"] == "seen in the portal"
    assert "No payment is in doubt" in words_of(house.get("sam", "/doubts"))


def test_to_send_again_takes_a_second_person(doubtful: tuple[House, str, str]) -> None:
    """Sam asks, Daniel agrees with his password, and lets it go on: it is sent once more, and nothing else is."""
    house, file_id, batch = doubtful
    house.post("sam", f"/doubts/{batch}", **said(house, 4, "send again"), reason="never came", password=True)
    assert "A second person must agree" in words_of(house.get("daniel", "/doubts"))
    house.post("sam", f"/doubts/{batch}/second", 403, row="4", decision="agree", password=True)
    house.post("daniel", f"/doubts/{batch}/second", 401, row="4", decision="agree", password="wrong")
    house.post("daniel", f"/doubts/{batch}/second", 409, row="3", decision="agree", password=True)
    assert not house.events("resolved")
    house.post("daniel", f"/doubts/{batch}/second", row="4", decision="agree", password=True)
    (event,) = house.events("resolved")
    assert event["who"].startswith("Sam Reyes, agreed to by Daniel Osei (daniel@")
    house.work()
    assert house.arrived["INV-E"] == 1
    house.post("daniel", f"/files/{file_id}/resume", password=True)
    house.work()
    assert house.arrived == {"INV-A": 1, "INV-B": 1, "INV-C": 1, "INV-E": 2}


def test_nobody_agrees_with_themselves(doubtful: tuple[House, str, str]) -> None:
    """One person with both roles is still one person."""
    house, _, batch = doubtful
    house.add("both", "Bo Both", "settle approve")
    house.post("both", f"/doubts/{batch}", **said(house, 4, "send again"), reason="never came", password=True)
    house.post("both", f"/doubts/{batch}/second", 403, row="4", decision="agree", password=True)
    house.post("dora", f"/doubts/{batch}/second", row="4", decision="refuse")
    house.post("daniel", f"/doubts/{batch}/second", 409, row="4", decision="agree", password=True)
    assert not house.events("resolved")


def test_a_request_is_about_one_attempt(doubtful: tuple[House, str, str]) -> None:
    """A request to send again lapses when its row was sent again in another way and is in doubt anew.

    To agree to it then would send the row a third time, on a reason that was about another attempt.
    """
    house, _, batch = doubtful
    first = said(house, 4, "send again")
    house.post("sam", f"/doubts/{batch}", **first, reason="never came", password=True)
    house.answer = lambda reference: IN_DOUBT
    settings = house.site.settings
    settle(batch, [RowDecision(4, "send again")], Yes(), settings, ANN)
    quiet, credentials = Quiet(), Credentials("house", Secret("house-key"))
    resume(batch, lambda _: None, RunRequest(None, approvals=1), settings, credentials, ANN, quiet)
    assert house.arrived["INV-E"] == 2
    house.post("daniel", f"/doubts/{batch}/second", 409, row="4", decision="agree", password=True)
    assert "let lapse" in words_of(house.get("lee", "/audit"))
    for what in ("accepted", "send again"):
        stale = {**first, "what-4": what}
        assert "sent again meanwhile" in words_of(
            house.post("sam", f"/doubts/{batch}", 409, **stale, reason="seen", password=True)
        )
    assert len(house.events("resolved")) == 1
    assert house.arrived["INV-E"] == 2
    house.post("sam", f"/doubts/{batch}", **said(house, 4, "accepted"), reason="seen", password=True)


def test_a_filled_in_sheet_decides_as_the_form_does(doubtful: tuple[House, str, str]) -> None:
    """Accepted at once, send again for a second person; a sheet about an earlier attempt is refused whole."""
    house, _, batch = doubtful
    book = openpyxl.load_workbook(io.BytesIO(house.get("sam", f"/doubts/{batch}/sheet").data))
    sheet = book.worksheets[0]
    header = [cell.value for cell in sheet[1]]
    for line in sheet.iter_rows(min_row=2):
        row = line[header.index("row")].value
        line[header.index("decision")].value = "accepted" if row == 3 else "send again"
    path = f"/doubts/{batch}/sheet"
    house.post("sam", path, 401, sheet=(_saved(book), "doubts.xlsx"), reason="portal", password="wrong")
    sheet.cell(2, header.index("sent_from_utc") + 1).value = "2026-01-01T12:00:00Z"
    answer = house.post("sam", path, 400, sheet=(_saved(book), "doubts.xlsx"), reason="portal", password=True)
    assert "was sent again after this sheet was written" in words_of(answer)
    assert not house.events("resolved")
    sheet.cell(2, header.index("sent_from_utc") + 1).value = None
    house.post("sam", path, sheet=(_saved(book), "doubts.xlsx"), reason="portal", password=True)
    (event,) = house.events("resolved")
    assert event["why"] == "portal"
    assert "A second person must agree" in words_of(house.get("daniel", "/doubts"))


def _saved(book: openpyxl.Workbook) -> io.BytesIO:
    file = io.BytesIO()
    book.save(file)
    file.seek(0)
    return file
