"""Returns on the page: a bank's file is taken in, what is uncertain is said by a person, and no account is shown."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from batchpay.payment import Actor
from batchpay.web import spool
from batchpay.workflows.returns import take_returns
from batchpay.writing.atomic import Stream
from tests.web.house import House
from tests.workflows.desk import PLAIN

ACCOUNT, CORRECTED = PLAIN["achAccountNumber"], "7700299778"
HEADER = "Return Date,Return Code,Invoice Number,Amount,Name,Account Number,Corrected Data"


def file_of(house: House, *lines: str) -> bytes:
    """What the bank says today."""
    today = house.site.reader.get().today().isoformat()
    return "\n".join([HEADER, *(f"{today},{line}" for line in lines), ""]).encode()


def take(house: House, *lines: str, name: str = "returns.csv", by: str = "sam", code: int = 303) -> str:
    """Take a file in; gives the page that answers, or that shows it."""
    said = house.said(by, "/returns", code, export=(io.BytesIO(file_of(house, *lines)), name))
    return said if code != 303 else house.page(by, "/returns")


def say(house: House, code: int = 303, by: str = "sam", **form: Any) -> str:
    """Press a button beside a payment."""
    return house.said(by, "/returns/say", code, **{"reason": "called the bank", "password": True, **form})


RETURNED, CHANGED, NOBODYS = "R02,INV-A,10.00,,,", f"C01,INV-B,0.00,,,{CORRECTED}", "R03,INV-Z,5.00,,,"


def test_a_file_is_taken_in_once_and_shows_no_account(house: House) -> None:
    """What is certain is recorded, the rest is told with its reason; the same file again changes nothing."""
    batch = str(house.file(house.sent())["batch"])
    assert "Nothing came back yet" in house.page("maria", "/returns")
    take(house, RETURNED, by="maria", code=403)
    assert "Choose the bank's file" in house.said("sam", "/returns", 400, export=(io.BytesIO(), "returns.csv"))
    said = take(house, RETURNED, CHANGED, NOBODYS)
    assert "2 lines recorded, 1 line not recorded" in said and "no such payment" in said
    assert "R02 account closed" in said and "C01 wrong account number" in said and "take the new account number" in said
    assert "2 lines known before" in take(house, RETURNED, CHANGED, NOBODYS)
    assert "It came back on" in (found := house.page("lee", "/history?payment=a")) and "R02 account closed" in found
    assert "Its account changes on" not in found and "Its account changes on" in house.page("lee", "/history?payment=B")
    for path in ("/returns", f"/returns?batch={batch}", "/audit"):
        assert not re.search(f"{ACCOUNT}|{CORRECTED}", house.get("lee", path).get_data(as_text=True)), path
    for stored in spool.place(house.site.home, spool.export_place("returns")).iterdir():
        assert b"INV-A" not in stored.read_bytes()
    assert "took in the return file returns.csv" in house.page("lee", "/audit")
    (first, _) = house.events("returns")
    assert first["who"].startswith("sam (web")


def test_a_file_that_is_none_changes_nothing(house: House) -> None:
    """It is refused in one sentence, and the page still shows the file before."""
    house.sent()
    take(house, RETURNED)
    form = {"export": (io.BytesIO(b"%PDF-1.7 returns"), "returns.pdf")}
    assert "nothing was recorded" in house.said("sam", "/returns", 400, **form)
    assert "The latest file: returns.csv" in house.page("sam", "/returns")
    assert len(house.events("returns")) == 1


def test_a_person_says_which_payment_came_back(house: House) -> None:
    """A masked account proposes a payment; saying so takes role, reason, password and the file that is shown."""
    batch = str(house.file(house.sent())["batch"])
    said = take(house, f"R02,,10.00,Ann Lee,****{ACCOUNT[-4:]},")
    assert "1 line perhaps found" in said and "Say which payment it is" in said
    (seen,) = re.findall(r'name="seen" value="(\w+)"', house.get("sam", "/returns").get_data(as_text=True))
    form = {"what": "match", "payment": f"{batch} 1", "seen": seen}
    say(house, 403, by="daniel", **form)
    assert "say how you know" in say(house, 400, **form, reason="")
    say(house, 401, **form, password="wrong")
    assert "Another file was taken in since" in say(house, 409, **form | {"seen": "other"})
    assert "Nothing was recorded" in say(house, 409, **form | {"payment": f"{batch} 2"})
    assert len(house.events("returns")) == 1
    say(house, **form)
    assert "R02 account closed" in house.page("lee", f"/returns?batch={batch}")
    assert "Say which payment it is" not in house.page("sam", "/returns")
    assert "said which payment came back, line 2 of" in house.page("lee", "/audit")


@pytest.mark.parametrize(("what", "event"), [("confirm", "return confirmed"), ("withdraw", "return withdrawn")])
def test_what_a_night_took_in_waits_for_a_person(house: House, what: str, event: str) -> None:
    """It is shown first, until somebody says that it is right or that it was wrong."""
    batch = str(house.file(house.sent())["batch"])
    file = Stream("night.csv", io.BytesIO(file_of(house, RETURNED)))
    take_returns(file, house.site.settings, Actor("cron", "host"), unattended=True)
    assert "seen by nobody yet" in house.page("sam", "/returns")
    assert "It is right" not in house.page("daniel", "/returns")
    say(house, what=what, payment=f"{batch} 1")
    assert "seen by nobody yet" not in house.page("sam", "/returns")
    (told,) = house.events(event)
    assert (told["why"], told["who"].startswith("sam (web")) == ("called the bank", True)
    assert ("R02" in house.page("sam", "/returns")) is (what == "confirm")


def test_what_a_person_withdrew_is_not_said_anew(house: House) -> None:
    """The same file, taken in again, was told as recorded: nothing was, since a person's word stands."""
    batch = str(house.file(house.sent())["batch"])
    take(house, RETURNED)
    say(house, what="withdraw", payment=f"{batch} 1")
    assert "1 line known before" in take(house, RETURNED)
    assert "came back" not in house.page("maria", "/history?payment=A")


def test_a_batch_says_what_came_back(house: House) -> None:
    """On its page and in the history: it stays accepted, and less of it stands."""
    file_id = house.sent()
    take(house, RETURNED)
    assert "1 payment came back, 10.00 of what was accepted; 2 payments" in house.page("maria", f"/files/{file_id}/run")
    assert "1 payment came back" in house.page("maria", "/history")
    assert "there is no batch nobodys" in house.page("maria", "/returns?batch=nobodys", 409)


def test_a_reason_with_the_account_number_is_refused(house: House) -> None:
    """It would stay in the ledger for good."""
    batch = str(house.file(house.sent())["batch"])
    take(house, RETURNED)
    form = {"what": "withdraw", "payment": f"{batch} 1", "reason": f"account {ACCOUNT}"}
    assert ACCOUNT not in say(house, 409, **form)
    assert not house.events("return withdrawn")
