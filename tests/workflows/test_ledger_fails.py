"""A ledger that fails: before anything was sent the call says so; after that it reports the state of the batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.gateway.credentials import Credentials
from batchpay.payment import State
from batchpay.settings import Secret
from batchpay.summary import Summary
from batchpay.workflows import run, status, work
from batchpay.workflows.run import RunRequest
from tests.workflows.desk import ANN, Desk, Quiet

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
        patched.setattr(run, "_send_pending", failing())
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
        patched.setattr(run, "_log_doubts", failing())
        done = desk.submit(desk.file("may.csv", ONE))
    assert (desk.arrived, done.exit_code) == ({"A-1": 1}, 0)


def test_what_was_sent_of_one_batch_is_reported_if_the_ledger_is_lost_with_the_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that helped with two batches ended with 5, "nothing was sent", and said nothing of the first."""
    left = [desk.submit(desk.file("may.csv", ONE))]

    def help_or_fail(*_: object) -> Summary:
        if not left:
            raise LedgerNotUsable("the disk is full; nothing was sent")
        return left.pop()

    monkeypatch.setattr(work, "_at_work", lambda *_: ["one", "two"])
    monkeypatch.setattr(work, "help_with", help_or_fail)
    credentials = Credentials("desk", Secret("desk-key"))
    (told,) = work.work(None, RunRequest(None), desk.settings, credentials, ANN, Quiet())
    assert (told.exit_code, told.stopped) == (6, "the disk is full")
    with pytest.raises(LedgerNotUsable):
        work.work(None, RunRequest(None), desk.settings, credentials, ANN, Quiet())
