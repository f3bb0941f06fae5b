"""Which line of an export is which row, where other batches, rehearsals and money that came back come between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.ledger.records import Decision, LedgerRow
from batchpay.payment import Environment, State
from batchpay.reconciliation.matching import day_of, in_window, match
from batchpay.reconciliation.statement import ExportLine, ExportMap, ReportedStatus, read_export
from batchpay.reconciliation.verdicts import found_doubts, reconcile
from tests.reconciliation.test_reconciliation import DOUBT, export, held_against, today
from tests.support.ledger_factory import Planned, add_batch, ledger_in


def line_of(reference: str, last_four: str = "") -> ExportLine:
    """A line about 12.50 that was paid today."""
    return ExportLine(
        2, reference, "", 1250, "12.50", today().isoformat(), last_four, "", ReportedStatus.ACCEPTED, on=today()
    )


@pytest.mark.parametrize("state", [State.ACCEPTED, State.IN_DOUBT])
def test_a_reference_that_rows_of_two_batches_have(tmp_path: Path, state: State) -> None:
    """A gateway that begins its numbers anew: the line was the later batch's alone, and missing for the earlier one.

    It is held against the batch that is asked about, whichever came first; a row in doubt is not settled by it.
    """
    with ledger_in(tmp_path) as ledger:
        names = [add_batch(ledger, [Planned(1, state, reference="R1")], file=file) for file in ("a.csv", "b.csv")]
        for name in names:
            line = line_of("R1")
            batch = ledger.find(name)
            matching = match(ledger, batch, [line], 5)
            assert matching.best(1) is (line if state is State.ACCEPTED else None)
            assert list(found_doubts(ledger, batch, matching)) == []
            assert line.other_batch == ""


def test_a_reference_of_two_rows_settles_none(tmp_path: Path) -> None:
    """A gateway answered with the reference of an earlier row: by its amount, the line settled the later one."""
    rows = [Planned(1, reference="R1", amount_cents=999), Planned(2, State.IN_DOUBT, reference="R1")]
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, rows))
        found = list(found_doubts(ledger, batch, match(ledger, batch, [line_of("R1")], 5)))
    assert [one.decision for one in found] in ([], [None])


def test_a_reference_of_its_own_settles_a_row_in_doubt(tmp_path: Path) -> None:
    """An answer that proved nothing named the payment all the same: its line says what became of it."""
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [Planned(1, State.IN_DOUBT, reference="R1")]))
        (found,) = found_doubts(ledger, batch, match(ledger, batch, [line_of("r1")], 5))
    assert found.decision is not None
    assert found.decision.state is State.ACCEPTED


@pytest.mark.parametrize("later", ["the same batch", "the next batch"])
@pytest.mark.parametrize("known_there", ["invoice", "account"])
def test_references_of_a_bank_do_not_hide_the_other_payments(tmp_path: Path, later: str, known_there: str) -> None:
    """A row in doubt was settled by the bank's export; compared again a week later, all others were missing there.

    One of the bank's references was known by then, and so the gateway's were taken for those of other payments.
    """
    by = "INV-{0},{0}.50,TODAY," if known_there == "invoice" else ",{0}.50,TODAY,x6789"
    lines = [f"BNK-{row},{by.format(row)},Settled" for row in (1, 2, 3)]
    read = read_export(export(tmp_path / "bank.csv", lines), ExportMap())
    doubt = Planned(1, State.IN_DOUBT, amount_cents=150)
    rows = [Planned(row, reference=f"SBX-{row}", amount_cents=row * 100 + 50) for row in (2, 3)]
    with ledger_in(tmp_path) as ledger:
        first = ledger.find(add_batch(ledger, [doubt, *(rows if later == "the same batch" else [])], file="a.csv"))
        ledger.resolve(first.batch, [Decision(1, State.ACCEPTED, "BNK-1", 1)], "ann", "the bank's export")
        batch = ledger.find(first.batch if later == "the same batch" else add_batch(ledger, rows, file="b.csv"))
        matching = match(ledger, batch, read.lines, 5)
        found = {row: [line.reference for line in there] for row, there in matching.by_row.items() if row > 1}
    assert found == {2: ["BNK-2"], 3: ["BNK-3"]}


def test_a_row_settled_by_the_bank_is_found_in_the_gateways_export(tmp_path: Path) -> None:
    """It has the bank's reference, and the gateway's line has another: a payment that was made was missing there."""
    lines = [f"SBX-{row},INV-{row},12.50,TODAY,x6789,Settled" for row in (1, 2)]
    read = read_export(export(tmp_path / "gateway.csv", lines), ExportMap())
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [DOUBT, Planned(2, reference="SBX-2")]))
        ledger.resolve(batch.batch, [Decision(1, State.ACCEPTED, "BNK-1", 1)], "ann", "the bank's export")
        matching = match(ledger, batch, read.lines, 5)
    assert {row: (line.reference, line.found_by) for row, (line,) in matching.by_row.items()} == {
        1: ("SBX-1", "invoice"), 2: ("SBX-2", "reference"),
    }  # fmt: skip


def test_an_invoice_that_another_batch_has_too_proves_nothing(tmp_path: Path) -> None:
    """The rent of last month and of this one carry one number: whose line it is, a person decides."""
    rent = Planned(1, State.IN_DOUBT, invoice="RENT-7")
    lines = ["R9,RENT-7,12.50,TODAY,x6789,Settled"]
    for other, settled in ((rent.amount_cents, {}), (99, {1: State.ACCEPTED})):
        others = [Planned(4, amount_cents=other, invoice="rent-7")]
        folder = tmp_path / str(other)
        folder.mkdir()
        assert held_against(folder, [rent], lines, others=others)[2] == settled


@pytest.mark.parametrize("day", ["TODAY", "2019-02-03"])
def test_a_line_whose_reference_is_known_is_never_another_rows(tmp_path: Path, day: str) -> None:
    """R1 paid a row of another batch, however long ago: the same invoice number is no proof for a row in doubt."""
    lines = [f"R1,INV-1,12.50,{day},x6789,Settled", f"R2,INV-3,12.50,{day},x6789,Settled"]
    rows = [DOUBT, Planned(2, reference="R2", invoice="INV-2"), Planned(3, State.IN_DOUBT, invoice="INV-3")]
    others = [Planned(1, reference="r1", invoice="INV-8")]
    _, verdicts, settled = held_against(tmp_path, rows, lines, others=others)
    assert settled == {}
    assert verdicts == {
        "1": "in doubt, not found", "2": "matched", "3": "in doubt, not found", "there 2": "of another batch",
    }  # fmt: skip


def test_a_known_reference_that_fits_no_row_proves_nothing(tmp_path: Path) -> None:
    """R2 is of two other rows of the batch, whose amounts differ: its line is still no proof for the row in doubt."""
    rows = [DOUBT, *(Planned(row, reference="R2", amount_cents=row) for row in (2, 3))]
    assert held_against(tmp_path, rows, ["R2,INV-1,12.50,TODAY,x6789,Settled"])[2] == {}


def test_a_rehearsal_is_no_rival_of_a_payment(tmp_path: Path) -> None:
    """What was tried out in the test environment has the same amounts and accounts, and no bank has heard of it."""
    row = Planned(1, last_four="0001", invoice="")
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [row], file="rehearsal.csv", environment=Environment.TEST)
        batch = ledger.find(add_batch(ledger, [row], environment=Environment.LIVE))
        line = line_of("", last_four="0001")
        assert match(ledger, batch, [line], 5).best(1) is line


def test_a_refund_that_is_listed_first_is_not_the_payment(tmp_path: Path) -> None:
    """A list with the newest line on top: the payment speaks for its row, and the refund is the further line."""
    lines = ["R1,,-12.50,TODAY,,Settled", "R1,,12.50,TODAY,,Settled"]
    _, verdicts, _ = held_against(tmp_path, [Planned(1, reference="R1")], lines)
    assert verdicts == {"1": "status differs", "there 2": "there again"}


def test_a_line_of_nothing_is_not_the_cent(tmp_path: Path) -> None:
    """A bank account is tried out with 0.00 and 0.01 under one number: the row of a cent is matched, to the cent."""
    lines = ["R1,,0.00,TODAY,,Settled", "R1,,0.01,TODAY,,Settled", "R2,,0.00,TODAY,,Settled"]
    rows = [Planned(number, amount_cents=1, reference=f"R{number}") for number in (1, 2)]
    _, verdicts, _ = held_against(tmp_path, rows, lines)
    assert verdicts == {"1": "matched", "there 2": "there again", "2": "amount differs"}


@pytest.mark.parametrize(("days", "is_its"), [(-2, False), (-1, True), (0, True), (5, True), (6, False)])
def test_a_line_without_numbers_is_dated_near_its_row(tmp_path: Path, days: int, is_its: bool) -> None:
    """From the day before the row was sent, since a day begins elsewhere at another hour, until five days after."""
    day = (today() + timedelta(days=days)).isoformat()
    rows = [Planned(1, last_four="0001")]
    _, verdicts, _ = held_against(tmp_path, rows, [f"12.50,{day},x0001"], header="Amount,Date,Account")
    assert verdicts["1"] == ("matched" if is_its else "missing there")


def test_what_the_export_leaves_blank_is_blank_in_a_table(tmp_path: Path) -> None:
    """In Parquet a text of no characters is none: who looks for rows without an invoice number would miss it."""
    read = read_export(export(tmp_path / "e.csv", ["R1,,12.50,,,", "R2,,9.00,,,", ",I2,9.00,,,"]), ExportMap())
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [Planned(1, reference="R1")]))
        reconcile(ledger, batch, read, match(ledger, batch, read.lines, 5), tmp_path / "out.parquet")
    cells = pl.read_parquet(tmp_path / "out.parquet").select(pl.col(pl.String)).rows()
    assert len(cells) == 3
    assert all("" not in row for row in cells)


def test_payments_that_are_all_listed_twice_are_paired_nevertheless(tmp_path: Path) -> None:
    """As sent and as settled: two payments of one invoice have four lines, and neither row had one."""
    rows = [Planned(1, State.IN_DOUBT, invoice="A"), Planned(2, invoice="A")]
    lines = [f"{reference},A,12.50,TODAY,x6789,Settled" for reference in ("R1", "R2", "r1", "R2")]
    _, verdicts, settled = held_against(tmp_path, rows, lines)
    assert settled == {1: State.ACCEPTED}
    assert verdicts == {"1": "in doubt, found", "2": "matched", "there 4": "there again", "there 5": "there again"}


def test_one_payment_that_is_listed_twice_is_not_two(tmp_path: Path) -> None:
    """The other one is missing there: both rows were matched, with exit code 0."""
    rows = [Planned(1, invoice="A"), Planned(2, invoice="A")]
    result, verdicts, _ = held_against(tmp_path, rows, ["R1,A,12.50,TODAY,x6789,Settled"] * 2)
    assert (verdicts["1"], verdicts["2"], result.exit_code) == ("missing there", "missing there", 3)


@pytest.mark.parametrize(("known", "there", "verdict"), [
    ("R2", "R2", "missing there"), ("R2", "T-900", "matched"), ("R****2", "R2", "missing there"),
    (None, "R2", "matched"),
], ids=["known references", "numbers of its own", "masked", "none here"])  # fmt: skip
def test_a_line_with_another_reference_is_another_payment(
    tmp_path: Path, known: str | None, there: str, verdict: str
) -> None:
    """The payment is missing, and one of another system has its invoice number: it was matched, to the cent.

    Not where the export has numbers of its own, which the ledger knows from no row.
    """
    rows = [Planned(1, reference=known, invoice="A"), Planned(2, reference="R2", invoice="B")]
    lines = ["X9,A,12.50,TODAY,x6789,Settled", f"{there},B,12.50,TODAY,x6789,Settled"]
    if known == "R2":
        rows[0] = Planned(1, reference="R1", invoice="A")
    assert held_against(tmp_path, rows, lines)[1]["1"] == verdict


def test_another_reference_beside_the_own_is_the_payment_again(tmp_path: Path) -> None:
    """An attempt whose answer was lost was made after all: the second line is told beside its row."""
    lines = ["R1,INV-1,12.50,TODAY,x6789,Settled", "R9,INV-1,12.50,TODAY,x6789,Settled"]
    _, verdicts, _ = held_against(tmp_path, [Planned(1, reference="R1")], lines)
    assert verdicts == {"1": "matched", "there 3": "there again"}


def test_a_line_of_another_payment_hides_no_line_of_the_row(tmp_path: Path) -> None:
    """The other payment is listed first, and the row's own line has no reference."""
    rows = [Planned(1, reference="R1", invoice="A"), Planned(2, reference="R2", invoice="B")]
    lines = ["X9,A,12.50,TODAY,x6789,Settled", ",A,12.50,TODAY,,Settled", "R2,B,12.50,TODAY,x6789,Settled"]
    _, verdicts, _ = held_against(tmp_path, rows, lines)
    assert verdicts == {"1": "matched", "2": "matched", "there 2": "unknown here"}


def test_of_other_batches_only_rows_with_a_lines_amount_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find the bill of one row in doubt, every row of every batch there ever was had been decrypted."""
    with ledger_in(tmp_path) as ledger:
        for number in range(3):
            add_batch(ledger, [Planned(1, amount_cents=99)], file=f"{number}.csv")
        batch = ledger.find(add_batch(ledger, [DOUBT]))
        line = line_of("R9")
        line.invoice = "INV-1"
        read, rows = [], ledger.rows

        def noted(name: str, *args: Any, **named: Any) -> Iterator[LedgerRow]:
            for row in rows(name, *args, **named):
                read.append((name, row.row))
                yield row

        monkeypatch.setattr(ledger, "rows", noted)
        assert match(ledger, batch, [line], 5).best(1) is line
    assert read == [(batch.batch, 1)]


SENT, SETTLED = datetime(2026, 11, 23, 23, 30, tzinfo=UTC), datetime(2026, 12, 9, 9, 0, tzinfo=UTC)


@pytest.fixture
def row(tmp_path: Path) -> LedgerRow:
    with ledger_in(tmp_path) as ledger:
        return next(iter(ledger.rows(add_batch(ledger, [Planned(1)]))))


def test_a_row_is_of_the_day_on_which_it_was_sent(row: LedgerRow) -> None:
    """In UTC; a person's decision two weeks later is no other day, and one that was never sent has only that."""
    elsewhere = SENT.astimezone(timezone(timedelta(hours=9)))
    assert day_of(replace(row, sent_at=elsewhere, finished_at=SETTLED)) == date(2026, 11, 23)
    assert day_of(replace(row, sent_at=None, finished_at=SETTLED)) == date(2026, 12, 9)
    assert day_of(replace(row, sent_at=None, finished_at=None)) is None


@pytest.mark.parametrize(("day", "fits"), [(21, False), (22, True), (23, True), (28, True), (29, False)])
def test_a_line_fits_from_the_day_before_to_the_last_of_the_days(tmp_path: Path, day: int, fits: bool) -> None:
    """The other side's day may begin earlier."""
    path = export(tmp_path / "export.csv", [f"R1,INV-1,12.50,2026-11-{day},x6789,Settled"])
    (line,) = read_export(path, ExportMap()).lines
    assert in_window(line, SENT.date(), 5) is fits
    assert in_window(line, None, 5)
    line.on = None
    assert in_window(line, SENT.date(), 5)
