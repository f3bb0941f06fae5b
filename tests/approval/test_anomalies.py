"""The look at the history, over a history that is an ordinary dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from batchpay.approval.anomalies import CODES, KEPT_MAX, Anomalies, PayeeColumns, Payment, Variance, variances
from batchpay.approval.cash_flow import Flow
from batchpay.ledger.records import PayeeFacts
from batchpay.payment import Environment, Totals


class Remembered:
    """A history in memory."""

    def __init__(self, facts: Mapping[bytes, PayeeFacts]) -> None:
        self._facts = facts
        self.asked: list[tuple[bytes, ...]] = []
        self.but: bytes | None = None

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, PayeeFacts]:
        assert environment is Environment.LIVE
        self.asked.append(tuple(payees))
        self.but = exclude_digest
        return {payee: self._facts[payee] for payee in payees if payee in self._facts}

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, str]:
        assert (environment, exclude_digest) == (Environment.LIVE, self.but)
        return {payee: "****1111" for payee in payees if payee == ANN}


ANN, BOB = b"ann-----", b"bob-----"
NOVEMBER = datetime(2026, 11, 2, tzinfo=UTC)
FIRST, SECOND, OTHER = b"account1", b"account2", b"account3"
HISTORY = {ANN: PayeeFacts(10_000, dict.fromkeys((FIRST, SECOND), NOVEMBER))}


def _place(row: int) -> str:
    return f"row {row}"


def look(*rows: tuple[bytes, bytes, int], first_above_cents: int | None = None) -> list[Variance]:
    payees, accounts, cents = zip(*rows, strict=True)
    columns = PayeeColumns(range(1, len(rows) + 1), payees, accounts, cents)
    return variances(Remembered(HISTORY), columns, Environment.LIVE, first_above_cents=first_above_cents)


def test_what_is_usual_gives_no_warning() -> None:
    """A known payee, one of its accounts, up to three times its usual amount: nothing to say."""
    assert look((ANN, FIRST, 10_000), (ANN, SECOND, 30_000), (ANN, FIRST, 1)) == []


def test_a_new_payee_is_said_once() -> None:
    """Of a payee without history only that is said: its account and amount are new of necessity."""
    assert [(found.row, found.column, found.code) for found in look((BOB, OTHER, 10**9))] == [
        (1, "achNameOnCheck", "new_payee")
    ]


def test_a_changed_account_and_an_unusual_amount_are_both_said() -> None:
    """A row can have both, each on its own column, with what to do."""
    found = look((ANN, FIRST, 500), (ANN, OTHER, 30_001))
    assert [(one.row, one.column, one.code) for one in found] == [
        (2, "achAccountNumber", "changed_account"),
        (2, "amount", "unusual_amount"),
    ]
    assert "known payee, the last payment had ****1111, call" in found[0].message
    assert found[1].message == "over 3 times the usual 100.00 of this payee, check it"


def test_a_changed_account_is_said_where_the_last_one_was_purged() -> None:
    """The look must not end in an error because the old account's details were erased: the warning stands without."""
    history = Remembered({BOB: PayeeFacts(10_000, {FIRST: NOVEMBER})})
    (found,) = variances(history, PayeeColumns([1], [BOB], [OTHER], [500]), Environment.LIVE)
    assert found.code == "changed_account"
    assert "known payee, call" in found.message


@pytest.mark.parametrize(("cents", "times"), [(30_001, 3), (40_000, 3), (40_001, 4), (1_000_001, 100)])
def test_the_multiple_is_never_overstated(cents: int, times: int) -> None:
    """`over N times` is true to the cent."""
    assert look((ANN, FIRST, cents))[0].message.startswith(f"over {times} times ")


def test_a_payee_that_only_ever_got_nothing_has_no_usual_amount() -> None:
    """Where amounts of 0.00 were let through there is nothing to multiply."""
    columns = PayeeColumns([1], [ANN], [FIRST], [5])
    assert variances(Remembered({ANN: PayeeFacts(0, {FIRST: NOVEMBER})}), columns, Environment.LIVE) == []


def test_the_history_is_asked_once_for_each_payee() -> None:
    """A payee in many rows is looked up once, and the file's own batch is left out."""
    history = Remembered(HISTORY)
    columns = PayeeColumns([1, 2, 3], [ANN, BOB, ANN], [FIRST] * 3, [1] * 3)
    variances(history, columns, Environment.LIVE, exclude_digest=b"d")
    assert history.asked == [(ANN, BOB)]
    assert history.but == b"d"


def test_messages_can_stand_in_a_rejects_file() -> None:
    """No message has a semicolon, which separates messages there, nor a digest."""
    messages = [
        found.message for found in look((BOB, OTHER, 1), (BOB, OTHER, 501), (ANN, OTHER, 99_999), first_above_cents=500)
    ]
    assert len(messages) == len(CODES)
    assert all(";" not in message and "account3" not in message for message in messages)


def flow(debit: tuple[int, int] = (0, 0), credit: tuple[int, int] = (0, 0)) -> Flow:
    return Flow(Totals(*debit), Totals(*credit))


def told(rows: int, *others: Variance) -> Anomalies:
    """So many new payees, and other warnings before and after them."""
    anomalies = Anomalies(compared=True)
    new = [Variance(row, "achNameOnCheck", "new_payee", "new") for row in range(1, rows + 1)]
    payments = {one.row: Payment(f"Payee; {one.row}", "CREDIT", one.row, "****6789") for one in [*new, *others]}
    for one in others:
        anomalies.add_up(one.code, flow(credit=(1, one.row)))
    if new:
        anomalies.add_up("new_payee", flow((1, 100), (rows - 1, 250)))
    found = [*new, *others]
    named = {one.row: payments[one.row] for one in anomalies.to_name(found)}
    anomalies.add(found, named)
    return anomalies


CHANGED = Variance(200_001, "achAccountNumber", "changed_account", "a new account of a known payee, call")
UNUSUAL = [Variance(200_100 + number, "amount", "unusual_amount", "over 3 times") for number in range(30)]


def test_a_hundred_thousand_new_payees_are_one_line() -> None:
    """They come last, as a count and sums by direction; the changed account leads, in full, by payee and amount."""
    lines = told(100_000, CHANGED, *UNUSUAL).lines(_place)
    assert lines[0] == (
        "row 200001: achAccountNumber: changed_account: Payee, 200001, CREDIT 2,000.01, account ****6789: "
        "a new account of a known payee, call"
    )
    assert lines[-1] == "new_payee: 1 DEBIT 1.00, 99,999 CREDIT 2.50"
    assert len(lines) == 1 + 20 + 1 + 1
    assert lines[-2].startswith("unusual_amount: 30 CREDIT ")
    assert lines[-2].endswith(" in all")


def test_new_payees_are_named_while_there_is_room() -> None:
    """Whatever is louder goes first, so that a hundred thousand new payees take no time and hide nothing."""
    new = look((BOB, OTHER, 1), (BOB, OTHER, 2))
    almost_full = Anomalies(kept=[CHANGED] * (KEPT_MAX - 1))
    assert almost_full.to_name(new) == new[:1]
    assert Anomalies(kept=[CHANGED] * KEPT_MAX).to_name(new) == []
    assert almost_full.to_name([*new, CHANGED, CHANGED]) == [CHANGED, CHANGED]


def test_every_changed_account_is_told() -> None:
    """However many they are, none is cut off by other warnings."""
    changed = [replace(CHANGED, row=300_000 + number) for number in range(100)]
    lines = told(5_000, *changed).lines(_place)
    assert sum(": changed_account: " in line for line in lines) == 100


def test_nothing_to_compare_with_is_not_nothing_unusual() -> None:
    """An empty ledger finds nothing odd because it knows nothing: no comfort in that."""
    assert Anomalies().lines(_place) == ["no earlier payments to compare payees, accounts and amounts with"]
    assert Anomalies(compared=True).lines(_place) == ["compared with earlier payments: nothing unusual"]


@pytest.mark.parametrize(
    ("account", "codes"), [(OTHER, ["changed_account"]), (FIRST, [])], ids=["another account", "the same account"]
)
def test_an_id_that_nobody_knows_hides_no_known_name(account: bytes, codes: list[str]) -> None:
    """With an id added to the row a payment to another account was but a new payee's; a house may begin to give ids."""
    columns = PayeeColumns([1, 2], [b"id 7----", BOB], [account, OTHER], [1, 1], lambda: [ANN, BOB])
    history = Remembered(HISTORY)
    found = variances(history, columns, Environment.LIVE)
    assert [(one.row, one.code) for one in found] == [*((1, code) for code in codes), (2, "new_payee")]
    assert all("the last payment had ****1111" in one.message for one in found[:-1])
    assert history.asked == [(b"id 7----", BOB), (ANN,)], "a name that was asked for is not asked for again"
