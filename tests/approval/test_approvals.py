"""How many approvals are needed, and whose count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from batchpay.approval.approvals import Approval, Policy, person_key
from batchpay.errors import SettingsNotUsable, WaitingForPerson
from batchpay.payment import Actor
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
