"""The policy in force can be raised by anybody and at once; nobody alone can lower it, by any way, but by waiting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from batchpay.approval.plan import Plan, PlanText
from batchpay.errors import WaitingForPerson, WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.settings import load_settings
from batchpay.summary import Summary
from batchpay.workflows import approve as approving
from batchpay.workflows import submit as submitting
from batchpay.workflows.approve import view_plan
from batchpay.workflows.check import dry_run
from batchpay.workflows.health import HealthLimits, health
from batchpay.workflows.policy import NONE, decide_lowering, policy_in_force, policy_of, set_policy
from batchpay.workflows.requests import CheckOptions, Decisions, file_request
from tests.model import clock
from tests.workflows.desk import ANN, Desk

BEN, CLEO, EVE = Actor("ben", "desk-4"), Actor("cleo", "desk-5"), Actor("eve", "desk-6")
BILLS = [{"paymentId": f"P-{n}", "invoiceNumber": f"A-{n}", "amount": f"{n}0.00"} for n in range(1, 10)]


def with_policy(desk: Desk, file: dict[str, Any], **variables: str) -> None:
    """Let the settings file say this, and variables that."""
    environment = {f"BATCHPAY_{name}": value for name, value in variables.items()}
    loaded = load_settings({"policy": {"variance": False, **file}}, environment).policy
    desk.settings = replace(desk.settings, policy=loaded)


def live(desk: Desk) -> None:
    """Let the desk pay for good."""
    desk.settings = replace(desk.settings, gateway=replace(desk.settings.gateway, environment="live"))


def told(desk: Desk) -> list[str]:
    """Return what a dry run says of the policy."""
    asked = file_request(str(desk.file("any.csv", BILLS[8])), None, CheckOptions(), desk.settings)
    notes = dry_run(asked, desk.settings, ANN, Decisions(), requests_max=0, results=None).summary.notes
    return [note for note in notes if "policy" in note]


def waits(desk: Desk, row: int) -> bool:
    """Return whether a new file waits for approval."""
    try:
        desk.submit(desk.file(f"pay{row}.csv", BILLS[row]))
    except WaitingForPerson:
        return True
    return False


@pytest.mark.parametrize(("file", "variables", "expected"), [
    ({}, {}, {}),
    ({"approvals": 1}, {"APPROVALS": "0"}, {"approvals": 1}),
    ({"approvals": 1}, {"APPROVALS": "2"}, {"approvals": 2}),
    ({"approvals": 1}, {"APPROVE_ABOVE": "900.00"}, {"approvals": 1}),
    ({"approvals": 1, "approve_above": "9.00"}, {"APPROVE_ABOVE": "10.00"}, {"approvals": 1, "approve_above": "9.00"}),
    ({"approve_above": "9.00"}, {"APPROVE_ABOVE": "0.00"}, {}),
    ({}, {"APPROVALS": "1", "APPROVE_ABOVE": "9.00"}, {"approvals": 1, "approve_above": "9.00"}),
    ({"second_above": "9.00"}, {"SECOND_ABOVE": "10.00"}, {"second_above": "9.00"}),
    ({"approvals": 1}, {"SECOND_ABOVE": "10.00"}, {"approvals": 1, "second_above": "10.00"}),
    ({"approval_days": 9}, {"APPROVAL_DAYS": "20"}, {"approval_days": 9}),
    ({"approval_days": 9}, {"APPROVAL_DAYS": "7"}, {}),
    ({"approval_window": 48}, {"APPROVAL_WINDOW": "12"}, {"approval_window": 48}),
    ({"hold": ["row.total", "row.sum"]}, {}, {"hold": ["row.sum", "row.total"]}),
])  # fmt: skip
def test_a_variable_only_makes_the_file_stricter(
    file: dict[str, Any], variables: dict[str, str], expected: dict[str, Any]
) -> None:
    """BATCHPAY_APPROVALS=0 turned four eyes off for whoever could set it."""
    environment = {f"BATCHPAY_{name}": value for name, value in variables.items()}
    found = policy_in_force(None, load_settings({"policy": file}, environment))
    assert {name: getattr(found.settings, name) for name in NONE} == NONE | expected


@pytest.mark.parametrize(("recorded", "file", "expected"), [
    ({"approve_above": "50.00"}, {"approvals": 1}, {"approvals": 1, "approve_above": "50.00"}),
    ({"approve_above": "50.00"}, {"approve_above": "0.00"}, {}),
    ({"hold": ["row.total"]}, {"hold": ["amount.unusual_amount"]}, {"hold": ["amount.unusual_amount", "row.total"]}),
    ({"makers_exempt": ["cron", "ann"]}, {}, {"makers_exempt": ["ann", "cron"]}),
    ({"makers_exempt": ["cron", "ann"]}, {"makers_exempt": ["cron", "ben"]}, {"makers_exempt": ["cron"]}),
    ({"approvals": 2, "second_above": "9.00"}, {"approvals": 1}, {"approvals": 2, "second_above": "9.00"}),
])  # fmt: skip
def test_the_ledger_and_the_file_are_each_obeyed_where_they_are_stricter(
    desk: Desk, on_both: None, recorded: dict[str, Any], file: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Setting by setting; what the file does not say, the ledger does."""
    set_policy(desk.settings, recorded, None, "the board", ANN)
    with_policy(desk, file)
    assert policy_of(desk.settings)["in_force"] == NONE | expected


def test_the_file_is_recorded_where_it_is_stricter_and_a_variable_never(desk: Desk, on_both: None) -> None:
    """By whoever submits, for their environment; a file that is less strict later changes nothing."""
    with_policy(desk, {"approvals": 1, "approve_above": "50.00"}, APPROVALS="2", APPROVE_ABOVE="40.00")
    assert not waits(desk, 0)
    assert policy_of(desk.settings)["recorded"] == NONE | {"approvals": 1, "approve_above": "50.00"}
    with_policy(desk, {"approvals": 1, "approve_above": "20.00"})
    assert waits(desk, 1)
    with_policy(desk, {}, APPROVALS="0", APPROVE_ABOVE="9000.00")
    assert waits(desk, 2)
    found = policy_of(desk.settings)
    assert found["recorded"] == found["in_force"] == NONE | {"approvals": 1, "approve_above": "20.00"}
    assert desk.events("policy") == [("ann@desk-3", "policy of the settings file")] * 2
    live(desk)
    assert policy_of(desk.settings)["recorded"] is None, "each environment has its own"


@pytest.mark.parametrize("asked", [NONE, {"approvals": 0}, {"approve_above": "900.00"}, {"approvals": 2, "hold": []}])
def test_a_lowering_waits_for_others(desk: Desk, on_both: None, asked: dict[str, Any]) -> None:
    """It is told meanwhile, can be refused, and takes effect when another person has approved it."""
    set_policy(desk.settings, {"approvals": 1, "hold": ["row.total"]}, None, "the board", ANN)
    found = set_policy(desk.settings, asked, None, "in a hurry", ANN)
    assert found["in_force"] | {"approvals": 1} == NONE | {"approvals": 1, "hold": ["row.total"]}
    assert found["in_force"]["approvals"] == max(1, asked.get("approvals", 1)), "what is stricter applies at once"
    assert waits(desk, 0)
    (note,) = told(desk)
    assert "ann@desk-3 asked to lower the policy (" in note
    assert ": in a hurry); it takes effect on" in note
    with pytest.raises(WaitingForPerson, match="ann@elsewhere prepared this"):
        decide_lowering(desk.settings, Actor("ann", "elsewhere"))
    decide_lowering(desk.settings, BEN, "not without me")
    assert told(desk) == []
    with pytest.raises(WrongUse, match="nobody asks to lower the policy"):
        decide_lowering(desk.settings, BEN)
    set_policy(desk.settings, asked, None, "in a hurry", ANN)
    found = decide_lowering(desk.settings, BEN)
    if found["notes"]:  # two must agree by now
        found = decide_lowering(desk.settings, CLEO)
    assert found["recorded"] == NONE | {"approvals": 1, "hold": ["row.total"]} | asked
    assert found["notes"] == []


def test_who_asks_that_nobody_need_approve_makes_nothing_stricter_meanwhile(desk: Desk, on_both: None) -> None:
    """`policy none` has 0.00 as its amount, which applied at once: every payment waited, and a refusal left it so."""
    kept = {"approvals": 1, "approve_above": "1000.00", "approval_days": 30}
    set_policy(desk.settings, kept, None, "the board", ANN)
    assert set_policy(desk.settings, NONE, None, "in a hurry", ANN)["recorded"] == NONE | kept
    assert decide_lowering(desk.settings, BEN, "no")["recorded"] == NONE | kept


@pytest.mark.parametrize("is_kept", [True, False], ids=["a time server keeps the clock", "the clock was set"])
def test_a_lowering_takes_effect_after_72_hours(
    desk: Desk, on_both: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool, request: Any
) -> None:
    """A company of two whose approver left gets on; setting the clock of the machine ahead does not help."""
    set_policy(desk.settings, {"approvals": 1}, None, "the board", ANN)
    set_policy(desk.settings, {"approvals": 0}, None, "he has left", ANN)
    clock.exchange()
    monkeypatch.setattr(clock, "synchronized", is_kept)
    clock.offset_s = 71.9 * 3600
    assert waits(desk, 0)
    clock.offset_s = 72.1 * 3600
    if not is_kept and "sqlite" in request.node.name:
        (tmp_path / "boot").write_text("another boot")
        monkeypatch.setattr("batchpay.ledger.machine.BOOT_ID", tmp_path / "boot")
        monkeypatch.setattr("batchpay.ledger.machine.since_boot_ms", lambda: 1000)
        assert waits(desk, 1)
        return
    assert not waits(desk, 1)
    assert policy_of(desk.settings)["in_force"] == NONE
    assert not [note for note in told(desk) if "lower" in note]
    set_policy(desk.settings, {"approvals": 2}, None, "two came", ANN)
    assert waits(desk, 2)


def test_a_ledger_without_a_policy_warns_and_pays_as_before(desk: Desk, on_both: None) -> None:
    """One line, of live payments, until somebody sets one; a person alone says so, and is never asked for another."""
    live(desk)
    desk.submit(desk.file("first.csv", BILLS[0]))
    (note,) = told(desk)
    assert note.startswith("the ledger has no policy: who must approve is decided by the settings of whoever submits")
    (found,) = [one for one in health(desk.settings, HealthLimits(), clock.now(UTC)).findings if one.check == "policy"]
    assert (found.message, found.exit_code, found.warns) == (note, 0, True)
    set_policy(desk.settings, NONE, None, "there is only me", ANN)
    assert told(desk) == []
    set_policy(desk.settings, {"hold": ["row.sum"], "approval_days": 3}, None, "carefully", ANN)
    assert set_policy(desk.settings, NONE, None, "there is only me", ANN)["in_force"] == NONE
    assert not waits(desk, 1)


def alone(desk: Desk, row: int, **changes: str) -> Summary:
    """Submit a file of 1,000.00 by whoever is at the desk."""
    one = {"paymentId": f"P-{row}", "invoiceNumber": f"A-{row}", "amount": "1000.00"}
    return desk.submit(desk.file(f"pay{row}.csv", one | changes))


@pytest.fixture
def above_3000(desk: Desk, on_both: None) -> Desk:
    """A desk whose ledger asks for one other person from 3,000.00 on, and two from 5,000.00 on."""
    set_policy(desk.settings, {"approvals": 1, "approve_above": "3000.00", "second_above": "5000.00"}, None, "x", ANN)
    return desk


def test_files_of_one_maker_count_together(above_3000: Desk) -> None:
    """Six files of 500 went out where one of 3,000 waited."""
    desk = above_3000
    for row in (1, 2):
        assert alone(desk, row).exit_code == 0
    told = r"1,000\.00 in all, 3,000\.00 with the credits that ann@desk-3 registered without approval in the last 24 h"
    with pytest.raises(
        WaitingForPerson, match=told + r"ours \(policy\.approve_above is 3,000\.00\), needs approval by anoth"
    ):
        alone(desk, 3)
    desk.actor = Actor.by_login("ann", "another machine", "payments")
    with pytest.raises(WaitingForPerson, match=r"pay3\.csv"):
        alone(desk, 3)
    desk.actor = ANN
    assert alone(desk, 4, transactionType="DEBIT", amount="2999.99").exit_code == 0, "debits count apart"
    desk.actor = Actor("payments", "desk-3")
    assert alone(desk, 5).exit_code == 0
    desk.actor = Actor.by_login("ben", "desk-3", "payments")
    assert alone(desk, 6).exit_code == 0
    with pytest.raises(WaitingForPerson, match=r"3,000\.00 with the credits that ben@desk-3"):
        alone(desk, 7)  # the account may be his


def test_a_plan_that_was_approved_counts_for_nothing_later(above_3000: Desk) -> None:
    """What another person has seen is not what one person did alone; the plan shows why it is asked."""
    desk = above_3000
    alone(desk, 1)
    alone(desk, 2)
    path = desk.file("pay3.csv", BILLS[8] | {"amount": "3000.00"})
    preview = desk.dry_run(path, with_plan=True)
    assert preview.approvals_missing == 2, "5,000.00 with the two before"
    plan = preview.plan
    assert plan is not None
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        for who in (BEN, CLEO):
            plan = plan.approved_by(who, ledger.now(), ledger)
            view = view_plan(PlanText("plan", plan.text()), ledger, desk.settings)
            assert view.page()[-1].startswith("5,000.00 with the credits that ann@desk-3 registered without approval")
            if who == BEN:
                with pytest.raises(WaitingForPerson, match="needs approval by another person"):
                    desk.submit(path, plan=plan)
    assert desk.submit(path, plan=plan).exit_code == 0
    assert alone(desk, 5, amount="999.99").exit_code == 0
    with pytest.raises(WaitingForPerson):
        alone(desk, 6, amount="0.01")


@pytest.mark.parametrize("way", ["again", "release"])
def test_what_is_sent_again_or_released_counts_as_well(above_3000: Desk, way: str) -> None:
    """--again under the limit, every hour, needed nobody."""
    desk = above_3000
    path = desk.file("pay.csv", BILLS[0] | {"amount": "999.00"}, BILLS[1] | {"amount": "1001.00"})
    if way == "release":
        desk.limit("1000.00")
    desk.submit(path)
    desk.limit("")
    if way == "release":
        alone(desk, 5)
        with pytest.raises(WaitingForPerson, match=r"3,000\.00 with the credits"):
            desk.submit(path, release="seen")
        desk.actor = BEN
        desk.submit(path, release="seen")
        alone(desk, 6, amount="1998.99")
        with pytest.raises(WaitingForPerson):
            alone(desk, 7, amount="0.01")
        return
    with pytest.raises(WaitingForPerson, match=r"4,000\.00 with the credits"):
        desk.submit(path, again="the bank lost it")
    desk.actor = BEN
    desk.submit(path, again="the bank lost it")
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        assert ledger.check() == []


def test_after_the_window_it_is_another_day(above_3000: Desk) -> None:
    """For the policy's hours, by the ledger's clock."""
    desk = above_3000
    set_policy(desk.settings, {"approval_window": 48}, None, "weekends", ANN)
    clock.exchange()
    for row in (1, 2):
        alone(desk, row)
    clock.offset_s = 47.9 * 3600
    with pytest.raises(WaitingForPerson, match="in the last 48 hours"):
        alone(desk, 3)
    clock.offset_s = 48.1 * 3600
    assert alone(desk, 3).exit_code == 0


def test_an_exempt_account_is_not_added_up(above_3000: Desk) -> None:
    """A cron job submits what others put there all day; each of its files counts by itself, for nobody else."""
    desk = above_3000
    set_policy(desk.settings, {"makers_exempt": ["payments"]}, None, "nightly", ANN)
    for who in (BEN, CLEO):
        decide_lowering(desk.settings, who)
    desk.actor = Actor("payments", "desk-3")
    for row in (1, 2, 3, 4):
        assert alone(desk, row).exit_code == 0
    with pytest.raises(WaitingForPerson):
        alone(desk, 5, amount="3000.00")
    desk.actor = Actor.by_login("ben", "desk-3", "payments")
    assert alone(desk, 6, amount="2999.00").exit_code == 0
    with pytest.raises(WaitingForPerson):
        alone(desk, 7)


def test_two_files_at_once_do_not_both_fit(above_3000: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two machines neither saw what the other was about to register; the transaction does."""
    desk, alone_now = above_3000, []
    look: Callable[..., Any] = approving.let_through

    def after_another(*asked: Any) -> Any:
        monkeypatch.setattr(submitting, "let_through", look)
        found = look(*asked)
        alone_now.append(alone(desk, 2, amount="1999.99").exit_code)
        return found

    monkeypatch.setattr(submitting, "let_through", after_another)
    with pytest.raises(WaitingForPerson, match=r"3,000\.00 with the credits that ann@desk-3"):
        alone(desk, 1, amount="1000.01")
    assert (alone_now, sum(desk.arrived.values())) == ([0], 1)


def switch(desk: Desk, name: str, *, off: bool) -> None:
    """Switch a person of the page off, or on again."""
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.note_person("root@host", f"switched {name}", name, is_off=off)


@pytest.fixture
def prepared(desk: Desk, on_both: None) -> Callable[[Actor, Actor], Plan]:
    """Return how a plan is made by one and approved by another, where one other person must."""
    set_policy(desk.settings, {"approvals": 1}, None, "the board", ANN)

    def made(by: Actor, approver: Actor) -> Plan:
        desk.actor = by
        plan = desk.dry_run(desk.file("pay.csv", BILLS[0]), with_plan=True).plan
        assert plan is not None
        with closing(open_ledger(desk.settings.ledger)) as ledger:
            return plan.approved_by(approver, ledger.now(), ledger)

    return made


@pytest.mark.parametrize("who", ["ben", "eve"])
def test_an_approval_and_a_request_count_if_their_people_are_on(
    desk: Desk, prepared: Callable[[Actor, Actor], Plan], who: str
) -> None:
    """When the plan is used; a login of the command line is another's than a name on the page."""
    plan = prepared(replace(EVE, authenticated_by="web"), replace(BEN, authenticated_by="web, password and code"))
    path = desk.folder / "pay.csv"
    switch(desk, "somebody", off=True)
    switch(desk, who, off=True)
    with pytest.raises(WaitingForPerson, match=r"needs approval|eve .*is switched off"):
        desk.submit(path, plan=plan)
    switch(desk, who, off=False)
    assert desk.submit(path, plan=plan).exit_code == 0
    switch(desk, who, off=True)
    assert desk.resume().exit_code == 0, "what was used stays used"
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        assert sorted(ledger.people_off()) == sorted(["somebody", who])


def test_the_command_line_knows_people_by_their_login(desk: Desk, prepared: Callable[[Actor, Actor], Plan]) -> None:
    """Switching a name of the page off says nothing of a login of that name."""
    plan = prepared(EVE, BEN)
    switch(desk, "ben", off=True)
    assert desk.submit(desk.folder / "pay.csv", plan=plan).exit_code == 0


def test_who_is_switched_off_while_the_plan_is_compared_has_not_agreed(
    desk: Desk, prepared: Callable[[Actor, Actor], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction that uses the plan looks once more."""
    plan = prepared(EVE, replace(BEN, authenticated_by="web"))
    look: Callable[..., Any] = approving.let_through

    def then_off(*asked: Any) -> Any:
        monkeypatch.setattr(submitting, "let_through", look)
        found = look(*asked)
        switch(desk, "ben", off=True)
        return found

    monkeypatch.setattr(submitting, "let_through", then_off)
    with pytest.raises(WaitingForPerson, match="needs approval by another person"):
        desk.submit(desk.folder / "pay.csv", plan=plan)
    assert not desk.arrived
