"""A ledger that fails: before anything was sent the call says so; after that it reports the state of the batch.

A disk that is full or fails is named in words; an archive takes a file only when nothing in it waits to be sent.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from polars.exceptions import PanicException

from batchpay.errors import CheckFailed, LedgerNotUsable, NotUsable, WrongUse
from batchpay.ledger import open as door
from batchpay.ledger.records import LostWindow
from batchpay.payment import State, Totals
from batchpay.sending.limits import Limits
from batchpay.sending.sender import Sender
from batchpay.settings import LedgerSettings, Settings
from batchpay.summary import Summary
from batchpay.workflows import run, status
from batchpay.workflows import submit as archiving
from batchpay.workflows.health import HealthLimits, health
from batchpay.workflows.ledger_care import LedgerCheck, accept_ledger, back_up, check_ledger, make_ledger
from batchpay.workflows.run import RunRequest
from tests.support.ledger_factory import ledger_settings
from tests.workflows.desk import ANN, Desk

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


READ: Any = object()
STAYS = [State.PENDING, State.SENDING]


def summary_with(state: State) -> Summary:
    """Return the summary of a file of two rows, one of them accepted."""
    return Summary("pay.csv", Totals(2, 30), {State.ACCEPTED: Totals(1, 10)} | {state: Totals(1, 20)}, read=READ)


@pytest.mark.parametrize("state", [state for state in State if state is not State.ACCEPTED])
def test_what_waits_to_be_sent_stays(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with pending rows that was archived was never completely sent."""
    moved: list[tuple[object, ...]] = []

    def move(*asked: object) -> str:
        moved.append(asked)
        return "done/pay.csv"

    monkeypatch.setattr(archiving, "archive", move)
    summary = summary_with(state)
    archiving.archive_finished("pay.csv", "done", summary)
    assert moved == ([] if state in STAYS else [("pay.csv", "done", READ)])
    assert summary.notes == ([] if state in STAYS else ["archived as done/pay.csv"])


def test_a_file_that_can_not_be_moved_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file is there by now, the folder is full, or there is no file: the payments are made either way."""

    def refuse(*_: object) -> None:
        raise NotUsable("the folder is full")

    summary = summary_with(State.DECLINED)
    monkeypatch.setattr(archiving, "archive", lambda *_: None)
    archiving.archive_finished("pay.csv", "done", summary)
    assert summary.notes == ["pay.csv is not archived: the file there now is not the file that was read"]
    monkeypatch.setattr(archiving, "archive", refuse)
    archiving.archive_finished("pay.csv", "done", summary)
    assert summary.stopped == "the folder is full"
    summary.read, summary.stopped = None, None
    archiving.archive_finished("-", "done", summary)
    assert summary.stopped is None


def test_a_check_without_room_ends_with_what_is_missing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night of 5,000 rows on a full disk ended as an internal error, which tells nobody what to do."""
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"}, {"invoiceNumber": "A-2", "amount": "1"})
    with monkeypatch.context() as patched:
        patched.setattr(
            "batchpay.validation.duplicates.tempfile.TemporaryFile",
            lambda **_: Path("/dev/full").open("wb", 0),  # noqa: SIM115 - the check closes it
        )
        with pytest.raises(NotUsable, match="temporary files can't be written: No space left on device; nothing was"):
            desk.submit(path)
    assert (desk.events("registered"), desk.arrived) == ([], {})
    assert desk.submit(path).exit_code == 3


@pytest.mark.parametrize("place", ["workflows.file_check.RowCheck", "workflows.submit.payment_columns"])
@pytest.mark.parametrize("fault", [ZeroDivisionError, MemoryError, RecursionError, PanicException])
def test_whatever_ends_a_check_or_its_registration_is_of_that_file_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, place: str, fault: type[BaseException]
) -> None:
    """It ended the call as an internal error, with all files after it; a panic of polars is not even an Exception."""
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"})

    def fail(*_: object, **__: object) -> None:
        raise fault("10.00")

    with monkeypatch.context() as patched:
        patched.setattr(f"batchpay.{place}", fail)
        with pytest.raises(CheckFailed, match=rf"may\.csv: could not be checked.* {fault.__name__} at ") as told:
            desk.submit(path)
    assert "10.00" not in str(told.value)
    assert (desk.events("registered"), desk.arrived) == ([], {})
    assert desk.submit(path).exit_code == 0


def test_a_folder_that_fails_once_the_results_are_in_it_is_no_internal_error(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payments were made, and the call ended with 1 and without its summary: the folder could not be synced."""
    path, folder, real = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"}), tmp_path / "out", os.fsync
    folder.mkdir()
    request = RunRequest(results=folder / "may.results.csv")

    def fsync(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        told = desk.submit(path, run=request)
    assert (told.exit_code, desk.arrived) == (5, {"A-1": 1})
    assert "may.results.csv can't be written: Input/output error" in (told.stopped or "")
    assert desk.submit(path, run=request).exit_code == 0


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("fault", [
    NotUsable("full"), LedgerNotUsable("gone; nothing was sent"), WrongUse("no"), MemoryError(), PanicException("1"),
], ids=lambda fault: type(fault).__name__)  # fmt: skip
def test_whatever_keeps_results_from_being_written_has_one_code(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    """All was paid: it was code 6, which asks for more of the same, or 1, without a summary."""
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"}, {"invoiceNumber": "A-2", "amount": "9.00"})
    results = desk.folder / "may.results.csv"

    def fail(*_: object) -> None:
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(run, "write_results", fail)
        first = desk.submit(path, run=RunRequest(results, Limits(rows_max=1)))
        told = desk.submit(path, run=RunRequest(results))
    assert (first.exit_code, told.exit_code, told.results_missing) == (6, 5, True)
    start, *_, end = (told.stopped or "").split("; ")
    assert start == "everything was paid"
    assert end == f"run batchpay results {told.batch}"
    assert "nothing was sent" not in (told.stopped or "")


LOST: Any = object()


@pytest.fixture
def settings(tmp_path: Path) -> LedgerSettings:
    """A ledger that was just created."""
    found = ledger_settings(tmp_path)
    make_ledger(found, ANN, None)
    return found


def test_a_ledger_in_order_has_nothing_to_accept(settings: LedgerSettings) -> None:
    """A ledger in order is reported to be in order, and accepting anything needs a reason."""
    found = check_ledger(settings)
    assert (found.problems, found.accepting, found.lost, found.exit_code) == ([], [], None, 0)
    for reason in (None, " "):
        with pytest.raises(WrongUse, match="needs --reason"):
            accept_ledger(settings, reason, ANN, rows_in_doubt=True)


@pytest.mark.parametrize(("problems", "lost", "code"), [
    ([], None, 0), (["the ledger is damaged"], None, 5), (["the ledger is damaged"], LOST, 5), ([], LOST, 8),
])  # fmt: skip
def test_what_a_check_ends_with(problems: list[str], lost: Any, code: int) -> None:
    """Damage first, then what waits for a person."""
    assert LedgerCheck(problems, [], lost, []).exit_code == code


def test_a_ledger_that_can_not_be_written_is_still_copied(
    settings: LedgerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is needed most on a full disk; that the ledger could not record it is reported: health then alarms."""
    real = door.open_ledger

    def only_to_read(settings: LedgerSettings, **how: Any) -> Any:
        if not how.get("read_only"):
            raise LedgerNotUsable("the disk is full")
        return real(settings, **how)

    monkeypatch.setattr(door, "open_ledger", only_to_read)
    target, problem = back_up(settings, tmp_path / "copy.db", None, datetime.now(UTC), ANN)
    assert (target.is_file(), problem) == (True, "the disk is full")


def test_health_reports_that_a_restored_ledger_waits_for_a_person(
    settings: LedgerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first to find out is the person whose new file is refused at night."""
    lost = LostWindow(datetime(2026, 5, 4, 6, tzinfo=UTC), 7, 9)
    monkeypatch.setattr("batchpay.ledger.sqlite.ledger.SqliteLedger.lost_window", lambda _: lost)
    found = health(Settings(ledger=settings), HealthLimits(), datetime.now(UTC)).findings
    (told,) = [one for one in found if one.check == "restored"]
    assert (told.exit_code, str(lost) in told.message) == (8, True)
