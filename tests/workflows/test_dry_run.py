"""A dry run refuses what a submission would refuse, and shows just as much as was requested, in the file's order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from batchpay.payment import State, Totals
from batchpay.reports.results import HEADER
from batchpay.workflows.check import Preview, dry_run
from batchpay.workflows.requests import CheckOptions, Decisions, file_request
from batchpay.writing.table import write_table
from tests.workflows.desk import ANN, Desk

EARLIER = {"invoiceNumber": "A-0", "amount": "1.00"}


def look(
    desk: Desk, path: Path, decisions: Decisions | None = None, requests_max: int = 0, largest_max: int = 0
) -> Preview:
    """Check a file whose results would be next to it."""
    asked = file_request(str(path), None, CheckOptions(), desk.settings)
    return dry_run(
        asked,
        desk.settings,
        ANN,
        decisions or Decisions(),
        requests_max=requests_max,
        largest_max=largest_max,
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
def test_of_equal_payments_the_first_of_the_file_are_the_largest(desk: Desk) -> None:
    """Whoever prepares and whoever approves see the same list, whatever was read together."""
    assert [one.payee for one in look(desk, long_file(desk), largest_max=4).largest] == [
        "Payee 91", "Payee 1", "Payee 2", "Payee 3",
    ]  # fmt: skip


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
