"""The pandera schema is the source of the rules: what stands in it is asked, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pandera.polars as pa
import polars as pl
import pytest

from batchpay.schemas import account, payment
from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.payment import payment_schema
from batchpay.schemas.rule import RuleOptions, rules_of
from batchpay.validation.compiled_rules import Findings, RuleBook, rule_book
from tests.support.row_factory import AS_OF, mutated_rows
from tests.support.text_chunks import VALID, TextChunks, text_frame
from tests.support.whole_check import check

OPTIONS = RuleOptions(as_of=AS_OF, max_amount_cents=400_000)

Finding = tuple[int, str, str]
"""Row, column and message."""


def found(schema: pa.DataFrameSchema, frame: pl.DataFrame) -> set[Finding]:
    """All that the program finds under a schema: what it proves, and what it asks of the other rows."""
    book = RuleBook(schema)
    proof = book.prove(frame)
    warned = Findings(frame, proof.warnings)
    return {*_failures(warned), *_failures(book.judge(frame.filter(proof.unproven)))}


def _failures(findings: Findings) -> Iterator[Finding]:
    messages = {(rule.column, rule.code): rule.message for rule in rules_of(payment_schema(OPTIONS))}
    for violation in findings.violations:
        told = violation.message
        message = told if isinstance(told, str) else messages[violation.column, violation.code]
        for row in findings.rows["_row"].filter(violation.flag):
            yield row, violation.column, message


def rows_that_break_every_rule(schema: pa.DataFrameSchema) -> pl.DataFrame:
    """Some rows of which each rule finds at least one at fault."""
    rows = [{name: row[name] or None for name in COLUMNS} for row in mutated_rows(31, count=6_000)]
    frame = text_frame(rows).with_row_index("_row")
    firsts: dict[tuple[str, str], int] = {}
    for row, column, message in sorted(found(schema, frame)):
        firsts.setdefault((column, message), row)
    assert firsts.keys() == {(rule.column, rule.message) for rule in rules_of(schema)}
    return frame[sorted(set(firsts.values()))]


def test_a_check_that_is_deleted_from_the_schema_is_asked_no_more() -> None:
    """Of every rule: without its check the program finds all that it found before but for this rule.

    One check of every column is deleted at a time: the first of each, then the second.
    """
    schema = payment_schema(OPTIONS)
    frame = rows_that_break_every_rule(schema)
    everything = found(schema, frame)
    for at in range(max(len(column.checks) for column in schema.columns.values())):
        deleted = {name: column.checks.pop(at) for name, column in schema.columns.items() if at < len(column.checks)}
        of_rules = {
            (row, name, text) for row, name, text in everything if name in deleted and text == deleted[name].error
        }
        assert {name for _, name, _ in of_rules} == deleted.keys(), "each of them is broken by some row"
        left = found(schema, frame)
        assert left & of_rules == set()
        assert left >= everything - of_rules, f"one of {deleted.values()} hides another rule"
        for name, check_ in deleted.items():
            schema.columns[name].checks.insert(at, check_)
    assert found(schema, frame) == everything


def test_the_whole_check_asks_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with a bad phone number is rejected, and passes where the schema has no such rule."""
    row = VALID | {"billingPhone": "555"}
    assert check(TextChunks([row]), OPTIONS).counts == {"billingPhone.phone": 1}

    def without_phone(options: RuleOptions) -> pa.DataFrameSchema:
        schema = payment_schema(options)
        checks = schema.columns["billingPhone"].checks
        checks[:] = [each for each in checks if each.name != "phone"]
        return schema

    monkeypatch.setattr(payment, "payment_schema", without_phone)
    assert check(TextChunks([row]), OPTIONS).valid.rows == 1


def test_a_check_of_an_account_that_is_deleted_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of gateway accounts come out of their schema as well, each of them."""
    schema = account.account_schema(update=False)
    monkeypatch.setattr(account, "account_schema", lambda *, update: schema)
    odd = [None, "", " x ", "x\x00", "x" * 256, "processorA_cc", "processorB_ach", "1", "2", "live", "01"]
    accounts = [{"gateway_name": name, attribute: cell} for name in odd for attribute in account.ATTRIBUTES[1:]
                for cell in odd] + [{"gateway_name": cell} for cell in odd]  # fmt: skip
    firsts: dict[tuple[str, str], int] = {}
    for failure in account.check_accounts(accounts, update=False):
        firsts.setdefault((failure.attribute, failure.code), failure.row)
    accounts = [accounts[row] for row in set(firsts.values())]
    everything = set(account.check_accounts(accounts, update=False))
    for attribute, column in schema.columns.items():
        for at, deleted in enumerate(list(column.checks)):
            del column.checks[at]
            left = set(account.check_accounts(accounts, update=False))
            column.checks.insert(at, deleted)
            gone = {each for each in everything if (each.attribute, each.code) == (attribute, deleted.name)}
            assert gone and not gone & left, f"{attribute}.{deleted.name}"
            assert left >= everything - gone, f"{attribute}.{deleted.name} hides another rule"


@pytest.mark.parametrize("of_frame", [False, True])
def test_a_check_without_a_rule_is_refused(of_frame: bool) -> None:
    """A check that can't be asked chunk by chunk is not left out in silence."""
    schema = payment_schema(OPTIONS)
    foreign = pa.Check(lambda data: data.lazyframe.select(pl.lit(value=True)))
    if of_frame:
        schema.checks.append(foreign)
    else:
        schema.columns["amount"].checks.append(foreign)
    with pytest.raises(TypeError, match="carries no rule"):
        RuleBook(schema)


def test_the_schema_is_made_once_a_call() -> None:
    """Files that are checked alike share the compiled rules; another day has its own."""
    assert rule_book(OPTIONS) is rule_book(RuleOptions(as_of=AS_OF, max_amount_cents=400_000))
    assert rule_book(OPTIONS) is not rule_book(RuleOptions(as_of=date(2026, 11, 21), max_amount_cents=400_000))
