"""Facts: what banks say of accepted payments, found by what names them, recorded once, and sealed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from batchpay.errors import LedgerDamaged, WrongUse
from batchpay.ledger.columns import Earlier, Lookup, PackedTexts, PaymentColumns
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.ledger.facts import FactKind, Key, NewFact, SentPayment
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Environment, State, Totals
from tests.ledger.batches import (
    ACCEPTED,
    DECLINED,
    IN_DOUBT,
    columns,
    digests,
    new_batch,
    register,
    rejected,
    send,
)
from tests.ledger.factories import LedgerFactory

TEST, LIVE = Environment.TEST, Environment.LIVE
FRIDAY = date(2026, 11, 27)


def payments(ledger: Ledger, rows: Iterable[int], *, salt: str = "", recurring: Iterable[int] = ()) -> PaymentColumns:
    """Payments with a paymentId `É-N` and an invoice number `Größe-N` each; those in `recurring` are paid monthly."""
    numbers, monthly = list(rows), set(recurring)
    plain = columns(ledger, numbers, salt=salt)
    details = [
        {"invoiceNumber": f"Größe\t-{row}", "name": "Zoë", "account": "****6789"}
        | ({"recurringIndicator": "TRUE"} if row in monthly else {})
        for row in numbers
    ]
    texts = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in details]
    ids = digests(ledger, "payment id", [f"é-{salt}{row}" for row in numbers], 16)
    values = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    return PaymentColumns(**(values | {"payment_ids": ids, "details": PackedTexts.of(texts)}))


def reference(row: int, salt: str = "") -> Outcome:
    """Accepted, with a reference of its own."""
    return ACCEPTED._replace(answer=Answer(200, "1", "Approved", f"TX-{salt}{row}"))


def accepted(ledger: Ledger, rows: int = 9, **of: Any) -> str:
    """A batch of which every row was accepted."""
    numbers = range(1, rows + 1)
    environment = of.pop("environment", TEST)
    content = of.pop("content", b"one")
    salt = of.get("salt", "")
    batch = register(ledger, payments(ledger, numbers, **of), content=content, environment=environment)
    send(ledger, batch, {row: reference(row, salt) for row in numbers})
    return batch


def returned(batch: str, row: int, **of: Any) -> NewFact:
    """A return of a row of `columns`."""
    values: dict[str, Any] = {"code": "R02", "day": FRIDAY, "amount_cents": row * 100 + 1, "line": row, **of}
    return NewFact(of.pop("kind", FactKind.RETURNED), batch, row, **{k: v for k, v in values.items() if k != "kind"})


def changed(batch: str, row: int, **of: Any) -> NewFact:
    """A notification of change."""
    corrected = {"achRoutingNumber": "021000021", "achAccountNumber": "CANARY 99887766"}
    return returned(
        batch, row, kind=FactKind.CHANGED, **{"code": "C03", "amount_cents": 0, "corrected": corrected, **of}
    )


def record(ledger: Ledger, *facts: NewFact, file: str = "returns.csv", unattended: bool = False) -> int:
    return ledger.record_facts(facts, TEST, file, file.encode().hex(), "ada", unattended=unattended)


def rows_of(found: SentPayment) -> tuple[str, int]:
    return found.batch, found.row


@pytest.mark.parametrize(
    ("by", "value"),
    [("payment_id", " \u0045\u0301-4 "), ("reference", " TX-4"), ("invoice", " GRÖSSE\t-4 "), ("account", "4")],
)
def test_a_payment_is_found_by_what_names_it(ledger: Ledger, by: Key, value: str) -> None:
    """Compared as duplicates are; in its environment alone, in every state but rejected."""
    there = payments(ledger, range(1, 7))
    batch = register(ledger, there, rejected([7]))
    register(ledger, there, content=b"other", environment=LIVE)
    send(ledger, batch, {4: reference(4), 5: DECLINED, 6: IN_DOUBT})
    asked: list[str | bytes] = [
        there.accounts[3] if by == "account" else value,
        "nobody's" if by != "account" else b"8",
    ]
    found = ledger.sent_rows(by, asked, TEST)
    assert found.keys() == {asked[0]}
    (payment,) = found[asked[0]]
    assert (payment.batch, payment.row, payment.state, payment.amount_cents) == (batch, 4, State.ACCEPTED, 401)
    assert (payment.direction, payment.account, payment.line) == ("DEBIT", there.accounts[3], 5)
    assert payment.sent_at is not None
    assert payment.facts == ()
    assert ledger.sent_rows("account", list(there.accounts), TEST).keys() == {*there.accounts}


def test_a_return_is_recorded_once(ledger: Ledger) -> None:
    """Taken in twice nothing is new; the row stays accepted; the history says who took which file in."""
    batch = accepted(ledger)
    assert record(ledger, returned(batch, 2), returned(batch, 5, code="R10"), changed(batch, 3)) == 3
    assert record(ledger, returned(batch, 2), changed(batch, 3), returned(batch, 5, code="R01"), file="again.csv") == 0
    first, second, third = ledger.facts(TEST)
    assert (first.batch, first.row, first.place, first.code, first.day) == (batch, 2, "line 3", "R02", FRIDAY)
    assert (first.amount_cents, first.direction, first.line, first.who) == (201, "DEBIT", 2, "ada")
    assert (first.file, first.is_unattended, first.withdrawn, first.lifted) == ("returns.csv", False, False, False)
    assert (second.row, second.code, third.kind) == (5, "R10", FactKind.CHANGED)
    assert ledger.corrected(third)["achRoutingNumber"] == "021000021"
    assert ledger.corrected(first) == {}
    assert ledger.returned_files(TEST) == {b"returns.csv".hex(), b"again.csv".hex()}
    assert ledger.returned_files(LIVE) == set()
    assert list(ledger.facts(LIVE)) == list(ledger.facts(LIVE, batch=batch)) == []
    assert [one.row for one in ledger.facts(TEST, batch=batch, since=FRIDAY)] == [2, 5, 3]
    assert list(ledger.facts(TEST, since=date(2026, 11, 28))) == []
    (payment,) = ledger.sent_rows("reference", ["TX-5"], TEST)["TX-5"]
    assert payment.facts == (second,)
    assert ledger.find(batch).by_state[State.ACCEPTED].rows == 9
    assert "CANARY" not in repr(changed(batch, 3))
    assert ledger.check() == []


def test_a_row_that_is_paid_again_and_again_comes_back_once_a_day(ledger: Ledger) -> None:
    batch = accepted(ledger, recurring=[4])
    next_month = date(2026, 12, 27)
    assert record(ledger, returned(batch, 4), returned(batch, 4), returned(batch, 4, day=next_month)) == 2
    assert record(ledger, returned(batch, 5), returned(batch, 5, day=next_month)) == 1
    assert [(one.row, one.day, one.is_recurring) for one in ledger.facts(TEST)] == [
        (4, FRIDAY, True), (4, next_month, True), (5, FRIDAY, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "cents", "words"),
    [
        (2, 201, "row 2 of .* was not accepted"),
        (3, 301, "not accepted"),
        (99, 1, "not accepted"),
        (1, 100, "another amount"),
    ],
)
def test_what_cannot_be_right_is_not_recorded(ledger: Ledger, row: int, cents: int, words: str) -> None:
    """All or nothing: a row that was declined, is in doubt or is not there, and another amount than was paid."""
    batch = register(ledger, payments(ledger, range(1, 5)))
    send(ledger, batch, {1: reference(1), 2: DECLINED, 3: IN_DOUBT, 4: reference(4)})
    with pytest.raises(WrongUse, match=f"{words}.*nothing was recorded"):
        record(ledger, returned(batch, 4), returned(batch, row, amount_cents=cents))
    assert (list(ledger.facts(TEST)), ledger.returned_files(TEST)) == ([], set())
    with pytest.raises(WrongUse, match="not accepted"):  # a batch of the other environment
        ledger.record_facts([returned(batch, 4)], LIVE, "f", "00", "ada", unattended=False)


def test_a_person_confirms_and_withdraws(ledger: Ledger) -> None:
    """What a night took in waits for a person; what was withdrawn stays so, whoever takes the file in again."""
    batch = accepted(ledger)
    record(ledger, returned(batch, 2), changed(batch, 2), unattended=True)
    assert {one.is_unattended for one in ledger.facts(TEST)} == {True}
    assert ledger.confirm_fact(batch, 2, "ben", "I called the bank") == 2
    assert {one.is_unattended for one in ledger.facts(TEST)} == {False}
    with pytest.raises(WrongUse, match="no return that could be confirmed"):
        ledger.confirm_fact(batch, 2, "ben", "again")
    with pytest.raises(WrongUse, match="by a named person"):
        ledger.withdraw_fact(batch, 2, "ben", " ")
    registrations = ledger.registration_count()
    assert ledger.withdraw_fact(batch, 2, "ben", "the bank undid it", code="R02") == 1
    assert ledger.registration_count() == registrations + 1
    assert [one.withdrawn for one in ledger.facts(TEST)] == [True, False]
    assert record(ledger, returned(batch, 2), changed(batch, 2), file="again.csv") == 0
    assert record(ledger, returned(batch, 2, day=date(2026, 12, 1)), file="third.csv") == 1
    kinds = [event.kind for event in ledger.events(batch)]
    assert kinds[-2:] == ["return confirmed", "return withdrawn"]
    assert ledger.check() == []


def test_facts_of_accounts_stand_until_they_are_withdrawn(ledger: Ledger) -> None:
    batch = accepted(ledger)
    accounts = columns(ledger, range(1, 10)).accounts
    record(ledger, returned(batch, 2), returned(batch, 3), changed(batch, 3))
    found = ledger.facts_of_accounts(accounts, TEST)
    assert {account: [one.code for one in facts] for account, facts in found.items()} == {
        accounts[1]: ["R02"], accounts[2]: ["R02", "C03"],
    }  # fmt: skip
    ledger.withdraw_fact(batch, 2, "ben", "wrong")
    assert ledger.facts_of_accounts(accounts, TEST).keys() == {accounts[2]}
    assert ledger.facts_of_accounts(accounts, LIVE) == {}


@pytest.mark.parametrize(
    "change", ["code = 'R09'", "amount_cents = 1", "row = 3", "withdrawn = 1", "confirmed = 1", "day = 2", "batch = 2"]
)
def test_a_fact_that_was_changed_is_damage(ledger_factory: LedgerFactory, change: str) -> None:
    ledger = ledger_factory.create()
    batch = accepted(ledger)
    accepted(ledger, content=b"two", salt="2")
    record(ledger, returned(batch, 2), unattended=True)
    ledger_factory.close()
    ledger_factory.edit(sqlite=f"UPDATE fact SET {change}", postgres=f"UPDATE fact SET {change}")
    with pytest.raises(LedgerDamaged, match="return 1 is not what was recorded"):
        list(ledger_factory.open(read_only=True).facts(TEST))


def earlier(ledger: Ledger, again: PaymentColumns, accounts: Sequence[bytes] | None = None) -> dict[int, Earlier]:
    """What is known of payments that are submitted again, to these accounts if not to their own."""
    lookup = Lookup(
        again.rows, again.fingerprints, again.payment_ids, accounts=lambda: accounts or again.accounts
    )  # fmt: skip
    return {one.row: one for one in ledger.earlier(lookup, TEST, days=30, now=ledger.now())}


def test_a_payment_that_came_back_stands_in_no_ones_way(ledger: Ledger) -> None:
    """Told with the return: only that one; a bill or paymentId that came back too, and under another account."""
    batch = accepted(ledger)
    record(ledger, returned(batch, 2), returned(batch, 3, code="R01"), changed(batch, 4))
    again = payments(ledger, range(1, 10))
    found = earlier(ledger, again)
    assert {row: one.returned.code for row, one in found.items() if one.returned} == {2: "R02", 3: "R01"}
    came_back = found[2].returned
    assert came_back is not None
    assert (came_back.day, came_back.amount_cents, came_back.direction) == (FRIDAY, 201, "DEBIT")
    assert (came_back.same_account, came_back.count, came_back.first_sent_at) == (True, 1, found[2].at)
    elsewhere = earlier(ledger, payments(ledger, range(1, 10), salt=""), [b"8 others"] * 9)[2].returned
    assert elsewhere is not None
    assert not elsewhere.same_account
    ledger.withdraw_fact(batch, 2, "ben", "the bank undid it")
    assert earlier(ledger, again)[2].returned is None


@pytest.mark.parametrize("how", ["unattended", "recurring", "pending", "in doubt", "accepted", "other"])
def test_what_may_still_be_paid_stands(ledger: Ledger, how: str) -> None:
    """A return that nobody has seen, of a payment that is made again, or beside another one that did not come back."""
    batch = accepted(ledger, recurring=[2] if how == "recurring" else [])
    record(ledger, returned(batch, 2), unattended=how == "unattended")
    if how in ("pending", "in doubt", "accepted", "other"):
        environment = LIVE if how == "other" else TEST
        second = register(ledger, payments(ledger, [2]), content=b"again", environment=environment)
        if how in ("in doubt", "accepted"):
            send(ledger, second, {2: IN_DOUBT if how == "in doubt" else reference(2, "again")})
    found = earlier(ledger, payments(ledger, [2]))[2]
    assert (found.returned is not None) == (how == "other")
    if how in ("pending", "in doubt", "accepted"):
        assert found.earlier_batch == second
    if how == "accepted":  # the one that stands is told, though another one is later
        record(ledger, returned(second, 2))
        both = earlier(ledger, payments(ledger, [2]))[2].returned
        assert both is not None
        assert both.count == 2
        ledger.withdraw_fact(batch, 2, "ben", "the bank undid it")
        one = earlier(ledger, payments(ledger, [2]))[2]
        assert (one.earlier_batch, one.returned) == (batch, None)
    if how == "unattended":
        ledger.confirm_fact(batch, 2, "ben", "seen")
        assert earlier(ledger, payments(ledger, [2]))[2].returned is not None


def test_a_withdrawal_stops_a_registration_that_has_looked_before(ledger: Ledger) -> None:
    """Whoever was told that the payment had come back would pay it a second time."""
    batch = accepted(ledger)
    record(ledger, returned(batch, 2))
    again = payments(ledger, [2])
    new = new_batch(ledger, 1, content=b"again")
    ledger.withdraw_fact(batch, 2, "ben", "the bank undid it")
    with pytest.raises(RegisteredMeanwhile), ledger.register(new, "ada") as registering:
        registering.add_payments(again)
        registering.finish()


def test_an_account_from_which_a_payment_came_back_is_not_known(ledger: Ledger) -> None:
    batch = accepted(ledger)
    paid = payments(ledger, range(1, 10))
    record(ledger, returned(batch, 2), changed(batch, 3))
    known = ledger.payee_facts(paid.payees, TEST)
    assert {payee for payee, facts in known.items() if facts.accounts} == {*paid.payees} - {paid.payees[1]}
    assert known[paid.payees[1]].came_back == {paid.accounts[1]}, "another account than that is a changed one"
    assert ledger.last_accounts(paid.payees, TEST).keys() == {*paid.payees} - {paid.payees[1]}
    ledger.withdraw_fact(batch, 2, "ben", "the bank undid it")
    assert (
        ledger.payee_facts(paid.payees, TEST).keys() == ledger.last_accounts(paid.payees, TEST).keys() == {*paid.payees}
    )


def test_a_release_lifts_returns_of_accounts_until_the_next_one(ledger: Ledger) -> None:
    batch = accepted(ledger)
    accounts = columns(ledger, range(1, 10)).accounts
    record(ledger, returned(batch, 2), changed(batch, 2), returned(batch, 3))
    other = payments(ledger, [2], salt="other")
    name = register(ledger, payments(ledger, [1], salt="b"), rejected([2]), content=b"two")
    seen = ledger.registration_count()
    assert ledger.release(name, [other], "ben", "a new card", registration_count_seen=seen, lifts=accounts[1:2]) == 1
    found = ledger.facts_of_accounts(accounts, TEST)
    assert {account: [one.code for one in facts] for account, facts in found.items()} == {
        accounts[1]: ["C03"], accounts[2]: ["R02"],
    }  # fmt: skip
    assert [one.lifted for one in ledger.facts(TEST)] == [True, False, False]
    assert earlier(ledger, payments(ledger, [2]))[2].returned is not None
    assert ledger.check() == []
    send(ledger, name, {2: reference(2, "new")})
    record(ledger, returned(name, 2, code="R04"), file="next.csv")
    assert [one.code for one in ledger.facts_of_accounts(accounts, TEST)[accounts[1]]] == ["C03", "R04"]


def test_what_was_accepted_came_back_or_stands(ledger: Ledger) -> None:
    """Rows and cents, by direction; a payment that is made again and again is outside of it."""
    batch = accepted(ledger, recurring=[5])
    assert (ledger.find(batch).returned, ledger.find(batch).standing.rows) == (Totals(), 9)
    record(ledger, returned(batch, 2), returned(batch, 3), returned(batch, 5), changed(batch, 4))
    found = ledger.find(batch)
    assert found.returned_apart == {"DEBIT": Totals(1, 201), "CREDIT": Totals(1, 301)}
    assert found.returned + found.standing == found.by_state[State.ACCEPTED]
    assert ledger.batches()[0].returned == Totals(2, 502)


def test_a_purge_keeps_facts_and_erases_what_they_correct(ledger: Ledger) -> None:
    batch = accepted(ledger)
    record(ledger, returned(batch, 2), changed(batch, 3))
    assert ledger.purge(ledger.now() + timedelta(days=1), "ben", "retention").erased
    fact = list(ledger.facts(TEST))[-1]
    assert (ledger.corrected(fact), ledger.find(batch).returned.rows) == ({}, 1)
    record(ledger, changed(batch, 4), returned(batch, 5), file="late.csv")
    assert [ledger.corrected(one) for one in ledger.facts(TEST)] == [{}] * 4
    assert ledger.sent_rows("invoice", ["größe\t-2"], TEST) == {}
    assert ledger.sent_rows("payment_id", ["é-2"], TEST)["é-2"][0].row == 2
    assert ledger.check() == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE fact SET code = 'R09'", "DELETE FROM fact WHERE number = 1", "UPDATE fact SET corrected = 'x'",
        "UPDATE fact SET withdrawn = NULL", "UPDATE fact SET row = 4 WHERE number = 1",
    ],
)  # fmt: skip
def test_a_check_finds_facts_that_are_not_those_of_the_history(ledger_factory: LedgerFactory, change: str) -> None:
    ledger = ledger_factory.create()
    batch = accepted(ledger)
    record(ledger, returned(batch, 2), changed(batch, 3))
    ledger.withdraw_fact(batch, 2, "ben", "wrong")
    if "corrected" in change:
        change = change.replace("'x'", "CAST('x' AS blob)")
        ledger.purge(ledger.now() + timedelta(days=1), "ben", "retention")
    assert ledger.check() == []
    ledger_factory.close()
    ledger_factory.edit(sqlite=change, postgres=change.replace("blob", "bytea"))
    assert "the ledger is damaged: returns are not what was recorded" in ledger_factory.open(read_only=True).check()
