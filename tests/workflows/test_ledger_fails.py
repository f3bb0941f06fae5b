"""A ledger that fails: before anything was sent the call says so; after that it reports the state of the batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.payment import State
from batchpay.sending.sender import Sender
from batchpay.workflows import run, status
from tests.workflows.desk import Desk

ONE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}


def failing() -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise LedgerNotUsable("the disk is full; nothing was sent")

    return fail


def test_before_anything_is_sent_it_is_an_error(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5 says that nothing was sent: that is true."""
    monkeypatch.setattr(run, "find_held_back", failing())
    with pytest.raises(LedgerNotUsable, match="the disk is full"):
        desk.submit(desk.file("may.csv", ONE))
    assert not desk.arrived


def test_once_rows_were_sent_it_stops_the_batch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5 would say that nothing was sent; the next run continues."""
    path = desk.file("may.csv", ONE)
    with monkeypatch.context() as patched:
        patched.setattr(Sender, "send_all", failing())
        stopped = desk.submit(path)
    assert (stopped.exit_code, stopped.stopped) == (
        6, "the disk is full; what the gateway answered last is merged by the next run",
    )  # fmt: skip
    assert desk.submit(path).exit_code == 0
    assert desk.arrived == {"A-1": 1}


def test_once_rows_were_sent_a_failed_check_for_other_doubts_hides_none_of_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was away for a moment at the end: exit code 5, no summary, and all rows had been sent."""
    path = desk.file("may.csv", ONE)
    with monkeypatch.context() as patched:
        patched.setattr(status, "in_doubt", failing())
        stopped = desk.submit(path)
    assert (desk.arrived, stopped.of(State.ACCEPTED).rows) == ({"A-1": 1}, 1)
    assert (stopped.exit_code, stopped.stopped) == (6, "other rows in doubt could not be checked: the disk is full")
    assert desk.submit(path).exit_code == 0


def test_a_log_that_can_not_list_doubts_ends_no_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, while the log is written."""
    with monkeypatch.context() as patched:
        patched.setattr(run, "_rows_in_doubt", lambda _, batch: batch.finished_at and failing()())
        done = desk.submit(desk.file("may.csv", ONE))
    assert (desk.arrived, done.exit_code) == ({"A-1": 1}, 0)
