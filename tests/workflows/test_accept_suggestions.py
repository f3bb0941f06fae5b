"""Certain corrections with one option, from the dry run through the plan to the ledger: one batch, with and without."""

from __future__ import annotations

from contextlib import closing

import pytest

from batchpay.errors import FileRefused
from batchpay.payment import State, Totals
from tests.workflows.desk import Desk
from tests.workflows.office import RELEASE, Office

ACCEPTED = frozenset({"amount.format"})


def test_a_plan_with_corrections_is_a_different_plan(office: Office) -> None:
    """The page lists them by rule, the plan is refused without them, and the ledger keeps old -> new."""
    path = office.file("10.00", "$20.00")
    plan = office.plan(path, accept_suggestions=ACCEPTED)
    preview = office.dry_run(path, accept_suggestions=ACCEPTED)
    page = preview.page()
    at = page.index("cells corrected as suggested (--accept-suggestions)")
    assert page[at + 1].split() == ["1", "amount.format"]
    assert preview.summary.seal != office.dry_run(path).summary.seal
    with pytest.raises(FileRefused, match=r"rules: accept_suggestions is none, approved was amount\.format"):
        office.submit(path, plan)
    office.submit(path, plan, accept_suggestions=ACCEPTED)
    assert office.received() == ["I-1", "I-2"]
    with closing(office.ledger()) as ledger:
        (batch,) = ledger.batches()
        assert batch.options["accepted_suggestions"] == {"amount.format": 1}
        told = [row.details.get("accepted_suggestions") for row in ledger.rows(batch.batch)]
    assert told == [None, "amount: $20.00 -> 20.00"]


def test_with_and_without_it_is_one_batch(office: Office) -> None:
    """What was rejected before stays rejected until a person releases it, with the cents that it was rejected with."""
    path = office.file("10.00", "$20.00")
    first = office.submit(path)
    assert first.of(State.REJECTED) == Totals(1, 2_000)
    again = office.submit(path, accept_suggestions=ACCEPTED)
    assert (again.batch, office.received()) == (first.batch, ["I-1"])
    released = office.submit(path, decisions=RELEASE, accept_suggestions=ACCEPTED)
    assert (released.batch, released.released, office.received()) == (first.batch, Totals(1, 2_000), ["I-1", "I-2"])


@pytest.mark.parametrize("accept", [None, "achRoutingNumber.format"])
def test_zeros_that_a_spreadsheet_dropped_are_reported_for_accounts_as_well(desk: Desk, accept: str | None) -> None:
    """In a CSV saved by a spreadsheet, routing numbers got their zero back, and accounts were paid without theirs."""
    plain = {"amount": "10.00", "invoiceNumber": "A"}
    cut = {**plain, "achRoutingNumber": "31100775", "invoiceNumber": "B"}
    path = desk.file("pay.csv", plain, cut, {**cut, "achRoutingNumber": "12345678"})
    whole = desk.file("whole.csv", {**plain, "achRoutingNumber": "031100775"})
    told = [desk.dry_run(file, accept_suggestions=accept).summary.notes for file in (path, whole)]
    (note,) = set(told[0]) - set(told[1])
    assert note.startswith(
        "in 1 row the routing number has lost its leading zero, as in a spreadsheet: account numbers"
    )
    assert "zero" not in " ".join(told[1])
