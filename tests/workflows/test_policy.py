"""The policy in force can be raised by anybody and at once; nobody alone can lower it, by any way, but by waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchpay.errors import WaitingForPerson, WrongUse
from batchpay.payment import Actor
from batchpay.settings import load_settings
from batchpay.workflows.check import dry_run
from batchpay.workflows.policy import NONE, decide_lowering, policy_in_force, policy_of, set_policy
from batchpay.workflows.requests import CheckOptions, Decisions, file_request
from tests.workflows.desk import ANN, Desk

BEN, CLEO = Actor("ben", "desk-4"), Actor("cleo", "desk-5")
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
    ({"hold": ["row.b", "row.a"]}, {}, {"hold": ["row.a", "row.b"]}),
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
    ({"hold": ["row.a"]}, {"hold": ["row.b"]}, {"hold": ["row.a", "row.b"]}),
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
    set_policy(desk.settings, {"approvals": 1, "hold": ["row.duplicate"]}, None, "the board", ANN)
    found = set_policy(desk.settings, asked, None, "in a hurry", ANN)
    assert found["in_force"] | {"approvals": 1} == NONE | {"approvals": 1, "hold": ["row.duplicate"]}
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
    assert found["recorded"] == NONE | {"approvals": 1, "hold": ["row.duplicate"]} | asked
    assert found["notes"] == []
