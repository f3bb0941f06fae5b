"""What would be sent, counted chunk by chunk."""

from __future__ import annotations

from datetime import date
from typing import Any

import polars as pl
import pytest

from batchpay.approval import cash_flow
from batchpay.approval.cash_flow import AllNew, ToSendCount, grouped, with_cents
from batchpay.approval.proposal import SendReason, ToSend
from batchpay.errors import BatchpayError
from batchpay.payment import Totals
from batchpay.schemas.columns import RECURRENCE

Row = tuple[int, str, str, str]


def frame(*rows: Row) -> pl.DataFrame:
    schema = {"_row": pl.UInt32, "gatewayId": pl.String, "transactionType": pl.String, "amount": pl.String}
    once = [pl.lit(None, pl.String).alias(name) for name in ("recurringIndicator", *RECURRENCE)]
    return with_cents(pl.DataFrame(list(rows), schema=schema, orient="row")).with_columns(once)


ONE = (1, "07", "DEBIT", "12.50")
TWO = (2, "7", "CREDIT", "0.07")
THREE = (3, "12", "CREDIT", "100.00")


def count(*parts: tuple[SendReason, pl.DataFrame], held_back: Totals | None = None) -> ToSend:
    counted = ToSendCount()
    for origin, rows in parts:
        counted.add(origin, grouped(rows))
        counted.note(origin, rows["_row"])
    counted.hold_back(held_back or Totals())
    return counted.finish()


def test_every_row_is_counted_once_and_what_is_held_back_is_in_no_sum() -> None:
    """Origins, directions and accounts give the same total; `07` and `7` are one account."""
    found = count((SendReason.PENDING, frame(ONE, TWO)), (SendReason.RELEASED, frame(THREE)), held_back=Totals(1, 900))
    assert (found.new, found.pending, found.released) == (Totals(), Totals(2, 1_257), Totals(1, 10_000))
    assert found.held_back == Totals(1, 900)
    assert found.total == Totals(3, 11_257)
    assert found.by_direction == {"DEBIT": Totals(1, 1_250), "CREDIT": Totals(2, 10_007)}
    assert found.released_by_direction == {"CREDIT": Totals(1, 10_000)}
    assert found.by_account == {"7": Totals(2, 1_257), "12": Totals(1, 10_000)}


def test_the_size_of_the_chunks_does_not_matter() -> None:
    """The same rows are the same to send, however they were read."""
    whole = count((SendReason.NEW, frame(ONE, TWO, THREE)))
    parts = count(*((SendReason.NEW, frame(row)) for row in (ONE, TWO, THREE)))
    assert parts == whole


def test_new_rows_are_counted_as_any_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The approver's figures and rows are those of the submission. What waits to be counted does not pile up."""
    monkeypatch.setattr(cash_flow, "_GROUPS_AT_ONCE", 3)
    new = AllNew(date(2026, 11, 23))
    for row in (ONE, TWO, THREE):
        assert new._waiting_groups < 3
        new.add(frame(row))
    assert new._waiting == []
    found, _ = new.finish(frame(ONE, TWO, THREE)["_row"])
    assert found == count((SendReason.NEW, frame(ONE, TWO, THREE)))


def test_rows_that_are_taken_out_leave_nothing_behind() -> None:
    """A row may turn out to stand twice after it was counted: no account and no direction is named for it any more."""
    counted = ToSendCount()
    counted.add(SendReason.NEW, grouped(frame(ONE, TWO, THREE)))
    counted.add(SendReason.NEW, grouped(frame(ONE, THREE), times=-1))
    counted.note(SendReason.NEW, pl.Series([2], dtype=pl.UInt32))
    assert counted.finish() == count((SendReason.NEW, frame(TWO)))
    assert list(counted.finish().by_direction) == ["CREDIT"]


@pytest.mark.parametrize(
    "other",
    [
        [(SendReason.NEW, [ONE, (5, *TWO[1:])])],
        [(SendReason.NEW, [ONE]), (SendReason.RELEASED, [TWO])],
        [(SendReason.PENDING, [ONE, TWO])],
    ],
    ids=["another row of the same amount", "one of them released", "registered meanwhile"],
)
def test_other_rows_of_equal_totals_are_told_apart(other: list[tuple[SendReason, list[Row]]]) -> None:
    """Equal sums are not enough: which rows go, and why, is part of what was approved."""
    first = count((SendReason.NEW, frame(ONE, TWO)))
    second = count(*((origin, frame(*rows)) for origin, rows in other))
    assert first.total == second.total
    assert first.rows_digest != second.rows_digest


@pytest.mark.parametrize("name", ["by_direction", "by_account"])
@pytest.mark.parametrize("totals", [Totals(1, 99), Totals(2, 100), Totals()])
def test_figures_that_do_not_add_up_are_refused(name: str, totals: Totals) -> None:
    """A page whose parts are not its whole is never shown."""
    right: dict[str, Any] = {"by_direction": {"DEBIT": Totals(1, 100)}, "by_account": {"7": Totals(1, 100)}}
    ToSend(new=Totals(1, 100), **right)
    with pytest.raises(BatchpayError, match="would be sent"):
        ToSend(new=Totals(1, 100), **(right | {name: {"7": totals}}))
