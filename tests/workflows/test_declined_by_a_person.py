"""A payment in doubt that one person calls declined is not paid a second time by that person alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from batchpay.settings import PolicySettings
from batchpay.workflows.reconcile import ReconcileRequest, reconcile
from batchpay.workflows.resolve import RowDecision, settle
from tests.workflows.desk import ACCEPTED, ANN, DECLINED, IN_DOUBT, Desk
from tests.workflows.test_settling import Person, Reader

pytestmark = pytest.mark.usefixtures("on_both")

ROWS = [
    {"paymentId": f"P-{number}", "invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (4, 1, 2, 3)
]
SEVENTH = {"paymentId": "P-7", "invoiceNumber": "A-7", "amount": "7.00"}
SAME = "row.same_payment"


@pytest.fixture
def batch(desk: Desk) -> str:
    """A batch of which two rows were made, their answers lost, one was declined by the gateway, and one accepted."""
    answers = {"A-1": IN_DOUBT, "A-2": IN_DOUBT, "A-3": DECLINED}
    desk.answer = lambda reference: answers.get(reference, ACCEPTED)
    found = str(desk.submit(desk.file("may.csv", *ROWS)).batch)
    desk.answer = lambda reference: ACCEPTED
    return found


def told(desk: Desk, *rows: dict[str, str], name: str = "june.csv", **options: Any) -> dict[int, str]:
    """Return what an approver would be told of a file's rows as the same payments."""
    found = desk.dry_run(desk.file(name, *rows), **options).verdict
    return {one.row: one.message for one in found.warning_failures if one.name == SAME}


def say_declined(desk: Desk, batch: str, row: int, reason: str = "not in the portal") -> None:
    settle(batch, [RowDecision(row, "declined")], Person(reason=reason), desk.settings, ANN)


def test_whoever_calls_a_payment_declined_does_not_pay_it_again_unseen(desk: Desk, batch: str) -> None:
    """It was made. One person said alone that it was declined, and the approver of the next file saw nothing odd.

    Under its paymentId, with other cells, or the bill under another one; what the gateway declined is corrected as it
    always was.
    """
    say_declined(desk, batch, 2, "Lee looked; 4 calls")
    ids = ({"paymentId": "P-1"}, {"paymentId": "p-1", "amount": "99.00", "invoiceNumber": "B"}, {"paymentId": "P-9"})
    today = f"{datetime.now().astimezone():%m/%d/%Y}"
    for one in ids:
        rows = [ROWS[3], ROWS[1] | one]
        assert told(desk, *rows) == {
            2: f"is the same payment as line 3 of batch {batch} of {today}, which was in doubt, and Kim (ann@desk-3)"
            f" recorded on {today} that it was declined (Lee looked, 4 calls): look it up at the gateway before it is"
            " paid again"
        }
    desk.settings = replace(desk.settings, policy=PolicySettings(hold=[SAME], variance=False))
    held = desk.submit(desk.file("june.csv", *rows))
    assert (held.exit_code, desk.arrived["A-1"], desk.arrived["A-3"]) == (7, 1, 2)
    (failed,) = desk.verdict.failures
    assert (failed.row, failed.name) == (2, SAME)


def test_what_an_export_says_is_told_with_its_name(desk: Desk, batch: str) -> None:
    """A file that a person brings is that person's word as well."""
    export = desk.folder / "portal.csv"
    today = datetime.now(UTC).date().isoformat()
    export.write_text(f"Transaction ID,Invoice Number,Amount,Date,Status\nTX-1,A-1,10.00,{today},Declined\n")
    reconcile(batch, ReconcileRequest(str(export), output=str(desk.folder / "out.csv")), desk.settings, ANN, Reader())
    (message,) = told(desk, ROWS[1], ROWS[3]).values()
    assert f"({Reader().sign().reason}, found in portal.csv)" in message


def test_a_later_word_of_the_gateway_hides_none_of_a_person(desk: Desk, batch: str) -> None:
    """Released, it was declined by the gateway itself, in a batch about which a person has said something, too."""
    say_declined(desk, batch, 2)
    desk.answer = lambda reference: DECLINED if reference == "A-1" else IN_DOUBT
    june = str(desk.submit(desk.file("june.csv", ROWS[1], SEVENTH)).batch)
    say_declined(desk, june, 2)
    found = told(desk, ROWS[1], ROWS[3], SEVENTH, name="july.csv")
    assert {row: f"of batch {one} of" in found[row] for row, one in ((1, batch), (3, june))} == {1: True, 3: True}
    desk.answer = lambda reference: ACCEPTED
    desk.submit(desk.file("again.csv", ROWS[1] | {"paymentId": "P-8"}))
    assert desk.dry_run(desk.file("sent.csv", ROWS[1] | {"paymentId": "P-8"}, SEVENTH)).verdict.counts == {
        "paymentId.duplicate": 1
    }


def test_the_second_of_a_file_is_told_when_it_is_released(desk: Desk) -> None:
    """It was rejected as the bill that is in doubt now: to call that declined, and release it, pays twice."""
    desk.submit(desk.file("april.csv", ROWS[0]))
    bill = {"invoiceNumber": "A-1", "amount": "10.00"}
    desk.answer = lambda reference: IN_DOUBT
    path = desk.file("may.csv", bill, bill)
    say_declined(desk, str(desk.submit(path).batch), 1)
    (message,) = told(desk, bill, bill, name="may.csv", release="it was declined", allow_duplicates=True).values()
    assert "as line 2 of batch" in message and "Kim" in message
