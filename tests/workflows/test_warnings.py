"""What a warning is about is named where a person reads of it, and kept with the row that went on."""

from __future__ import annotations

import csv
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.ledger.open import open_ledger
from batchpay.sending.limits import Limits
from batchpay.settings import PolicySettings
from batchpay.workflows.run import RunRequest
from batchpay.workflows.status import batch_page, batch_status, results_again
from tests.workflows.desk import ACCEPTED, Desk

PLAIN = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
LETTERS = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "10.01", "achAccountNumber": "ABC6484424"}
WRONG = {"paymentId": "P-3", "invoiceNumber": "A-3", "amount": "10", "achAccountNumber": "ABD64844"}
SAME = PLAIN | {"paymentId": "P-4"}
CHANGED = {"paymentId": "P-5", "invoiceNumber": "A-5", "amount": "90.00", "achAccountNumber": "AC648443"}


def told(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Return what results say in `warnings`: by row, column and code of each."""
    with path.open(newline="", encoding="utf-8") as file:
        cells = {one["row"]: one["warnings"] for one in csv.DictReader(file)}
    return {row: re.findall(r"(?:^|; )(\w+): (\w+): [^;]+", cell) for row, cell in cells.items()}


EXPECTED: dict[str, list[tuple[str, str]]] = {
    "1": [],
    "2": [("achAccountNumber", "account"), ("achAccountNumber", "changed_account")],
    "4": [("row", "same_payment")],
    "5": [("achAccountNumber", "account"), ("achAccountNumber", "changed_account"), ("amount", "unusual_amount")],
}


@pytest.mark.usefixtures("on_both")
def test_a_row_keeps_its_warnings_whoever_writes_the_results(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A payment to a changed account went out by night: results, status and report didn't say which row it was.

    Warnings of the rules, of the file and of earlier payments; written by the submission, later, and by `resume`.
    """
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=True))
    desk.submit(desk.file("may.csv", PLAIN | {"paymentId": "P-0", "invoiceNumber": "A-0"}))
    desk.answer = lambda reference: ACCEPTED
    path, results = desk.file("june.csv", PLAIN, LETTERS, WRONG, SAME, CHANGED), desk.folder / "june.results.csv"
    with monkeypatch.context() as patched:
        patched.setattr(Limits, "allow_row", lambda self: False)
        stopped = desk.submit(path, run=RunRequest(results=results))
    assert (stopped.waiting, told(results)) == (4, EXPECTED)
    desk.resume(stopped.batch)
    again = desk.folder / "again.csv"
    results_again(stopped.batch, lambda _: again, desk.settings)
    assert told(desk.folder / "results.csv") == told(again) == EXPECTED
    found = batch_status(str(stopped.batch), desk.settings)
    assert found.warnings == stopped.warnings == desk.verdict.warnings == 7
    page = desk.folder / "page.html"
    batch_page(stopped.batch, lambda _: page, desk.settings)
    html = page.read_text("utf-8")
    assert all(place in html for place in ("line 3", "line 5", "line 6", "achAccountNumber.changed_account"))
    assert LETTERS["achAccountNumber"] not in again.read_text() + html


@pytest.mark.usefixtures("on_both")
def test_a_released_row_keeps_its_warnings(desk: Desk) -> None:
    """It goes on later than the others, and a person has looked at it once already."""
    desk.limit("50.00")
    path, results = desk.file("june.csv", PLAIN, CHANGED), desk.folder / "june.results.csv"
    desk.submit(path)
    desk.limit("100.00")
    desk.submit(path, release="the limit is 100.00 now", run=RunRequest(results=results))
    assert told(results) == {"1": [], "2": [("achAccountNumber", "account")]}


def test_each_of_many_rows_has_its_own_warnings(desk: Desk) -> None:
    """Rows that are proven, and those that wait for all rules, are checked in different orders."""
    rows = [
        PLAIN
        | {"paymentId": f"P-{row}", "invoiceNumber": f"A-{row}", "amount": "1" if row % 7 == 0 else f"{row}.50"}
        | ({"achAccountNumber": f"AB{row:06}"} if row % 5 == 0 else {})
        for row in range(1, 301)
    ]
    results = desk.folder / "june.results.csv"
    desk.submit(desk.file("june.csv", *rows), run=RunRequest(results=results))
    account = [("achAccountNumber", "account")]
    expected = {str(row): account if row % 5 == 0 else [] for row in range(1, 301) if row % 7}
    assert told(results) == expected


def test_a_common_warning_hides_no_other(desk: Desk) -> None:
    """Of a thousand rows with one warning the first were listed, and not the single one to another account."""
    rows = [PLAIN | {"paymentId": f"P-{row}", "amount": f"{row}.00"} for row in range(1, 40)]
    odd = [one | {"achAccountNumber": f"AB{row:06}"} for row, one in enumerate(rows)]
    path = desk.file("june.csv", *odd[:-1], rows[-1] | {"amount": "1.00", "achAccountNumber": "AB000000"})
    verdict = desk.dry_run(path, max_errors=10).verdict
    assert (len(verdict.warning_failures), verdict.warning_failures[-1].name) == (11, "row.same_payment")


def test_the_log_names_each_row_with_a_warning(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """By its code alone: a message names people."""
    with caplog.at_level("INFO", "batchpay"), pytest.MonkeyPatch.context() as patched:
        patched.setattr("batchpay.workflows.submit.is_logging", lambda: True)
        desk.submit(desk.file("june.csv", PLAIN, LETTERS))
    found = [(one.__dict__["row"], one.__dict__["reason"]) for one in caplog.records if one.msg == "warning"]
    assert found == [(2, "achAccountNumber.account")]


@pytest.mark.usefixtures("on_both")
def test_what_a_purge_erases_has_the_warnings_as_well(desk: Desk) -> None:
    """They name people: they are kept with the names, sealed, and nowhere else."""
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=True))
    desk.submit(desk.file("may.csv", PLAIN))
    batch = desk.submit(desk.file("june.csv", CHANGED)).batch
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        (row,) = ledger.rows(str(batch))
        assert "Grace Quigley" in row.details["warnings"]
        events = " ".join(str(one) for one in ledger.events())
        assert "Grace" not in str(ledger.find(str(batch)).options) + events
