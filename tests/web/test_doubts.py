"""In doubt: one person says what became of a payment; to send it again takes two; none is sent twice by mistake.

Waiting payments are cancelled by one person, as they are settled.
"""

from __future__ import annotations

import io
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from batchpay.errors import LedgerNotUsable, WrongUse
from batchpay.gateway.credentials import Credentials
from batchpay.ledger.open import open_ledger
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.settings import Secret
from batchpay.web import doubts, people, runs
from batchpay.workflows.resolve import RowDecision, Signature, cancel, settle
from batchpay.workflows.run import RunRequest, resume
from tests.support.in_process import Caller
from tests.support.ledger_factory import Planned, add_batch
from tests.web.house import ROWS, House, Yes, csv_of, words_of
from tests.workflows.desk import ACCEPTED, ANN, IN_DOUBT, Quiet


def said(house: House, row: int, decision: str, by: str = "sam") -> Any:
    """The form's fields for a row, as the page has them now."""
    page = house.get(by, "/doubts").get_data(as_text=True)
    (attempt,) = re.findall(f'name="attempt-{row}" value="([^"]+)"', page)
    return {f"what-{row}": decision, f"attempt-{row}": attempt}


def request_for(house: House, row: int) -> str:
    """The latest request to send a row again, as a page has it that was opened then."""
    return str(house.store.count("SELECT max(id) FROM again WHERE row = ?", row))


def ask_again(house: House, batch: str, by: str = "sam", row: int = 4) -> str:
    """Ask that a row be sent again; gives the request."""
    house.post(by, f"/doubts/{batch}", **said(house, row, "send again", by), reason="never came", password=True)
    return request_for(house, row)


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
    run = house.page("maria", f"/files/{file_id}/run")
    assert "2 payments, 80.25, are in doubt" in run
    assert "Finished" not in run
    assert "2 payments in doubt" in house.page("maria", "/")
    page = house.page("lee", "/doubts")
    assert page.index("INV-E") < page.index("INV-C")
    assert "money leaves our account" in page
    assert "Sent: done" not in run and "Sent: done" not in house.page("maria", f"/files/{file_id}/check")
    assert "What happened to it" not in page


def test_what_a_killed_command_was_sending_is_settled_on_the_page(house: House) -> None:
    """Nobody ran its batch again: the page said that no payment is in doubt, and its sheet was empty."""
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        batch = add_batch(ledger, [Planned(1), Planned(2, State.SENDING, 700), Planned(3, State.SENDING, 50, "CREDIT")])
        with ledger.lock(ledger.find(batch).digest):
            assert "No payment is in doubt" in house.page("sam", "/doubts")
    assert "2 in doubt" in house.page("maria", "/")
    page = house.page("sam", "/doubts")
    assert "2 payments, 7.50" in page
    assert page.index("INV-3") < page.index("INV-2")
    house.post("sam", f"/doubts/{batch}", **said(house, 2, "declined"), reason="not in the portal", password=True)
    with closing(house.ledger()) as ledger:
        states = {row.row: row.state for row in ledger.rows(batch)}
    assert states == {1: State.ACCEPTED, 2: State.DECLINED, 3: State.IN_DOUBT}


def test_one_person_settles_with_a_reason_and_a_password(doubtful: tuple[House, str, str]) -> None:
    """The ledger says who and how they know; without a reason or with a wrong password nothing is recorded."""
    house, _, batch = doubtful
    house.post("maria", f"/doubts/{batch}", 403, **said(house, 3, "accepted"), reason="seen", password=True)
    form: Any = {"reference-3": "GW-77", **said(house, 3, "accepted"), **said(house, 4, "declined")}
    house.post("sam", f"/doubts/{batch}", 400, **form, reason="", password=True)
    house.post("sam", f"/doubts/{batch}", 400, reason="seen", password=True)
    house.post("sam", f"/doubts/{batch}", 401, **form, reason="seen", password="wrong")
    account = house.said("sam", f"/doubts/{batch}", 409, **form, reason="account 648443924", password=True)
    assert "account number" in account
    assert not house.events("resolved")
    house.post("sam", f"/doubts/{batch}", **form, reason="seen in the portal", password=True)
    (event,) = house.events("resolved")
    assert event["who"].startswith("Sam Reyes (sam (web))")
    assert event["why"] == "seen in the portal"
    assert "No payment is in doubt" in house.page("sam", "/doubts")
    again = house.said("sam", f"/doubts/{batch}", 409, **form, reason="seen in the portal", password=True)
    assert "is no longer in doubt" in again, "also where nothing else of the batch is listed"
    assert len(house.events("resolved")) == 1
    page = house.page("daniel", f"/files/{house.ask(CREDIT)}/check")
    assert "was in doubt, and Sam Reyes (sam (web)) recorded on" in page, "who approves it sees who called it declined"
    assert "are unchanged" not in page


def test_to_send_again_takes_a_second_person(doubtful: tuple[House, str, str]) -> None:
    """Sam asks, and when Daniel agrees with his password it is sent once more, and nothing else is."""
    house, file_id, batch = doubtful
    assert "To approve 1 waiting for you" not in house.page("daniel", "/")
    for _ in range(2):  # pressed twice, it is one request
        house.post("sam", f"/doubts/{batch}", **said(house, 4, "send again"), reason="never came", password=True)
    assert house.store.count("SELECT count(*) FROM again") == 1
    assert "50.00 to Grace Quigley , line 5; requested by Sam Reyes" in house.page("daniel", "/doubts")
    assert "To approve 1 waiting for you" in house.page("daniel", "/") and "waiting for you" not in house.page(
        "lee", "/"
    )
    announced = house.page("daniel", "/to-approve")
    assert "To be sent again" in announced and "1 payment waits for you" in announced and "Sam Reyes" in announced
    second, one = f"/doubts/{batch}/second", request_for(house, 4)
    house.post("sam", second, 403, request=one, decision="agree", password=True)
    house.post("daniel", second, 401, request=one, decision="agree", password="wrong")
    house.post("daniel", second, 409, request="77", decision="agree", password=True)
    house.post("daniel", second, 400, decision="agree", password=True)
    house.post("daniel", second, 400, request=one, decision="", password=True)
    assert not house.events("resolved")
    house.post("daniel", second, request=one, decision="agree", password=True)
    house.post("daniel", second, 409, request=one, decision="agree", password=True)
    (event,) = house.events("resolved")
    assert event["who"].startswith("Sam Reyes, agreed to by Daniel Osei (daniel (web))")
    assert "Sam Reyes, agreed to by Daniel Osei (daniel) settled rows in doubt" in house.page("lee", "/audit")
    house.work()  # agreeing sends it: nothing else waits, and Daniel may resume the run
    page = house.page("daniel", f"/files/{file_id}/run")
    assert "Daniel Osei agreed that line 5 is sent again: never came" in page
    assert house.arrived == {"INV-A": 1, "INV-B": 1, "INV-C": 1, "INV-E": 2}


def test_a_request_of_somebody_who_was_switched_off_is_none(doubtful: tuple[House, str, str]) -> None:
    """Nobody agrees to it, and it is in no other person's way: theirs was dropped without a word."""
    house, _, batch = doubtful
    house.add("both", "Bo Both", "settle approve")
    second, one = f"/doubts/{batch}/second", ask_again(house, batch)
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        people.switch_off(house.store, ledger, ANN, "sam")
    assert "requested by Sam Reyes" not in house.page("daniel", "/doubts")
    house.post("daniel", second, 409, request=one, decision="agree", password=True)
    own = ask_again(house, batch, "both")
    assert "requested by Bo Both" in house.page("daniel", "/doubts")
    house.post("daniel", second, request=own, decision="agree", password=True)
    assert len(house.events("resolved")) == 1


def test_who_agrees_is_another_person_within_their_limit(doubtful: tuple[House, str, str]) -> None:
    """One person with both roles is still one person, a maker approves nothing of their file, a limit holds here too.

    The limit also holds for whoever then lets it go on.
    """
    house, file_id, batch = doubtful
    house.add("both", "Bo Both", "settle approve")
    house.add("low", "Lo Low", "approve", limit_cents=80_24)
    for row in (3, 4):
        house.post("both", f"/doubts/{batch}", **said(house, row, "send again"), reason="never came", password=True)
    second, both = f"/doubts/{batch}/second", [request_for(house, row) for row in (3, 4)]
    house.post("both", second, 403, request=both, decision="agree", password=True)
    with house.store.write() as db:
        db.execute("UPDATE file SET edited_by = '[\"pia\"]' WHERE id = ?", (file_id,))
    assert "You prepared this payment" in house.said("pia", second, 403, request=both[0], decision="agree")
    assert "above your limit" in house.said("low", second, 403, request=both, decision="agree")
    house.post("dora", second, request=both[1], decision="refuse")
    house.post("daniel", second, 409, request=both, decision="agree", password=True)
    assert not house.events("resolved")
    settle(batch, [RowDecision(4, "send again")], Yes(), house.site.settings, ANN)
    house.post("daniel", second, request=both[0], decision="agree", password=True)
    house.work()
    assert house.arrived.total() == 4, "another payment waits, to which Daniel did not agree"
    assert "2 payments, 80.25, wait to be sent: someone must continue" in house.page("daniel", f"/files/{file_id}/run")
    house.post("low", f"/files/{file_id}/resume", 403, password=True)
    house.post("dora", f"/files/{file_id}/resume", password=True)
    house.work()
    assert house.arrived == {"INV-A": 1, "INV-B": 1, "INV-C": 2, "INV-E": 2}


def test_what_is_sent_again_slice_by_slice_counts_in_the_day_of_a_limit(doubtful: tuple[House, str, str]) -> None:
    """Two payments above a limit together were agreed to one by one. What was refused by the ledger counts not."""
    house, _, batch = doubtful
    house.add("low", "Lo Low", "approve", limit_cents=80_24)
    for row in (3, 4):
        house.post("sam", f"/doubts/{batch}", **said(house, row, "send again"), reason="never came", password=True)
    second, (first, last) = f"/doubts/{batch}/second", [request_for(house, row) for row in (3, 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doubts, "settle", refuse)
        house.post("low", second, 409, request=last, decision="agree", password=True)
    house.post("low", second, request=first, decision="agree", password=True)
    over = "80.25 with what you approved in the last 24 hours is above your limit of 80.24"
    assert over in house.said("low", second, 403, request=last, decision="agree", password=True)
    house.post("daniel", second, request=last, decision="agree", password=True)


def refuse(*_: object) -> None:
    raise WrongUse("not now")


def test_a_request_is_withdrawn_by_whoever_made_it(doubtful: tuple[House, str, str]) -> None:
    """Sam, who only settles, found the payment after all, and could not take back what he had asked for."""
    house, _, batch = doubtful
    house.add("both", "Bo Both", "settle approve")
    second, one = f"/doubts/{batch}/second", ask_again(house, batch)
    assert "Withdraw your request" in house.page("sam", "/doubts")
    assert "Withdraw your request" not in house.page("daniel", "/doubts") + house.page("both", "/doubts")
    for by, decision in (("both", "withdraw"), ("daniel", "withdraw"), ("sam", "refuse"), ("sam", "agree")):
        house.post(by, second, 403, request=one, decision=decision, password=True)
    house.post("sam", second, request=one, decision="withdraw")
    house.post("daniel", second, 409, request=one, decision="agree", password=True)
    assert "withdrew the request to send again line 5" in house.page("lee", "/audit")
    assert not house.events("resolved")


@pytest.fixture
def sent_anew(doubtful: tuple[House, str, str]) -> tuple[House, str, dict[str, Any], str]:
    """Sam's request on the page, and the row sent again by the command line meanwhile: in doubt anew.

    Gives the house, the batch, the form as it stood in Sam's browser, and the request.
    """
    house, _, batch = doubtful
    form = said(house, 4, "send again")
    house.post("sam", f"/doubts/{batch}", **form, reason="never came", password=True)
    house.answer = lambda reference: IN_DOUBT
    settings = house.site.settings
    settle(batch, [RowDecision(4, "send again")], Yes(), settings, ANN)
    quiet, credentials = Quiet(), Credentials("house", Secret("house-key"))
    resume(batch, lambda _: None, RunRequest(None, approvals=1), settings, credentials, ANN, quiet)
    assert house.arrived["INV-E"] == 2
    return house, batch, form, request_for(house, 4)


def test_a_request_is_about_one_attempt(sent_anew: tuple[House, str, dict[str, Any], str]) -> None:
    """A request to send again lapses when its row was sent again in another way and is in doubt anew.

    To agree to it then would send the row a third time, on a reason that was about another attempt.
    """
    house, batch, first, request = sent_anew
    house.post("daniel", f"/doubts/{batch}/second", 409, request=request, decision="agree", password=True)
    assert "dropped the request" in house.page("lee", "/audit")
    for what in ("accepted", "send again"):
        stale = {**first, "what-4": what}
        assert "sent again in the meantime" in house.said(
            "sam", f"/doubts/{batch}", 409, **stale, reason="seen", password=True
        )
    assert len(house.events("resolved")) == 1
    assert house.arrived["INV-E"] == 2
    house.post("sam", f"/doubts/{batch}", **said(house, 4, "accepted"), reason="seen", password=True)
    assert "recorded that line 5 was paid: seen" in house.page("lee", "/audit")


def test_a_request_that_was_seen_is_the_one_agreed_to(sent_anew: tuple[House, str, dict[str, Any], str]) -> None:
    """Daniel's page shows a request about the first attempt; it lapsed, and Sam asked about the second one.

    What Daniel sends names the request that he saw, and not the row: the later attempt is not released by it.
    """
    house, batch, _, seen = sent_anew
    house.post("sam", f"/doubts/{batch}", **said(house, 4, "send again"), reason="asked the bank", password=True)
    assert request_for(house, 4) != seen
    for decision in ("agree", "refuse"):
        house.post("daniel", f"/doubts/{batch}/second", 409, request=seen, decision=decision, password=True)
    assert len(house.events("resolved")) == 1
    house.post("daniel", f"/doubts/{batch}/second", request=request_for(house, 4), decision="agree", password=True)
    assert house.events("resolved")[1]["why"] == "asked the bank"


def test_a_form_that_is_stale_in_part_does_nothing(sent_anew: tuple[House, str, dict[str, Any], str]) -> None:
    """Row 3 was paid, row 4 to be sent again by a page of before: it said "nothing was done", and had settled row 3."""
    house, batch, stale, _ = sent_anew
    form = {**said(house, 3, "accepted"), **stale}
    answer = house.post("sam", f"/doubts/{batch}", 409, **form, reason="seen", password=True)
    assert "Nothing was done" in words_of(answer)
    assert len(house.events("resolved")) == 1
    form = {**said(house, 3, "accepted"), **said(house, 4, "send again")}
    house.post("sam", f"/doubts/{batch}", **form, reason="seen", password=True)
    assert len(house.events("resolved")) == 2
    assert "1 payment is to be sent again" in house.page("daniel", "/doubts")


def test_one_who_refuses_and_one_who_agrees_are_not_both_heard(
    doubtful: tuple[House, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dora refuses while Daniel's password is looked at: the request is over, and nothing is sent by it."""
    house, _, batch = doubtful
    house.post("sam", f"/doubts/{batch}", **said(house, 4, "send again"), reason="never came", password=True)
    second, one = f"/doubts/{batch}/second", request_for(house, 4)

    def meanwhile() -> None:
        house.post("dora", second, request=one, decision="refuse")

    with monkeypatch.context() as patched:
        patched.setattr(doubts, "prove_again", meanwhile)
        house.post("daniel", second, 409, request=one, decision="agree")
    assert not house.events("resolved")


def test_what_was_filled_in_is_kept_where_nothing_was_recorded(doubtful: tuple[House, str, str]) -> None:
    """A mistyped password emptied the form of every row; and ticks that had been taken away stood there again.

    What was filled in about an earlier attempt of a row is not carried over to a later one.
    """
    house, _, batch = doubtful
    form: Any = {**said(house, 3, "accepted"), "reference-3": "GW-77", **said(house, 4, "send again")}
    page = house.post("sam", f"/doubts/{batch}", 401, **form, reason="seen there", password="wrong").get_data(True)
    assert 'value="accepted" selected' in page and 'value="send again" selected' in page
    assert 'value="GW-77"' in page and 'value="seen there"' in page and "wrong" not in page
    stale = {**form, "attempt-4": "1 2026-01-01T00:00:00Z"}
    page = house.post("sam", f"/doubts/{batch}", 409, **stale, reason="seen there", password=True).get_data(True)
    assert 'value="accepted" selected' in page and 'value="send again" selected' not in page
    for row in (3, 4):
        house.post("sam", f"/doubts/{batch}", **said(house, row, "send again"), reason="never came", password=True)
    second, one = f"/doubts/{batch}/second", request_for(house, 3)
    page = house.post("daniel", second, 401, request=one, decision="agree", password="wrong").get_data(True)
    assert re.findall(r'name="request" value="([0-9]+)" checked', page) == [one]


def test_a_request_survives_a_ledger_that_can_not_be_used(
    doubtful: tuple[House, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agreed to while the ledger was locked or its disk full: nothing was recorded, and the request was gone."""
    house, _, batch = doubtful
    house.post("sam", f"/doubts/{batch}", **said(house, 4, "send again"), reason="never came", password=True)
    form: Any = {"request": request_for(house, 4), "decision": "agree", "password": True}

    def fails(*_: object) -> None:
        raise LedgerNotUsable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(doubts, "settle", fails)
        assert "The disk is full." in house.said("daniel", f"/doubts/{batch}/second", 503, **form)
        other = said(house, 3, "accepted")
        page = house.post("sam", f"/doubts/{batch}", 503, **other, reason="seen", password=True).get_data(True)
        assert 'value="accepted" selected' in page and "The disk is full." in page, "what was filled in stays"
    assert "1 payment is to be sent again" in house.page("daniel", "/doubts")
    house.post("daniel", f"/doubts/{batch}/second", **form)


def test_nobody_is_told_that_nothing_was_done_where_it_was(
    doubtful: tuple[House, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has the decision, and the page's own disk was full: it said that nothing was done."""
    house, _, batch = doubtful

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    form = said(house, 3, "accepted")
    with monkeypatch.context() as patched:
        patched.setattr(house.store, "note", fails)
        page = house.said("sam", f"/doubts/{batch}", 503, **form, reason="seen", password=True)
    assert len(house.events("resolved")) == 1
    assert "its disk may be full" in page
    assert "may or may not have been recorded" in page and "Nothing was done" not in page


def test_what_others_wrote_is_text(house: House) -> None:
    """A word to the approver, a payee, what the gateway answered, a reason: markup in them stays what it is."""
    evil = "<img src=x onerror=alert(1)>"
    house.answer = lambda reference: IN_DOUBT._replace(reason=evil)
    file_id = house.ask({**ROWS[0], "achNameOnCheck": "A <b hx-get=/> B"}, note=evil)
    asked = house.get("daniel", f"/files/{file_id}/approve").get_data(as_text=True)
    house.approve(file_id)
    house.work()
    batch = house.file(file_id)["batch"]
    house.post("sam", f"/doubts/{batch}", **said(house, 1, "send again"), reason=evil, password=True)
    pages = [
        house.get("daniel", path).get_data(as_text=True) for path in ("/doubts", "/audit", f"/files/{file_id}/run")
    ]
    for page in (asked, *pages):
        assert "<img" not in page and "<b hx-get" not in page
    assert evil.replace("<", "&lt;").replace(">", "&gt;") in asked


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
    assert "A second person must agree" in house.page("daniel", "/doubts")


def _saved(book: openpyxl.Workbook) -> io.BytesIO:
    file = io.BytesIO()
    book.save(file)
    file.seek(0)
    return file


@pytest.fixture
def waiting(house: House) -> tuple[House, str, str]:
    """A house where a doubt about the first row stopped the run, so that two rows wait: its file, its batch."""
    house.answer = lambda reference: IN_DOUBT
    file_id = house.sent()
    house.answer = lambda reference: ACCEPTED
    assert house.arrived == {"INV-A": 1}
    return house, file_id, house.file(file_id)["batch"]


WAITS: Any = {"seen": "2 5075", "reason": "billed twice", "password": True}


def test_a_cancelled_payment_is_not_sent_and_the_batch_says_who_cancelled_it(
    waiting: tuple[House, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two by Sam; the other goes on. Nothing is cancelled without a reason, a password or the role."""
    house, file_id, batch = waiting
    path, run = f"/batches/{batch}/cancel", f"/files/{file_id}/run"
    assert "Cancel waiting payments" in house.page("sam", run) and "Cancel waiting" not in house.page("daniel", run)
    listed = house.page("sam", path)
    assert (
        "2 payments, 50.75, wait" in listed
        and "line 3 20.50 credit Bo Hart account ****3924, invoice INV-B" in listed
        and "line 2" not in listed
    )
    for name in ("maria", "daniel", "lee"):
        house.get(name, path, 403)
        house.post(name, path, 403, **WAITS, row="2")
    for code, changed in (
        (400, {"reason": " "}), (401, {"password": "wrong"}), (400, {"row": []}), (400, {"row": "2", "rows": "3;4"}),
        (409, {"reason": "648443924 was closed"}), (409, {"row": ["1", "2"]}), (409, {"row": "77"}),
    ):  # fmt: skip
        answer = house.post("sam", path, code, **{**WAITS, "row": "2", **changed})
        assert "Nothing was done" in words_of(answer)
    assert not house.events("cancelled")
    kept = house.post("sam", path, 401, **{**WAITS, "row": "2", "password": "wrong"}).get_data(as_text=True)
    assert 'value="2" checked' in kept and 'value="3" checked' not in kept and 'value="billed twice"' in kept
    with monkeypatch.context() as patched:
        patched.setattr(runs, "SHOWN_MAX", 1)
        page = house.page("sam", path)
    assert "and 1 more: name those by their row" in page and "line 4" not in page
    house.post("sam", path, **WAITS, rows="2,")
    (event,) = house.events("cancelled")
    assert (event["who"], event["why"], event["rejected"]) == ("Sam Reyes (sam (web))", "billed twice", "2")
    for name, page in (("lee", run), ("daniel", f"/batches/{batch}"), ("maria", f"/files/{file_id}")):
        said = house.as_(name).get(page, follow_redirects=True)
        assert "1 payment, 20.50, was cancelled by Sam Reyes (sam) on" in words_of(said)
        assert "(line 3): billed twice" in words_of(said)
    assert "Sam Reyes cancelled 1 payment, 20.50, of" in house.page("lee", run)
    assert "Continue with 1 payment, 30.25" in house.page("daniel", run)
    house.post("daniel", f"/files/{file_id}/resume", password=True)
    house.work()
    assert house.arrived == {"INV-A": 1, "INV-C": 1}
    assert "No payment of this batch is waiting" in house.page("sam", path)


def test_all_that_the_page_showed_is_cancelled_and_nothing_else(waiting: tuple[House, str, str]) -> None:
    """A row in doubt that is to be sent again since waits too: Sam has not seen it. Then no run has anything to do."""
    house, file_id, batch = waiting
    path = f"/batches/{batch}/cancel"
    settle(batch, [RowDecision(1, "send again")], Yes(), house.site.settings, ANN)
    assert "Other payments are waiting now" in house.said("sam", path, 409, **WAITS, all="yes")
    assert not house.events("cancelled")
    house.post("sam", path, **{**WAITS, "seen": "3 6075"}, all="yes")
    assert "3 payments, 60.75, were cancelled by Sam Reyes (sam)" in house.page("lee", f"/files/{file_id}/run")
    page = house.page("daniel", f"/files/{file_id}/run")
    assert "The run ended. Nothing is left to send." in page and "Continue with" not in page
    assert "pay.csv " + batch + " nothing left to send" in house.page("lee", "/history")
    house.post("daniel", f"/files/{file_id}/resume", 409, password=True)
    house.work()
    assert house.arrived == {"INV-A": 1}


def test_nothing_is_cancelled_while_a_run_sends(
    waiting: tuple[House, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither under a run of the command line, nor one that is about to begin; the page says so before a password."""
    house, file_id, batch = waiting
    path = f"/batches/{batch}/cancel"
    with closing(open_ledger(house.site.settings.ledger)) as ledger, ledger.lock(ledger.find(batch).digest):
        page = house.page("sam", path)
        assert "A run is sending this batch" in page and "Your password" not in page
        assert "A run is sending this batch" in house.said("sam", path, 409, **WAITS, all="yes")
        with monkeypatch.context() as patched:  # it began after the page had looked
            patched.setattr(runs, "_is_busy", lambda *_: False)
            assert "A run is sending this batch" in house.said("sam", path, 409, **WAITS, all="yes")
    house.post("daniel", f"/files/{file_id}/resume", password=True)
    assert "A run is sending this batch" in house.said("sam", path, 409, **WAITS, all="yes")
    assert not house.events("cancelled")
    house.work()
    assert house.arrived.total() == 3


def test_what_the_command_line_cancelled_and_released_is_shown_as_it_is_now(
    waiting: tuple[House, str, str], call: Caller, tmp_path: Path
) -> None:
    """By whom and why, also of a batch that was never on the page; what was released is not called cancelled."""
    house, file_id, batch = waiting
    with house.store.write() as db:
        db.execute("UPDATE file SET batch = NULL WHERE id = ?", (file_id,))
    cancel(batch, None, Signature("Kim", "left the company"), house.site.settings, ANN)
    page = house.page("lee", f"/batches/{batch}")
    assert "2 payments, 50.75, were cancelled by Kim (ann@desk-3) on" in page
    assert "(line 3, line 4): left the company" in page
    (tmp_path / "pay.csv").write_bytes(csv_of(*ROWS))
    call("submit", str(tmp_path / "pay.csv"), "--release", "--reason", "still here", "--json")
    assert house.arrived.total() == 3
    assert "cancelled" not in house.page("lee", f"/batches/{batch}")
