"""A disk is full, or fails: this is said in words, and what was sent is not said to be unknown."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from polars.exceptions import PanicException

from batchpay.errors import CheckFailed, LedgerNotUsable, NotUsable, WrongUse
from batchpay.sending.limits import Limits
from batchpay.workflows import run
from batchpay.workflows.run import RunRequest
from tests.workflows.desk import Desk


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
@pytest.mark.parametrize(
    "fault",
    [NotUsable("full"), LedgerNotUsable("gone; nothing was sent"), WrongUse("no"), MemoryError(), PanicException("1")],
    ids=lambda fault: type(fault).__name__,
)
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
