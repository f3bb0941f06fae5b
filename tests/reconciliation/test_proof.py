"""What a line of an export proves of a row in doubt: its day, the sign of its amount."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from batchpay.ledger.open import accept
from batchpay.payment import State
from batchpay.reconciliation.matching import match
from batchpay.reconciliation.statement import ExportMap, read_export
from batchpay.reconciliation.verdicts import found_doubts
from tests.reconciliation.test_reconciliation import DOUBT, export, held_against, today
from tests.support.ledger_factory import Planned, add_batch, ledger_in, ledger_settings

ACCEPTED = {1: State.ACCEPTED}
FOR_A_PERSON = {1: None}
TYPED = "Transaction ID,Invoice Number,Amount,Date,Account,Status,Type"


@pytest.mark.parametrize("number", ["R9,INV-1", "R1,"])
@pytest.mark.parametrize(("days", "settled"), [(0, ACCEPTED), (1, ACCEPTED), (2, FOR_A_PERSON), (160, FOR_A_PERSON)])
def test_a_line_of_a_day_to_come_proves_nothing(
    tmp_path: Path, number: str, days: int, settled: dict[int, State | None]
) -> None:
    """A line dated next May settled a row as accepted today; tomorrow is today in other time zones."""
    line = f"{number},12.50,{today() + timedelta(days=days)},x6789,Settled"
    row = Planned(1, State.IN_DOUBT, reference="R1")
    _, verdicts, found = held_against(tmp_path, [row], [line])
    assert (found, verdicts) == (settled, {"1": "in doubt, found"})


@pytest.mark.parametrize("now_first", [True, False])
@pytest.mark.parametrize(("now", "settled"), [("Settled", ACCEPTED), ("Declined", FOR_A_PERSON)])
def test_the_line_of_today_speaks_before_one_to_come(
    tmp_path: Path, now: str, settled: dict[int, State | None], now_first: bool
) -> None:
    """What is paid is paid, whatever is announced; a declined payment that is announced again is for a person."""
    lines = [f"R9,INV-1,12.50,TODAY,x6789,{now}", f"R8,INV-1,12.50,{today() + timedelta(days=9)},x6789,Settled"]
    assert held_against(tmp_path, [DOUBT], lines if now_first else lines[::-1])[2] == settled


@pytest.mark.parametrize(("direction", "amount", "settled"), [
    ("DEBIT", "-12.50", FOR_A_PERSON), ("DEBIT", "(12.50)", FOR_A_PERSON), ("DEBIT", "12.50 DR", FOR_A_PERSON),
    ("DEBIT", "12.50", ACCEPTED), ("DEBIT", "+12.50", ACCEPTED), ("CREDIT", "+12.50", FOR_A_PERSON),
    ("CREDIT", "12.50 CR", FOR_A_PERSON), ("CREDIT", "12.50", ACCEPTED), ("CREDIT", "-12.50", ACCEPTED),
])  # fmt: skip
def test_a_sign_alone_in_an_export_may_be_money_that_came_back(
    tmp_path: Path, direction: str, amount: str, settled: dict[int, State | None]
) -> None:
    """One line of -12.50 settled a debit as accepted; with a second, positive debit beside it it had come back.

    An amount without a sign says nothing of its direction.
    """
    row = Planned(1, State.IN_DOUBT, direction=direction)
    assert held_against(tmp_path, [row], [f"R9,INV-1,{amount},TODAY,x6789,Settled"])[2] == settled


@pytest.mark.parametrize(("other", "line", "settled"), [
    (Planned(2, reference="R2"), "R2,,-12.50,TODAY,x6789,Settled", ACCEPTED),
    (Planned(2, reference="R2"), "R2,,-12.50,TODAY,x6789,Returned", FOR_A_PERSON),
    (Planned(2, reference="R2", direction="CREDIT"), "R2,,-12.50,TODAY,x6789,Settled", FOR_A_PERSON),
    (Planned(2, last_four="0002"), ",,-12.50,TODAY,x0002,Settled", FOR_A_PERSON),
    (Planned(2, State.DECLINED), "R2,INV-2,-12.50,TODAY,x6789,Settled", FOR_A_PERSON),
], ids=["a debit", "a return", "a credit", "only looks like a row", "declined here"])  # fmt: skip
def test_an_accepted_row_shows_how_an_export_writes_debits(
    tmp_path: Path, other: Planned, line: str, settled: dict[int, State | None]
) -> None:
    """Banks do write debits with a minus: where one that is known stands so, so does the row in doubt."""
    lines = ["R9,INV-1,-12.50,TODAY,x6789,Settled", line]
    assert held_against(tmp_path, [DOUBT, other], lines)[2] == settled


def test_a_declined_line_is_declined_whatever_its_sign(tmp_path: Path) -> None:
    """No money moved, in neither direction."""
    assert held_against(tmp_path, [DOUBT], ["R9,INV-1,-12.50,TODAY,x6789,Declined"])[2] == {1: State.DECLINED}


@pytest.mark.parametrize(("direction", "column", "settled"), [
    ("DEBIT", "12.50,", FOR_A_PERSON), ("CREDIT", "12.50,", ACCEPTED), ("DEBIT", ",12.50", ACCEPTED),
    ("CREDIT", ",12.50", FOR_A_PERSON),
])  # fmt: skip
def test_a_column_for_one_direction_is_a_sign(
    tmp_path: Path, direction: str, column: str, settled: dict[int, State | None]
) -> None:
    """A bank's Debit is money that left us; a gateway's may be the debit that we sent: one line does not tell."""
    row, header = Planned(1, State.IN_DOUBT, direction=direction), "Ref,Invoice,Debit,Credit,Date,Status"
    assert held_against(tmp_path, [row], [f"R9,INV-1,{column},TODAY,Settled"], header=header)[2] == settled


@pytest.mark.parametrize(("direction", "kind", "settled"), [
    ("CREDIT", "DEBIT", FOR_A_PERSON), ("DEBIT", "ACH credit", FOR_A_PERSON), ("CREDIT", "ACH Credit", ACCEPTED),
    ("CREDIT", "Payment", ACCEPTED),
])  # fmt: skip
def test_a_type_of_the_other_direction_settles_nothing(
    tmp_path: Path, direction: str, kind: str, settled: dict[int, State | None]
) -> None:
    """A line of type DEBIT settled a CREDIT in doubt as accepted."""
    row = Planned(1, State.IN_DOUBT, direction=direction)
    assert held_against(tmp_path, [row], [f"R9,INV-1,12.50,TODAY,x6789,Settled,{kind}"], header=TYPED)[2] == settled


@pytest.mark.parametrize(("known", "settled"), [("DEBIT", ACCEPTED), ("CREDIT", FOR_A_PERSON)])
def test_an_accepted_row_shows_what_an_export_calls_a_debit(
    tmp_path: Path, known: str, settled: dict[int, State | None]
) -> None:
    """A bank's debit is money that left us, and so the credit that we sent; a gateway's is our debit."""
    rows = [Planned(1, State.IN_DOUBT, direction="CREDIT"), Planned(2, reference="R2", direction="CREDIT")]
    lines = ["R9,INV-1,12.50,TODAY,x6789,Settled,DEBIT", f"R2,,12.50,TODAY,x6789,Settled,{known}"]
    _, verdicts, found = held_against(tmp_path, rows, lines, header=TYPED)
    assert (found, verdicts["2"]) == (settled, "matched")


def test_a_lone_line_of_the_sign_that_no_payment_has_settles_nothing(tmp_path: Path) -> None:
    """An export that writes all payments without a sign has a minus for a reversal, also for that of a credit."""
    rows = [Planned(1, State.IN_DOUBT, direction="CREDIT"), Planned(2, reference="R2", direction="CREDIT")]
    lines = ["R9,INV-1,-12.50,TODAY,x6789,Settled", "R2,,12.50,TODAY,x6789,Settled"]
    assert held_against(tmp_path, rows, lines)[2] == FOR_A_PERSON


@pytest.mark.parametrize("direction", ["DEBIT", "CREDIT"])
@pytest.mark.parametrize("other", ["R2,,12.50,TODAY,x6789,Settled,", "R2,,12.50,TODAY,x6789,Settled,Sale"])
def test_a_lone_reversal_is_no_match_of_an_accepted_row(tmp_path: Path, direction: str, other: str) -> None:
    """The payment stands in last week's export, its reversal in this one: it was matched, to the cent."""
    rows = [Planned(row, reference=f"R{row}", direction=direction) for row in (1, 2, 3)]
    lines = ["R1,,-12.50,TODAY,x6789,Settled,", other, other.replace("R2", "R3")]
    result, verdicts, _ = held_against(tmp_path, rows, lines, header=TYPED)
    assert verdicts == {"1": "status differs", "2": "matched", "3": "matched"}
    assert result.exit_code == 3


@pytest.mark.parametrize(("days", "verdict"), [(5, "matched"), (6, "status differs")])
@pytest.mark.parametrize("line", ["-12.50,{},x6789,Settled,", "12.50,{},x6789,Settled,Credit"])
def test_a_later_line_of_the_other_direction_is_a_reversal(tmp_path: Path, line: str, days: int, verdict: str) -> None:
    """Nothing but its day tells it from a payment in a bank's own words; nor does it show how the bank writes one."""
    day = today() + timedelta(days=days)
    rows = [Planned(1, reference="R1"), Planned(2, State.IN_DOUBT)]
    lines = ["R1,," + line.format(day), "R9,INV-2," + line.format(today())]
    _, verdicts, settled = held_against(tmp_path, rows, lines, header=TYPED, today=day)
    assert (verdicts["1"], settled) == (verdict, {2: State.ACCEPTED if verdict == "matched" else None})


def test_a_payment_and_its_reversal_by_type_are_for_a_person(tmp_path: Path) -> None:
    """Of a debit in doubt both are there, with one amount: what came back is not paid."""
    lines = [f"R{row},INV-1,12.50,TODAY,x6789,Settled,{kind}" for row, kind in ((8, "Debit"), (9, "Credit"))]
    assert held_against(tmp_path, [DOUBT], lines, header=TYPED)[2] == FOR_A_PERSON


@pytest.mark.parametrize(("invoices", "days", "settled"), [
    (["A"], [-30], {}), (["A"], [-2], {}), (["A"], [None], {}), (["A"], [-1], ACCEPTED), (["A", "A"], [0, None], {}),
    (["A", "A"], [0, -30], {}), (["A", "A"], [0, 0], {1: State.ACCEPTED, 2: State.ACCEPTED}),
])  # fmt: skip
def test_a_line_from_before_a_batch_says_nothing_of_it_in_a_restored_ledger(
    tmp_path: Path, invoices: list[str], days: list[int | None], settled: dict[int, State | None]
) -> None:
    """It does not know when its rows in doubt were sent: last month's line, or one without a date, settled them."""
    with ledger_in(tmp_path) as ledger:
        rows = [Planned(row, State.PENDING, invoice=invoice) for row, invoice in enumerate(invoices, start=1)]
        name = add_batch(ledger, rows)
    state = Path(ledger_settings(tmp_path).url).parent
    shutil.copytree(state, tmp_path / "kept")
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1, invoice="B")], file="later.csv")
    shutil.rmtree(state)
    (tmp_path / "kept").rename(state)
    accept(ledger_settings(tmp_path), "Kim", "the disk failed", rows_in_doubt=True)
    dates = ["" if one is None else (today() + timedelta(days=one)).isoformat() for one in days]
    lines = [f"R{number},A,12.50,{day},,Settled" for number, day in enumerate(dates)]
    read = read_export(export(tmp_path / "export.csv", lines), ExportMap())
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(name)
        found = list(found_doubts(ledger, batch, match(ledger, batch, read.lines, 5)))
    assert {doubt.row.row: doubt.decision and doubt.decision.state for doubt in found} == settled


@pytest.mark.parametrize("days", [-30, -2, -1, 0, 30])
@pytest.mark.parametrize("state", [State.ACCEPTED, State.DECLINED])
def test_last_months_line_of_the_same_bill_is_not_this_months(tmp_path: Path, state: State, days: int) -> None:
    """The rent has one number every month: against last month's export this month's batch was matched, to the cent."""
    day, word = (today() + timedelta(days=days)).isoformat(), "Settled" if state is State.ACCEPTED else "Declined"
    result, verdicts, _ = held_against(tmp_path, [Planned(1, state)], [f"R9,INV-1,12.50,{day},x6789,{word}"])
    without = "missing there" if state is State.ACCEPTED else "not sent or declined"
    expected = {"1": "matched"} if days >= -1 else {"1": without, "there 2": "unknown here"}
    assert (verdicts, result.exit_code) == (expected, 0 if days >= -1 else 3)


def test_of_two_rows_with_one_number_none_is_settled_by_last_months_line(tmp_path: Path) -> None:
    """The line of now may be about the accepted one."""
    rows = [Planned(1, invoice="A"), Planned(2, State.IN_DOUBT, invoice="A")]
    last_month = (today() - timedelta(days=30)).isoformat()
    lines = [f"R8,A,12.50,{last_month},x6789,Settled", "R9,A,12.50,TODAY,x6789,Settled"]
    assert held_against(tmp_path, rows, lines)[2] == {}


@pytest.mark.parametrize("other", [State.IN_DOUBT, State.ACCEPTED])
@pytest.mark.parametrize("invoice", ["A", "B"])
@pytest.mark.parametrize(("reference", "is_proof"), [("R9", False), ("0r9", False), ("R8", True), ("", True)])
def test_one_payment_that_is_listed_twice_proves_one_row(
    tmp_path: Path, other: State, invoice: str, reference: str, is_proof: bool
) -> None:
    """Two rows of one invoice and one payment that is listed twice, as sent and as settled: both were accepted."""
    rows = [Planned(1, State.IN_DOUBT, invoice="A"), Planned(2, other, invoice=invoice)]
    lines = ["R9,A,12.50,TODAY,x6789,Settled", f"{reference},{invoice},12.50,TODAY,x6789,Settled"]
    settled = held_against(tmp_path, rows, lines)[2]
    doubts = {1, 2} if other is State.IN_DOUBT else {1}
    not_found = not is_proof and invoice == "A"  # by their number alone the lines may be either row's
    assert settled == ({} if not_found else dict.fromkeys(doubts, State.ACCEPTED if is_proof else None))


@pytest.mark.parametrize(("other", "settled"), [("R1", {}), ("R2", ACCEPTED)])
def test_one_reference_of_rows_in_two_batches_proves_neither(
    tmp_path: Path, other: str, settled: dict[int, State | None]
) -> None:
    """A gateway that counts anew each month: last month's payment settled this month's row."""
    lines = ["R1,INV-1,12.50,TODAY,x6789,Settled"]
    row = Planned(1, State.IN_DOUBT, reference="R1")
    assert held_against(tmp_path, [row], lines, others=[Planned(1, reference=other, invoice="OLD-1")])[2] == settled


@pytest.mark.parametrize(("other", "line", "settled"), [
    (Planned(2, reference="R2"), "R2,INV-2,12.50,TODAY,x6789,Settled", FOR_A_PERSON),
    (Planned(2, reference="R2"), "R2,INV-2,12.50,TODAY,x1111,Settled", ACCEPTED),
    (Planned(2, State.DECLINED), "R2,INV-2,12.50,TODAY,x1111,Declined", ACCEPTED),
    (Planned(2, last_four="0001"), ",,12.50,TODAY,x0001,Settled", FOR_A_PERSON),
    (Planned(2), "R3,INV-3,12.50,TODAY,x1111,Settled", FOR_A_PERSON),
],
    ids=["the payees' accounts", "our own account", "our own, of a declined row", "only looks like a row", "unknown"]
)  # fmt: skip
def test_another_account_is_another_payment(
    tmp_path: Path, other: Planned, line: str, settled: dict[int, State | None]
) -> None:
    """A shop paid someone else under the same number: that settled the row, although the accounts differed.

    An export may have our own account in every line. Another row, found by its number, shows that.
    """
    lines = ["R9,INV-1,12.50,TODAY,x1111,Settled", line]
    assert held_against(tmp_path, [DOUBT, other], lines)[2] == settled
    (tmp_path / "same").mkdir()
    lines = ["R9,INV-1,12.50,TODAY,x6789,Settled", line]
    assert held_against(tmp_path / "same", [DOUBT, other], lines)[2] == ACCEPTED


@pytest.mark.parametrize(("here", "there"), [("12", "0012"), ("AB12", "0012"), ("6789", "")])
def test_an_account_that_can_not_be_compared_is_no_other(tmp_path: Path, here: str, there: str) -> None:
    """A short account, one with letters, and a line that shows none."""
    row = Planned(1, State.IN_DOUBT, last_four=here)
    assert held_against(tmp_path, [row], [f"R9,INV-1,12.50,TODAY,{there},Settled"])[2] == ACCEPTED


def test_the_account_of_a_row_that_a_killed_run_was_sending_shows_nothing_either(tmp_path: Path) -> None:
    """Whose accounts an export has is shown by a row whose payment is known."""
    lines = ["R9,INV-1,12.50,TODAY,x1111,Settled", "R8,INV-2,12.50,TODAY,x1111,Settled"]
    _, verdicts, settled = held_against(tmp_path, [DOUBT, Planned(2, State.SENDING)], lines)
    assert (settled, verdicts) == (FOR_A_PERSON, {"1": "in doubt, found", "2": "in doubt, found"})
