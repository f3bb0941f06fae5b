"""Held rows on the page: named, with a note, by another person than whoever prepared them."""

from __future__ import annotations

import sys

import pytest

from batchpay.web import run_job
from tests.web.house import House, words_of

GRACE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00", "achNameOnCheck": "Grace Quigley"}
OTHER = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "20.00", "achNameOnCheck": "Ada Byron"}
CHANGED = GRACE | {"paymentId": "P-3", "invoiceNumber": "A-3", "amount": "30.00", "achAccountNumber": "987654321"}
NOTE = "called G. Quigley at 212 555 0100, the number of 2019: the account is hers"


@pytest.fixture
def held(house: House) -> str:
    """A file that was sent but for a payment to a changed account; Pia prepared it, who may approve others' files."""
    house.policy(hold=["achAccountNumber.changed_account"])
    house.sent(GRACE)
    return house.sent(OTHER, CHANGED, by="pia", partial="yes")


def release(house: House, file_id: str, by: str = "daniel", code: int = 303, **form: object) -> str:
    seen = "1 3000"
    asked = {"seen": seen, "row": "2", "reason": NOTE, "password": True} | form
    return house.said(by, f"/files/{file_id}/release", code, **asked)


def test_another_person_names_a_held_row_and_says_who_was_called(house: House, held: str) -> None:
    """It is sent once, and the ledger's history has the person and the note as from the command line."""
    assert house.arrived == {"A-1": 1, "A-2": 1}
    assert "1 payment, 30.00, waits for a person’s word" in house.page("daniel", f"/files/{held}/run")
    page = house.page("daniel", f"/files/{held}/release")
    assert "Grace Quigley" in page and "account" in page and "987654321" not in page and "--release" not in page
    release(house, held)
    house.work()
    assert house.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}
    (event,) = house.events("released")
    assert (event["who"], event["why"]) == ("daniel (web)", NOTE)
    page = house.page("daniel", f"/files/{held}/run")
    assert "Daniel Osei released line 3: 1 held payment, 30.00" in page and NOTE in page and "Finished" in page
    assert "waits for a person’s word" not in page
    assert "No payment of this file waits" in house.page("daniel", f"/files/{held}/release")


def test_a_file_of_held_rows_alone_is_recorded_and_then_released(house: House) -> None:
    """Nothing of it would be sent, so it had no batch, and nobody could release a row of it on the page."""
    house.policy(hold=["achAccountNumber.changed_account"])
    house.sent(GRACE)
    file_id = house.upload(CHANGED, OTHER | {"amount": "x"}, by="pia")
    assert "Record it, and send nothing" in house.page("pia", f"/files/{file_id}/check")
    house.post("maria", f"/files/{house.upload(OTHER | {'amount': 'x'})}/ask", 409)
    house.post("pia", f"/files/{file_id}/ask")
    house.work()
    assert house.arrived == {"A-1": 1} and house.file(file_id)["batch"] is not None
    assert "1 payment, 30.00, waits for a person’s word" in house.page("daniel", f"/files/{file_id}/run")
    release(house, file_id, "pia", 403, row="1")
    release(house, file_id, row="1")
    house.work()
    assert house.arrived == {"A-1": 1, "A-3": 1}
    assert len(house.events("registered")) == 2 and len(house.events("released")) == 1


def test_nobody_releases_their_own_or_without_a_note(house: House, held: str) -> None:
    """Pia may approve, but not what she prepared; and no one releases unnamed rows, or rows the page did not show."""
    assert "another person" in release(house, held, "pia", 403)
    assert "To release held payments, you need the role approve" in release(house, held, "maria", 403)
    assert "Release and send" not in house.page("pia", f"/files/{held}/release")
    for code, wrong, form in (
        (400, "Say who was called", {"reason": "  "}),
        (400, "Say who was called", {"reason": "called her"}),
        (400, "Name at least one", {"row": []}),
        (400, "Name at least one", {"row": ["1", "2"]}),
        (409, "Other rows are held now", {"seen": "2 5000"}),
        (401, "password", {"password": "wrong"}),
    ):
        assert wrong in release(house, held, code=code, **form)
    house.add("tara", "Tara Moss", "approve", limit_cents=29_99)
    assert "above your limit" in release(house, held, "tara", 403)
    house.work()
    assert house.arrived == {"A-1": 1, "A-2": 1} and house.events("released") == []


def test_held_rows_that_nobody_will_release_do_not_keep_a_file_in_the_list(house: House, held: str) -> None:
    """It stayed there for good: nothing refuses a held payment. The history says that it was not paid."""
    house.post("pia", f"/files/{held}/archive")
    page = house.page("daniel", f"/files/{held}/run")
    assert "archived it; 1 held payment, 30.00, not paid" in page
    release(house, held)
    house.work()
    assert house.arrived["A-3"] == 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_release_for_which_one_person_is_not_enough_waits_for_a_second(
    house: House, held: str, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a total of 25.00 two must sign; the page named the command line. The first one's signature sends nothing.

    A child that ends between the second signature and its use sends the row once when it is started again.
    """
    house.policy(second_above="25.00")
    release(house, held)
    house.work()
    assert house.arrived == {"A-1": 1, "A-2": 1} and house.events("released") == []
    page = house.page("daniel", f"/files/{held}/run")
    assert "1 more person must sign this release" in page and "1 payment, 30.00, waits for a person’s word" in page
    own, other = (house.page(name, f"/files/{held}/release") for name in ("daniel", "dora"))
    assert "Daniel Osei signed the release of line 3: 1 payment, 30.00" in own and "Sign as well" not in own
    assert NOTE in other and "Sign as well, and send them" in other
    assert "To approve 1 waiting for you" in other and "waiting for you" not in own
    announced = house.page("dora", "/to-approve")
    assert "Daniel Osei signed the release of 1 held payment, 30.00, of pay.csv" in announced
    assert "Nothing is waiting" in house.page("daniel", "/to-approve")
    release(house, held)
    house.work()
    assert house.events("released") == [], "the first person a second time is no second person"
    release(house, held, "dora", 409, seen="1 3001")
    release(house, held, "pia", 403)
    release(house, held, "dora", 401, password="wrong")
    release(house, held, "dora")
    if is_killed:
        with monkeypatch.context() as patch:
            patch.setattr(run_job, "_batch_of", lambda *_: sys.exit(1))
            with pytest.raises(SystemExit):
                house.work()
        assert house.events("released") == []
    house.work()
    assert house.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}
    (event,) = house.events("released")
    (*_, plan) = house.events("plan used")
    assert event["why"] == NOTE and {one["who"] for one in plan["approvals"]} == {"daniel (web)", "dora (web)"}
    assert "signed the release" not in house.page("dora", f"/files/{held}/release")


def test_a_second_person_who_names_other_rows_begins_a_release_of_their_own(house: House, held: str) -> None:
    """What one person signed is not used for what another one says of the rows."""
    house.policy(second_above="25.00")
    release(house, held)
    house.work()
    release(house, held, "dora", reason="called Grace at the number that we had")
    house.work()
    assert house.arrived == {"A-1": 1, "A-2": 1} and house.events("released") == []
    assert "Dora Weiss signed the release" in house.page("daniel", f"/files/{held}/release")


def test_a_child_that_is_started_again_continues_a_release(
    house: House, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one signed and registered the row, and ended before it was sent."""

    def ends(*_: object) -> None:
        raise SystemExit(1)

    release(house, held)
    with monkeypatch.context() as patch:
        patch.setattr("batchpay.workflows.run.run_batch", ends)
        with pytest.raises(SystemExit):
            house.work()
    assert len(house.events("released")) == 1 and house.arrived.total() == 2
    house.work()
    assert len(house.events("released")) == 1 and house.arrived["A-3"] == 1


def test_a_release_counts_in_the_day_of_a_limit(house: House) -> None:
    """Somebody who may approve 35.00 a day approved 10.00 and released 30.00: only each by itself was compared."""
    house.policy(hold=["achAccountNumber.changed_account"])
    house.sent(GRACE)
    house.add("tara", "Tara Moss", "approve", limit_cents=35_00)
    held = house.sent(OTHER, CHANGED, partial="yes")
    small = GRACE | {"paymentId": "P-4", "invoiceNumber": "A-4"}
    house.approve(house.ask(small), by="tara")
    said = "40.00 of credits with what you approved in the last 24 hours is above your limit of 35.00"
    assert said in release(house, held, "tara", 403)
    with house.store.write() as db:
        db.execute("UPDATE decision SET at = at - 86401")
    release(house, held, "tara")
    more = house.ask(small | {"paymentId": "P-5", "invoiceNumber": "A-5"})
    assert said in words_of(house.approve(more, by="tara", code=403))


@pytest.mark.parametrize("edit", ["seal", "who", "file"])
def test_only_who_proved_it_on_the_page_has_released(house: House, held: str, edit: str) -> None:
    """The rows stood in web.db in clear: whoever could write it released a payment in an approver's name."""
    house.add("tara", "Tara Moss", "approve", limit_cents=1_000_00)
    more = house.ask(GRACE | {"paymentId": "P-4", "invoiceNumber": "A-4"})
    release(house, held)
    with house.store.write() as db:
        if edit == "seal":
            db.execute("UPDATE decision SET seal = upper(replace(seal, 'a', 'b')) WHERE what = 'released'")
        elif edit == "who":
            db.execute("UPDATE decision SET who = 'tara' WHERE what = 'released'")
            db.execute("UPDATE job SET made_by = 'tara' WHERE kind = 'release'")
        else:
            db.execute("UPDATE decision SET file = ?, who = 'tara' WHERE what = 'released'", (more,))
    house.work()
    assert house.arrived == {"A-1": 1, "A-2": 1} and house.events("released") == []
    assert "was changed in web.db" in house.page("daniel", f"/files/{held}/run")
    if edit != "seal":
        assert "what tara signed was changed in web.db" in house.page("tara", f"/files/{more}/approve")
