"""The rules of the gateway node, against pandera, the description and the sandbox; what stands twice in a file."""

from __future__ import annotations

import datetime
import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pandera.errors
import polars as pl
import pytest
from hypothesis import strategies

from batchpay.intake.source import open_source
from batchpay.sandbox.checks import account_problems
from batchpay.schemas.account import (
    ATTRIBUTES,
    CREATED_NAMES,
    INTEGERS,
    UPDATED_NAMES,
    account_schema,
    check_accounts,
    wire_node,
)
from batchpay.schemas.rule import RuleOptions, rules_of
from batchpay.validation import duplicates
from batchpay.validation.check import RowCheck
from tests.support.command import small_file
from tests.support.openapi import Description
from tests.support.sandbox_requests import account_node
from tests.support.whole_check import check

DESCRIPTION = Description()
Cells = dict[str, str | None]


def cells(name: str = "processorA_ach", **changes: str | None) -> Cells:
    given: Cells = {key: str(value) for key, value in account_node(name).items()}
    return {**given, **changes}


def codes(account: Cells, *, update: bool = False) -> list[str]:
    return [f"{failure.attribute}.{failure.code}" for failure in check_accounts([account], update=update)]


@pytest.mark.parametrize("name", CREATED_NAMES)
def test_a_right_account_has_no_failure(name: str) -> None:
    """An account with what its kind needs may be created."""
    assert codes(cells(name)) == []


@pytest.mark.parametrize("name", UPDATED_NAMES)
def test_a_right_update_has_no_failure(name: str) -> None:
    """The accounts of processors A and C may be updated."""
    assert codes(cells(name), update=True) == []


def test_an_empty_account_lacks_what_every_account_needs() -> None:
    """Without a name, only what all accounts need is missing."""
    needed = ["gateway_name", "enabled", "mode", "active_level2", "active_level3"]
    assert codes({}) == [f"{name}.required" for name in needed]


WRONG: list[tuple[str, dict[str, str | None], list[str]]] = [
    ("processorA_ach", {"gateway_name": "processorD_ach"}, ["gateway_name.choice"]),
    ("processorA_ach", {"gateway_name": "PROCESSORA_ACH"}, ["gateway_name.choice"]),
    ("processorA_ach", {"enabled": "0"}, ["enabled.choice"]),
    ("processorA_ach", {"enabled": "true"}, ["enabled.choice"]),
    ("processorA_ach", {"mode": "production"}, ["mode.choice"]),
    ("processorA_ach", {"mode": "Live"}, ["mode.choice"]),
    ("processorA_ach", {"mode": " live"}, ["mode.whitespace"]),
    ("processorA_ach", {"accept_amex": None}, []),
    ("processorA_ach", {"accept_amex": "1"}, []),
    ("processorA_ach", {"accept_amex": "yes"}, ["accept_amex.choice"]),
    ("processorA_cc", {"accept_amex": None}, ["accept_amex.required"]),
    ("processorC_cc", {"accept_amex": None}, ["accept_amex.required"]),
    (
        "processorC_cc",
        {"active_level2": "2", "active_level3": None},
        ["active_level2.choice", "active_level3.required"],
    ),
    ("processorA_ach", {"account_id": "abc"}, ["account_id.format"]),
    ("processorA_ach", {"account_id": "007"}, ["account_id.format"]),
    ("processorA_ach", {"account_id": "1" * 19}, ["account_id.format"]),
    ("processorA_ach", {"account_id": "٣"}, ["account_id.format"]),
    ("processorA_ach", {"account_id": None}, ["account_id.required"]),
    ("processorA_ach", {"user_id": None}, ["user_id.required"]),
    ("processorA_cc", {"pin": None}, ["pin.required"]),
    ("processorA_cc", {"pin": "1\x002"}, ["pin.characters"]),
    ("processorA_cc", {"login": "me"}, ["login.unexpected"]),
    ("processorB_ach", {"login": None}, ["login.required"]),
    ("processorB_ach", {"password": None}, ["password.required"]),
    ("processorB_ach", {"vt_template": None}, ["vt_template.required"]),
    ("processorB_ach", {"vt_template": "x" * 256}, ["vt_template.length"]),
    ("processorB_ach", {"pin": "1234"}, ["pin.unexpected"]),
    ("processorC_cc", {"account_id": "5"}, ["account_id.unexpected"]),
]


@pytest.mark.parametrize(("name", "changes", "expected"), WRONG)
def test_each_rule(name: str, changes: dict[str, str | None], expected: list[str]) -> None:
    """Each rule fails where it should, and alone."""
    assert codes(cells(name, **changes)) == expected


def test_processor_b_can_not_be_updated() -> None:
    """For an update to processor B the name alone is wrong; its attributes are for creating alone."""
    assert codes(cells("processorB_ach"), update=True) == ["gateway_name.choice"]
    assert codes(cells("processorC_cc", login="me"), update=True) == ["login.unexpected"]


def test_no_message_quotes_a_value() -> None:
    """Messages are of fixed words, so that a pin can't get into one, and hold no semicolon."""
    rules = [*rules_of(account_schema(update=False)), *rules_of(account_schema(update=True))]
    assert all(";" not in rule.message for rule in rules)
    (failure,) = check_accounts([cells(pin="secret\x00")], update=False)
    assert "secret" not in str(failure)


def test_the_wire_has_numbers_and_texts() -> None:
    """The five integer attributes go as numbers, the rest as texts to the letter, and blanks are left out."""
    node = wire_node(cells("processorA_cc", pin="0123", login=None))
    assert node == account_node("processorA_cc", pin="0123")
    assert {name for name, value in node.items() if isinstance(value, int)} == INTEGERS


ODD: dict[str, list[Any]] = {
    "gateway_name": [*CREATED_NAMES, "processorD_ach", None],
    "enabled": ["1", "0", None],
    "mode": ["dev", "live", "prod", None],
    "accept_amex": ["0", "1", "2", None],
    "active_level2": ["0", "x", None],
    "active_level3": ["1", None],
    "account_id": ["5", "05", "x", None],
    "user_id": ["u", " u", None],
    "pin": ["1", "1\n2", None],
    "login": ["l", None],
    "password": ["p", None],
    "vt_template": ["t", None],
}
accounts = strategies.fixed_dictionaries({name: strategies.sampled_from(values) for name, values in ODD.items()})
likely = strategies.builds(
    lambda name, changes: {**cells(name), **changes},
    strategies.sampled_from(CREATED_NAMES),
    strategies.dictionaries(strategies.sampled_from(ATTRIBUTES), strategies.none(), max_size=1),
)


def pandera_failures(rows: list[Cells], *, update: bool) -> set[tuple[int, str, str]]:
    frame = pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in ATTRIBUTES}, schema=dict.fromkeys(ATTRIBUTES, pl.String)
    )
    try:
        account_schema(update=update).validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as errors:
        cases = errors.failure_cases.iter_rows(named=True)
        return {(case["index"], case["column"], case["check"]) for case in cases}
    return set()


@hypothesis.settings(max_examples=30, derandomize=True, deadline=None, database=None)
@hypothesis.given(strategies.lists(accounts | likely, min_size=1, max_size=5), strategies.booleans())
def test_pandera_finds_the_same(rows: list[Cells], update: bool) -> None:
    """The schema's own validation fails the same rows and attributes in the same words as the quick look."""
    own = {(failure.row, failure.attribute, failure.message) for failure in check_accounts(rows, update=update)}
    assert pandera_failures(rows, update=update) == own


HOUSE_CODES = ("whitespace", "characters", "unexpected")
"""Ours alone: the interface takes one processor's attributes as optional for another."""


@hypothesis.settings(max_examples=120, derandomize=True, deadline=None, database=None)
@hypothesis.given(accounts | likely, strategies.booleans())
def test_description_and_sandbox_agree(account: Cells, update: bool) -> None:
    """What our rules take, the description and the sandbox take; what only the interface forbids, all three refuse."""
    failures = check_accounts([account], update=update)
    readable = all(account.get(name) is None or str(account[name]).isdigit() for name in INTEGERS)
    if not readable or account.get("account_id") == "05":
        assert failures
        return
    body = {"gateway": wire_node(account)}
    described = DESCRIPTION.named("AccountToUpdate" if update else "AccountToCreate", body)
    checked = account_problems(body, update=update)
    by_interface = [failure for failure in failures if failure.code not in HOUSE_CODES]
    assert bool(described) == bool(checked) == bool(by_interface), (described, checked, failures)


def test_every_pair_of_a_name_and_a_missing_attribute_agrees() -> None:
    """Which attributes each kind needs is the same in our rules, the description and the sandbox."""
    for name, missing in itertools.product(CREATED_NAMES, ATTRIBUTES):
        account = cells(name, **{missing: None})
        body = {"gateway": wire_node(account)}
        answers = [check_accounts([account], update=False), DESCRIPTION.named("AccountToCreate", body)]
        answers.append(account_problems(body, update=False))
        assert len({bool(answer) for answer in answers}) == 1, (name, missing, answers)


@pytest.mark.parametrize("at_once", [2, 1000])
def test_rows_are_the_same_that_agree_in_both_digests(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Texts of which one digest is the same by chance, and that stand between each other, are different ones."""
    monkeypatch.setattr(duplicates, "_DIGESTS_AT_ONCE", at_once)
    firsts, seconds = [7, 7, 7, 8, 7, 9, 4, 4], [1, 2, 1, 2, 2, 1, 5, 6]
    keys = iter((0, 1))
    monkeypatch.setattr("secrets.randbits", lambda _: next(keys))
    monkeypatch.setattr(pl.Expr, "hash", lambda expr, key: expr.list.get(key))
    with ExitStack() as storage:
        digests = duplicates.Digests(storage, one=["text"], two=["text"])
        rows = pl.DataFrame({"_row": range(1, 9), "text": [list(pair) for pair in zip(firsts, seconds, strict=True)]})
        digests.add(rows.head(3))
        digests.add(rows.tail(5))
        found = pl.concat(digests.repeated("one", "two"))
    assert sorted(found["_row"].to_list()) == [1, 2, 3, 5]


def test_rows_are_the_same_that_agree_column_by_column() -> None:
    """The digest of a row is made from those of its cells, and two cells that changed places are another row."""
    rows = pl.DataFrame({"_row": range(1, 7), "a": [*"xyxxyy"], "b": [*"yxyxyx"]})
    with ExitStack() as storage:
        digests = duplicates.Digests(storage, one="ab", two="ab")
        digests.add(rows)
        assert [frame["_row"].to_list() for frame in digests.repeated("one", "two")] == [[1, 2, 3, 6]]


@pytest.mark.parametrize("rules", ["whitespace", "characters whitespace length"])
def test_identifiers_with_white_space_are_the_same_where_no_rule_asks_for_it(tmp_path: Path, rules: str) -> None:
    """An identifier that matches its form is compared as it is: others may have white space at their ends."""
    off = frozenset(f"{name}.{rule}" for name in ("paymentId", "invoiceNumber") for rule in rules.split())
    path = small_file(tmp_path / "a.csv", 1)
    header, line = path.read_text("utf-8").splitlines()
    cells = dict(zip(header.split(","), line.split(","), strict=True))
    identifiers = [("A", "7"), ("B", "7 "), ("A ", "8")]
    rows = [cells | {"paymentId": name, "invoiceNumber": number} for name, number in identifiers]
    path.write_text("\n".join((header, *(",".join(row.values()) for row in rows), "")), "utf-8")
    with open_source(str(path)) as source:
        verdict = check(source, RuleOptions(datetime.date(2026, 11, 21), rules_off=off))
    assert verdict.counts == {"paymentId.duplicate": 2}
    assert verdict.warning_counts == {"row.same_payment": 1, "row.same_amount": 1}


def test_bills_that_may_pass_twice_come_in_row_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found part by part, by keyed digests: their order was another one in each call."""
    monkeypatch.setattr(duplicates, "_DIGESTS_AT_ONCE", 2)
    path = small_file(tmp_path / "a.csv", 20)
    header, *lines = path.read_text("utf-8").splitlines()
    named = [",".join(("", *line.split(",")[1:])) for line in lines * 2]
    path.write_text("\n".join((header, *named, "")), "utf-8")
    options = RuleOptions(datetime.date(2026, 11, 21), allow_duplicates=True)
    with open_source(str(path)) as source, ExitStack() as storage:
        asked = RowCheck(source, options, storage, line_word="line")
        assert sum(result.passed.sum() for result in asked.results()) == 40
        assert asked.allowed["_row"].to_list() == list(range(21, 41))
        assert asked.allowed["_place"].to_list() == [f"line {line}" for line in range(2, 22)]
        assert not len(asked.late)
