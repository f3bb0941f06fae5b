"""Returns taken in: what is certain is recorded, once; what is not is listed; nothing else is touched."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import FileRefused, WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.outcome import Answer
from batchpay.payment import Environment, State
from batchpay.returns.matching import Matcher, ReturnVerdict
from batchpay.workflows.resolve import RowDecision, Signature, settle
from batchpay.workflows.returns import (
    TakenReturns,
    confirm_match,
    list_returns,
    say_of_return,
    take_returns,
)
from tests.support.ach_files import ach_file, changed, entry, returned
from tests.workflows.desk import ACCEPTED, ANN, DECLINED, IN_DOUBT, Desk, Quiet

pytestmark = pytest.mark.usefixtures("on_both")
HEADER = "Return Date,Return Code,Individual ID,Amount,Corrected Data,Account Number,Routing Number,Individual Name"


def row(number: int, **changes: str) -> dict[str, str]:
    """A payment with an account of its own."""
    return {
        "paymentId": f"P-{number}", "invoiceNumber": f"I-{number}", "amount": f"{number}.25",
        "transactionType": "DEBIT", "achAccountNumber": f"6484{number:05}", **changes,
    }  # fmt: skip


@pytest.fixture
def today(desk: Desk) -> date:
    """The day on which everything is sent, and comes back."""
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        return ledger.today()


def file(desk: Desk, *lines: str, name: str = "returns.csv", header: str = HEADER) -> Path:
    path = desk.folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def take(desk: Desk, path: Path, **options: Any) -> TakenReturns:
    return take_returns(path, desk.settings, ANN, **options)


def verdicts(taken: TakenReturns) -> list[tuple[str, int | None]]:
    return [(one.verdict.value, one.payment.row if one.payment else None) for one in taken.matches]


def facts(desk: Desk) -> list[tuple[int, str]]:
    return sorted((one.row, one.code) for one in list_returns(desk.settings))


def test_six_lines_of_a_batch_of_a_thousand(desk: Desk, today: date) -> None:
    """Four came back and two accounts change; taken in again, by another form and by a night, all of it is known."""
    desk.submit(desk.file("pay.csv", *(row(number) for number in range(1, 1001))))
    codes = {7: "R01", 150: "R02", 333: "R10", 512: "R29", 720: "C01", 999: "C02"}
    corrected = {"C01": "0077001", "C02": "026009593"}
    lines = [
        f"{today},{code},P-{number},{0 if code in corrected else number + 0.25},{corrected.get(code, '')}"
        for number, code in codes.items()
    ]
    path = file(desk, *lines)
    assert take(desk, path, dry_run=True).exit_code == 0
    assert facts(desk) == []
    first = take(desk, path)
    assert verdicts(first) == [("recorded", number) for number in codes]
    assert (first.exit_code, facts(desk)) == (0, sorted(codes.items()))
    for again in (take(desk, path), take(desk, file(desk, *lines[::-1], name="more.csv"), unattended=True)):
        assert {one.verdict for one in again.matches} == {ReturnVerdict.KNOWN}
        assert again.exit_code == 0
    assert take(desk, path, unattended=True).is_known
    assert facts(desk) == sorted(codes.items())
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        (batch,) = ledger.batches()
        assert batch.by_state[State.ACCEPTED] == batch.total
        assert ledger.check() == []
        of_row = {one.row: one for one in ledger.facts(Environment.TEST)}
        assert ledger.corrected(of_row[720]) == {"achAccountNumber": "0077001"}
    assert "0077001" not in str(first.as_json())
    assert len(desk.arrived) == 1000


def test_an_ach_file_over_three_batches(desk: Desk, today: date) -> None:
    """Matched by account alone: of three batches, with a change; and an account of nobody, which is listed."""
    for number in (1, 2, 3):
        desk.submit(desk.file(f"{number}.csv", row(number), row(number + 10)))
    bank = "12100033"
    path = desk.folder / "r.ach"
    path.write_bytes(ach_file(
        [entry("26", 125, "648400001", returned("R01", bank)), entry("26", 1225, "648400012", returned("R10", bank)),
         entry("26", 325, "99999", returned("R03", bank))],
        [entry("26", 0, "648400003", changed("C02", bank, "026009593"))], day=today,
    ))  # fmt: skip
    taken = take(desk, path)
    assert verdicts(taken) == [("recorded", 1), ("recorded", 2), ("listed", None), ("recorded", 1)]
    assert len({one.payment.batch for one in taken.matches if one.payment}) == 3
    assert (taken.exit_code, taken.matches[2].why) == (3, "no such payment")
    path.write_bytes(ach_file([entry("26", 125, "648400001", returned("R01", bank))], day=today, off_by=1))
    with pytest.raises(FileRefused, match="total of credits"):
        take(desk, path)


NOT_CERTAIN = {
    "{today},R02,P-1,9.99": "another amount",
    "{today},R02,P-1,": "no amount",
    "{before},R02,P-1,1.25": "dated before it was sent",
    "{after},R02,P-1,1.25": "dated after today",
    ",R02,P-1,1.25": "no date",
    "{today},R02,P-2,2.25": "its payment is declined",
    "{today},R02,P-9,9.25": "no such payment",
    "{today},R99,P-1,1.25": "unknown code R99",
    "{today},returned,P-1,1.25": "no code",
    "{today},R62,P-1,1.25":
        "R62, our bank objects: the return gives money to the wrong side: withdraw the return once our bank has the"
        " money",
    "{today},R02,P-1,1.25,,99999,121000332": "another account",
}  # fmt: skip


def test_what_is_not_certain_is_listed(desk: Desk, today: date) -> None:
    """Nothing of it is recorded, and the exit code is 3; no account number is told."""
    desk.answer = lambda reference: DECLINED if reference == "I-2" else ACCEPTED
    desk.submit(desk.file("pay.csv", row(1), row(2)))
    days = {"today": today, "before": today - timedelta(days=1), "after": today + timedelta(days=2)}
    taken = take(desk, file(desk, *(line.format(**days) for line in NOT_CERTAIN)))
    assert [one.why for one in taken.matches] == list(NOT_CERTAIN.values())
    assert {one.verdict for one in taken.matches} == {ReturnVerdict.LISTED}
    assert (taken.exit_code, facts(desk), "99999" in str(taken.as_json())) == (3, [], False)


def test_a_reference_that_is_not_unique_names_no_payment(desk: Desk, today: date) -> None:
    """Where the gateway answers a constant, every line would be about the first payment of its amount."""
    desk.answer = lambda _: ACCEPTED._replace(answer=Answer(200, "1", "Approved", "TX-1"))
    gateway = replace(desk.settings.gateway, reference_is_unique=False)
    desk.settings = replace(desk.settings, gateway=gateway)
    desk.submit(desk.file("pay.csv", row(1), row(2)))
    path = file(desk, f"{today},R02,TX-1,1.25", header="Date,Return Code,Transaction ID,Amount")
    assert verdicts(take(desk, path)) == [("listed", None)]
    desk.settings = replace(desk.settings, gateway=replace(gateway, reference_is_unique=True))
    assert verdicts(take(desk, path)) == [("recorded", 1)]


def test_as_many_lines_as_payments_are_paired(desk: Desk, today: date) -> None:
    """Two payments to one account of one amount: one line may be about either, two are about both."""
    same = {"achAccountNumber": "648400007", "amount": "70.25"}
    desk.submit(desk.file("pay.csv", row(1, **same), row(2, **same), row(3)))
    line = f"{today},R03,,70.25,,648400007,121000332"
    one = take(desk, file(desk, line))
    told = "payments that it may be about: 2, lines of the file: 1"
    assert (verdicts(one), one.matches[0].why) == ([("listed", None)], told)
    assert verdicts(take(desk, file(desk, line, line, name="both.csv"))) == [("recorded", 1), ("recorded", 2)]
    for lines in ([line], [line, line], [line] * 3):
        assert {word for word, _ in verdicts(take(desk, file(desk, *lines)))} == {"known"}
    assert facts(desk) == [(1, "R03"), (2, "R03")]


def test_what_one_line_names_helps_another(desk: Desk, today: date) -> None:
    """Of two payments to one account one came back by its paymentId, so a line with the account is about the other.

    But one that dates a known return a day later may be about that one, though another payment fits it as well.
    """
    same = {"achAccountNumber": "648400007", "amount": "70.25"}
    desk.submit(desk.file("pay.csv", row(1, **same), row(2, **same)))
    by_account = "{},{},,70.25,,648400007,121000332"
    both = file(desk, by_account.format(today, "R01"), f"{today},R01,P-1,70.25")
    assert verdicts(take(desk, both)) == [("recorded", 2), ("recorded", 1)]
    later = today + timedelta(days=1)
    desk.submit(desk.file("more.csv", row(5, **same)))
    assert verdicts(take(desk, file(desk, by_account.format(later, "R01")))) == [("listed", None)]
    assert verdicts(take(desk, file(desk, by_account.format(later, "R09")))) == [("recorded", 1)]


def test_another_code_of_the_same_payment_is_no_repetition(desk: Desk, today: date) -> None:
    """R01 blocks nothing; the R02 that corrected it was called known, with exit code 0, and the account stayed open."""
    desk.submit(desk.file("pay.csv", row(1)))
    first, second = f"{today},R01,P-1,1.25", f"{today},R02,P-1,1.25"
    assert verdicts(take(desk, file(desk, first, second))) == [("recorded", 1), ("listed", 1)]
    taken = take(desk, file(desk, second))
    assert (verdicts(taken), taken.exit_code) == ([("listed", 1)], 3)
    assert taken.matches[0].why == "came back with R01 already, if that is wrong: --withdraw"


def test_a_change_is_noted_at_the_latest_payment_of_its_account(desk: Desk, today: date) -> None:
    """Whatever its amount; by an invoice number of two accounts it is nobody's."""
    first = desk.submit(desk.file("a.csv", row(1), row(2, invoiceNumber="I-1")))
    second = desk.submit(desk.file("b.csv", row(3, achAccountNumber="648400001")))
    taken = take(desk, file(desk, f"{today},C01,,,0077001,648400001,121000332"))
    assert [one.payment.batch for one in taken.matches if one.payment] == [second.batch] != [first.batch]
    by_invoice = file(desk, f"{today},C01,I-1", header="Return Date,Change Code,Invoice Number")
    assert [one.why for one in take(desk, by_invoice).matches] == ["fits payments to several accounts"]


def test_a_return_by_account_comes_within_its_window(desk: Desk, today: date, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two banking days and five, or sixty and five; what a line names otherwise came back whenever it did."""
    monkeypatch.setattr(Matcher, "_day", lambda _, each: today - timedelta(days={1: 20, 2: 0, 3: 20}[each.row]))
    desk.submit(desk.file("pay.csv", row(1), row(2, amount="1.25", invoiceNumber="I-1"), row(3)))
    by_invoice = file(desk, f"{today},R02,I-1,1.25", header="Return Date,Return Code,Invoice Number,Amount")
    assert verdicts(take(desk, by_invoice)) == [("recorded", 2)]
    lines = (
        f"{today},R03,,1.25,,648400001,121000332", f"{today},R03,P-3,3.25", f"{today},R10,,1.25,,648400001,121000332",
    )  # fmt: skip
    taken = take(desk, file(desk, *lines))
    assert verdicts(taken) == [("listed", 1), ("recorded", 3), ("recorded", 1)]
    assert taken.matches[0].why == "dated too long after it was sent"


def test_a_person_says_which_one_it_is(desk: Desk, today: date) -> None:
    """One that fits several, and one whose account is masked, are recorded for the row that a person names."""
    same = {"achAccountNumber": "648400007", "amount": "70.25"}
    batch = str(desk.submit(desk.file("pay.csv", row(1, **same), row(2, **same), row(3))).batch)
    line = f"{today},R03,,70.25,,648400007,121000332"
    masked = f"{today},R02,,3.25,,xxxx0003,,GRACE  QUIGLEY"
    path = file(desk, line, masked, masked.replace("QUIGLEY", "OTHER"))
    taken = take(desk, path)
    assert verdicts(taken) == [("listed", None), ("proposed", 3), ("listed", None)]
    assert (taken.exit_code, facts(desk)) == (3, [])
    with pytest.raises(WrongUse, match="no line"):
        confirm_match(path, (batch, 4), "seen", desk.settings, ANN)
    with pytest.raises(WrongUse, match="account number"):
        confirm_match(path, (batch, 3), "account 648400003", desk.settings, ANN)
    confirm_match(path, (batch[:6], 2), "the bank said so", desk.settings, ANN)
    confirm_match(path, (batch, 3), "the bank said so", desk.settings, ANN)
    assert facts(desk) == [(2, "R03"), (3, "R02")]
    assert verdicts(take(desk, path)) == [("known", 2), ("known", 3), ("listed", None)]


def test_a_row_in_doubt_that_came_back_is_offered_to_a_person(desk: Desk, today: date) -> None:
    """It is not settled by itself; once a person has, the same file records it."""
    desk.answer = lambda _: IN_DOUBT
    batch = str(desk.submit(desk.file("pay.csv", row(1))).batch)
    path = file(desk, f"{today},R01,P-1,1.25")
    taken = take(desk, path)
    assert (verdicts(taken), taken.exit_code, facts(desk)) == ([("in_doubt", 1)], 7, [])
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        assert ledger.find(batch).by_state[State.IN_DOUBT].rows == 1

    class Ann(Quiet):
        def show(self, found: Any) -> None: ...
        def sign(self) -> Signature:
            return Signature("Ann", "it came back")

        def confirm(self, sent_again: int) -> None: ...

    settle(batch, [RowDecision(1, "accepted")], Ann(), desk.settings, ANN)
    assert (verdicts(take(desk, path)), facts(desk)) == ([("recorded", 1)], [(1, "R01")])


def test_a_file_of_another_environment_matches_nothing(desk: Desk, today: date) -> None:
    """It says that the other one has its payments; a line without any is not counted."""
    desk.submit(desk.file("pay.csv", row(1), row(2)))
    path = file(desk, f"{today},R01,P-1,1.25", f"{today},R01,,2.25,,648400002,121000332", f"{today},R01,P-9,1.25")
    live = replace(desk.settings, gateway=replace(desk.settings.gateway, environment="live"))
    taken = take_returns(path, live, ANN)
    assert (taken.exit_code, [one.why for one in taken.matches]) == (3, ["no such payment"] * 3)
    assert "2 name payments of the test environment" in str(taken.note)
    assert facts(desk) == []
    assert take(desk, path).note is None


def test_a_row_that_is_paid_again_and_again_comes_back_once_a_day(desk: Desk, today: date) -> None:
    """Each month's payment may come back, within no window of the first one."""
    monthly = {
        "recurringIndicator": "TRUE", "recurringStartDate": f"{today + timedelta(days=40):%m/%d/%Y}",
        "recurringBillingCycle": "MONTHLY", "recurringEndOfMonth": "N", "recurringNumOfPayments": "12",
        "recurringAgreementFlag": "1",
    }  # fmt: skip
    desk.submit(desk.file("pay.csv", row(1, **monthly)))
    first, second = f"{today},R01,P-1,1.25", f"{today + timedelta(days=1)},R01,P-1,1.25"
    assert verdicts(take(desk, file(desk, first, second, first))) == [
        ("recorded", 1), ("recorded", 1), ("known", 1),
    ]  # fmt: skip
    assert facts(desk) == [(1, "R01"), (1, "R01")]


def test_what_a_person_says_of_a_return(desk: Desk, today: date) -> None:
    """One that a night took in is confirmed; one that was wrong is withdrawn, and stays so."""
    batch = str(desk.submit(desk.file("pay.csv", row(1), row(2))).batch)
    path = file(desk, f"{today},R01,P-1,1.25", f"{today},R02,P-2,2.25")
    take(desk, path, unattended=True)
    assert {one.is_unattended for one in list_returns(desk.settings)} == {True}
    assert say_of_return((batch, 1), "seen", desk.settings, ANN, withdraw=False) == (batch, 1)
    assert say_of_return((batch, 2), "undone", desk.settings, ANN, withdraw=True) == (batch, 1)
    (left,) = list_returns(desk.settings, since=today)
    assert (left.row, left.is_unattended) == (1, False)
    assert list_returns(desk.settings, since=today + timedelta(days=1)) == []
    with pytest.raises(WrongUse, match="has no return that could be withdrawn"):
        say_of_return((batch, 2), "undone", desk.settings, ANN, withdraw=True)
    take(desk, path)
    assert facts(desk) == [(1, "R01")]
