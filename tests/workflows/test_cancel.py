"""Cancel: pending rows that must not be sent, on a named person's word; a release reverts it."""

from __future__ import annotations

from contextlib import closing

import pytest

from batchpay.errors import BatchHeld, WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.payment import State, Totals
from batchpay.workflows.resolve import Signature, cancel
from tests.workflows.desk import ANN, IN_DOUBT, Desk

KIM = Signature("Kim", "billed twice")
FILE = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2, 3)]


def waiting(desk: Desk) -> str:
    """A batch whose first row is in doubt and stopped the run: two rows wait."""
    desk.answer = lambda reference: IN_DOUBT
    return str(desk.submit(desk.file("may.csv", *FILE)).batch)


def test_cancelled_rows_are_not_sent_until_a_person_releases_them(desk: Desk) -> None:
    """By no call of resume or submit; what is not cancelled goes on, and another file may pay the bill."""
    batch = waiting(desk)
    done = cancel(batch, [2], KIM, desk.settings, ANN)
    assert (done.totals, done.summary.of(State.REJECTED)) == (Totals(1, 20_00), Totals(1, 20_00))
    del desk.answer
    assert desk.resume(batch).exit_code == 7
    assert desk.arrived == {"A-1": 1, "A-3": 1}
    again = desk.submit(desk.folder / "may.csv")
    assert (again.of(State.REJECTED).rows, desk.arrived["A-2"]) == (1, 0)
    assert "row.cancelled" in (desk.folder / "may.rejects.csv").read_text()
    assert desk.submit(desk.folder / "may.csv", release="it is owed after all").released == Totals(1, 20_00)
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_a_whole_batch_is_cancelled_but_for_what_may_have_been_paid(desk: Desk) -> None:
    """A row in doubt is no pending one: whether it was paid is not decided here. Done twice, nothing is left."""
    batch = waiting(desk)
    done = cancel(batch, None, KIM, desk.settings, ANN)
    assert (done.totals, done.summary.of(State.IN_DOUBT).rows) == (Totals(2, 50_00), 1)
    for rows, told in ((None, "has no pending rows"), ([1], "row 1 is not pending")):
        with pytest.raises(WrongUse, match=f"{told}.*; nothing was cancelled|{told}; nothing was cancelled"):
            cancel(batch, rows, KIM, desk.settings, ANN)
    other = desk.file("june.csv", FILE[1])
    del desk.answer
    desk.submit(other)
    assert desk.arrived == {"A-1": 1, "A-2": 1}


def test_nothing_is_cancelled_under_a_run_nor_with_an_account_number_for_a_reason(desk: Desk) -> None:
    """A row that is about to be sent must not be called cancelled; the ledger keeps the reason for good."""
    batch = waiting(desk)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        with ledger.lock(ledger.find(batch).digest), pytest.raises(BatchHeld):
            cancel(batch, None, KIM, desk.settings, ANN)
        with pytest.raises(WrongUse, match="the account number of row 2"):
            cancel(batch, None, Signature("Kim", "648443924 was closed"), desk.settings, ANN)
        assert ledger.find(batch).by_state[State.PENDING].rows == 2
