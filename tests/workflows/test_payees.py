"""Which payees a check of earlier payments calls new, if a content is paid again or was paid completely."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.sending.limits import Limits
from batchpay.settings import PolicySettings
from batchpay.workflows.run import RunRequest
from tests.workflows.desk import Desk

OLD = {"invoiceNumber": "A-1", "amount": "10.00", "achNameOnCheck": "Ann Lee"}
NEW = {"invoiceNumber": "A-2", "amount": "10.00", "achNameOnCheck": "Bob Roe", "achAccountNumber": "648443925"}
AGAIN = "the bank lost the first"


@pytest.fixture
def looking(desk: Desk) -> Desk:
    """A desk that has paid one payee before, and wants to be warned."""
    desk.settings = replace(desk.settings, policy=PolicySettings())
    desk.submit(desk.file("april.csv", OLD))
    return desk


def test_a_payee_of_the_first_payment_is_not_new_to_the_second(looking: Desk) -> None:
    """The page of --again told the approver that everyone in it was paid for the first time."""
    path = looking.file("may.csv", NEW)
    assert [one.code for one in looking.dry_run(path).variances] == ["new_payee"]
    looking.submit(path)
    preview = looking.dry_run(path, again=AGAIN)
    assert (preview.proposal.to_send.total.rows, preview.verdict.warning_counts) == (1, {})
    assert preview.unusual == ["compared with earlier payments: nothing unusual"]
    assert looking.submit(path, again=AGAIN).warnings == 0


def test_the_first_payment_alone_is_history_enough(desk: Desk) -> None:
    """The ledger holds only this file: paid again it was compared with nothing."""
    desk.settings = replace(desk.settings, policy=PolicySettings())
    path = desk.file("may.csv", NEW)
    desk.submit(path)
    assert desk.dry_run(path, again=AGAIN).compared


def test_a_payee_whose_first_payment_was_declined_is_still_new(looking: Desk) -> None:
    """Nothing was accepted, so nobody knows the payee yet."""
    looking.answer = lambda reference: Outcome(State.DECLINED, "no", Answer(200, "2", "Declined"), bytes_sent=900)
    path = looking.file("may.csv", NEW)
    looking.submit(path)
    assert [one.code for one in looking.dry_run(path, again=AGAIN).variances] == ["new_payee"]


def test_nothing_draws_a_warning_if_nothing_is_sent(looking: Desk) -> None:
    """A second run of a paid file said again to verify that its payees are real."""
    path = looking.file("may.csv", NEW)
    assert looking.submit(path).warnings == 1
    assert looking.submit(path).warnings == 0
    preview = looking.dry_run(path)
    assert (preview.summary.warnings, preview.variances, preview.unusual) == (0, [], [])


def test_rows_that_wait_draw_warnings_as_before(looking: Desk) -> None:
    """A batch that was stopped halfway: its own payments don't make its payees known."""
    path = looking.file("may.csv", NEW, NEW | {"invoiceNumber": "A-3"})
    looking.submit(path, run=RunRequest(None, Limits(0)))
    assert looking.dry_run(path).verdict.warning_counts == {"achNameOnCheck.new_payee": 2}


def test_what_all_new_payees_take_and_pay_is_told(looking: Desk) -> None:
    """They are not named: the approver reads their number and both sums."""
    path = looking.file("may.csv", NEW, NEW | {"invoiceNumber": "A-3", "transactionType": "DEBIT", "amount": "7.00"})
    assert looking.dry_run(path).unusual == ["new_payee: 1 DEBIT 7.00, 1 CREDIT 10.00"]
