"""Bills that a person lets through twice are counted, named and kept with the batch."""

from __future__ import annotations

from batchpay.payment import Totals
from tests.workflows.desk import Desk

BILLS = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2)]


def test_what_was_let_through_is_counted_and_named(desk: Desk) -> None:
    """Each with the row and batch that it repeats; without the option they stay, with a line for the batch."""
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


def test_a_bill_that_stands_twice_and_was_paid_before_is_counted_once(desk: Desk) -> None:
    """The control total of what was let through is the money that moves again, not the number of reasons."""
    desk.submit(desk.file("may.csv", BILLS[0]))
    paid = desk.submit(desk.file("june.csv", *2 * BILLS[:1]), allow_duplicates=True)
    allowed = paid.allowed_duplicates
    assert (allowed["rows"], allowed["amount"], len(allowed["list"]), desk.arrived) == (2, "20.00", 2, {"A-1": 3})
