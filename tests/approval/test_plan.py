"""Plans, written and read with a real ledger's key."""

from __future__ import annotations

import dataclasses
import json
import stat
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from batchpay.approval.plan import Plan, PlanText, _code
from batchpay.approval.proposal import Proposal, ToSend, differences, rules_json
from batchpay.approval.sign_off import plan_lines
from batchpay.errors import FileRefused
from batchpay.ledger.contract import Ledger
from batchpay.payment import Totals
from tests.approval.proposals import ANN, BEN, PROPOSAL, RULES, TO_SEND, VALID, ledger_in_folder, proposal

MORNING = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with ledger_in_folder(tmp_path) as opened:
        yield opened


EARLIER = """{
  "plan": 2, "id": "0123456789abcdef", "seal": "5EA15EA15EA1",
  "prepared_by": {"name": "ann", "host": "pc1", "authenticated_by": ""}, "created_at": "2026-11-23T09:30:00.000Z",
  "content": {"file": "pay.csv", "accepted_suggestions": {}},
  "code": "163ba999f3bb32081cca03a0361a3b1d4aee161a28944592ee880c13039e0171",
  "approvals": [{
    "who": {"name": "ben", "host": "pc2", "authenticated_by": ""}, "at": "2026-11-23T09:30:00.000Z",
    "seal": "5EA15EA15EA1", "code": "b15c078db1ef53ca0caab11ec5073a172ba9de46655ee274e466ceac018d117d"
  }]
}"""
"""A plan and its approval, written under the key of 5e 5e 5e ... in November 2026."""


def make(ledger: Ledger, of: Proposal = PROPOSAL) -> Plan:
    return Plan.make(of, ledger, prepared_by=ANN, created_at=MORNING)


def test_a_plan_comes_back_as_it_was_written(ledger: Ledger, tmp_path: Path) -> None:
    """What is read equals what was written, whatever bytes the file's name has, and nobody else may read it."""
    plan = make(ledger, proposal(file="m\udce9moire é.csv")).approved_by(BEN, MORNING, ledger)
    path = tmp_path / "pay.plan.json"
    plan.write(str(path))
    assert Plan.read(str(path), ledger) == plan
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert plan.content["rules"]["rules_off"] == ["amount.range", "row.ragged"]
    assert plan.totals("total") == VALID
    assert plan.by_account() == TO_SEND.by_account


def test_a_plan_of_an_earlier_release_still_counts(tmp_path: Path) -> None:
    """Two people take days to approve; a program that was updated meanwhile must know their plan and their word."""
    key = tmp_path / "keys" / "ledger.key"
    key.parent.mkdir(mode=0o700)
    key.write_text("5e" * 32)
    key.chmod(0o600)
    with ledger_in_folder(tmp_path) as ledger:
        plan = Plan.parse(PlanText("plan.json", EARLIER), ledger)
    assert (plan.seal, plan.prepared_by, plan.created_at) == ("5EA15EA15EA1", ANN, MORNING)
    assert [one.who for one in plan.approvals] == [BEN]


def test_a_plan_is_in_no_trace() -> None:
    """Whoever looks at a program that ended with an error sees the plan's name, and not who is paid what."""
    assert "Kim" not in repr(PlanText("plan.json", json.dumps({"reason": "asked by Kim"})))


MEMBERS: list[dict[str, Any]] = [
    {"id": "00"},
    {"seal": "000000000000"},
    {"prepared_by": {"name": "eve", "host": "pc1", "authenticated_by": ""}},
    {"created_at": "2026-11-24T09:30:00.000Z"},
    {"code": "00" * 32},
    {"content": {**PROPOSAL.as_json(), "origin": "https://elsewhere.example"}},
    {"content": {**PROPOSAL.as_json(), "again": True}},
    {"more": 1},
]


@pytest.mark.parametrize("change", MEMBERS, ids=lambda change: next(iter(change)))
def test_an_edited_plan_is_refused(ledger: Ledger, change: dict[str, Any]) -> None:
    """No member can be changed, and none added, without the ledger's key."""
    text = json.dumps(json.loads(make(ledger).text()) | change)
    with pytest.raises(FileRefused, match="was changed"):
        Plan.parse(PlanText("plan.json", text), ledger)


@pytest.mark.parametrize("member", ["id", "seal", "prepared_by", "created_at", "code", "content", "approvals"])
@pytest.mark.parametrize("value", [None, 3, [], {}, "é"])
def test_a_member_of_another_kind_is_refused(ledger: Ledger, member: str, value: Any) -> None:
    """Whatever stands in a plan's place, it is refused in words."""
    if (member, value) == ("approvals", []):
        return  # a plan that nobody approved yet
    text = json.dumps(json.loads(make(ledger).text()) | {member: value})
    with pytest.raises(FileRefused, match=r"is not a plan|was changed"):
        Plan.parse(PlanText("plan.json", text), ledger)


@pytest.mark.parametrize("change", [
    {"who": {"name": "eve", "host": "pc2", "authenticated_by": ""}},
    {"who": {"name": "ben", "host": "pc2", "authenticated_by": "password and code"}},
    {"at": "2026-11-30T09:30:00.000Z"}, {"seal": "000000000000"}, {"code": "00" * 32},
], ids=["who", "how we know", "at", "seal", "code"])  # fmt: skip
def test_an_approval_nobody_gave_is_refused(ledger: Ledger, change: dict[str, Any]) -> None:
    """Name, time and seal of an approval are authenticated under the ledger's key."""
    found = json.loads(make(ledger).approved_by(BEN, MORNING, ledger).text())
    found["approvals"][0] |= change
    with pytest.raises(FileRefused, match="was changed"):
        Plan.parse(PlanText("plan.json", json.dumps(found)), ledger)


def test_an_approval_belongs_to_its_plan(ledger: Ledger) -> None:
    """Of two plans of the same file, the approval of one is none of the other."""
    first, second = make(ledger).approved_by(BEN, MORNING, ledger), make(ledger)
    assert (first.seal, first.id == second.id) == (second.seal, False)
    moved = {**json.loads(second.text()), "approvals": json.loads(first.text())["approvals"]}
    with pytest.raises(FileRefused, match="was changed"):
        Plan.parse(PlanText("plan.json", json.dumps(moved)), ledger)


def test_a_name_that_stands_twice_is_refused(ledger: Ledger) -> None:
    """A person may read the first of two totals and the program the second: such a plan is none."""
    text = make(ledger).text().replace('"file":', '"file": "small.csv", "file":', 1)
    with pytest.raises(FileRefused, match="is not a plan"):
        Plan.parse(PlanText("plan.json", text), ledger)


def test_spacing_and_order_do_not_matter(ledger: Ledger) -> None:
    """A plan that a mail program laid out anew is still the plan."""
    plan = make(ledger)
    text = json.dumps(dict(reversed(json.loads(plan.text()).items())))
    assert Plan.parse(PlanText("plan.json", text), ledger) == plan


def test_another_ledgers_plan_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A plan is bound to the key of the ledger that it was made with, and so is the seal."""
    plan = make(ledger)
    with ledger_in_folder(tmp_path / "other") as other:
        with pytest.raises(FileRefused, match="another ledger"):
            Plan.parse(PlanText("plan.json", plan.text()), other)
        assert make(other).seal != plan.seal


@pytest.mark.parametrize("text", [
    "", "[]", "no json", "{}", '{"plan": 2}', "\udcff", "[" * 100_000, '{"plan": 2, "plan": 2}',
], ids=["empty", "list", "text", "object", "part", "bytes", "deep", "twice"])  # fmt: skip
def test_what_is_not_a_plan_is_refused(ledger: Ledger, tmp_path: Path, text: str) -> None:
    """Anything but a plan is refused in words, never with a traceback."""
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileRefused, match="is not a plan"):
        Plan.read(str(path), ledger)


def test_a_plan_of_another_version_is_told_as_such(ledger: Ledger) -> None:
    """Nobody changed it: it is made anew, and not looked into."""
    text = json.dumps(json.loads(make(ledger).text()) | {"plan": 1})
    with pytest.raises(FileRefused, match="not a plan of this version"):
        Plan.parse(PlanText("plan.json", text), ledger)


def test_a_plan_from_before_suggestions_could_be_accepted_is_told_as_such(ledger: Ledger) -> None:
    """It has the same number: approving it, and submitting from it, ended as an internal error."""
    whole = make(ledger)
    content = {name: value for name, value in whole.content.items() if name != "accepted_suggestions"}
    plan = dataclasses.replace(whole, content=content)
    text = dataclasses.replace(plan, code=_code(plan.body(), ledger)).text()
    with pytest.raises(FileRefused, match=r"of this version.*--dry-run --plan PLAN"):
        Plan.parse(PlanText("plan.json", text), ledger)


def test_a_missing_plan_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A plan that is not there stops the submission."""
    with pytest.raises(FileRefused, match="can't be read"):
        Plan.read(str(tmp_path / "none.json"), ledger)


def test_what_was_approved_passes(ledger: Ledger) -> None:
    """The same content under the same rules passes, also the next morning and under another name."""
    tomorrow = rules_json(dataclasses.replace(RULES, as_of=date(2026, 11, 24)))
    make(ledger).verify(proposal(file="copy.csv", rules=tomorrow), ledger)


CHANGES: dict[str, tuple[Any, str]] = {
    "digest": (bytes(32), "the content differs"),
    "sheet": ("December", "sheet is December, approved was November"),
    "column_map": ("cd" * 32, "the column map differs"),
    "origin": ("https://x.example", "origin is https://x.example, approved was https://gateway.example"),
    "environment": ("test", "environment is test, approved was live"),
    "total": (Totals(3, 3_001), "in file is 3 rows and 30.01, approved was 3 rows and 30.00"),
    "left_out": (Totals(1, 700), "left out is 1 row and 7.00, approved was none"),
    "currencies": ({"EUR": Totals(1, 500), "USD": Totals(1, 2_500)}, "currencies is EUR, USD, approved was none"),
    "valid": (Totals(1, 500), "valid is 1 row and 5.00"),
    "rejected": (Totals(2, 2_500), "rejected is 2 rows and 25.00"),
    "accepted_suggestions": ({"amount.format": 2}, "accepted suggestions: amount.format is 2, approved was none"),
    "unreadable_amounts": (0, "unreadable amounts is 0, approved was 1"),
    "to_send": (dataclasses.replace(TO_SEND, rows_digest="cd" * 32), "other rows would be sent"),
    "warnings": ({"achNameOnCheck.new_payee": 7}, "warnings: achAccountNumber.changed_account is none, approved was 1"),
    "notes": ((), "notes is"),
    "rules": ({**PROPOSAL.rules, "normalize": True}, "rules: normalize is on, approved was off"),
    "again": (True, "again is on"),
    "release": (True, "release is on"),
    "reason": ("asked by Kim", "reason is asked by Kim, approved was none"),
    "over_limits": (("too much",), "over limits is too much, approved was none"),
    "batch_total": (Totals(3, 9_900), "batch total is 3 rows and 99.00"),
    "changed_accounts": (("line 2: Ada, 5.00, ****9123",), "the warnings name other changed accounts"),
}
NOT_SEALED = {"sheet", "column_map", "warnings", "notes", "file", "changed_accounts", "over_limits"}
"""Names, and what follows from the content and the ledger."""


def test_a_submission_may_know_more_than_the_plan(ledger: Ledger) -> None:
    """What could not be checked when a plan was made is shown to the approver, and is no part of what is approved."""
    found, plan = proposal(not_checked=()), make(ledger)
    plan.verify(found, ledger)
    assert found.seal(ledger) == plan.seal


def test_what_only_one_of_the_two_says_is_a_difference() -> None:
    """A plan of a version that asked for more, or for less, is not what this one would send."""
    more = {**PROPOSAL.as_json(), "ceiling": "5.00"}
    assert differences(more, PROPOSAL.as_json()) == ["ceiling is none, approved was 5.00"]
    assert differences(PROPOSAL.as_json(), more) == ["ceiling is 5.00, approved was none"]


COMPARED = [field.name for field in dataclasses.fields(Proposal) if field.name not in ("file", "not_checked")]


@pytest.mark.parametrize("field", COMPARED)
def test_anything_else_is_refused(ledger: Ledger, field: str) -> None:
    """Whatever differs of a proposal is refused and named, and breaks the seal where it is content, totals or rules."""
    value, words = CHANGES[field]
    found, plan = proposal(**{field: value}), make(ledger)
    with pytest.raises(FileRefused, match="not what the plan approved") as refused:
        plan.verify(found, ledger)
    assert words in str(refused.value)
    assert (found.seal(ledger) == plan.seal) is (field in NOT_SEALED)


@pytest.mark.parametrize("change", [
    {"new": Totals(1, 500), "pending": Totals(1, 2_000)}, {"new": Totals(1, 500), "released": Totals(1, 2_000)},
    {"held_back": Totals(1, 1)}, {"by_direction": {"DEBIT": VALID}}, {"by_account": {"7": VALID}},
    {"by_account": {**TO_SEND.by_account, "12": Totals(), "13": Totals(1, 2_000)}},
],
    ids=["registered meanwhile", "released", "held back", "direction", "account", "account that nobody approved"]
)  # fmt: skip
def test_other_payments_of_equal_sums_are_refused(ledger: Ledger, change: dict[str, Any]) -> None:
    """The total alone is not what was approved."""
    other = dataclasses.replace(TO_SEND, **change)
    assert isinstance(other, ToSend)
    assert other.total == TO_SEND.total
    with pytest.raises(FileRefused, match="to send"):
        make(ledger).verify(proposal(to_send=other), ledger)
    assert proposal(to_send=other).seal(ledger) != PROPOSAL.seal(ledger)


def test_the_seal_is_the_same_for_everyone(ledger: Ledger) -> None:
    """Maker and checker see the same twelve characters, whenever, under any name of the file."""
    seal = PROPOSAL.seal(ledger)
    assert len(seal) == 12
    assert seal == make(ledger).seal == proposal(file="copy.csv").seal(ledger)
    another_order = dataclasses.replace(TO_SEND, by_account=dict(reversed(list(TO_SEND.by_account.items()))))
    rules = dict(reversed(list(PROPOSAL.rules.items())))
    assert seal == proposal(to_send=another_order, rules=rules).seal(ledger)


def test_a_used_plan_names_its_content(ledger: Ledger) -> None:
    """What a used plan goes on with is the same content for the same gateway; the totals are smaller by then."""
    plan = make(ledger)
    plan.verify_content(proposal(to_send=ToSend(), warnings={}, rejected=Totals()))
    for field in ("digest", "origin", "environment", "again", "reason"):
        with pytest.raises(FileRefused, match="not what the plan approved"):
            plan.verify_content(proposal(**{field: CHANGES[field][0]}))


def _on(*days: str) -> Proposal:
    """The same two rows, each on a day of its own; without a day where it is blank."""
    sides = {"DEBIT": Totals(1, 500), "CREDIT": Totals(1, 2_000)}
    by_day: dict[str, dict[str, Totals]] = {}
    for day, (side, totals) in zip(days, sides.items(), strict=True):
        if day:
            by_day.setdefault(day, {})[side] = totals
    return proposal(to_send=dataclasses.replace(TO_SEND, by_day=by_day))


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (("2026-12-04", "2026-12-11"), ["to send: by day: 2026-12-04: CREDIT", "to send: by day: 2026-12-11"]),
        (("2026-12-11", "2026-12-11"), ["to send: by day: 2026-12-04", "to send: by day: 2026-12-11"]),
        (("", ""), ["to send: by day: 2026-12-04"]),
    ],
)
def test_days_are_part_of_what_is_signed(ledger: Ledger, days: tuple[str, str], told: list[str]) -> None:
    """Rows and cents are the same; on which days they leave is not, and each day that differs is named."""
    signed, found = _on("2026-12-04", "2026-12-04"), _on(*days)
    assert signed.seal(ledger) != found.seal(ledger)
    lines = differences(signed.as_json(), found.as_json())
    assert {next(name for name in told if line.startswith(name)) for line in lines} == set(told)
    assert [line for line in differences(found.as_json(), signed.as_json()) if "by day" not in line] == []
    with pytest.raises(FileRefused):
        make(ledger, signed).verify(found, ledger)


def test_a_plan_without_days_is_as_before(ledger: Ledger) -> None:
    """A plan that was made before there were days keeps its content and its seal, and is still let through."""
    assert _on("", "") == PROPOSAL
    assert "by_day" not in PROPOSAL.as_json()["to_send"]
    new = {"pay_on", "pay_on_days", "duplicate_days"}
    assert new.isdisjoint(rules_json(RULES))
    assert rules_json(dataclasses.replace(RULES, pay_on=date(2026, 12, 4)))["pay_on"] == "2026-12-04"
    assert make(ledger).by_day() == {}


def test_whoever_approves_sees_the_days(ledger: Ledger) -> None:
    """From the plan alone, debits and credits apart; a Saturday with the day on which it settles."""
    page = "\n".join(plan_lines(make(ledger, _on("2026-12-04", "2026-12-05"))))
    assert "not before its day (payOn)" in page
    assert "2026-12-04 Fri             " in page
    assert "2026-12-05 Sat -> 12-07" in page
    assert "payOn" not in "\n".join(plan_lines(make(ledger)))
