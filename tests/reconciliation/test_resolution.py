"""Rows in doubt as a sheet: written, filled in, read back, and refused where it is about something else."""

from __future__ import annotations

import csv
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import openpyxl
import pytest

from batchpay.errors import FileRefused, WrongUse
from batchpay.ledger.open import accept
from batchpay.ledger.records import RESTORED_REASON, Decision
from batchpay.payment import State, Totals
from batchpay.reconciliation.resolution import (
    HEADER,
    Doubt,
    decide,
    effect_of,
    read_decisions,
    reason_with_notes,
    refuse_account_numbers,
    rows_in_doubt,
    take_over,
    write_sheet,
)
from batchpay.text import instant, local_time
from tests.support.ledger_factory import Planned, add_batch, invoice_of, ledger_in, ledger_settings

BATCH = "3f2a91c0d7e1"


RESTORED_AT = datetime(2026, 11, 23, 8, tzinfo=UTC)


def doubt(row: int, cents: int = 1250, direction: str = "DEBIT") -> Doubt:
    name, account, reason = "Ada Quill", "****6789", "reset"
    reference = f"INV-{row}"
    return Doubt(row, row + 1, reference, cents, "USD", direction, name, account, None, None, reason, 0, RESTORED_AT)


DOUBTS = {row: doubt(row, cents) for row, cents in ((2, 999), (7, 123456), (9, 500))}


def filled(path: Path, answers: dict[int, tuple[str, str, str]], batch: str = BATCH) -> Path:
    """Export the rows in doubt and fill in decision, gateway_reference and note, as a person would."""
    write_sheet(path, batch, DOUBTS.values())
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    for line in lines[1:]:
        line[-3:] = answers.get(int(line[1]), ("", "", ""))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    return path


def test_a_sheet_comes_back_as_decisions(tmp_path: Path) -> None:
    """What a person fills in becomes decisions; a blank row stays in doubt; notes are kept."""
    sheet = filled(tmp_path / "d.csv", {2: ("Accepted", "G-77", ""), 7: ("SEND_AGAIN", "", "asked\nthe gateway")})
    found = read_decisions(sheet, BATCH, DOUBTS)
    assert found.decisions == [Decision(2, State.ACCEPTED, "G-77", 0), Decision(7, State.PENDING, None, 0)]
    assert found.notes == [(7, "asked the gateway")]
    assert found.blank == 1


def test_cells_at_the_end_of_a_line_may_be_left_out(tmp_path: Path) -> None:
    """A program that filled the sheet in wrote nothing after its last word."""
    sheet = filled(tmp_path / "d.csv", {2: ("accepted", "", "")})
    lines = [line.removesuffix(",,").removesuffix(",,") for line in sheet.read_text("utf-8").splitlines()]
    assert lines[1].endswith(",accepted")
    sheet.write_text("\n".join(lines), "utf-8")
    found = read_decisions(sheet, BATCH, DOUBTS)
    assert (found.decisions, found.blank) == ([Decision(2, State.ACCEPTED, None, 0)], 2)


def test_a_workbook_comes_back_with_the_numbers_a_spreadsheet_made(tmp_path: Path) -> None:
    """Row and amount may have become numbers, and the file may have been written by a spreadsheet."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(list(HEADER))
    line = [""] * len(HEADER)
    line[HEADER.index("batch")] = f"batch {BATCH}"
    line[HEADER.index("decision")] = "declined"
    sheet.append([7 if name == "row" else 1234.56 if name == "amount" else cell
                  for name, cell in zip(HEADER, line, strict=True)])  # fmt: skip
    book.save(tmp_path / "d.xlsx")
    sent = {7: replace(doubt(7, 123456), sent_from=RESTORED_AT, restored_at=None, attempts=1)}
    assert read_decisions(tmp_path / "d.xlsx", BATCH, sent).decisions == [Decision(7, State.DECLINED, None, 1)]


@pytest.mark.parametrize(("change", "told"), [
    ({"batch": "batch aaaaaaaaaaaa"}, "line 3: it is not about batch"),
    ({"amount": "1234.65"}, "line 3: the amount of row 7 is 1234.56"), ({"amount": ""}, "line 3: the amount of row 7"),
    ({"row": "8"}, "line 3: row 8 is not in doubt"), ({"row": "2"}, "line 3: row 2 is already in line 2"),
    ({"row": "7.5"}, "line 3: its row number"), ({"row": "=7"}, "line 3: its row number"),
    ({"decision": "paid"}, "line 3: a decision is one of accepted, declined, send again"),
    ({"gateway_reference": "1.23457E+17"}, "line 3: gateway_reference lost digits"),
    ({"gateway_reference": "x" * 129}, "line 3: gateway_reference is longer"),
    ({"decision": "send again", "gateway_reference": "G-1"}, "line 3: the gateway has a payment"),
    ({"note": "account 12345-6789 called"}, "line 3: the note seems to contain the account number"),
])  # fmt: skip
def test_a_sheet_about_something_else_is_refused_by_its_line(tmp_path: Path, change: dict[str, str], told: str) -> None:
    """One line that does not fit refuses the whole sheet and is named."""
    sheet = filled(tmp_path / "d.csv", {2: ("accepted", "", ""), 7: ("declined", "", "")})
    with sheet.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    for name, value in change.items():
        lines[2][HEADER.index(name)] = value
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    with pytest.raises(FileRefused) as refused:
        read_decisions(sheet, BATCH, DOUBTS)
    assert told in str(refused.value)


def test_a_workbook_to_fill_in_has_amounts_and_choices(tmp_path: Path) -> None:
    """A person adds the amounts up, and picks one of the three decisions instead of writing it."""
    write_sheet(tmp_path / "d.xlsx", BATCH, DOUBTS.values())
    sheet = openpyxl.load_workbook(tmp_path / "d.xlsx").active
    assert sheet is not None
    header, *lines = sheet.iter_rows(values_only=True)
    assert [line[header.index("amount")] for line in lines] == [9.99, 1234.56, 5]
    (choices,) = sheet.data_validations.dataValidation
    assert choices.formula1 == '"accepted,declined,send again"'


def test_a_sheet_without_our_columns_is_refused(tmp_path: Path) -> None:
    """Another file than the exported one is told by the columns that it lacks."""
    (tmp_path / "d.csv").write_text("row,decision\n2,accepted\n", "utf-8")
    with pytest.raises(FileRefused, match="no column batch, amount"):
        read_decisions(tmp_path / "d.csv", BATCH, DOUBTS)


@pytest.mark.parametrize(("name", "cell"), [("decision", "send again"), ("Decision ", ""), ("amount", "1.00")])
def test_a_sheet_with_a_column_twice_is_refused(tmp_path: Path, name: str, cell: str) -> None:
    """Ann wrote `accepted`, Ben `send again` in a column of his own: the last one counted, and nothing said so."""
    sheet = filled(tmp_path / "d.csv", {2: ("accepted", "", "")})
    header, *lines = sheet.read_text("utf-8").splitlines()
    sheet.write_text("\n".join([f"{header},{name}", *(f"{line},{cell}" for line in lines)]) + "\n", "utf-8")
    with pytest.raises(FileRefused, match=f"has several columns {name.strip().lower()}: leave one of them"):
        read_decisions(sheet, BATCH, DOUBTS)


def test_a_filled_sheet_is_never_overwritten(tmp_path: Path) -> None:
    """Exporting over a file that is there is refused; a new one is readable by its owner alone."""
    write_sheet(tmp_path / "d.csv", BATCH, DOUBTS.values())
    assert stat.S_IMODE((tmp_path / "d.csv").stat().st_mode) == 0o600
    with pytest.raises(WrongUse, match="already"):
        write_sheet(tmp_path / "d.csv", BATCH, DOUBTS.values())


def test_a_single_decision_is_about_a_row_in_doubt() -> None:
    """A row that isn't in doubt is not touched."""
    for reference in (None, ""):
        assert decide(9, "declined", reference, DOUBTS) == Decision(9, State.DECLINED, None, 0)
    with pytest.raises(WrongUse, match="row 3 is not in doubt"):
        decide(3, "accepted", None, DOUBTS)


@pytest.mark.parametrize("reason", [
    "acct 1234 5678 6789", "9999996789", "456789", "no 12-3456789 found", "invoice 17 9999996789",
    "9999996789 2026-11-21", "1234.5678.6789", "1234\u00a05678\u00a06789",
    "\uff19\uff19\uff19\uff19\uff19\uff16\uff17\uff18\uff19",
])  # fmt: skip
def test_a_reason_holds_no_account_number(reason: str) -> None:
    """What ends on the last four of a row in doubt is refused; last four, tickets and dates are not.

    A number right before or after it, points, no-break spaces and full-width digits let it through. Numbers of six to
    seventeen digits may be one.
    """
    with pytest.raises(WrongUse, match="account number of row 2"):
        refuse_account_numbers("the reason", reason, DOUBTS.values())
    other = "ticket 4711000, ****6789, 2026-11-21, seen 6789, trace 10000000000000017 6789"
    refuse_account_numbers("the reason", other, DOUBTS.values())


def test_the_effect_adds_up() -> None:
    """Rows and cents are counted by the state that follows."""
    decisions = [Decision(2, State.ACCEPTED), Decision(7, State.PENDING), Decision(9, State.PENDING)]
    assert effect_of(decisions, DOUBTS) == {State.ACCEPTED: Totals(1, 999), State.PENDING: Totals(2, 123956)}


def test_notes_are_recorded_with_the_reason() -> None:
    """The ledger's event holds what was noted beside single rows."""
    assert reason_with_notes("portal", [(7, "asked")]) == "portal; row 7: asked"


def test_a_killed_run_that_left_nothing_to_send_stopped_nothing(tmp_path: Path) -> None:
    """Its only row was being sent: `stopped` would ask for a `resume` that has nothing to do."""
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [Planned(1, State.SENDING)]))
        with ledger.lock(batch.digest):
            take_over(ledger, batch.batch, "tester", reference_is_unique=True)
        assert ledger.find(batch.batch).stopped is None


def test_rows_in_doubt_say_what_to_look_for(tmp_path: Path) -> None:
    """Credits come first; reference, name, last four, time and cause are told; a killed run's rows are taken over."""
    rows = [
        Planned(1),
        Planned(2, State.IN_DOUBT, amount_cents=999, reason="reset after 412 bytes"),
        Planned(3, State.SENDING, direction="CREDIT"),
        Planned(4, State.PENDING),
    ]
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, rows))
        assert rows_in_doubt(ledger, batch.batch, timeout_s=30.0)[0].why == "no answer was recorded"
        with ledger.lock(batch.digest):
            take_over(ledger, batch.batch, "tester", reference_is_unique=True)
        found = rows_in_doubt(ledger, batch.batch, timeout_s=30.0)
        assert ledger.find(batch.batch).stopped == "an earlier run was killed"
        finished = {row.row: row.finished_at for row in ledger.rows(batch.batch)}
    assert [one.row for one in found] == [3, 2]
    credit, debit = found
    assert credit.money_leaves and not debit.money_leaves
    assert credit.sent_from is not None and credit.sent_until is not None
    assert (credit.sent_until - credit.sent_from).total_seconds() == 30.0
    assert debit.reference == invoice_of(rows[1])
    assert (debit.amount_cents, debit.account, debit.name) == (999, "****6789", "Ada Quill")
    assert (debit.why, debit.sent_until) == ("reset after 412 bytes", finished[2])


def test_a_row_that_a_restored_ledger_never_sent_is_not_said_to_have_been_sent(tmp_path: Path) -> None:
    """`sent , and perhaps again` would send a person to look for a payment of which nothing is known."""
    with ledger_in(tmp_path) as ledger:
        batch = add_batch(ledger, [Planned(1, State.PENDING)])
    accept(ledger_settings(tmp_path), "ben", "the disk died", rows_in_doubt=True)
    with ledger_in(tmp_path) as ledger:
        (found,) = rows_in_doubt(ledger, batch, timeout_s=30.0)
    assert (found.why, found.sent_from, found.sent_until) == (RESTORED_REASON, None, None)


@pytest.mark.parametrize("reference", ["TX\x1b77", "TX\n77", "T" * 129])
def test_a_reference_is_one_short_line(reference: str) -> None:
    """It comes from a person's keyboard, and goes to results, terminals and the history."""
    with pytest.raises(WrongUse, match="longer than 128 characters or contains control characters"):
        decide(2, "accepted", reference, DOUBTS)
    assert decide(2, "accepted", "T" * 128, DOUBTS).gateway_reference == "T" * 128


def test_a_sheet_tells_when_a_row_was_sent_here_and_in_utc(tmp_path: Path) -> None:
    """The portal shows one of the two; without an attempt nobody knows."""
    sent = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    write_sheet(tmp_path / "d.csv", BATCH, [replace(doubt(2), sent_from=sent), replace(doubt(7), line=None)])
    with (tmp_path / "d.csv").open(encoding="utf-8", newline="") as file:
        known, unknown = csv.DictReader(file)
    assert known["sent_from_utc"] == instant(sent)
    assert known["sent_from_local"] == local_time(sent)
    assert (known["line"], unknown["line"]) == ("3", "")
    assert (unknown["sent_from_utc"], unknown["sent_from_local"]) == (
        "unknown (attempts known: 0, ledger restored 2026-11-23T08:00:00.000Z)",
        "",
    )


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_sheet_of_a_row_that_was_never_sent_is_not_about_its_first_attempt(tmp_path: Path, attempts: int) -> None:
    """A restored ledger had put it in doubt; sent again by the sheet, and then by the same sheet a second time."""
    sheet = filled(tmp_path / "d.csv", {2: ("send again", "", "")})
    assert read_decisions(sheet, BATCH, DOUBTS).decisions == [Decision(2, State.PENDING, None, 0)]
    sent = replace(doubt(2, 999), sent_from=datetime(2026, 11, 23, 11, tzinfo=UTC), attempts=attempts)
    with pytest.raises(FileRefused, match="row 2 was sent again after this sheet was written"):
        read_decisions(sheet, BATCH, {**DOUBTS, 2: sent})


@pytest.mark.parametrize(("known", "then", "now"), [
    (0, "2026-11-23T09:30:00", 0), (1, None, 2), (2, None, 1), (0, None, 1), (1, "", 1), (1, "2026-11-23T09:30:00", 1),
])  # fmt: skip
def test_a_sheet_that_knows_other_attempts_than_a_restored_ledger_is_not_about_its_doubt(
    tmp_path: Path, known: int, then: str | None, now: int
) -> None:
    """When the row was sent last is unknown to the ledger: only the number of attempts tells which doubt this is."""
    doubts = {2: replace(doubt(2, 999), attempts=known)}
    write_sheet(tmp_path / "d.csv", BATCH, doubts.values())
    lines = list(csv.reader((tmp_path / "d.csv").read_text("utf-8").splitlines()))
    lines[1][HEADER.index("decision")] = "send again"
    with (tmp_path / "same.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    assert read_decisions(tmp_path / "same.csv", BATCH, doubts).decisions == [Decision(2, State.PENDING, None, known)]
    if then is not None:
        lines[1][HEADER.index("sent_from_utc")] = then
    with (tmp_path / "other.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    with pytest.raises(FileRefused, match="row 2 may have been sent since this sheet was written"):
        read_decisions(tmp_path / "other.csv", BATCH, {2: replace(doubt(2, 999), attempts=now)})


def test_a_sheets_time_may_be_of_another_zone(tmp_path: Path) -> None:
    """A program that filled it in wrote the same moment in its own."""
    sheet = filled(tmp_path / "d.csv", {2: ("declined", "", "")})
    lines = list(csv.reader(sheet.read_text("utf-8").splitlines()))
    lines[1][HEADER.index("sent_from_utc")] = "2026-11-23T10:30:00+01:00"
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    sent = replace(doubt(2, 999), sent_from=datetime(2026, 11, 23, 9, 30, tzinfo=UTC), attempts=1)
    assert read_decisions(sheet, BATCH, {**DOUBTS, 2: sent}).decisions == [Decision(2, State.DECLINED, None, 1)]


@pytest.mark.parametrize(("sent", "is_new"), [
    ("30:00.000", False), ("30:00.999", False), ("30:01.000", True), ("30:59.000", True), ("29:59.001", False),
    ("29:59.000", True),
])  # fmt: skip
def test_a_sheet_is_about_the_attempt_that_it_was_written_for(tmp_path: Path, sent: str, is_new: bool) -> None:
    """Looked up as not paid, sent again a second later: the sheet must not settle the payment of that second.

    A spreadsheet drops or rounds what is less than a second, so that much is no other attempt. A clock that was set
    back in between gives the later attempt the earlier time: the old sheet had the row sent a third time.
    """
    now = replace(doubt(2, 999), sent_from=datetime.fromisoformat(f"2026-11-23T09:{sent}+00:00"))
    sheet = filled(tmp_path / "d.csv", {2: ("declined", "", "")})
    lines = list(csv.reader(sheet.read_text("utf-8").splitlines()))
    lines[1][HEADER.index("sent_from_utc")] = "2026-11-23T09:30:00"
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    doubts = {**DOUBTS, 2: now}
    if is_new:
        with pytest.raises(FileRefused, match="row 2 was sent again after this sheet was written"):
            read_decisions(sheet, BATCH, doubts)
    else:
        assert read_decisions(sheet, BATCH, doubts).decisions == [Decision(2, State.DECLINED, None, 0)]


@pytest.mark.parametrize("text", ["", "11/23/2026 9:30"])
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_sheet_without_its_times_settles_no_row_that_was_tried_again(
    tmp_path: Path, text: str, attempts: int
) -> None:
    """The columns of times were taken out: the old sheet, handed in once more, had the row sent a third time."""
    sent = datetime.fromisoformat("2026-11-23T11:00:00+00:00")
    sheet = filled(tmp_path / "d.csv", {2: ("send again", "", "")})
    lines = list(csv.reader(sheet.read_text("utf-8").splitlines()))
    lines[1][HEADER.index("sent_from_utc")] = text
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    doubts = {**DOUBTS, 2: replace(doubt(2, 999), sent_from=sent, attempts=attempts)}
    if attempts > 1:
        with pytest.raises(FileRefused, match="row 2 was tried more than once, and sent_from_utc does not say which"):
            read_decisions(sheet, BATCH, doubts)
    else:
        assert read_decisions(sheet, BATCH, doubts).decisions == [Decision(2, State.PENDING, None, 1)]
    with pytest.raises(FileRefused, match="row 2 may have been sent since this sheet was written"):
        read_decisions(sheet, BATCH, DOUBTS)  # by a restored ledger that knows of no attempt


def test_a_reference_holds_no_account_number() -> None:
    """What looks like the row's own account is refused as its reference; another reference is not."""
    with pytest.raises(WrongUse, match="account number of row 2"):
        decide(2, "accepted", "12399996789", DOUBTS)
    assert decide(2, "accepted", "TX-12399990004", DOUBTS).gateway_reference == "TX-12399990004"
