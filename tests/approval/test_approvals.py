"""How many approvals are needed, and whose count; what would be sent, counted chunk by chunk."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from batchpay.approval import cash_flow
from batchpay.approval.approvals import Approval, Policy, person_key
from batchpay.approval.cash_flow import AllNew, ToSendCount, grouped, with_cents
from batchpay.approval.proposal import SendReason, ToSend
from batchpay.errors import BatchpayError, SettingsNotUsable, WaitingForPerson
from batchpay.payment import Actor, Totals
from batchpay.schemas.columns import RECURRENCE
from batchpay.settings import PolicySettings
from tests.approval.proposals import ANN, BEN, EVE

NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
SEAL = "5EA15EA15EA1"
POLICY = Policy(approvals=2, above_cents=100_000, days=7)


def approval(who: Actor, days_ago: float = 0.0, seal: str = SEAL) -> Approval:
    return Approval(who, NOW - timedelta(days=days_ago), seal, code="")


def counted(*approvals: Approval) -> list[Actor]:
    return [one.who for one in POLICY.counted(approvals, ANN, SEAL, NOW)]


def test_each_other_person_counts_once() -> None:
    """Two people count as two, one who approved twice as one."""
    assert counted(approval(BEN), approval(EVE), approval(BEN)) == [BEN, EVE]


@pytest.mark.parametrize(
    "name",
    ["ann", "ANN", " Ann ", "ａｎｎ", "a\u200bnn", "ann\u00a0", "an n", "a\x7fnn", "ann @corp.example", "CORP\\ann"],
)
@pytest.mark.parametrize("host", ["pc1", "pc9"])
def test_who_prepared_it_is_known_under_any_spelling(name: str, host: str) -> None:
    """Case, width, blanks, invisible characters, a domain or another machine make nobody another person."""
    again = Actor(name, host)
    assert counted(approval(again)) == []
    with pytest.raises(WaitingForPerson, match="prepared this; another person must approve it"):
        POLICY.require_other(again, [], ANN)


def test_one_approver_under_two_spellings_is_one() -> None:
    """The second spelling adds nothing, and is told so."""
    assert counted(approval(BEN), approval(Actor("BEN", "pc7"))) == [BEN]
    with pytest.raises(WaitingForPerson, match="already approved this"):
        POLICY.require_other(Actor("Ben ", "pc7"), [approval(BEN)], ANN)
    POLICY.require_other(EVE, [approval(BEN)], ANN)


def test_the_shared_account_itself_is_no_other_person() -> None:
    """Ann, logged in, prepared a plan and approved it from the service account's crontab: it counted as a colleague's.

    Nothing tells whether an account without a login is the person who acts under it; of two logins it is plain.
    """
    ann, ben, eve = (Actor.by_login(name, "pc1", "payments") for name in ("ann", "ben", "eve"))
    account = Actor("Payments", "pc1")
    for prepared_by, approver in ((ann, account), (account, ann)):
        assert POLICY.counted([approval(approver)], prepared_by, SEAL, NOW) == []
        with pytest.raises(WaitingForPerson, match="nothing shows"):
            POLICY.require_other(approver, [], prepared_by)
    with pytest.raises(WaitingForPerson, match="already approved this"):
        POLICY.require_other(account, [approval(ben)], EVE)
    POLICY.require_other(ben, [approval(account)], EVE)
    assert counted(approval(account), approval(ben), approval(eve)) == [ben, eve]
    assert counted(approval(account)) == [account]
    assert [one.who for one in POLICY.counted([approval(ben), approval(eve)], ann, SEAL, NOW)] == [ben, eve]


def test_a_login_is_one_person_under_any_account() -> None:
    """Ann prepared a plan as `payments` and approved it so, and as `backup`: her login tells that it was she."""
    ann = Actor.by_login("ann", "pc1", "payments")
    for again in (ann, Actor.by_login("Ann", "pc2", "backup"), Actor("ann", "pc2")):
        assert POLICY.counted([approval(again)], ann, SEAL, NOW) == []
        with pytest.raises(WaitingForPerson, match="prepared this; another person must approve it"):
            POLICY.require_other(again, [], ann)


@pytest.mark.parametrize("name", ["", " ", "\u200b", "@corp.example"])
def test_nobody_is_no_person(name: str) -> None:
    """A name of nothing visible approves nothing."""
    assert person_key(Actor(name, "pc1")) == ""
    assert counted(approval(Actor(name, "pc1"))) == []
    with pytest.raises(WaitingForPerson, match="needs a person's name"):
        POLICY.require_other(Actor(name, "pc1"), [], ANN)


@pytest.mark.parametrize(("days_ago", "counts"), [(0, True), (6.99, True), (7, False), (400, False), (-0.01, False)])
def test_an_approval_expires(days_ago: float, counts: bool) -> None:
    """It counts for policy.approval_days, and never before it was given."""
    assert bool(counted(approval(BEN, days_ago))) is counts


def test_an_approval_of_something_else_does_not_count() -> None:
    """What was approved is what the seal says."""
    assert counted(approval(BEN, seal="000000000000")) == []


@pytest.mark.parametrize(("cents", "needed"), [(0, 0), (99_999, 0), (100_000, 2), (10**15, 2)])
def test_small_totals_need_none(cents: int, needed: int) -> None:
    """policy.approve_above is the first total that needs approval."""
    assert POLICY.needed(cents) == needed
    for given in range(4):
        if given >= needed:
            POLICY.require("pay.csv", cents, given)
        else:
            others = "2 other people" if given == 0 else "another person"
            with pytest.raises(WaitingForPerson, match=rf"pay\.csv: .* needs approval by {others}") as waiting:
                POLICY.require("pay.csv", cents, given)
            assert waiting.value.exit_code == 8


def test_large_totals_need_a_second_person() -> None:
    """policy.second_above asks for two people, also where smaller totals need nobody."""
    policy = Policy.from_settings(PolicySettings(approvals=1, second_above="500.00"))
    assert [policy.needed(cents) for cents in (0, 49_999, 50_000)] == [1, 1, 2]
    alone = Policy.from_settings(PolicySettings(second_above="500.00"))
    assert [alone.needed(cents) for cents in (49_999, 50_000)] == [0, 2]
    assert alone.asks
    assert not Policy.from_settings(PolicySettings()).asks
    with pytest.raises(SettingsNotUsable, match="second_above"):
        Policy.from_settings(PolicySettings(second_above="5"))


def test_the_policy_comes_from_the_settings() -> None:
    """By default nobody else need approve; an amount that is none is refused by its key."""
    assert Policy.from_settings(PolicySettings()) == Policy(0, 0, 7)
    assert Policy.from_settings(PolicySettings(approvals=1, approve_above="250.00")).above_cents == 25_000
    with pytest.raises(SettingsNotUsable, match="approve_above"):
        Policy.from_settings(PolicySettings(approve_above="250"))


Row = tuple[int, str, str, str]


def frame(*rows: Row) -> pl.DataFrame:
    schema = {"_row": pl.UInt32, "gatewayId": pl.String, "transactionType": pl.String, "amount": pl.String}
    once = [pl.lit(None, pl.String).alias(name) for name in ("payOn", "recurringIndicator", *RECURRENCE)]
    return with_cents(pl.DataFrame(list(rows), schema=schema, orient="row")).with_columns(once)


ONE = (1, "07", "DEBIT", "12.50")
TWO = (2, "7", "CREDIT", "0.07")
THREE = (3, "12", "CREDIT", "100.00")


def count(*parts: tuple[SendReason, pl.DataFrame], held_back: Totals | None = None) -> ToSend:
    counted = ToSendCount()
    for origin, rows in parts:
        counted.add(origin, grouped(rows))
        counted.note(origin, rows["_row"])
    counted.hold_back(held_back or Totals())
    return counted.finish()


def test_every_row_is_counted_once_and_what_is_held_back_is_in_no_sum() -> None:
    """Origins, directions and accounts give the same total; `07` and `7` are one account."""
    found = count((SendReason.PENDING, frame(ONE, TWO)), (SendReason.RELEASED, frame(THREE)), held_back=Totals(1, 900))
    assert (found.new, found.pending, found.released) == (Totals(), Totals(2, 1_257), Totals(1, 10_000))
    assert found.held_back == Totals(1, 900)
    assert found.total == Totals(3, 11_257)
    assert found.by_direction == {"DEBIT": Totals(1, 1_250), "CREDIT": Totals(2, 10_007)}
    assert found.released_by_direction == {"CREDIT": Totals(1, 10_000)}
    assert found.by_account == {"7": Totals(2, 1_257), "12": Totals(1, 10_000)}


def test_the_size_of_the_chunks_does_not_matter() -> None:
    """The same rows are the same to send, however they were read."""
    whole = count((SendReason.NEW, frame(ONE, TWO, THREE)))
    parts = count(*((SendReason.NEW, frame(row)) for row in (ONE, TWO, THREE)))
    assert parts == whole


def test_new_rows_are_counted_as_any_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The approver's figures and rows are those of the submission. What waits to be counted does not pile up."""
    monkeypatch.setattr(cash_flow, "_GROUPS_AT_ONCE", 3)
    new = AllNew(date(2026, 11, 23))
    for row in (ONE, TWO, THREE):
        assert new._waiting_groups < 3
        new.add(frame(row))
    assert new._waiting == []
    found, _ = new.finish(frame(ONE, TWO, THREE)["_row"])
    assert found == count((SendReason.NEW, frame(ONE, TWO, THREE)))


def test_rows_that_are_taken_out_leave_nothing_behind() -> None:
    """A row may turn out to stand twice after it was counted: no account and no direction is named for it any more."""
    counted = ToSendCount()
    counted.add(SendReason.NEW, grouped(frame(ONE, TWO, THREE)))
    counted.add(SendReason.NEW, grouped(frame(ONE, THREE), times=-1))
    counted.note(SendReason.NEW, pl.Series([2], dtype=pl.UInt32))
    assert counted.finish() == count((SendReason.NEW, frame(TWO)))
    assert list(counted.finish().by_direction) == ["CREDIT"]


@pytest.mark.parametrize("other", [
    [(SendReason.NEW, [ONE, (5, *TWO[1:])])], [(SendReason.NEW, [ONE]), (SendReason.RELEASED, [TWO])],
    [(SendReason.PENDING, [ONE, TWO])],
], ids=["another row of the same amount", "one of them released", "registered meanwhile"])  # fmt: skip
def test_other_rows_of_equal_totals_are_told_apart(other: list[tuple[SendReason, list[Row]]]) -> None:
    """Equal sums are not enough: which rows go, and why, is part of what was approved."""
    first = count((SendReason.NEW, frame(ONE, TWO)))
    second = count(*((origin, frame(*rows)) for origin, rows in other))
    assert first.total == second.total
    assert first.rows_digest != second.rows_digest


@pytest.mark.parametrize("name", ["by_direction", "by_account"])
@pytest.mark.parametrize("totals", [Totals(1, 99), Totals(2, 100), Totals()])
def test_figures_that_do_not_add_up_are_refused(name: str, totals: Totals) -> None:
    """A page whose parts are not its whole is never shown."""
    right: dict[str, Any] = {"by_direction": {"DEBIT": Totals(1, 100)}, "by_account": {"7": Totals(1, 100)}}
    ToSend(new=Totals(1, 100), **right)
    with pytest.raises(BatchpayError, match="would be sent"):
        ToSend(new=Totals(1, 100), **(right | {name: {"7": totals}}))
