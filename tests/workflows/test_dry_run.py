"""A dry run refuses what a submission would refuse, and shows just as much as was requested, in the file's order.

Warnings and errors name the same place, and a payee is new only where it is new.
"""

from __future__ import annotations

from csv import reader as csv_lines
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State, Totals
from batchpay.reports.results import HEADER
from batchpay.sending.limits import Limits
from batchpay.settings import PolicySettings
from batchpay.workflows.check import Preview, dry_run
from batchpay.workflows.requests import CheckOptions, Decisions, file_request
from batchpay.workflows.run import RunRequest
from batchpay.workflows.sent_rows import write_rows
from batchpay.writing.table import write_table
from tests.support.payment_files import workbook
from tests.workflows.desk import ANN, Desk
from tests.workflows.office import Office

EARLIER = {"invoiceNumber": "A-0", "amount": "1.00"}


def look(
    desk: Desk, path: Path, decisions: Decisions | None = None, requests_max: int = 0, take_rows: Any = None
) -> Preview:
    """Check a file whose results would be next to it."""
    asked = file_request(str(path), None, CheckOptions(), desk.settings)
    return dry_run(
        asked,
        desk.settings,
        ANN,
        decisions or Decisions(),
        requests_max=requests_max,
        take_rows=take_rows,
        results=path.with_suffix(".results.csv"),
    )


def test_a_file_that_another_ledger_may_have_paid_is_refused_before_anybody_signs(desk: Desk) -> None:
    """The plan was signed, and at night the submission said the file may have been paid: now the first check says so.

    A person's word passes it, as in the submission; a batch that this ledger knows needs none.
    """
    desk.submit(desk.file("april.csv", EARLIER))
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"})
    values = {"row": "1", "batch": "0123456789ab", "environment": "test", "state": "accepted"}
    write_table(path.with_suffix(".results.csv"), HEADER, [[values.get(name) for name in HEADER]])
    with pytest.raises(FileRefused, match="0123456789ab"):
        look(desk, path)
    looked_up = Decisions(paid_elsewhere_checked=True, reason="the bank has none of it")
    assert look(desk, path, looked_up).proposal.to_send.total.rows == 1
    desk.submit(path)
    assert look(desk, path).known is not None


def test_a_changed_address_is_reported_before_anything_is_sent(desk: Desk) -> None:
    """A slip in the address of a test gateway is seen by whoever prepares, not in the morning."""
    desk.submit(desk.file("april.csv", EARLIER))
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"})
    assert look(desk, path).summary.notes == []
    gateway = replace(desk.settings.gateway, base_url="https://pay.example.com", environment="test")
    desk.settings = replace(desk.settings, gateway=gateway)
    (note,) = look(desk, path).summary.notes
    assert note.startswith("earlier test batches went to http://127.0.0.1:9, this one goes to https://pay.example.com;")


def test_a_file_is_checked_before_any_gateway_is_named(desk: Desk) -> None:
    """The first evening with the program: the file's content is shown, and no address is mentioned."""
    desk.submit(desk.file("april.csv", EARLIER))
    gateway = replace(desk.settings.gateway, base_url="", environment="test")
    desk.settings = replace(desk.settings, gateway=gateway)
    preview = look(desk, desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"}))
    assert (preview.proposal.to_send.total.rows, preview.summary.notes) == (1, [])


def long_file(desk: Desk) -> Path:
    """Write ninety payments of one amount to payees in order, and a larger one at the end."""
    rows = [{"invoiceNumber": f"A-{row}", "amount": "10.00", "achNameOnCheck": f"Payee {row}"} for row in range(1, 91)]
    return desk.file("may.csv", *rows, {"invoiceNumber": "A-91", "amount": "11.00", "achNameOnCheck": "Payee 91"})


@pytest.fixture(params=[400, 1 << 20])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a file in chunks of three or four rows, or as one."""
    monkeypatch.setattr("batchpay.intake.csv.reader.BLOCK_BYTES", (request.param, request.param))
    monkeypatch.setattr("batchpay.intake.streams.BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("block_bytes")
def test_as_many_requests_are_shown_as_were_requested(desk: Desk) -> None:
    """The first ones of the file, wherever its chunks end."""
    shown = look(desk, long_file(desk), requests_max=6).requests
    assert [f'"A-{row}"' in body for row, body in enumerate(shown, start=1)] == [True] * 6


@pytest.mark.usefixtures("block_bytes")
def test_every_row_that_would_be_sent_is_shown_masked_with_what_deserves_a_look(desk: Desk) -> None:
    """Wherever chunks end: payments, one warned of, one with another account, and a new payee."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=True))
    desk.submit(desk.file("april.csv", EARLIER))
    rows = [{"invoiceNumber": f"A-{row}", "paymentId": f"P-{row}", "amount": "1.00"} for row in range(1, 91)]
    rows[40] |= {"achAccountNumber": "888777666"}
    rows[70] |= {"achNameOnCheck": "=Ann Lee", "transactionType": "DEBIT"}
    rows[80] |= {"amount": "x"}
    found: list[pl.DataFrame] = []
    preview = look(desk, desk.file("may.csv", *rows), take_rows=lambda frames, _: found.extend(frames))
    shown = pl.concat(found)
    assert shown.height == preview.proposal.to_send.total.rows == 89
    assert shown["row"].to_list() == [row for row in range(1, 91) if row != 81]
    flagged = {row: (flags, account) for row, flags, account in shown.select("row", "flags", "account").iter_rows()}
    assert {row: one for row, one in flagged.items() if one[0]} == {
        2: (["same_amount"], "****3924"), 41: (["changed_account"], "****7666"), 71: (["new_payee"], "****3924"),
    }  # fmt: skip
    assert "****3924" in shown.filter(pl.col("row") == 41)["warnings"][0], "the account before is named as well"
    assert not {"648443924", "888777666"} & {str(cell) for row in shown.iter_rows() for cell in row}
    write_rows(desk.folder / "rows.csv", iter(found))
    lines = list(csv_lines((desk.folder / "rows.csv").read_text().splitlines()))
    assert (len(lines), lines[71][2], lines[71][9], lines[71][11]) == (90, "'=Ann Lee", "new", "new_payee")
    assert shown.filter(pl.col("first_seen") == "new")["row"].to_list() == [41, 71]
    assert shown["first_seen"].null_count() == 0


def test_what_is_there_twice_is_in_nothing_that_would_be_sent(desk: Desk) -> None:
    """It is counted before the file's end shows it, and removed then: the file used to be read again for it.

    One row is in the file twice, one was paid last month, one has a recurring payment's days.
    """
    desk.submit(desk.file("april.csv", EARLIER))
    start = (datetime.now(UTC) + timedelta(days=20)).strftime("%m/%d/%Y")
    monthly = {
        "recurringIndicator": "TRUE", "recurringStartDate": start, "recurringBillingCycle": "MONTHLY",
        "recurringEndOfMonth": "N", "recurringNumOfPayments": "5", "recurringAgreementFlag": "1",
    }  # fmt: skip
    rows = [
        {"invoiceNumber": "A-1", "amount": "10.00"},
        {"invoiceNumber": "A-2", "amount": "20.00", "achNameOnCheck": "Łucja Ωmega"},
        {"invoiceNumber": "A-3", "amount": "30.00", **monthly},
    ]
    twice = {"invoiceNumber": "A-4", "amount": "40.00", "gatewayId": "1002", "paymentId": "P-4", **monthly}
    alone, among = desk.file("alone.csv", *rows), desk.file("among.csv", *rows, twice, twice, EARLIER)
    expected, found = look(desk, alone), look(desk, among)
    assert found.summary.of(State.REJECTED).rows == 3
    assert found.proposal.to_send == expected.proposal.to_send
    assert found.proposal.to_send.total == Totals(3, 60_00)
    assert found.schedule.as_json() == expected.schedule.as_json()
    assert found.schedule.by_gateway() == expected.schedule.by_gateway()


def test_a_row_that_has_too_many_cells_may_have_another_amount(desk: Desk) -> None:
    """`1,000.00` without quotation marks was counted as 1.00, and the total of the file was said to be exact."""
    path = desk.file("may.csv", {"amount": "1,000.00"}, {"amount": "2.00"})
    (note,) = (note for note in desk.dry_run(path).summary.notes if "cells end" in note)
    assert note == "in 1 row it is not certain where the cells end: the amount counted may be another"
    assert not any("cells end" in note for note in desk.dry_run(desk.file("june.csv", EARLIER)).summary.notes)


def test_warnings_and_errors_name_the_same_place(office: Office) -> None:
    """The first data row is line 2 of a CSV and row 2 of a sheet, for a changed account as for an invalid cell."""
    office.submit(office.file("10.00"))
    path = office.file("10.00", "20.00", name="next.csv", achAccountNumber="9900112233", ids="Q")
    csv = office.dry_run(path)
    assert csv.line_word == "line"
    assert [line.split(":")[0] for line in csv.unusual if "changed_account" in line] == ["line 2", "line 3"]
    with Path(path).open(encoding="utf-8", newline="") as file:
        sheet = workbook(office.folder, list(csv_lines(file)))
    found = office.dry_run(sheet)
    assert found.line_word == "row"
    assert [line.split(":")[0] for line in found.unusual if "changed_account" in line] == ["row 2", "row 3"]


OLD = {"invoiceNumber": "A-1", "amount": "10.00", "achNameOnCheck": "Ann Lee"}
NEW = {"invoiceNumber": "A-2", "amount": "10.00", "achNameOnCheck": "Bob Roe", "achAccountNumber": "648443925"}
AGAIN = "the bank lost the first"


@pytest.fixture
def looking(desk: Desk) -> Desk:
    """A desk that has paid one payee before, and wants to be warned."""
    desk.settings = replace(desk.settings, policy=PolicySettings())
    desk.submit(desk.file("april.csv", OLD))
    return desk


def test_a_payee_of_the_first_payment_is_not_new_to_the_second(looking: Desk) -> None:
    """The page of --again told the approver that everyone in it was paid for the first time."""
    path = looking.file("may.csv", NEW)
    assert [one.code for one in looking.dry_run(path).variances] == ["new_payee"]
    looking.submit(path)
    preview = looking.dry_run(path, again=AGAIN)
    assert (preview.proposal.to_send.total.rows, preview.verdict.warning_counts) == (1, {})
    assert preview.unusual == ["compared with earlier payments: nothing unusual"]
    assert looking.submit(path, again=AGAIN).warnings == 0


def test_the_first_payment_alone_is_history_enough(desk: Desk) -> None:
    """The ledger holds only this file: paid again it was compared with nothing."""
    desk.settings = replace(desk.settings, policy=PolicySettings())
    path = desk.file("may.csv", NEW)
    desk.submit(path)
    assert desk.dry_run(path, again=AGAIN).compared


def test_a_payee_whose_first_payment_was_declined_is_still_new(looking: Desk) -> None:
    """Nothing was accepted, so nobody knows the payee yet."""
    looking.answer = lambda reference: Outcome(State.DECLINED, "no", Answer(200, "2", "Declined"), bytes_sent=900)
    path = looking.file("may.csv", NEW)
    looking.submit(path)
    assert [one.code for one in looking.dry_run(path, again=AGAIN).variances] == ["new_payee"]


def test_nothing_draws_a_warning_if_nothing_is_sent(looking: Desk) -> None:
    """A second run of a paid file said again to verify that its payees are real."""
    path = looking.file("may.csv", NEW)
    assert looking.submit(path).warnings == 1
    assert looking.submit(path).warnings == 0
    preview = looking.dry_run(path)
    assert (preview.summary.warnings, preview.variances, preview.unusual) == (0, [], [])


def test_rows_that_wait_draw_warnings_as_before(looking: Desk) -> None:
    """A batch that was stopped halfway: its own payments don't make its payees known."""
    path = looking.file("may.csv", NEW, NEW | {"invoiceNumber": "A-3"})
    looking.submit(path, run=RunRequest(None, Limits(0)))
    assert looking.dry_run(path).verdict.warning_counts == {"achNameOnCheck.new_payee": 2, "row.same_amount": 1}


def test_what_all_new_payees_take_and_pay_is_told(looking: Desk) -> None:
    """They are not named: the approver reads their number and both sums."""
    path = looking.file("may.csv", NEW, NEW | {"invoiceNumber": "A-3", "transactionType": "DEBIT", "amount": "7.00"})
    assert looking.dry_run(path).unusual == ["new_payee: 1 DEBIT 7.00, 1 CREDIT 10.00"]
