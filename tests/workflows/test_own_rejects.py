"""Whose rejects are at a path: those of another batch are never replaced, whatever their file is called."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest
from openpyxl import Workbook, load_workbook

from batchpay.errors import RunStopped
from batchpay.intake.own_output import rows_of
from batchpay.payment import State
from batchpay.validation.verdict import Verdict
from batchpay.workflows.earlier_payments import is_of_no_submission
from tests.workflows.desk import COLUMNS, PLAIN, Desk


@pytest.mark.parametrize(("results", "rejects", "own"), [
    ("row,batch,state\n1,b1,accepted\n", "amount,_row,_errors\n1.0,3,amount: format\n", False),
    ("row,batch,state\n1,b1,accepted\n", "amount,_row,_errors\n", True),
    ("", "amount,_row,_errors\n1.0,3,amount: format\n", True),
    (None, "amount,_row,_errors\n1.0,3,amount: format\n", True), (None, "amount,note\n1.00,mine\n", False),
])  # fmt: skip
def test_a_check_replaces_only_what_a_check_wrote(tmp_path: Path, results: str | None, rejects: str, own: bool) -> None:
    """It knows no batch; results next to the rejects show that a submission wrote them."""
    path = tmp_path / "may.rejects.csv"
    path.write_text(rejects)
    if results is not None:
        (tmp_path / "may.results.csv").write_text(results)
    assert is_of_no_submission(path, 1) is own


def invoices(path: Path) -> set[str]:
    """Return whose rows a rejects file holds; none if there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {cells["invoiceNumber"] for cells in csv.DictReader(lines)}


def numbered_rejects(path: Path) -> list[str]:
    """Return the names of the rejects files next to a payment file, in order."""
    return sorted(one.name for one in path.parent.glob(f"{path.stem}.rejects*"))


def test_what_a_release_pays_needs_no_correction_though_all_was_rejected_first(desk: Desk) -> None:
    """The results were only a header and named no batch: the first rejects stayed, and were paid twice."""
    path = desk.file("may.csv", *({"invoiceNumber": f"B-{at}", "amount": f"{at}50.00"} for at in (1, 2, 3)))
    rejects = path.with_suffix(".rejects.csv")
    desk.limit("100.00")
    desk.submit(path)
    assert invoices(rejects) == {"B-1", "B-2", "B-3"}
    desk.limit("300.00")
    assert desk.submit(path, release="the board agreed").rejects == str(rejects)
    assert (desk.arrived, invoices(rejects)) == ({"B-1": 1, "B-2": 1}, {"B-3"})
    desk.limit("")
    assert desk.submit(path, release="the board agreed to the rest").rejects is None
    assert (invoices(rejects), numbered_rejects(path)) == (set(), ["may.rejects.csv"])


def test_yesterdays_rejects_are_still_in_a_file(desk: Desk) -> None:
    """All of yesterday's were rejected; today's file of the same name, run twice, replaced its rejects."""
    path = desk.file("day.csv", {"invoiceNumber": "C-1", "amount": "9.5.0"})
    rejects, second = path.with_suffix(".rejects.csv"), path.with_name("day.rejects-2.csv")
    desk.submit(path)
    desk.file("day.csv", {"invoiceNumber": "C-2", "amount": "9.50"}, {"invoiceNumber": "C-3", "amount": "1.5.0"})
    for limit, notes in (("", 0), ("", 1), ("5.00", 1), ("5.00", 1)):  # a new batch is told of nothing
        desk.limit(limit)
        summary = desk.submit(path)
        assert (summary.rejects, sum("was left as is" in note for note in summary.notes)) == (str(second), notes)
        assert (invoices(rejects), invoices(second)) == ({"C-1"}, {"C-3"})
    assert numbered_rejects(path) == ["day.rejects-2.csv", "day.rejects.csv"]


def test_two_files_given_one_rejects_name_keep_their_rejects(desk: Desk) -> None:
    """With --rejects the results are elsewhere, and did not show whose rejects are there."""
    told = desk.folder / "bad.csv"
    first, second = (
        desk.file(name, {"invoiceNumber": f"{name}-1", "amount": "1.00"}, {"invoiceNumber": f"{name}-2", "amount": "x"})
        for name in ("a.csv", "b.csv")
    )
    placed = [desk.submit(path, rejects=told).rejects for path in (first, second, second, first, second)]
    assert placed == [str(told if at in (0, 3) else told.with_name("bad-2.csv")) for at in range(5)]
    assert (invoices(told), invoices(told.with_name("bad-2.csv"))) == ({"a.csv-2"}, {"b.csv-2"})


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".xlsx", ".parquet"])
def test_corrections_in_the_rejects_are_not_overwritten(desk: Desk, ending: str) -> None:
    """With a run every night, our own are rewritten in place; what someone corrected stays and is reported."""
    path = desk.file(
        "may.csv",
        {"invoiceNumber": "D-1", "amount": "150.00"},
        {"invoiceNumber": "D-2", "amount": "9.5"},
        {"invoiceNumber": "D-3", "amount": "9.50"},
        {"invoiceNumber": "D-4", "amount": "9.50"},
    )
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3] + ",over,", lines[4].removesuffix(",")]) + "\n")
    rejects, second = path.with_suffix(f".rejects{ending}"), path.with_name(f"may.rejects-2{ending}")
    for limit in ("100.00", "120.00", "120.00"):  # in different words each time
        desk.limit(limit)
        summary = desk.submit(path, rejects=rejects)
        (note,) = summary.notes
        assert (summary.rejects, "where the cells end" in note, second.exists()) == (str(rejects), True, False)

    corrected = correct(rejects)
    for limit in ("110.00", "105.00"):
        desk.limit(limit)
        summary = desk.submit(path, rejects=rejects)
        assert (summary.rejects, rejects.read_bytes() == corrected) == (str(second), True)
        assert [f"{rejects} was left as is" in note for note in summary.notes] == [False, True]
    desk.limit("")
    summary = desk.submit(path, release="the board agreed", rejects=rejects)
    assert (desk.arrived["D-1"], summary.rejects, rejects.read_bytes() == corrected) == (1, str(second), True)
    assert "may already be paid" in summary.notes[-1]
    assert "D-1" not in {str(row[6]) for row in rows_of(second)}
    assert len(list(path.parent.glob("may.rejects*"))) == 2

    rejects.unlink()  # submitted and archived: the own ones are found where they are
    assert desk.submit(path, rejects=rejects).rejects == str(second)
    assert not rejects.exists()


@pytest.mark.parametrize("account", [1234567890123450, 12345678901234500], ids=["16 digits", "17 digits"])
def test_an_account_that_lost_digits_is_not_paid_by_its_rejects(desk: Desk, account: int) -> None:
    """The rejects had it as a text of sixteen digits: with another row corrected in them, a stranger was paid."""
    wrong = {"invoiceNumber": "L-1", "amount": "1.00", "achAccountNumber": account}
    other = {"invoiceNumber": "L-2", "amount": "2.00", "transactionType": "credit"}
    path, rejects, book = desk.folder / "may.xlsx", desk.folder / "may.rejects.xlsx", Workbook()
    for row in (dict(zip(COLUMNS, COLUMNS, strict=True)), wrong, other):
        book.worksheets[0].append([(PLAIN | row).get(column) for column in COLUMNS])
    book.save(path)
    assert desk.submit(path, rejects=rejects).of(State.REJECTED).rows == 2
    book = load_workbook(rejects)
    (cell,) = (cell for row in book["rejects"].iter_rows() for cell in row if cell.value == "credit")
    cell.value = "CREDIT"
    book.save(rejects)
    assert desk.submit(rejects, rejects=desk.folder / "again.xlsx").of(State.REJECTED).rows == 1
    assert desk.arrived == {"L-2": 1}


def correct(rejects: Path) -> bytes:
    """Correct an invalid amount by typing its cents; return the file's content after that."""
    if rejects.suffix == ".xlsx":
        book = load_workbook(rejects)
        (wrong,) = (cell for row in book["rejects"].iter_rows() for cell in row if cell.value == "9.5")
        wrong.value, wrong.number_format = 9.5, "0.00"
        book.save(rejects)
    elif rejects.suffix == ".parquet":
        table = pl.read_parquet(rejects)
        table.with_columns(pl.col("amount").replace("9.5", "9.50")).write_parquet(rejects)
    else:
        text = rejects.read_text()
        corrected = text.replace("FALSE,9.5,", "FALSE,9.50,")
        assert corrected != text
        rejects.write_text(corrected)
    return rejects.read_bytes()


ROWS = [
    {"invoiceNumber": "A-9", "amount": "150.00"},
    {"invoiceNumber": "A-1", "amount": "10.00"},
    {"invoiceNumber": "A-7", "amount": "7.0.0"},
]


@pytest.fixture
def june(desk: Desk) -> Path:
    """A file of June: one row was paid and is above the limit by now, one is a duplicate, one was always invalid."""
    desk.submit(desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"}))
    path = desk.file("june.csv", *ROWS)
    assert desk.submit(path).exit_code == 3
    desk.limit("100.00")
    return path


def test_what_was_paid_is_not_in_the_rejects_again_and_all_else_is(desk: Desk, june: Path) -> None:
    """The duplicate, which is found late, and the invalid amount are rows to correct; the payment is not."""
    rejects = june.with_suffix(".rejects.csv")
    before = rejects.read_text()
    assert ("A-9," in before, "A-1," in before, "A-7," in before) == (False, True, True)
    again = desk.submit(june)
    assert (again.exit_code, desk.arrived) == (3, {"A-1": 1, "A-9": 1})
    assert rejects.read_text() == before


def test_the_rejects_file_is_named_only_if_rows_came_back(desk: Desk) -> None:
    """A known batch whose first row must be corrected names the file; one that is all paid has no file to name."""
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "7.0.0"}, {"invoiceNumber": "A-2", "amount": "1.00"})
    rejects = str(path.with_suffix(".rejects.csv"))
    assert [desk.submit(path).rejects for _ in range(2)] == [rejects, rejects]
    paid = desk.file("june.csv", {"invoiceNumber": "A-3", "amount": "500.00"})
    desk.limit("100.00")
    assert desk.submit(paid).rejects == str(paid.with_suffix(".rejects.csv"))
    desk.limit("")
    assert [desk.submit(paid, release="the board agreed").rejects for _ in range(2)] == [None, None]
    assert len(paid.with_suffix(".rejects.csv").read_text().splitlines()) == 1, "a header alone"


def test_rejects_that_could_not_be_rewritten_leave_nothing(
    desk: Desk, june: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle: the earlier rejects stay, and no partial file is next to them."""
    before = {path.name: path.read_bytes() for path in desk.folder.iterdir() if path.is_file()}

    def stop(*_: object) -> None:
        raise RunStopped("stopped")

    monkeypatch.setattr(Verdict, "leave_out", stop)
    with pytest.raises(RunStopped):
        desk.submit(june)
    assert {path.name: path.read_bytes() for path in desk.folder.iterdir() if path.is_file()} == before
