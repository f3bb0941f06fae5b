"""Rows that were paid, and whose reference the ledger had to mask: never missing where a line may be theirs."""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from batchpay.payment import Environment, State
from batchpay.reconciliation.matching import DAYS_BEFORE, match
from batchpay.reconciliation.statement import ExportMap, may_be, read_export, refused_reference
from batchpay.reconciliation.verdicts import found_doubts
from tests.reconciliation.test_reconciliation import export, held_against, today
from tests.support.ledger_factory import Planned, add_batch, ledger_in

HEADER = "Transaction ID,Amount,Date,Status"
MASKED = Planned(1, reference="SBX****01")


def test_a_row_whose_reference_is_masked_is_found_by_what_is_left_of_it(tmp_path: Path) -> None:
    """Account 4400000001, reference SBX000000001: the paid row was called missing, and its line unknown.

    Somebody may pay it again.
    """
    rows = [MASKED, Planned(2, reference="SBX000000002")]
    lines = ["SBX000000001,12.50,TODAY,Settled", "SBX000000002,12.50,TODAY,Settled"]
    result, verdicts, _ = held_against(tmp_path, rows, lines, header=HEADER)
    assert (verdicts, result.exit_code) == ({"1": "matched", "2": "matched"}, 0)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [line["found_by"] for line in csv.DictReader(file)] == [
            "part of the reference, amount and date", "reference",
        ]  # fmt: skip


@pytest.mark.parametrize("line", [
    "SBX000000011,12.50,TODAY,Settled", "TBX000000001,12.50,TODAY,Settled", "SBX000000001,12.51,TODAY,Settled",
    "SBX000000001,12.50,LATE,Settled", ",12.50,TODAY,Settled",
])  # fmt: skip
def test_another_end_amount_or_day_is_another_payment(tmp_path: Path, line: str) -> None:
    """Beginning and end of the reference, the amount and the days after sending all fit, or the row is missing."""
    line = line.replace("LATE", str(today() + timedelta(days=6)))
    _, verdicts, _ = held_against(tmp_path, [MASKED], [line], header=HEADER)
    assert verdicts == {"1": "missing there", "there 2": "unknown here"}


@pytest.mark.parametrize(("reference", "is_its"), [("SBX000000001", True), ("SBX000000011", False)])
def test_a_line_with_its_invoice_is_a_rows_where_the_masked_reference_may_be_the_same(
    tmp_path: Path, reference: str, is_its: bool
) -> None:
    """In an export with references that the ledger knows, however late the line is dated."""
    late = today() + timedelta(days=6)
    lines = [f"{reference},INV-1,12.50,{late},x6789,Settled", "SBX2,INV-2,12.50,TODAY,x6789,Settled"]
    _, verdicts, _ = held_against(tmp_path, [MASKED, Planned(2, reference="SBX2")], lines)
    assert verdicts["1"] == ("matched" if is_its else "missing there")


@pytest.mark.parametrize(("rows", "others", "lines"), [
    ([MASKED], [], ["SBX000000001", "SBX000000101"]),
    ([MASKED, Planned(2, reference="SBX****1")], [], ["SBX000000001"]),
    ([MASKED], [Planned(1, reference="SBX****01")], ["SBX000000001"]),
], ids=["two lines", "two rows", "a row of another batch"])  # fmt: skip
def test_where_more_than_one_would_do_a_person_looks(
    tmp_path: Path, rows: list[Planned], others: list[Planned], lines: list[str]
) -> None:
    """Neither side is called missing or unknown, and none is matched."""
    there = [f"{reference},12.50,TODAY,Settled" for reference in lines]
    result, verdicts, _ = held_against(tmp_path, rows, there, header=HEADER, others=others)
    assert set(verdicts.values()) == {"perhaps there"}
    assert len(verdicts) == len(rows) + len(lines)
    assert result.exit_code == 3


def test_a_line_that_may_be_another_batchs_is_not_unknown(tmp_path: Path) -> None:
    """A month's export has the payments of other batches too, and theirs may be masked."""
    rows, lines = [Planned(1, reference="R1")], ["R1,12.50,TODAY,Settled", "SBX000000001,8.00,TODAY,Settled"]
    others = [Planned(1, reference="SBX****01", amount_cents=800)]
    _, verdicts, _ = held_against(tmp_path, rows, lines, header=HEADER, others=others)
    assert verdicts == {"1": "matched", "there 3": "perhaps there"}


def test_a_line_that_is_another_rows_is_not_that_of_a_masked_one(tmp_path: Path) -> None:
    """Two payments, and the export has one, found by its invoice number: the masked one is not there by it as well."""
    line = "SBX000000001,INV-2,12.50,TODAY,x6789,Settled"
    assert held_against(tmp_path, [MASKED, Planned(2)], [line])[1] == {"1": "missing there", "2": "matched"}


def test_a_masked_row_that_has_its_line_is_not_perhaps_another(tmp_path: Path) -> None:
    """Found by its invoice number, it needs no second line: that one is of a payment which nobody here knows."""
    lines = ["SBX000000001,INV-1,12.50,TODAY,x6789,Settled", "SBX000000101,,12.50,TODAY,x6789,Settled"]
    _, verdicts, _ = held_against(tmp_path, [MASKED], lines)
    assert verdicts == {"1": "matched", "there 3": "unknown here"}


@pytest.mark.parametrize(("row", "invoice"), [(MASKED, ""), (replace(MASKED, invoice=""), "MANUAL-9")])
def test_where_line_or_row_has_no_invoice_number_nothing_speaks_against_it(
    tmp_path: Path, row: Planned, invoice: str
) -> None:
    """Where the export knows our invoice numbers, only a different one is another payment."""
    lines = ["R9,INV-2,12.50,TODAY,x6789,Settled", f"SBX000000101,{invoice},12.50,TODAY,x6789,Settled"]
    _, verdicts, _ = held_against(tmp_path, [row, Planned(2)], lines)
    assert verdicts == {"1": "matched", "2": "matched"}


def test_the_banks_own_numbers_do_not_speak_against_the_masked_row(tmp_path: Path) -> None:
    """Its column of invoices has none of ours: that it differs means nothing."""
    line = "SBX000000001,0047,12.50,TODAY,x6789,Settled"
    assert held_against(tmp_path, [MASKED], [line])[1] == {"1": "matched"}


def test_another_invoice_number_is_only_perhaps_the_row(tmp_path: Path) -> None:
    """Where the export knows our invoice numbers, a line with another one may still be the row's: a person looks."""
    lines = ["R9,INV-2,12.50,TODAY,x6789,Settled", "SBX000000101,MANUAL-9,12.50,TODAY,x6789,Settled"]
    _, verdicts, _ = held_against(tmp_path, [MASKED, Planned(2)], lines)
    assert verdicts == {"1": "perhaps there", "2": "matched", "there 3": "perhaps there"}


@pytest.mark.parametrize("line", ["SBX000000001", "sbx****01"])
def test_what_is_left_of_a_reference_settles_no_row_in_doubt(tmp_path: Path, line: str) -> None:
    """It is listed beside the row; whether it is that payment, a person says."""
    row = Planned(1, State.IN_DOUBT, reference="SBX****01")
    _, verdicts, settled = held_against(tmp_path, [row], [f"{line},12.50,TODAY,Settled"], header=HEADER)
    assert (settled, verdicts) == ({1: None}, {"1": "in doubt, found"})


@pytest.mark.parametrize(("masked", "settled"), [
    (MASKED, {}), (Planned(1, State.DECLINED, reference="SBX****01"), {}),
    (Planned(1, reference="SBX****01", amount_cents=99), {3: State.ACCEPTED}),
    (Planned(1, reference="SBX****02"), {3: State.ACCEPTED}),
], ids=["may be its line", "of a declined row", "another amount", "another end"])  # fmt: skip
@pytest.mark.parametrize("of_other_batch", [False, True])
def test_a_line_that_may_be_a_masked_rows_proves_no_other(
    tmp_path: Path, masked: Planned, settled: dict[int, State], of_other_batch: bool
) -> None:
    """Its whole reference would be known as that row's, and prove nothing by the invoice number of another."""
    doubt = Planned(3, State.IN_DOUBT)
    rows, others = ([doubt], [masked]) if of_other_batch else ([masked, doubt], [])
    line = "SBX000000001,INV-3,12.50,TODAY,x6789,Settled"
    assert held_against(tmp_path, rows, [line], others=others)[2] == settled


def test_a_masked_reference_does_not_speak_against_its_own_row(tmp_path: Path) -> None:
    """Found by its invoice number, a row in doubt is proven by a line that its own reference fits."""
    row, line = Planned(1, State.IN_DOUBT, reference="SBX****01"), "SBX000000001,INV-1,12.50,TODAY,x6789,Settled"
    assert held_against(tmp_path, [row], [line])[2] == {1: State.ACCEPTED}


def test_a_line_without_a_date_may_be_a_masked_rows(tmp_path: Path) -> None:
    """It proves nothing, whosever it is."""
    line = "SBX000000001,INV-3,12.50,,x6789,Settled"
    assert held_against(tmp_path, [MASKED, Planned(3, State.IN_DOUBT)], [line])[2] == {}


@pytest.mark.parametrize(("days_before", "settled"), [(DAYS_BEFORE, {}), (DAYS_BEFORE + 1, {1: State.ACCEPTED})])
def test_a_line_of_before_a_masked_row_was_sent_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days_before: int, settled: dict[int, State]
) -> None:
    """A payment of last month proves its row, though a masked one of this month has the same amount and ending."""
    line = f"SBX000000001,INV-1,12.50,{today() - timedelta(days=days_before)},x6789,Settled"
    read = read_export(export(tmp_path / "export.csv", [line]), ExportMap())
    with monkeypatch.context() as patch, ledger_in(tmp_path) as ledger:
        for module in ("store", "run"):
            patch.setattr(f"batchpay.ledger.sqlite.{module}.now_ms", lambda: int((time.time() - 30 * 86_400) * 1000))
        name = add_batch(ledger, [Planned(1, State.IN_DOUBT)])
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [replace(MASKED, row=2)], file="others.csv")
        batch = ledger.find(name)
        found = found_doubts(ledger, batch, match(ledger, batch, read.lines, days=5))
        assert {doubt.row.row: doubt.decision.state for doubt in found if doubt.decision} == settled


@pytest.mark.parametrize(("one", "other", "fits"), [
    ("sbx1", "sbx1", True), ("sbx1", "sbx11", False), ("sbx****01", "sbx000000001", True),
    ("sbx****01", "sbx000000011", False), ("sbx****01", "tbx000000001", False), ("sbx****01", "sbx1", False),
    ("sbx****x1", "sbx1", False), ("****", "anything", True), ("sbx****3924-****7", "sbx64844-39241234567", True),
    ("sbx****01", "sbx00****", True), ("sbx****01", "sbx****11", False), ("sbx****01", "t****01", False),
])  # fmt: skip
def test_what_is_left_of_a_reference_fits_or_does_not(one: str, other: str, fits: bool) -> None:
    """Its beginning and its end are known: whichever of the two was masked."""
    assert (may_be(one, other), may_be(other, one)) == (fits, fits)


@pytest.mark.parametrize(("references", "told"), [
    ({3: "R1"}, "row 3: the ledger knows gateway_reference R1 from row 1 of batch BATCH: one payment"),
    ({3: "00r1"}, "row 3: the ledger knows gateway_reference 00r1 from row 1 of batch BATCH"),
    ({3: "R1****"}, "row 3: gateway_reference R1**** may be that of row 1 of batch BATCH"),
    ({4: "R3"}, "from row 3 of batch BATCH"), ({3: "OLD"}, "from row 7 of batch OTHER"),
    ({3: "SBX000000001"}, "may be that of row 8 of batch OTHER, of which the ledger knows SBX****01 alone"),
    ({3: "SBX****01"}, "may be that of row 8 of batch OTHER"),
    ({3: "X1", 4: "x1"}, "rows 3 and 4 have one gateway_reference"), ({3: "R3", 4: "SBX000000002"}, None),
    ({3: "TRIED"}, None), ({3: "0", 4: "0"}, None), ({}, None),
])  # fmt: skip
def test_a_reference_of_another_row_is_refused(tmp_path: Path, references: dict[int, str], told: str | None) -> None:
    """One payment in the portal proved three rows. A row's own reference is its own, and a rehearsal proves nothing."""
    rows = [Planned(1, reference="R1"), Planned(3, State.IN_DOUBT, reference="R3"), Planned(4, State.IN_DOUBT)]
    old = [Planned(7, State.DECLINED, reference="OLD"), Planned(8, reference="SBX****01")]
    with ledger_in(tmp_path) as ledger:
        other = add_batch(ledger, old, file="old.csv", environment=Environment.LIVE)
        add_batch(ledger, [Planned(1, reference="TRIED")], file="rehearsal.csv", environment=Environment.TEST)
        batch = ledger.find(add_batch(ledger, rows, environment=Environment.LIVE))
        found = refused_reference(ledger, batch, references)
    if told is None:
        assert found is None
    else:
        assert found is not None
        assert told.replace("BATCH", batch.batch).replace("OTHER", other) in found
