"""A batch held against exports: every row and line gets one verdict, and what is not certain is matched to nothing."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import openpyxl
import pytest

from batchpay.errors import FileRefused
from batchpay.payment import State, Totals
from batchpay.reconciliation.matching import _near, match
from batchpay.reconciliation.statement import ExportLine, ExportMap, ReportedStatus, load_export_map, read_export
from batchpay.reconciliation.verdicts import MatchStatus, Reconciliation, found_doubts, reconcile
from tests.support.ledger_factory import Planned, add_batch, ledger_in


def today() -> datetime.date:
    """The day on which a batch of now is sent: another one may begin while tests run."""
    return datetime.datetime.now(datetime.UTC).date()


HEADER = "Transaction ID,Invoice Number,Amount,Date,Account,Status"


def export(path: Path, lines: Sequence[str], header: str = HEADER) -> Path:
    """Write an export; `TODAY` stands for the day on which the batch was sent."""
    path.write_text("\n".join([header, *lines]).replace("TODAY", today().isoformat()) + "\n", "utf-8")
    return path


def held_against(
    tmp_path: Path,
    rows: Sequence[Planned],
    lines: Sequence[str],
    *,
    header: str = HEADER,
    others: Sequence[Planned] = (),
    mapping: ExportMap | None = None,
    today: datetime.date | None = None,
) -> tuple[Reconciliation, dict[str, str], dict[int, State | None]]:
    """Reconcile and give the result, the verdict of each row (`4`) and line (`there 4`), and what could be settled."""
    read = read_export(export(tmp_path / "export.csv", lines, header), mapping or ExportMap())
    with ledger_in(tmp_path) as ledger:
        if others:
            add_batch(ledger, others, file="others.csv")
        batch = ledger.find(add_batch(ledger, rows))
        matching = match(ledger, batch, read.lines, 5, today)
        found = list(found_doubts(ledger, batch, matching))
        doubts = {doubt.row.row: doubt.decision.state if doubt.decision else None for doubt in found}
        assert None not in [doubt.decision.state for doubt in found if doubt.decision], "a person decides: no decision"
        result = reconcile(ledger, batch, read, matching, tmp_path / "out.csv")
    verdicts: dict[str, str] = {}
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            again = line["verdict"] == MatchStatus.AGAIN_THERE
            name = f"there {line['line_there']}" if again or not line["row"] else line["row"]
            verdicts[name] = line["verdict"]
    valid = [row for row in rows if row.state is not State.REJECTED]
    assert result.total_here == Totals(len(valid), sum(row.amount_cents for row in valid))
    assert result.total_there.rows == len(read.lines)
    return result, verdicts, doubts


def test_every_row_and_line_has_a_verdict(tmp_path: Path) -> None:
    """Matched, differing, missing, unknown, doubled and unreadable are told apart, and all of it adds up."""
    rows = [
        Planned(1, reference="R1"),
        Planned(2, reference="R2", amount_cents=2000),
        Planned(3, reference="R3"),
        Planned(4, State.DECLINED),
        Planned(5, State.PENDING),
        Planned(6, reference="R6"),
        Planned(7, State.DECLINED),
    ]
    result, verdicts, _ = held_against(tmp_path, rows, [
        "R1,INV-1,12.50,TODAY,x6789,Settled",
        "R2,INV-2,20.01,TODAY,x6789,Settled",
        "R8,INV-80,12.50,TODAY,x1111,Settled",
        "R4,INV-4,12.50,TODAY,x6789,Settled",
        "r6,,12.50,TODAY,x6789,Returned",
        "R1,INV-1,12.50,TODAY,x6789,Settled",
        "R9,INV-90,a lot,TODAY,x1111,Settled",
        ",,1000.00,,,",
    ])  # fmt: skip
    assert verdicts == {
        "1": "matched", "2": "amount differs", "3": "missing there", "4": "status differs",
        "5": "not sent or declined", "6": "status differs", "7": "not sent or declined",
        "there 4": "unknown here", "there 7": "there again", "there 8": "unreadable",
    }  # fmt: skip
    assert result.statuses == [
        "matched", "amount differs", "status differs", "missing there", "not sent or declined", "there again",
        "unknown here", "unreadable",
    ]  # fmt: skip
    assert result.here[MatchStatus.AMOUNT_DIFFERS] == Totals(1, 2000)
    assert result.there[MatchStatus.AMOUNT_DIFFERS] == Totals(1, 2001)
    assert result.exit_code == 3


def test_all_matched_is_exit_code_0(tmp_path: Path) -> None:
    """Rows that all stand there leave nothing to do, in an export that writes debits with a minus too."""
    rows = [Planned(1, reference="R1"), Planned(2, State.DECLINED)]
    result, _, _ = held_against(tmp_path, rows, ["R1,,-12.50,TODAY,,Settled", "R7,INV-2,-12.50,TODAY,,Declined"])
    assert result.exit_code == 0
    assert result.there[MatchStatus.MATCHED] == Totals(2, -2500)


@pytest.mark.parametrize("word", ["Returned - R01", "R03 no account", "Charged Back", "NSF", "Rejected by bank"])
def test_a_payment_that_failed_in_the_banks_own_words_is_no_match(tmp_path: Path, word: str) -> None:
    """A return in words that were not on the list stood among the matched ones, with exit code 0."""
    rows = [Planned(1, reference="R1"), Planned(2, reference="R2")]
    result, verdicts, _ = held_against(
        tmp_path, rows, [f"R1,INV-1,12.50,TODAY,x6789,{word}", "R2,INV-2,12.50,TODAY,x6789,Pending"]
    )
    assert (verdicts, result.exit_code) == ({"1": "status differs", "2": "matched"}, 3)


@pytest.mark.parametrize("word", ["Returned - R01", "NSF"])
def test_a_further_line_in_the_banks_own_words_keeps_a_row_in_doubt(tmp_path: Path, word: str) -> None:
    """Paid, and then something that nobody knows: `--settle` took it for accepted, which is final."""
    lines = ["R9,INV-1,12.50,TODAY,x6789,Settled", f"R9,INV-1,12.50,TODAY,x6789,{word}"]
    assert held_against(tmp_path, [Planned(1, State.IN_DOUBT)], lines)[2] == {1: None}


def test_a_word_that_the_map_knows_is_told_no_more(tmp_path: Path) -> None:
    """`[status]` of the map says what the other side means by it, also where it looks like a return."""
    mapping = ExportMap(accepted=frozenset({"cleared, no return"}))
    lines = ['R1,INV-1,12.50,TODAY,x6789,"Cleared, no return"']
    result, verdicts, _ = held_against(tmp_path, [Planned(1, reference="R1")], lines, mapping=mapping)
    assert (verdicts, result.exit_code) == ({"1": "matched"}, 0)


def test_the_state_of_an_address_is_no_status(tmp_path: Path) -> None:
    """`NY` beside a city says nothing of the payment; without one a column of that name is a status."""
    rows = [Planned(1, reference="R1")]
    for place, expected in (("City", "matched"), ("Note", "status differs")):
        folder = tmp_path / place
        folder.mkdir()
        header = f"Reference,Amount,{place},State"
        assert held_against(folder, rows, ["R1,12.50,Albany,NY"], header=header)[1] == {"1": expected}


def test_a_row_that_waits_here_and_stands_there_is_told(tmp_path: Path) -> None:
    """The next run would pay it again: a difference that is counted by itself; what was declined there it would not."""
    rows = [Planned(1, State.PENDING), Planned(2, State.PENDING), Planned(3, State.PENDING, 700)]
    lines = ["R1,INV-1,12.50,TODAY,x6789,Settled", "R3,INV-3,7.00,TODAY,x6789,Declined"]
    result, verdicts, _ = held_against(tmp_path, rows, lines)
    assert verdicts["1"] == "status differs"
    assert result.pending_there == Totals(1, 1250)
    assert result.exit_code == 3


def test_rows_in_doubt_that_the_export_has_can_be_settled(tmp_path: Path) -> None:
    """Found as accepted or declined, with the same amount, decides; anything else is left to a person."""
    rows = [Planned(number, State.IN_DOUBT, amount_cents=100 * number) for number in range(1, 7)]
    result, verdicts, settled = held_against(tmp_path, rows, [
        "R1,INV-1,1.00,TODAY,x6789,Settled",
        "R2,INV-2,2.00,TODAY,x6789,Declined",
        "R3,INV-3,3.01,TODAY,x6789,Settled",
        "R4,INV-4,4.00,TODAY,x6789,Pending review",
        "R5,INV-5,5.00,TODAY,x6789,",
    ])  # fmt: skip
    assert settled == {1: State.ACCEPTED, 2: State.DECLINED, 3: None, 4: None, 5: None}
    assert verdicts["6"] == "in doubt, not found"
    assert result.in_doubt.rows == 6
    assert result.exit_code == 7


def test_a_line_without_numbers_is_matched_by_amount_account_and_date(tmp_path: Path) -> None:
    """Only where one row and one line fit each other, in the days after sending; it settles no row in doubt."""
    rows = [
        Planned(1, amount_cents=100, last_four="0001"),
        Planned(2, amount_cents=100, last_four="0002"),
        Planned(3, amount_cents=300, last_four="0003"),
        Planned(4, amount_cents=300, last_four="0003"),
        Planned(5, State.IN_DOUBT, amount_cents=500, last_four="0005"),
    ]
    late = (today() + datetime.timedelta(days=6)).isoformat()
    _, verdicts, settled = held_against(
        tmp_path, rows,
        ["1.00,TODAY,x0001,posted", f"1.00,{late},x0002,posted", "3.00,TODAY,x0003,posted", "5.00,TODAY,5,posted"],
        header="Amount,Date,Account,Status",
    )  # fmt: skip
    assert verdicts == {
        "1": "matched", "2": "missing there", "3": "missing there", "4": "missing there", "5": "in doubt, found",
        "there 3": "unknown here", "there 4": "unknown here",
    }  # fmt: skip
    assert settled == {5: None}


def test_another_number_means_another_payment(tmp_path: Path) -> None:
    """Where the export knows our invoice numbers, a like amount under a foreign number proves nothing."""
    rows = [Planned(1), Planned(2, State.IN_DOUBT)]
    _, verdicts, settled = held_against(
        tmp_path, rows, ["R1,INV-1,12.50,TODAY,x6789,Settled", "R2,MANUAL-9,12.50,TODAY,x6789,Settled"]
    )
    assert verdicts == {"1": "matched", "2": "in doubt, not found", "there 3": "unknown here"}
    assert settled == {}


def test_how_a_line_was_found_stands_beside_it(tmp_path: Path) -> None:
    """A person trusts a reference more than an amount; lines of sums are no payments, and are counted as left out."""
    rows = [Planned(1, reference="R1"), Planned(2), Planned(3, amount_cents=77, last_four="0003", invoice="")]
    lines = ["R1,,12.50,TODAY,,", ",INV-2,12.50,TODAY,,", ",,0.77,TODAY,x0003,", ",,25.77,,,", ",,25.77,,,total"]
    held_against(tmp_path, rows, lines)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        found = [(line["found_by"], line["reference_there"], line["invoice_there"]) for line in csv.DictReader(file)]
    assert found == [("reference", "R1", ""), ("invoice", "", "INV-2"), ("amount, account and date", "", "")]
    assert read_export(tmp_path / "export.csv", ExportMap()).skipped == 2


def test_money_that_went_the_other_way_is_another_payment(tmp_path: Path) -> None:
    """In an export with both signs a refund does not pass for the payment."""
    rows = [Planned(1, State.IN_DOUBT), Planned(2, amount_cents=700, direction="CREDIT")]
    _, verdicts, _ = held_against(
        tmp_path, rows, ["-12.50,TODAY,x6789", "-7.00,TODAY,x6789", "99.00,TODAY,x1"], header="Amount,Date,Account"
    )
    assert verdicts["1"] == "in doubt, not found"
    assert verdicts["2"] == "matched"


def test_rows_that_share_an_invoice_are_paired_by_amount(tmp_path: Path) -> None:
    """As many lines as rows of an amount pair up; with fewer lines nobody knows which row is meant."""
    rows = [
        Planned(1, invoice="A"), Planned(2, State.IN_DOUBT, invoice="A"), Planned(3, invoice="A", amount_cents=99),
        Planned(4, invoice="B"), Planned(5, invoice="B"),
    ]  # fmt: skip
    _, verdicts, settled = held_against(
        tmp_path, rows, ["A,12.50,Settled", "a,0.99,Settled", "B,12.50,Settled", "B,12.50,Settled"],
        header="Invoice,Amount,Status",
    )  # fmt: skip
    assert verdicts == {
        "1": "missing there", "2": "in doubt, not found", "3": "matched", "4": "matched", "5": "matched",
        "there 2": "unknown here",
    }  # fmt: skip
    assert settled == {}


def test_lines_of_other_batches_are_known_as_theirs(tmp_path: Path) -> None:
    """A month's export holds other batches too: their lines are no difference, and their likeness is not a match."""
    others = [Planned(1, reference="Z1", invoice="OLD-1"), Planned(2, amount_cents=800, invoice="OLD-2")]
    rows = [Planned(1, reference="R1"), Planned(2, State.IN_DOUBT, amount_cents=800)]
    result, verdicts, _ = held_against(
        tmp_path, rows,
        ["R1,,12.50,TODAY,x6789,Settled", "Z1,,12.50,TODAY,x6789,Settled", ",,8.00,TODAY,x6789,Settled"],
        others=others,
    )  # fmt: skip
    assert verdicts == {
        "1": "matched", "2": "in doubt, not found", "there 3": "of another batch", "there 4": "unknown here",
    }  # fmt: skip
    assert result.there[MatchStatus.OTHER_BATCH] == Totals(1, 1250)


@pytest.mark.parametrize(("days_away", "is_theirs"), [(31, True), (32, False), (-31, True), (-32, False), (None, True)])
def test_batches_of_an_exports_days_are_looked_at(tmp_path: Path, days_away: int | None, is_theirs: bool) -> None:
    """From a month before a batch was registered until a month after its run ended one may be its own, or undated."""
    day = "" if days_away is None else (today() + datetime.timedelta(days=days_away)).isoformat()
    _, verdicts, _ = held_against(
        tmp_path, [Planned(1, reference="R1")], [f"Z9,OLD-1,8.00,{day},x6789,Settled"],
        others=[Planned(1, amount_cents=800, invoice="OLD-1")],
    )  # fmt: skip
    assert verdicts["there 2"] == ("of another batch" if is_theirs else "unknown here")


def test_a_batch_that_took_weeks_is_looked_at_until_its_end(tmp_path: Path) -> None:
    """It was registered in October and its run ended today: today's line is its own."""
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1)])
        begun = ledger.find(name)
    line = ExportLine(2, "R1", "", 1250, "12.50", today().isoformat(), "", "", ReportedStatus.ACCEPTED, on=today())
    long = replace(begun, registered_at=begun.registered_at - datetime.timedelta(days=40))
    assert _near(long, [line], 5)
    assert not _near(replace(long, finished_at=None), [line], 5)


def test_a_line_of_nothing_is_a_line(tmp_path: Path) -> None:
    """A fee of 0.00 gives an export without signs none, and a payment of 0.00 is matched like any other."""
    rows = [
        Planned(1, State.IN_DOUBT, amount_cents=500, last_four="0005", direction="CREDIT"),
        Planned(2, amount_cents=1, last_four="0002"),
    ]
    _, verdicts, _ = held_against(
        tmp_path, rows, ["5.00,TODAY,x0005,", "0.00,TODAY,x0002,", "0.00,TODAY,,OLD-1"],
        header="Amount,Date,Account,Invoice", others=[Planned(1, amount_cents=0, invoice="OLD-1")],
    )  # fmt: skip
    assert verdicts == {
        "1": "in doubt, found", "2": "missing there", "there 3": "unknown here", "there 4": "of another batch",
    }  # fmt: skip


DOUBT = Planned(1, State.IN_DOUBT)


@pytest.mark.parametrize(("line", "settled"), [
    ("R9,INV-1,12.50,TODAY,x6789,Settled", {1: State.ACCEPTED}),
    ("R9,INV-1,12.50,YESTERDAY,x6789,Settled", {1: State.ACCEPTED}), ("R9,INV-1,12.50,LAST_MONTH,x6789,Settled", {}),
    ("R9,INV-1,12.50,,x6789,Settled", {}), ("R9,INV-1,12.50,TODAY,x6789,Returned", {1: State.DECLINED}),
    ("R9,INV-1,12.50,TODAY,x6789,Reversed", {1: State.DECLINED}), ("R9,INV-1,12.50,TODAY,x6789,Pending", {1: None}),
    ("R9,INV-1,12.50,TODAY,x6789,Settled - Returned", {1: None}), ("R9,,12.50,TODAY,x6789,Settled", {1: None}),
])  # fmt: skip
def test_a_row_in_doubt_is_proven_by_its_own_line_alone(
    tmp_path: Path, line: str, settled: dict[int, State | None]
) -> None:
    """Last month's export had a line with the invoice number of this month's row in doubt, which was then settled."""
    for word, days in (("YESTERDAY", 1), ("LAST_MONTH", 30)):
        line = line.replace(word, (today() - datetime.timedelta(days=days)).isoformat())
    _, verdicts, found = held_against(tmp_path, [DOUBT], [line])
    assert found == settled
    assert verdicts["1"] == ("in doubt, found" if settled else "in doubt, not found")


def test_a_payment_that_came_back_is_not_read_as_paid(tmp_path: Path) -> None:
    """A reversal stands there as a second line, by its word or by its sign alone: a person decides what follows."""
    paid = "R9,INV-1,12.50,TODAY,x6789,Settled"
    for number, line in enumerate(("R10,INV-1,12.50,TODAY,x6789,Returned", "R10,INV-1,-12.50,TODAY,x6789,Settled")):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, verdicts, settled = held_against(folder, [DOUBT], [paid, line])
        assert (settled, verdicts["there 3"]) == ({1: None}, "there again")
    (tmp_path / "sign").mkdir()
    lines = ["R9,INV-1,-12.50,TODAY,x6789,Settled", "R11,INV-11,3.00,TODAY,x6789,Settled"]
    assert held_against(tmp_path / "sign", [DOUBT], lines)[2] == {1: None}


def test_rows_in_doubt_that_look_the_same_are_not_guessed(tmp_path: Path) -> None:
    """Of two rows with one invoice and amount one was paid and one declined: nobody knows which."""
    rows = [Planned(1, State.IN_DOUBT, invoice="A"), Planned(2, State.IN_DOUBT, invoice="A")]
    for number, (second, settled) in enumerate((("Declined", {}), ("Settled", dict.fromkeys((1, 2), State.ACCEPTED)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = ["R1,A,12.50,TODAY,x6789,Settled", f"R2,A,12.50,TODAY,x6789,{second}"]
        assert held_against(folder, rows, lines)[2] == settled


def test_the_better_of_two_lines_speaks_for_a_row(tmp_path: Path) -> None:
    """A first attempt declined and a second one paid is paid; the other line is told as a further one."""
    rows = [Planned(1, State.IN_DOUBT)]
    _, verdicts, settled = held_against(
        tmp_path, rows, ["R1,INV-1,12.50,TODAY,x6789,Declined", "R2,INV-1,12.50,TODAY,x6789,Settled"]
    )
    assert settled == {1: State.ACCEPTED}
    assert verdicts == {"1": "in doubt, found", "there 2": "there again"}


def test_zeros_that_a_spreadsheet_dropped_do_not_matter(tmp_path: Path) -> None:
    """A number in a workbook has lost its zeros in front; it is known all the same."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["Our bank", None, None])
    sheet.append(["Reference", "Amount", "Date"])
    sheet.append([4711, 12.5, datetime.datetime.now(datetime.UTC).replace(tzinfo=None)])
    book.save(tmp_path / "e.xlsx")
    read = read_export(tmp_path / "e.xlsx", ExportMap())
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [Planned(1, reference="0004711")]))
        assert match(ledger, batch, read.lines, 5).best(1) is read.lines[0]
    assert read.lines[0].line == 3


def test_references_that_lost_their_digits_are_none(tmp_path: Path) -> None:
    """A spreadsheet had made one of two payments' references: two lines for one row, and none for the other."""
    lines = [f"1.23457E+17,INV-{row},12.50,TODAY,x6789,Settled" for row in (1, 2)]
    assert [line.reference for line in read_export(export(tmp_path / "e.csv", lines), ExportMap()).lines] == ["", ""]


def test_a_map_names_columns_words_and_dates(tmp_path: Path) -> None:
    """With a map the export's own headers and words are read; case and blanks don't matter."""
    (tmp_path / "m.toml").write_text(
        '[columns]\nreference = "Vorgang"\ndate = "Tag"\nlast_four = "Konto"\n'
        '[status]\naccepted = ["Gebucht"]\ndeclined = []\nmissing = "accepted"\n[format]\ndate = "%d.%m.%y"\n',
        "utf-8",
    )
    mapping = load_export_map(tmp_path / "m.toml", ExportMap)
    path = export(
        tmp_path / "e.csv", ["V1;1.234,50;21.11.26;x6789;gebucht", "V2;1;22.11.26;;", "V3;;;;declined"],
        "Vorgang;Amount;Tag;Konto;Status",
    )  # fmt: skip
    lines = read_export(path, mapping).lines
    assert [line.cents for line in lines] == [123450, 100, None]
    assert [line.standing for line in lines] == [ReportedStatus.ACCEPTED, ReportedStatus.ACCEPTED, ReportedStatus.OTHER]
    assert lines[0].on == datetime.date(2026, 11, 21)
    (tmp_path / "m.toml").write_text('[status]\ndeclined = ["Storno"]\n', "utf-8")
    standings = [
        load_export_map(tmp_path / "m.toml", ExportMap).standing_of(word) for word in ("STORNO", "settled", "returned")
    ]
    assert standings == [ReportedStatus.DECLINED, ReportedStatus.ACCEPTED, ReportedStatus.OTHER]


def test_the_amount_is_the_column_that_the_map_or_the_bank_calls_so(tmp_path: Path) -> None:
    """Before fees, after them, and as the bank's own debit: each is another amount. No column is two things."""
    path = export(tmp_path / "e.csv", ["R1,5.00,4.90,,7.00"], "Ref,Amount,Net,Debit,Credit")
    for mapping, cents in ((ExportMap(), 500), (ExportMap(columns={"amount": "Net"}), 490)):
        read = read_export(path, mapping)
        assert [line.cents for line in read.lines] == [cents]
        assert set(read.columns) == {"reference", "amount"}
    path = export(tmp_path / "e.csv", ["R1,5.00"], "Invoice Number,Amount")
    assert "invoice" not in read_export(path, ExportMap(columns={"reference": "Invoice Number"})).columns


def test_one_column_for_money_out_and_one_for_money_in(tmp_path: Path) -> None:
    """Of debit and credit one is given; both or none can't be read."""
    path = export(
        tmp_path / "e.csv",
        ["R1,5.00,", "R2,,7.00", "R3,1.00,1.00", "R4,,", "R5,0.00,2", "R6,1.00,x"],
        "Ref,Debit,Credit",
    )
    lines = read_export(path, ExportMap()).lines
    assert [line.cents for line in lines] == [-500, 700, None, None, 200, None]
    assert [line.amount_text for line in lines] == ["5.00", "7.00", "1.00", "", "2", "1.00"]  # what a person is told


@pytest.mark.parametrize(
    ("numbers", "is_read"), [("1 2 3", False), ("03 01 02", False), ("0 1 2", False), ("1 2 4", True), ("1 2 2", True)]
)
def test_a_column_that_numbers_the_lines_is_no_reference(tmp_path: Path, numbers: str, is_read: bool) -> None:
    """Settled by last month's export, a row had reference 3: all payments of this month's were missing there.

    Its line 3 belonged to that row; and as its references seemed to be known, no line was found by its invoice number.
    """
    lines = [f"{at},INV-{row},12.50,TODAY" for row, at in enumerate(numbers.split(), start=1)]
    others = [Planned(1, reference="3", invoice="OLD-1")]
    header = "ID,Invoice Number,Amount,Date"
    rows = [Planned(row, reference=f"R{row}") for row in (1, 2, 3)]
    _, verdicts, _ = held_against(tmp_path, rows, lines, header=header, others=others)
    assert set(verdicts.values()) == {"matched"} or is_read
    read = read_export(tmp_path / "export.csv", ExportMap())
    assert (read.columns.get("reference"), [line.reference for line in read.lines]) == (
        ("ID", numbers.split()) if is_read else (None, [""] * 3)
    )
    mapped = read_export(tmp_path / "export.csv", ExportMap(columns={"reference": "ID"}))
    assert [line.reference for line in mapped.lines] == numbers.split(), "whoever names the column knows it"


def test_a_dash_is_what_a_spreadsheet_shows_for_zero(tmp_path: Path) -> None:
    """An export that was opened in a spreadsheet, with its accounting format: every line was unreadable."""
    lines = ["R1,5.00,-", "R2, $-   ,7.00", "R3,0.00,\u2013", "R4,-5.00,0.00", "R5,--,1.00"]
    read = read_export(export(tmp_path / "e.csv", lines, "Ref,Debit,Credit"), ExportMap()).lines
    assert [line.cents for line in read] == [-500, 700, None, -500, None]
    assert [line.amount_text for line in read] == ["5.00", "7.00", "", "-5.00", "--"]


@pytest.mark.parametrize(("text", "told"), [
    ("[colums]\n", r"\[colums\].*did you mean columns"),
    ('[columns]\nrefernce = "x"\n', "columns.refernce.*did you mean reference"),
    ("[columns]\nreference = 1\n", "must contain text"), ('[status]\naccepted = "Settled"\n', "list of words"),
    ("[status]\ndeclined = [1]\n", "list of words"), ('[status]\nmissing = "paid"\n', "accepted, declined or other"),
    ("[format]\ndate = 1\n", "must be text such as"), ("columns = 1\n", "must be a table"),
    ("[columns\n", "not valid TOML"),
])  # fmt: skip
def test_a_map_with_a_slip_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """A mistyped key would silently match less."""
    (tmp_path / "m.toml").write_text(text, "utf-8")
    with pytest.raises(FileRefused, match=told):
        load_export_map(tmp_path / "m.toml", ExportMap)


def test_an_export_without_usable_headers_is_refused(tmp_path: Path) -> None:
    """Nothing is guessed from the cells: without headers, or without those of the map, the export is refused."""
    for header in ("Reference,Foo", "Foo,Amount"):
        path = export(tmp_path / "e.csv", ["1,2"], header)
        with pytest.raises(FileRefused, match=r"Name it in a map \(--map\)"):
            read_export(path, ExportMap())
    with pytest.raises(FileRefused, match=r"Amonut \(did you mean Amount\?\)"):
        read_export(path, ExportMap(columns={"amount": "Amonut"}))
    with pytest.raises(FileRefused, match="no line of headers with an amount and what to match by"):
        read_export(path, ExportMap(columns={"date": "Foo"}))


def test_whole_account_numbers_of_an_export_go_no_further(tmp_path: Path) -> None:
    """What is written of the other side's account is its last four."""
    held_against(tmp_path, [Planned(1, reference="R1")], ["R1,,12.50,TODAY,98765432106789,Settled"])
    written = (tmp_path / "out.csv").read_text("utf-8")
    assert "****6789" in written
    assert "98765432106789" not in written


@pytest.mark.parametrize(("cents", "days_after", "settled"), [
    (1250, 0, {}), (1300, 0, {1: State.ACCEPTED}), (1250, 30, {1: State.ACCEPTED}),
], ids=["could be the purged payment", "another amount", "long before the line"])  # fmt: skip
def test_a_line_that_a_purged_payment_may_own_settles_nothing(
    tmp_path: Path, cents: int, days_after: int, settled: dict[int, State]
) -> None:
    """Another batch paid the bill of a row in doubt, and was purged: its invoice number is gone.

    The line would have settled the row as accepted, by the other batch's payment.
    """
    day = today() + datetime.timedelta(days=days_after)
    line = f"T1,INV-1,12.50,{day.isoformat()},x6789,Settled"
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1, amount_cents=cents, invoice="INV-1")], file="paid.csv")
        ledger.purge(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1), "ann", "retention rule 7")
        assert ledger.find(None).purged_at is not None
    _, _, doubts = held_against(tmp_path, [Planned(1, State.IN_DOUBT)], [line], today=day)
    assert doubts == settled


def workbook(path: Path, **sheets: Sequence[str]) -> Path:
    """Write a workbook; what begins with `hidden` can't be seen."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, lines in sheets.items():
        sheet = book.create_sheet(name)
        for line in lines:
            sheet.append(line.split(","))
        sheet.sheet_state = "hidden" if name.startswith("hidden") else "visible"
    book.save(path)
    return path


def test_a_sheet_of_returns_is_not_passed_over(tmp_path: Path) -> None:
    """Only the first sheet was read: all matched, with exit code 0, beside a sheet of returns."""
    paid, back = [HEADER, "R1,INV-1,12.50,,x6789,Settled"], [HEADER, "R1,INV-1,12.50,,x6789,Returned"]
    with pytest.raises(FileRefused, match=r"several sheets of payments, 'Paid', 'Returns'; put each"):
        read_export(workbook(tmp_path / "e.xlsx", Paid=paid, Returns=back), ExportMap())
    cover = workbook(tmp_path / "e.xlsx", Cover=["Bank of X"], Paid=paid, hidden=back)
    assert [line.status_text for line in read_export(cover, ExportMap()).lines] == ["Settled"]
    with pytest.raises(FileRefused, match="no header is known"):
        read_export(workbook(tmp_path / "e.xlsx", Cover=["Bank of X"], Notes=["nothing"]), ExportMap())


@pytest.mark.parametrize("word", ["Total", "TOTALS:", "Grand total", "Subtotal"])
def test_a_line_that_is_called_a_total_is_no_payment(tmp_path: Path, word: str) -> None:
    """It stood among the payments that are unknown here; with a date or an account it is one.

    The word may be in the first column, which is often that of the dates.
    """
    lines = ["R1,INV-1,12.50,TODAY,x6789,Settled", f"{word},,12.50,,,", f"{word},,12.50,TODAY,,", f",,12.50,{word},,"]
    lines += [f",{word},12.50,,,", f"{word},,12.50,,x6789,"]
    read = read_export(export(tmp_path / "e.csv", lines), ExportMap())
    assert ([line.line for line in read.lines], read.skipped) == ([2, 4, 7], 3)
