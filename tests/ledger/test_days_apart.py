"""The same bill on other days: how far apart two payments must be sent, both ways, on every ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

import pytest

from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment, SamePayment
from tests.ledger.batches import ACCEPTED, columns, register, send

BILL, ANOTHER_ID = SamePayment.BILL, SamePayment.ANOTHER_ID


def found(
    ledger: Ledger, day: date | None, *, named: bool = False, invoiced: bool = False, days: int = 5, within: str = "",
    now: datetime | None = None,
) -> list[SamePayment]:  # fmt: skip
    """How a row like the first of the ledger, with a day of its own, is the same payment."""
    later = columns(ledger, [1], named=[1] if named else [], id_salt="x")
    pay_on: Sequence[int | None] = [None if day is None else day.toordinal()]
    lookup = Lookup([7], later.fingerprints, later.payment_ids, [invoiced], pay_on)
    asked = {"days": 0 if within else days, "apart": days, "within": within}
    return [one.same for one in ledger.earlier(lookup, Environment.TEST, now=now or ledger.now(), **asked)]  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["pending", "accepted"])
@pytest.mark.parametrize(
    ("earlier_in", "later_in", "is_same"),
    [(20, 24, True), (20, 25, False), (20, 16, True), (20, 15, False), (20, None, False), (4, None, True),
     (5, None, False), (20, 20, True), (-30, 1, False), (-30, -29, True)],
)  # fmt: skip
def test_days_are_counted_between_days_of_sending(
    ledger: Ledger, earlier_in: int, later_in: int | None, is_same: bool, state: str
) -> None:
    """A rent was scheduled for a Friday: the next Friday's is another one, Monday's is the same; before it as after it.

    A row without a day of its own is sent today. What was sent keeps its day, even if that was late.
    """
    today = ledger.today()
    first = register(ledger, columns(ledger, [1], pay_on={1: today + timedelta(days=earlier_in)}))
    if state == "accepted":
        send(ledger, first, {1: ACCEPTED})
    day = None if later_in is None else today + timedelta(days=later_in)
    waits = [ANOTHER_ID] if state == "pending" else []
    assert found(ledger, day) == ([BILL] if is_same else waits), "what waits for another day is told"
    assert found(ledger, day, days=0) == []


@pytest.mark.parametrize(("later_in", "is_same"), [(4, True), (5, False), (40, False), (-4, True)])
def test_what_was_sent_without_a_day_is_of_its_day_of_sending(ledger: Ledger, later_in: int, is_same: bool) -> None:
    """Salaries were paid today; next week's, on a day of their own, are others."""
    first = register(ledger, columns(ledger, [1]))
    assert found(ledger, ledger.today() + timedelta(days=later_in)) == [BILL], "it is not sent yet, and may be any day"
    send(ledger, first, {1: ACCEPTED})
    assert found(ledger, ledger.today() + timedelta(days=later_in)) == ([BILL] if is_same else [])


def test_ids_and_invoice_numbers_count_as_without_days(ledger: Ledger) -> None:
    """Under two paymentIds a far day is told; one invoice number is one bill, on whatever day."""
    friday = ledger.today() + timedelta(days=20)
    first = register(ledger, columns(ledger, [1], named=[1], pay_on={1: friday}))
    assert found(ledger, friday + timedelta(days=7), named=True) == [ANOTHER_ID]
    assert found(ledger, friday, named=True, invoiced=True) == [BILL]
    assert found(ledger, friday + timedelta(days=70), invoiced=True) == [BILL]
    assert BILL not in found(ledger, friday + timedelta(days=7), within=first), (
        "as rows of one file, their days tell them apart"
    )
    assert found(ledger, friday + timedelta(days=4), within=first, invoiced=True) == [BILL]
    assert found(ledger, None, within=first) == [BILL]
