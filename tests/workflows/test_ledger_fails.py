"""A ledger that fails: before anything was sent the call says so; after it the call tells how the batch stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.workflows import run
from tests.workflows.desk import Desk

ONE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}


def failing() -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise LedgerNotUsable("the disk is full")

    return fail


def test_before_anything_is_sent_it_is_an_error(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5 says that nothing was sent: it holds."""
    monkeypatch.setattr(run, "find_held_back", failing())
    with pytest.raises(LedgerNotUsable, match="the disk is full"):
        desk.submit(desk.file("may.csv", ONE))
    assert not desk.arrived


def test_once_rows_were_sent_it_stops_the_batch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5 would say that nothing was sent; the next run goes on."""
    path = desk.file("may.csv", ONE)
    with monkeypatch.context() as patched:
        patched.setattr(run, "_send_pending", failing())
        stopped = desk.submit(path)
    assert (stopped.exit_code, stopped.stopped) == (
        6, "the disk is full; what the gateway answered last is merged by the next run",
    )  # fmt: skip
    assert desk.submit(path).exit_code == 0
    assert desk.arrived == {"A-1": 1}
