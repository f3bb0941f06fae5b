"""Why rows are missing there, said in words: another header, another order of the date, one amount for all of them."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Sequence
from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from batchpay.payment import State
from batchpay.reconciliation.hints import hints
from batchpay.reconciliation.matching import match
from batchpay.reconciliation.statement import ExportMap, read_export
from batchpay.reconciliation.verdicts import found_doubts, reconcile
from tests.support.ledger_factory import Planned, add_batch, ledger_in
from tests.support.payment_files import DATA

FIELD = DATA / "field"
needs_field = pytest.mark.skipif(not FIELD.is_dir(), reason="the collection of field files is not here")
CENTS = (284571, 50517, 332549, 115632, 37848, 85934, 38318, 237269)


def paid(direction: str, *, doubt: int | None = None, count: int = 8) -> list[Planned]:
    """Return the payments that the field files are about; one may be in doubt."""
    return [
        Planned(
            row, State.IN_DOUBT if row == doubt else State.ACCEPTED, CENTS[row - 1], direction, f"INV-301000{row}",
            last_four=f"{row:04}", reference=None if row == doubt else f"SBX-{row}",
        )
        for row in range(1, count + 1)
    ]  # fmt: skip


def today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def field(tmp_path: Path, name: str) -> Path:
    """Write a field file as of today: it is about payments of 11/30/2026."""
    text = (FIELD / name).read_text("utf-8")
    for there, days in (("11/30/2026", 0), ("2026-11-30", 0), ("12/02/2026", 2)):
        on = today() + datetime.timedelta(days=days)
        text = text.replace(there, on.isoformat() if there.startswith("2026") else f"{on:%m/%d/%Y}")
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def compared(
    tmp_path: Path, rows: Sequence[Planned], path: Path, mapping: ExportMap | None = None, days: int = 5
) -> tuple[list[dict[str, str]], list[str], dict[int, tuple[State | None, str]]]:
    """Return what was written of every row and line, what is said of missing rows, and what was concluded in doubt."""
    read = read_export(path, mapping or ExportMap())
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, rows))
        matching = match(ledger, batch, read.lines, days, today() + datetime.timedelta(days=days))
        doubts = {
            one.row.row: (one.decision.state if one.decision else None, one.why)
            for one in found_doubts(ledger, batch, matching)
        }
        reconcile(ledger, batch, read, matching, tmp_path / "out.csv")
        said = hints(ledger, batch, read, matching, path, days)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file)), said, doubts


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def verdicts(written: Sequence[dict[str, str]]) -> list[str]:
    return [one["verdict"] for one in written if one["row"] and one["verdict"] != "there again"]


@needs_field
@pytest.mark.parametrize("name", ["r_drcr.csv", "r_return.csv"])
def test_a_column_of_references_that_has_our_invoice_numbers_is_named(tmp_path: Path, name: str) -> None:
    """All eight were missing there and unknown here, though each number stood there, under Reference."""
    written, said, _ = compared(tmp_path, paid("CREDIT"), field(tmp_path, name))
    assert verdicts(written) == ["missing there"] * 8
    assert said == [
        "column Reference has the invoice numbers of 8 of the 8 rows missing there, whole: name it in a map (--map),"
        ' [columns] invoice = "Reference"'
    ]
    mapped = ExportMap(columns={"invoice": "Reference"})
    (tmp_path / "mapped").mkdir()
    written, said, _ = compared(tmp_path / "mapped", paid("CREDIT"), field(tmp_path, name), mapped)
    assert (set(verdicts(written)) - {"status differs"}, said) == ({"matched"}, [])


@needs_field
@pytest.mark.parametrize("direction", ["CREDIT", "DEBIT"])
@pytest.mark.parametrize("name", ["ri_reversal.csv", "ri_return.csv"])
def test_money_that_came_back_is_told_at_its_row(tmp_path: Path, name: str, direction: str) -> None:
    """Of credits the line with the minus was taken for the payment, and the payment for what came back."""
    written, said, _ = compared(tmp_path, paid(direction), field(tmp_path, name))
    (row,) = [one for one in written if one["row"] == "3" and one["verdict"] != "there again"]
    (again,) = [one for one in written if one["verdict"] == "there again"]
    assert (row["verdict"], row["line_there"], row["amount_there"]) == ("status differs", "4", "3325.49")
    assert row["difference"].startswith("accepted here; by line 10 of ")
    assert row["difference"].endswith("there it came back")
    assert (again["line_there"], again["difference"]) == ("10", "the money came back")
    assert (verdicts(written).count("matched"), said) == (7, [])


@needs_field
def test_a_notification_of_change_is_no_return(tmp_path: Path) -> None:
    """C01 beside Settled counted as a return: the payment went through, and the bank corrects the account."""
    _, _, doubts = compared(tmp_path, paid("DEBIT", doubt=4), field(tmp_path, "ri_return.csv"))
    assert doubts == {4: (State.ACCEPTED, "Settled there")}
    (tmp_path / "sure").mkdir()
    written, _, _ = compared(tmp_path / "sure", paid("CREDIT"), field(tmp_path, "ri_return.csv"))
    (row,) = [one for one in written if one["row"] == "4"]
    assert (row["verdict"], row["difference"]) == ("matched", "Return Code: C01")


@needs_field
def test_an_invoice_number_within_a_text_matches_and_settles_nothing(tmp_path: Path) -> None:
    """A bank's own export has no column of numbers: the whole file was refused. What proves a payment is no text."""
    written, said, doubts = compared(tmp_path, paid("CREDIT", doubt=4), field(tmp_path, "r_chase.csv"))
    assert (verdicts(written).count("matched"), said) == (7, [])
    assert {one["found_by"] for one in written} == {"invoice number in its text"}
    assert doubts == {4: (None, "the row's invoice number is only part of a text there")}


def test_a_text_of_another_amount_or_of_two_invoices_matches_nothing(tmp_path: Path) -> None:
    """Nor is a number taken that is only the beginning of another one."""
    on = today().isoformat()
    path = write(
        tmp_path / "e.csv", "Date,Description,Amount", f"{on},INV-3010001 INV-3010002,2845.71",
        f"{on},INV-3010002 INV-3010001 NORA,505.17", f"{on},paid XINV-3010003,3325.49", f"{on},INV-30100045,1156.32",
        f"{on},INV-3010005,11.00",
    )  # fmt: skip
    same = [*paid("CREDIT"), Planned(9, State.ACCEPTED, CENTS[0], "CREDIT", "INV-3010002", reference="SBX-9")]
    written, _, _ = compared(tmp_path, same, path)
    assert [one for one in written if one["row"] and one["line_there"] in ("2", "4", "5", "6")] == []


@needs_field
def test_an_export_without_an_amount_lists_its_headers_and_asks(tmp_path: Path) -> None:
    """It said "no header says which column is the amount" of a file with three amounts, and named none."""
    with pytest.raises(FileRefused) as refused:
        read_export(field(tmp_path, "r_fee.csv"), ExportMap())
    told = str(refused.value)
    assert "headers seen are: Date, Reference, Gross, Fee, Net, Status. Which of Gross, Fee, Net is the amount?" in told
    assert told.endswith('Name it in a map (--map): [columns] amount = "Gross"')


def test_what_may_be_an_account_number_is_not_shown_as_a_header(tmp_path: Path) -> None:
    """A file without a header: its first line is data."""
    path = write(tmp_path / "e.csv", "Ann Roe,4111222233,12.50,021000021", "Bob Fox,4111222234,12.51,021000021")
    with pytest.raises(FileRefused) as refused:
        read_export(path, ExportMap())
    assert "4111" not in str(refused.value)
    assert "0210" not in str(refused.value)


DAYS = 33


def a_day_that_may_be_a_month() -> datetime.date:
    """Return a day soon after today that is another one, too early or too late, where the month is read first."""
    soon = (today() + datetime.timedelta(days=days) for days in range(1, DAYS))
    may_be = ((day, day.replace(day=day.month, month=day.day)) for day in soon if day.day <= 12)
    return next(day for day, read in may_be if not -1 <= (read - today()).days <= DAYS)


def test_days_that_were_read_as_months_are_told(tmp_path: Path) -> None:
    """An export of the first days of a month: no date shows which part is the day, and none of the lines fitted."""
    rows, day = paid("CREDIT", count=2), f"{a_day_that_may_be_a_month():%d/%m/%Y}"
    lines = [f"{day},x{row.last_four},{row.amount_cents / 100:.2f}" for row in rows]
    path = write(tmp_path / "e.csv", "Date,Account,Amount", *lines)
    _, said, _ = compared(tmp_path, rows, path, days=DAYS)
    assert said == [
        f"dates such as {day} were read as month/day; as day/month 2 lines would fit rows missing there: if that is"
        ' meant, say so in a map (--map), [format] date = "%d/%m/%Y"'
    ]
    (tmp_path / "mapped").mkdir()
    written, said, _ = compared(tmp_path / "mapped", rows, path, ExportMap(date_pattern="%d/%m/%Y"), DAYS)
    assert (verdicts(written), said) == (["matched"] * 2, [])


def test_any_date_of_the_file_shows_what_comes_first(tmp_path: Path) -> None:
    """The value date had a 13th day, and so had a line of totals: both are of one program."""
    header, line = "Date,Invoice,Value Date,Amount", "02/01/2026,INV-1,02/01/2026,1.00"
    for more in ("02/01/2026,INV-2,13/01/2026,1.00", ",Total,31/01/2026,2.00"):
        read = read_export(write(tmp_path / "e.csv", header, line, more), ExportMap())
        assert read.lines[0].on == datetime.date(2026, 1, 2)


@pytest.mark.parametrize(("direction", "sign"), [("CREDIT", "-"), ("DEBIT", "")])
def test_one_line_that_is_the_sum_of_the_batch_is_told(tmp_path: Path, direction: str, sign: str) -> None:
    """Banks book a file of payments as one amount: eight payments were reported missing, and money unknown."""
    line = f"{today():%m/%d/%Y},ACH BATCH 7,{sign}{sum(CENTS) / 100:.2f}"
    path = write(tmp_path / "e.csv", "Date,Reference,Amount", line, f"{today():%m/%d/%Y},FEE 1,2.00")
    _, said, _ = compared(tmp_path, paid(direction), path)
    (one,) = said
    assert one.startswith(f"line 2 of {today():%m/%d/%Y}, 11,826.38, is the sum of the 8 rows missing there: the bank")


def test_lines_with_the_total_of_what_is_missing_are_told(tmp_path: Path) -> None:
    """The same payments under numbers of the other side: at least the totals say that none is lost."""
    lines = [f"{today():%m/%d/%Y},BNK-{number},{cents / 100:.2f}" for number, cents in enumerate(CENTS)]
    path = write(tmp_path / "e.csv", "Date,Reference,Amount", *lines)
    _, said, _ = compared(tmp_path, paid("DEBIT"), path)
    assert said == [
        "the 8 lines unknown here and the 8 rows missing there have the same total: look for what their numbers have in"
        " common"
    ]


def test_nothing_is_said_where_nothing_is_missing_or_nothing_agrees(tmp_path: Path) -> None:
    """A hint that is wrong costs more than none."""
    on = f"{today():%m/%d/%Y}"
    for name, lines in {"all": ["SBX-1,2845.71", "SBX-2,505.17", "BNK-9,7.00"], "none": ["BNK-1,1.00"]}.items():
        folder = tmp_path / name
        folder.mkdir()
        path = write(folder / "e.csv", "Date,Reference,Amount", *(f"{on},{line}" for line in lines))
        assert compared(folder, paid("DEBIT", count=2), path)[1] == []
