"""Plans, written and read with a real ledger's key."""

from __future__ import annotations

import dataclasses
import json
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from batchpay.approval.plan import Plan
from batchpay.errors import FileRefused
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import State, Totals
from batchpay.schemas.options import RuleOptions
from batchpay.settings import LedgerSettings
from batchpay.summary import Summary

DIGEST = bytes(range(32))
RULES = RuleOptions(date(2026, 11, 23), rules_off=frozenset({"amount.range", "row.ragged"}))
ORIGIN = "https://gateway.example"
REJECTED, VALID = Totals(1, 500), Totals(2, 2_500)


def new_ledger(folder: Path) -> Ledger:
    settings = LedgerSettings(
        url=str(folder / "data" / "ledger.db"), key_file=str(folder / "ledger.key"), witness=str(folder / "witness")
    )
    return open_ledger(settings, create_as="tester")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(new_ledger(tmp_path)) as opened:
        yield opened


def summary(rejected: Totals = REJECTED, valid: Totals = VALID) -> Summary:
    return Summary(
        "pay.csv",
        rejected + valid,
        {State.PENDING: valid, State.REJECTED: rejected},
        by_direction={"DEBIT": valid, "CREDIT": Totals()},
        checked_only=True,
    )


def make(file: str = "pay.csv") -> Plan:
    found = summary()
    found.file = file
    return Plan.make(DIGEST, found, RULES, ORIGIN, created_at=datetime(2026, 11, 23, 9, 30, tzinfo=UTC), who="ann@pc")


def test_a_plan_comes_back_as_it_was_written(ledger: Ledger, tmp_path: Path) -> None:
    """What is read equals what was written, whatever bytes the file's name has, and nobody else may read it."""
    plan = make("m\udce9moire é.csv")
    path = tmp_path / "pay.plan.json"
    plan.write(str(path), ledger)
    assert Plan.read(str(path), ledger) == plan
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Plan.read(str(path), ledger).rules["rules_off"] == ["amount.range", "row.ragged"]


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "00" * 32},
        {"origin": "https://elsewhere.example"},
        {"rows": {"total": 3, "valid": 3, "rejected": 0, "DEBIT": 2, "CREDIT": 0}},
        {"amount": {"total": "30.00", "valid": "30.00", "rejected": "5.00", "DEBIT": "25.00", "CREDIT": "0.00"}},
        {"who": "bob@pc"},
        {"created_at": "2026-11-24T09:30:00.000Z"},
        {"rules": {}},
        {"code": "00" * 32},
        {"code": None},
        {"code": "é"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_edited_plan_is_refused(ledger: Ledger, tmp_path: Path, change: dict[str, Any]) -> None:
    """No member can be changed without the ledger's key."""
    path = tmp_path / "plan.json"
    make().write(str(path), ledger)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileRefused, match="was changed"):
        Plan.read(str(path), ledger)


def test_a_name_that_stands_twice_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A person may read the first of two totals and the program the second: such a plan is none."""
    path = tmp_path / "plan.json"
    make().write(str(path), ledger)
    path.write_text(path.read_text().replace("{", '{"file": "small.csv",', 1))
    with pytest.raises(FileRefused, match="not a plan"):
        Plan.read(str(path), ledger)


def test_spacing_and_order_do_not_matter(ledger: Ledger, tmp_path: Path) -> None:
    """A plan that a mail program laid out anew is still the plan."""
    path = tmp_path / "plan.json"
    make().write(str(path), ledger)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items()))))
    assert Plan.read(str(path), ledger) == make()


def test_another_ledgers_plan_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A plan is bound to the key of the ledger that it was made with."""
    path = tmp_path / "plan.json"
    make().write(str(path), ledger)
    with closing(new_ledger(tmp_path / "other")) as other, pytest.raises(FileRefused, match="another ledger"):
        Plan.read(str(path), other)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "no json", "{}", '{"plan": 1}', "\udcff", "[" * 100_000, '{"plan": 1, "plan": 1}'],
    ids=["empty", "list", "text", "object", "part", "bytes", "deep", "twice"],
)
def test_what_is_no_plan_is_refused(ledger: Ledger, tmp_path: Path, text: str) -> None:
    """Anything but a plan is refused in words, never with a traceback."""
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileRefused, match="not a plan"):
        Plan.read(str(path), ledger)


def test_a_missing_plan_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A plan that is not there stops the submission."""
    with pytest.raises(FileRefused, match="can't be read"):
        Plan.read(str(tmp_path / "none.json"), ledger)


def test_what_was_approved_holds() -> None:
    """The same content under the same rules passes, also the next morning and under another name."""
    found = summary()
    found.file = "copy.csv"
    make().verify(DIGEST, found, dataclasses.replace(RULES, as_of=date(2026, 11, 24)), ORIGIN)


@pytest.mark.parametrize(
    ("digest", "found", "rules", "origin", "words"),
    [
        (bytes(32), summary(), RULES, ORIGIN, "the content is another"),
        (DIGEST, summary(), RULES, "https://x.example", "the gateway is https://x.example"),
        (DIGEST, summary(), dataclasses.replace(RULES, normalize=True), ORIGIN, "the rule option normalize differs"),
        (DIGEST, summary(), dataclasses.replace(RULES, rules_off=frozenset()), ORIGIN, "rule option rules_off differs"),
        (
            DIGEST,
            summary(Totals(2, 1_500), Totals(1, 1_500)),
            RULES,
            ORIGIN,
            "valid is 1 rows and 15.00, planned was 2 rows and 25.00, rejected is 2 rows and 15.00",
        ),
    ],
    ids=["content", "origin", "option", "rules off", "totals"],
)
def test_anything_else_is_refused(digest: bytes, found: Summary, rules: RuleOptions, origin: str, words: str) -> None:
    """A submission that differs from its plan is refused, and the difference is named."""
    with pytest.raises(FileRefused, match=words):
        make().verify(digest, found, rules, origin)
