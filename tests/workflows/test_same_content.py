"""The same content is the same batch: a call that sends nothing says so, even where nobody reads standard error."""

from __future__ import annotations

import json
from contextlib import closing

import openpyxl
import pytest

from batchpay.ledger.open import open_ledger
from batchpay.operations.logs import close_log, open_log
from batchpay.payment import State
from batchpay.sending.limits import Limits
from batchpay.workflows.run import RunRequest
from tests.workflows.desk import ACCEPTED, COLUMNS, DECLINED, IN_DOUBT, PLAIN, Desk

WAGES = [{"amount": "10.00"}, {"amount": "11.00"}]
SAID = "0 sent now; "


@pytest.mark.usefixtures("on_both")
def test_next_months_wages_are_not_silently_skipped(desk: Desk) -> None:
    """The summary reports all rows as accepted, and so they are: last month."""
    path = desk.file("wages.csv", *WAGES)
    assert not any(SAID in note for note in desk.submit(path).notes)
    summary = desk.submit(path)
    assert (summary.exit_code, summary.of(State.ACCEPTED).rows) == (0, 2)
    (note,) = (note for note in summary.notes if SAID in note)
    assert note.endswith("--again with a reason")
    assert f"0 sent now; all 2 rows were paid by batch {summary.batch} on " in note
    assert summary.work.total.rows == 0
    assert sum(desk.arrived.values()) == 2


def test_wages_with_last_months_reason_are_not_either(desk: Desk) -> None:
    """One reason pays once more, however often: in January it must be a different one."""
    path = desk.file("wages.csv", *WAGES)
    desk.submit(path)
    assert not any(SAID in note for note in desk.submit(path, again="monthly wages").notes)
    notes = desk.submit(path, again="monthly wages").notes
    assert any(SAID in note and note.endswith("--again with another reason") for note in notes)
    assert sum(desk.arrived.values()) == 4


def test_a_batch_that_resumes_or_waits_for_a_person_is_not_called_paid(desk: Desk) -> None:
    """Rows that this very call sent, rows in doubt, and declined ones: nobody is told to pay them once more."""
    declined = desk.file("declined.csv", {"amount": "12.00"})
    desk.answer = lambda _: DECLINED
    assert not any(SAID in note for _ in range(2) for note in desk.submit(declined).notes)
    desk.answer = lambda _: ACCEPTED
    path = desk.file("wages.csv", *WAGES)
    desk.submit(path, run=RunRequest(None, Limits(rows_max=1)))
    desk.answer = lambda _: IN_DOUBT
    assert not any(SAID in note for note in desk.submit(path).notes)
    assert not any(SAID in note for note in desk.submit(path).notes)


@pytest.mark.usefixtures("on_both")
def test_a_doubt_is_logged_once_and_each_run_says_what_it_did(desk: Desk) -> None:
    """Each night's log named all doubts anew, and of a run that had sent 2 rows only how many the batch has."""
    path = desk.file("wages.csv", *({"invoiceNumber": f"A-{at}", "amount": f"1{at}.00"} for at in range(4)))
    log = desk.folder / "run.log"
    desk.answer = lambda reference: IN_DOUBT if reference == "A-1" else ACCEPTED
    for most in (2, 1, None):
        handler = open_log(path=log, as_json=True)
        desk.submit(path, run=RunRequest(None, Limits(rows_max=most)))
        close_log(handler)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    doubts = [line for line in lines if line["event"] in ("row in doubt", "still in doubt")]
    assert [(line["event"], line.get("row"), line.get("row_ranges")) for line in doubts] == [
        ("row in doubt", 2, None),
        ("still in doubt", None, "2"),
        ("still in doubt", None, "2"),
    ]
    ends = [line for line in lines if line["event"] in ("run stopped", "run ended")]
    figures = ("event", "rows", "cents", "accepted", "declined", "in_doubt", "pending", "attempts", "refusals")
    assert [tuple(line[name] for name in figures) for line in ends] == [
        ("run stopped", 2, 2100, 1, 0, 1, 2, 2, 0),
        ("run stopped", 1, 1200, 1, 0, 0, 1, 1, 0),
        ("run ended", 1, 1300, 1, 0, 0, 0, 1, 0),
    ]
    assert all(line["duration_s"] >= 0 for line in ends)


def test_a_corrected_file_reports_what_the_first_one_did_not_send(desk: Desk) -> None:
    """A run was stopped, and the file corrected in place: its rows 'were used before', and nobody sent the rest."""
    bills = [{"paymentId": f"P-{number}", "amount": f"{number}0.00"} for number in (1, 2, 3)]
    stopped = desk.submit(desk.file("may.csv", *bills), run=RunRequest(None, Limits(rows_max=1)))
    one_more = {"paymentId": "P-4", "amount": "1.00"}
    corrected = desk.submit(desk.file("may.csv", *bills[1:], one_more))
    assert (corrected.exit_code, corrected.of(State.ACCEPTED).rows, len(desk.arrived)) == (3, 1, 2)
    told = f", of which 2 rows, 50.00, wait to be sent: batchpay resume {stopped.batch}"
    assert any(note.endswith(told) for note in corrected.notes)
    assert desk.resume(stopped.batch).exit_code == 0
    (note,) = desk.submit(desk.file("june.csv", *bills[1:])).notes
    assert f"are the same bills as batch {stopped.batch} of " in note
    assert "wait to be sent" not in note


def test_what_a_corrected_file_no_longer_has_is_told_before_it_is_sent_as_well(desk: Desk) -> None:
    """An amount was corrected in place: the note advised `resume`, which paid the same invoice with the wrong amount.

    A row that was left out of the corrected file is one as well.
    """
    bills = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2, 3, 4)]
    stopped = desk.submit(desk.file("may.csv", *bills), run=RunRequest(None, Limits(rows_max=1)))
    corrected = desk.submit(desk.file("may.csv", bills[0], bills[1], {**bills[2], "amount": "300.00"}))
    assert (corrected.exit_code, desk.arrived) == (3, {"A-1": 1, "A-3": 1})
    told = f", of which 3 rows, 90.00, wait to be sent: batchpay resume {stopped.batch}"
    also = " (which also sends, as it was, what this file corrects or leaves out: 2 rows)"
    assert any(note.endswith(told + also) for note in corrected.notes)


@pytest.mark.parametrize("repeats", [0, 1])
def test_a_corrected_file_names_the_rows_in_doubt_that_it_may_pay_twice(desk: Desk, repeats: int) -> None:
    """The answer about an invoice was lost, and its amount was corrected in place: that was paid without a word."""
    bills = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2, 3)]
    desk.answer = lambda reference: ACCEPTED if reference == "A-1" else IN_DOUBT
    first = desk.submit(desk.file("may.csv", *bills))
    desk.answer = lambda _: ACCEPTED
    path = desk.file("may.csv", bills[0], *bills[1 : 1 + repeats], {**bills[2], "amount": "300.00"})
    told = f"; {'1 row in doubt there is' if repeats else '2 rows in doubt there are'} not repeated here: "
    ends = f"may be paid twice, look them up first: batchpay resolve {first.batch}"
    for notes in (desk.dry_run(path).summary.notes, desk.submit(path).notes):
        assert any(told in note and note.endswith(ends) for note in notes)
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 2}
    again = desk.file("june.csv", *bills[1:], {"invoiceNumber": "B-1", "amount": "1.00"})
    assert not any("in doubt there" in note for note in desk.dry_run(again).summary.notes)


def test_a_batch_records_how_its_file_was_read_and_nothing_that_was_not_decided(desk: Desk) -> None:
    """The sheet of a workbook, among its others, is in the ledger; a text file has none, and neither has a decision."""
    book = openpyxl.Workbook()
    book.create_sheet("notes")
    assert book.active is not None
    book.active.title = "March"
    for row in (COLUMNS, [(PLAIN | {"invoiceNumber": "A-1", "amount": "10.00"}).get(name) for name in COLUMNS]):
        book.active.append(row)
    book.save(desk.folder / "pay.xlsx")
    usual = {"normalize", "as_of", "gateway_ids", "first_start", "largest_cents"}
    for path, more in ((desk.file("pay.csv", {"amount": "11.00"}), {}), (desk.folder / "pay.xlsx", {"sheet": "March"})):
        name = desk.submit(path).batch
        with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
            options = ledger.find(name).options
        assert {key: value for key, value in options.items() if key not in usual} == more
        assert usual <= options.keys()
