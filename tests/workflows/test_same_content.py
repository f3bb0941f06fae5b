"""The same content is the same batch: a call that sends nothing says so, even where nobody reads standard error."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake import streams
from batchpay.intake.source import Source
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
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}
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
    usual = {"normalize", "as_of", "gateway_ids", "file_digest", "first_start", "largest_cents"}
    for path, more in ((desk.file("pay.csv", {"amount": "11.00"}), {}), (desk.folder / "pay.xlsx", {"sheet": "March"})):
        name = desk.submit(path).batch
        with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
            options = ledger.find(name).options
        assert {key: value for key, value in options.items() if key not in usual} == more
        assert usual <= options.keys()


GROSS = '[columns]\namount = "Gross"\n'
NET = '[columns]\namount = "Net"\n'


def _two_amounts(desk: Desk, **changes: str) -> Path:
    """A file with two columns of amounts, and a map for each: the bills of the one are not those of the other."""
    for name, text in (("gross.toml", GROSS), ("net.toml", NET)):
        (desk.folder / name).write_text(text)
    rows = [{"invoiceNumber": f"A-{at}", "amount": f"1{at}.00"} | changes for at in range(3)]
    path = desk.file("wages.csv", *rows)
    lines = path.read_text().replace("amount", "Gross").splitlines()
    path.write_text("\n".join([f"{lines[0]},Net", *(f"{line},9.0{at}" for at, line in enumerate(lines[1:]))]) + "\n")
    return path


@pytest.mark.usefixtures("on_both")
def test_the_same_bytes_read_with_another_map_are_refused(desk: Desk) -> None:
    """The same file with the map of another column paid 28 of 28 payees again: no rule sees a bill twice.

    With the same map it is the same batch, and a person who means it says so: then one reason pays once.
    """
    path = _two_amounts(desk)
    first = desk.submit(path, map_file=str(desk.folder / "gross.toml"))
    net = str(desk.folder / "net.toml")
    for call in (desk.submit, desk.dry_run, partial(desk.dry_run, with_plan=True)):
        with pytest.raises(
            FileRefused, match=rf"batch {first.batch} of .* same bytes.*3 rows, 33\.00.*--again --reason"
        ):
            call(path, map_file=net)
    assert sum(desk.arrived.values()) == 3
    assert desk.submit(path, map_file=str(desk.folder / "gross.toml")).batch == first.batch
    both: dict[str, Any] = {
        "again": "the net part too",
        "allow_duplicates": True,
        "map_file": net,
    }  # the invoices are the same
    plan = desk.dry_run(path, with_plan=True, **both).plan
    second = desk.submit(path, plan=plan, **both)
    assert second.batch != first.batch
    assert sum(desk.arrived.values()) == 6
    assert desk.submit(path, again="the net part too", map_file=net).batch == second.batch
    assert desk.submit(path, map_file=net).batch == second.batch
    assert sum(desk.arrived.values()) == 6


def test_a_copy_packed_or_read_from_elsewhere_has_the_same_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name, a gzip of it, an object of a store and standard input are the same file."""
    path = _two_amounts(desk)
    first = desk.submit(path, map_file=str(desk.folder / "gross.toml"))
    packed = desk.folder / "wages.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    net = str(desk.folder / "net.toml")
    copies: list[Any] = [packed, path.as_uri()]
    for copy in copies:
        with pytest.raises(FileRefused, match=f"batch {first.batch}"):
            desk.submit(copy, rejects=desk.folder / "r.csv", map_file=net)
    with path.open("rb") as given:
        monkeypatch.setattr(streams, "given_blocks", lambda _: iter([given.read()]))
        with pytest.raises(FileRefused, match=f"batch {first.batch}"):
            desk.submit(Path("-"), rejects=desk.folder / "r.csv", map_file=net)


def test_the_same_workbook_by_another_sheet_is_refused(desk: Desk) -> None:
    """Saved again it is another file: an honest second month in another sheet is only refused while nobody saved it."""
    path = desk.folder / "wages.xlsx"
    book = openpyxl.Workbook()
    for month in ("May", "June"):
        sheet = book.create_sheet(month)
        sheet.append(list(COLUMNS))
        sheet.append([(PLAIN | {"amount": "10.00", "invoiceNumber": month}).get(name, "") for name in COLUMNS])
    book.save(path)
    first = desk.submit(path, sheet="May")
    with pytest.raises(FileRefused, match=f"batch {first.batch}"):
        desk.submit(path, sheet="June")
    book.properties.title = "saved again"
    book.save(path)
    assert desk.submit(path, sheet="June").batch != first.batch
    assert sum(desk.arrived.values()) == 2


@pytest.mark.parametrize("encoding", ["cp1252", None])
def test_the_same_bytes_in_another_encoding_are_refused(desk: Desk, encoding: str | None) -> None:
    """One byte is an e with an accent in one encoding, and another letter in the next: another payee."""
    path = desk.file("wages.csv", {"amount": "10.00", "billingFirstName": "Zoé", "invoiceNumber": "A"})
    if encoding:
        path.write_bytes(path.read_text().encode("cp1252"))
    first = desk.submit(path, encoding=encoding)
    with pytest.raises(FileRefused, match=f"batch {first.batch}"):
        desk.submit(path, encoding="cp850")


def test_a_file_of_which_nothing_was_paid_may_be_read_with_a_better_map(desk: Desk) -> None:
    """The first map made every row an error; the corrected one is no second payment."""
    path = _two_amounts(desk, Gross="x")
    path.write_text(path.read_text().replace("10.00", "x").replace("11.00", "x").replace("12.00", "x"))
    assert desk.submit(path, map_file=str(desk.folder / "gross.toml")).of(State.REJECTED).rows == 3
    assert desk.submit(path, map_file=str(desk.folder / "net.toml")).of(State.ACCEPTED).rows == 3


def test_a_release_and_rejects_fed_back_are_no_other_reading(desk: Desk) -> None:
    """One row of the file was above a limit: it is released from the same file, or sent from the rejects."""
    path = desk.file("wages.csv", *WAGES)
    desk.limit("10.50")
    desk.submit(path)
    desk.limit("100.00")
    assert desk.submit(desk.folder / "wages.rejects.csv").of(State.ACCEPTED).rows == 1
    desk.submit(path, release="checked")
    assert sum(desk.arrived.values()) == 2


def test_a_batch_of_before_has_no_digest_of_its_file(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known then; rows are compared as before."""
    path = _two_amounts(desk)
    with monkeypatch.context() as before:
        before.setattr(Source, "file_digest", lambda _: bytes(32))
        desk.submit(path, map_file=str(desk.folder / "gross.toml"))
    found = desk.submit(path, map_file=str(desk.folder / "net.toml"))
    assert (found.of(State.REJECTED).rows, desk.verdict.counts) == (3, {"row.same_invoice": 3})
