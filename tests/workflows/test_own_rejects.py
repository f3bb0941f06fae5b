"""Whose rejects lie at a path: those of another batch are never replaced, whatever their file is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import RunStopped
from batchpay.validation.verdict import Verdict
from batchpay.workflows.own_rejects import is_own_rejects
from tests.workflows.desk import Desk

REJECTS = "amount,_row,_errors\n1.0,3,amount: format\n"
RESULTS = "row,batch,state\n1,{},accepted\n"


@pytest.mark.parametrize(
    ("rejects", "results", "own"),
    [
        (REJECTS, "b1", True),
        (REJECTS, "b2", False),
        (REJECTS, None, False),
        ("amount,_row,_errors\n", "b2", True),
        ("amount,note\n1.00,mine\n", "b1", False),
        (None, "b1", False),
    ],
)
def test_the_results_beside_them_say_whose_they_are(
    tmp_path: Path, rejects: str | None, results: str | None, own: bool
) -> None:
    """A header alone is nobody's; a file that is no rejects file, or can't be read, is somebody's."""
    path, beside = tmp_path / "may.rejects.csv", tmp_path / "may.results.csv"
    if rejects is not None:
        path.write_text(rejects)
    if results is not None:
        beside.write_text(RESULTS.format(results))
    assert is_own_rejects(path, 1, beside, "b1") is own
    assert not is_own_rejects(path, 1, beside, None) or rejects == "amount,_row,_errors\n"


@pytest.mark.parametrize(("results", "own"), [("b1", False), ("", True), (None, True)])
def test_a_check_replaces_only_what_a_check_wrote(tmp_path: Path, results: str | None, own: bool) -> None:
    """It knows no batch; results beside the rejects tell that a submission wrote them."""
    path = tmp_path / "may.rejects.csv"
    path.write_text(REJECTS)
    if results is not None:
        (tmp_path / "may.results.csv").write_text(RESULTS.format(results) if results else "")
    assert is_own_rejects(path, 1, None, None) is own


ROWS = [
    {"invoiceNumber": "A-9", "amount": "150.00"},
    {"invoiceNumber": "A-1", "amount": "10.00"},
    {"invoiceNumber": "A-7", "amount": "7.0.0"},
]


@pytest.fixture
def june(desk: Desk) -> Path:
    """A file of June: one row was paid and is above the limit by now, one is a duplicate, one was always wrong."""
    desk.submit(desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"}))
    path = desk.file("june.csv", *ROWS)
    assert desk.submit(path).exit_code == 3
    desk.limit("100.00")
    return path


def test_what_was_paid_does_not_come_back_and_all_else_does(desk: Desk, june: Path) -> None:
    """The duplicate, which is found late, and the wrong amount are rows to correct; the payment is none."""
    rejects = june.with_suffix(".rejects.csv")
    before = rejects.read_text()
    assert ("A-9," in before, "A-1," in before, "A-7," in before) == (False, True, True)
    again = desk.submit(june)
    assert (again.exit_code, desk.arrived) == (3, {"A-1": 1, "A-9": 1})
    assert rejects.read_text() == before


def test_where_rows_came_back_is_told_and_only_where_some_did(desk: Desk) -> None:
    """One row of a known batch, its first, is one to correct; of one that is all paid there is no file to look at."""
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "7.0.0"}, {"invoiceNumber": "A-2", "amount": "1.00"})
    rejects = str(path.with_suffix(".rejects.csv"))
    assert [desk.submit(path).rejects for _ in range(2)] == [rejects, rejects]
    paid = desk.file("june.csv", {"invoiceNumber": "A-3", "amount": "500.00"})
    desk.limit("100.00")
    assert desk.submit(paid).rejects == str(paid.with_suffix(".rejects.csv"))
    desk.limit("")
    assert [desk.submit(paid, release="the board agreed").rejects for _ in range(2)] == [None, None]
    assert len(paid.with_suffix(".rejects.csv").read_text().splitlines()) == 1, "a header alone"


def test_rejects_that_could_not_be_written_anew_leave_nothing(
    desk: Desk, june: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle: the earlier rejects stand, and no half file lies beside them."""
    before = {path.name: path.read_bytes() for path in desk.folder.iterdir() if path.is_file()}

    def stop(*_: object) -> None:
        raise RunStopped("stopped")

    monkeypatch.setattr(Verdict, "leave_out", stop)
    with pytest.raises(RunStopped):
        desk.submit(june)
    assert {path.name: path.read_bytes() for path in desk.folder.iterdir() if path.is_file()} == before
