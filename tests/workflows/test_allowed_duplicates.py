"""Bills that a person lets through twice are counted, named and kept with the batch."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace

import pytest

from batchpay.errors import WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.payment import Totals
from batchpay.settings import PolicySettings
from tests.workflows.desk import Desk

BILLS = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2)]


def test_what_was_let_through_is_counted_and_named(desk: Desk) -> None:
    """Each with the row and batch that it repeats; without the option they are not sent, with a line for the batch."""
    first = desk.submit(desk.file("may.csv", *BILLS))
    path = desk.file("june.csv", {"invoiceNumber": "A-9", "amount": "1.00"}, *BILLS)
    preview = desk.dry_run(path)
    assert (preview.proposal.to_send.total.rows, preview.summary.exit_code) == (1, 3)
    assert preview.proposal.rejected == Totals(2, 30_00)
    assert any(
        note.startswith("2 of 3 rows") and f"the same bills as batch {first.batch}" in note
        for note in preview.summary.notes
    )
    paid = desk.submit(path, allow_duplicates=True)
    assert (paid.exit_code, desk.arrived) == (0, {"A-1": 2, "A-2": 2, "A-9": 1})
    named = [{"row": row, "batch": first.batch, "earlier_row": row - 1} for row in (2, 3)]
    allowed = paid.allowed_duplicates
    assert (allowed["rows"], allowed["amount"], allowed["list"]) == (2, "30.00", named)
    assert any(
        note.startswith("duplicates that were allowed: 2 rows") and f"line 3 (line 2 of batch {first.batch})" in note
        for note in paid.notes
    )


def test_what_a_release_let_through_is_reported_and_is_in_its_event(desk: Desk) -> None:
    """An auditor asks who paid these bills twice: the screen showed it once, the JSON and the ledger not at all."""
    first = desk.submit(desk.file("may.csv", *BILLS))
    path = desk.file("june.csv", *BILLS, {"invoiceNumber": "A-9", "amount": "1.00"})
    assert desk.submit(path).exit_code == 3
    paid = desk.submit(path, release="both months are owed", allow_duplicates=True)
    named = [{"row": row, "batch": first.batch, "earlier_row": row} for row in (1, 2)]
    told = {"rows": 2, "amount": "30.00", "list": named, "reason": "both months are owed"}
    assert (desk.arrived, paid.allowed_duplicates) == ({"A-1": 2, "A-2": 2, "A-9": 1}, told)
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        (event,) = [one for one in ledger.events() if one.kind == "released"]
    detail = json.loads(event.detail)
    assert (detail["pending"], detail["allowed_duplicates"]) == ("1-2", told)


@pytest.mark.parametrize(
    "again", ["owed to 648443924 again", "account 648-443 924", "648443924", "invoice 17 648443924"]
)
def test_a_reason_with_an_account_number_of_the_file_is_refused(desk: Desk, again: str) -> None:
    """It stood in the ledger's history and in every report, where no purge erases it."""
    path = desk.file("may.csv", *BILLS)
    desk.submit(path)
    refused = "^the reason contains the account number of line 2; write its last four digits only$"
    with pytest.raises(WrongUse, match=refused):
        desk.submit(path, again=again)
    with pytest.raises(WrongUse, match=refused):
        desk.dry_run(path, again=again, with_plan=True)
    assert desk.submit(path, again="account ending in 3924, ticket 1648443924").exit_code == 0
    assert desk.arrived == {"A-1": 2, "A-2": 2}


def test_a_bill_that_is_there_twice_and_was_paid_before_is_counted_once(desk: Desk) -> None:
    """The control total of what was let through is the money that moves again, not the number of reasons."""
    desk.submit(desk.file("may.csv", BILLS[0]))
    paid = desk.submit(desk.file("june.csv", *2 * BILLS[:1]), allow_duplicates=True)
    allowed = paid.allowed_duplicates
    assert (allowed["rows"], allowed["amount"], len(allowed["list"]), desk.arrived) == (2, "20.00", 2, {"A-1": 3})
    (note,) = [one for one in paid.notes if one.startswith("duplicates that were allowed: 2 rows, 20.00: ")]
    assert (note.count("line 2 ("), note.count("line 3 ("), "more" in note) == (1, 1, False)


def test_a_bill_that_is_kept_back_for_another_reason_was_not_let_through(desk: Desk) -> None:
    """Page, note and the ledger's record counted it, with its amount, though its paymentId was used before."""
    desk.submit(desk.file("may.csv", {"paymentId": "P", "invoiceNumber": "A-9", "amount": "1.00"}))
    path = desk.file("june.csv", BILLS[0], BILLS[1], BILLS[1] | {"paymentId": "p"}, BILLS[0])
    for found in (desk.dry_run(path, allow_duplicates=True).summary, desk.submit(path, allow_duplicates=True)):
        assert [one for one in found.notes if "were allowed" in one] == [
            "duplicates that were allowed: 1 row, 10.00: line 5 (line 2 of this file)"
        ]
        allowed = found.allowed_duplicates
        assert (allowed["rows"], allowed["amount"]) == (1, "10.00")
        assert allowed["list"] == [{"row": 4, "batch": None, "earlier_row": 1}]
    assert desk.arrived == {"A-9": 1, "A-1": 2, "A-2": 1}


def test_a_bill_that_was_rejected_before_is_let_through_only_where_it_is_released(desk: Desk) -> None:
    """The dry run told of 10.00 that were allowed, on a page with nothing to send."""
    desk.submit(desk.file("may.csv", BILLS[0]))
    path = desk.file("june.csv", BILLS[0], BILLS[1])
    desk.submit(path)
    for release, rows in ((None, 0), ("both are due", 1)):
        preview = desk.dry_run(path, allow_duplicates=True, release=release)
        assert preview.summary.allowed_duplicates["rows"] == preview.proposal.to_send.total.rows == rows
        assert sum("were allowed" in note for note in preview.proposal.notes) == rows


def test_of_many_duplicates_the_first_are_named_and_the_rest_counted(desk: Desk) -> None:
    """Whoever reads the note about a payroll that was paid twice knows how many there were, not only three."""
    bills = [{"invoiceNumber": f"A-{number}", "amount": "1.00"} for number in range(1, 6)]
    desk.submit(desk.file("may.csv", *bills))
    path = desk.file("june.csv", {"invoiceNumber": "A-9", "amount": "1.00"}, *bills)
    (note,) = [one for one in desk.dry_run(path, allow_duplicates=True).summary.notes if "were allowed" in one]
    assert note.startswith("duplicates that were allowed: 5 rows, 5.00: line 3 (line 2 of batch ")
    assert note.endswith(") and 2 more")
    assert note.count(" of batch ") == 3


def test_a_bill_that_recurs_under_another_id_is_paid_and_reported(desk: Desk) -> None:
    """Rents and salaries repeat after `duplicate_days`: not duplicates, and a person reads where the last one was.

    To decide on each one, have warnings rejected; those who have only such bills switch the rule off.
    """
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, duplicate_days=0))
    first = desk.submit(desk.file("may.csv", BILLS[0] | {"paymentId": "MAY"}))
    path = desk.file("june.csv", BILLS[1], BILLS[0] | {"paymentId": "JUNE"})
    preview = desk.dry_run(path)
    (told,) = preview.variances
    assert (told.row, told.column, told.code) == (2, "row", "same_payment")
    assert re.match(rf"is the same bill as line 2 of batch {first.batch} of [0-9]+/[0-9]+/20[0-9]+ ", told.message)
    (named,) = preview.verdict.warning_failures
    assert (named.line, named.name, named.message) == (3, "row.same_payment", told.message)
    assert (preview.verdict.warning_counts, preview.summary.notes) == ({"row.same_payment": 1}, [])
    assert (preview.proposal.to_send.total.rows, preview.proposal.rejected) == (2, Totals())
    strict = desk.dry_run(path, warnings_as_errors=True)
    assert (strict.proposal.to_send.total.rows, strict.proposal.rejected) == (1, Totals(1, 10_00))
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, rules_off=["row.same_payment"]))
    assert desk.dry_run(path).variances == []
    assert desk.submit(path).exit_code == 0
    assert desk.arrived == {"A-1": 2, "A-2": 1}


@pytest.mark.parametrize("mine", ["", "JUNE"])
@pytest.mark.parametrize("first", ["", "MAY"])
def test_what_the_message_advises_sends_the_row(desk: Desk, first: str, mine: str) -> None:
    """It said "give it a paymentId" for rows that had one, and for rows whose earlier one had none: rejected again."""
    desk.submit(desk.file("may.csv", BILLS[0] | {"paymentId": first}))
    bill = BILLS[0] | {"paymentId": mine, "billingFirstName": "Anne"}
    (told,) = desk.dry_run(desk.file("june.csv", bill)).verdict.failures
    advice = "if it is due again, give it an invoice number of its own, or submit it with "
    assert told.message.endswith(f"{advice}--allow-duplicates --reason TEXT")
    assert (
        desk.submit(desk.file("own.csv", bill | {"paymentId": mine and "OWN", "invoiceNumber": "B-1"})).exit_code == 0
    )
    assert desk.submit(desk.file("june.csv", bill), allow_duplicates=True).exit_code == 0


def test_what_the_message_about_a_used_payment_id_advises_sends_the_row(desk: Desk) -> None:
    """A new paymentId alone made it the same bill under another id."""
    desk.submit(desk.file("may.csv", BILLS[0] | {"paymentId": "P"}))
    (told,) = desk.dry_run(desk.file("june.csv", BILLS[0] | {"paymentId": "p"})).verdict.failures
    assert told.message.endswith("if it is due again, give it a paymentId and an invoice number of its own")
    own = {"paymentId": "Q", "invoiceNumber": "A-1-June"}
    assert desk.submit(desk.file("june.csv", BILLS[0] | own)).exit_code == 0


def test_the_second_of_two_bills_in_a_file_is_sent_as_advised_after_the_first(desk: Desk) -> None:
    """It said "give each a paymentId", and the first was sent by then: so corrected, the row was rejected again."""
    path = desk.file("may.csv", BILLS[0], BILLS[0])
    assert desk.submit(path).exit_code == 3
    (told,) = desk.verdict.failures
    advice = "if both are due give it an invoice number of its own, or submit it with "
    assert told.message.endswith(f"{advice}--allow-duplicates --reason TEXT")
    assert desk.submit(desk.file("own.csv", BILLS[0] | {"invoiceNumber": "A-1-b"})).exit_code == 0
    assert desk.submit(path.with_suffix(".rejects.csv"), allow_duplicates=True).exit_code == 0
    assert desk.arrived == {"A-1": 2, "A-1-b": 1}


def test_the_note_on_a_release_names_the_options_without_which_nothing_is_released(desk: Desk) -> None:
    """`submit --release --reason TEXT` did not send what --allow-duplicates had made valid."""
    desk.submit(desk.file("may.csv", BILLS[0]))
    path = desk.file("june.csv", BILLS[1], BILLS[0])
    desk.submit(path)
    (note,) = [one for one in desk.dry_run(path, allow_duplicates=True).summary.notes if "rules now" in one]
    assert ": submit --release --allow-duplicates --reason TEXT would check them again" in note
    assert desk.submit(path, release="as it says").released == Totals()
    assert desk.submit(path, release="as it says", allow_duplicates=True).released == Totals(1, 10_00)
