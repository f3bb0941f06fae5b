"""Columns that nothing uses: a status that says no is an error, all other evidence of money is listed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpay.intake.source import open_source
from batchpay.schemas.rule import RuleOptions
from batchpay.schemas.words import evidence, meaning
from batchpay.validation.check import RowCheck
from tests.support.payment_files import DATA
from tests.support.text_chunks import VALID, Cells, TextChunks
from tests.support.whole_check import check
from tests.validation.test_words import HEADERS, WORDS, rewritten

OPTIONS = RuleOptions(as_of=date(2026, 11, 21))


def rows_with(**columns: Sequence[str | None]) -> TextChunks:
    """Rows of different bills with more columns; the cells of the first say how many."""
    count = len(next(iter(columns.values())))
    rows: list[Cells] = [
        VALID | {"paymentId": f"P{at}", "amount": f"1.{at:02d}"} | {name: cells[at] for name, cells in columns.items()}
        for at in range(count)
    ]
    return TextChunks(rows, extra=list(columns))


def not_used(source: TextChunks) -> str:
    """Return the summary's line."""
    with ExitStack() as storage:
        check = RowCheck(source, OPTIONS, storage, line_word="line")
        list(check.results())
        return check.not_used or ""


def test_a_status_that_says_no_is_an_error() -> None:
    """Voided, cancelled, paid and held bills of an export were paid with the open ones."""
    path = DATA / "field" / "status.csv"
    if not path.exists():
        pytest.skip("the collection of irregular files is not here")
    with open_source(str(path)) as source:
        verdict = check(source, OPTIONS)
    assert (verdict.counts, verdict.valid.rows) == ({"row.status": 4}, 1)
    assert [failure.row for failure in verdict.failures] == [2, 3, 4, 5]


@pytest.mark.parametrize(("header", "cell", "says_no"), [
    ("Status", "Paid 01/05/2027", True), ("Payment_Status", "VOID - reissued", True), ("Estado", "anulado", True),
    ("Zahlungsstatus", "Storniert", True), ("Statut", "annulé", True), ("Check Status", "On-Hold", True),
    ("State of payment", "Draft", True), ("Marital Status", "Void", False), ("Status", "Active", False),
    ("Status", "Not paid", False), ("Status", "Approved", False), ("Paid", "TRUE", False), ("Memo", "Void", False),
    ("Status", None, False), ("Employment Status", "Paused", False), ("Status", "Voided bill reissue team", False),
    ("Payment Method", "Check", True), ("Pay Method", "Wire", True), ("Payment Method", "Direct Deposit", False),
    ("Payment Method", "ACH", False), ("Payment Method", "Check #10233", True), ("Payment Method", "eCheck", False),
])  # fmt: skip
def test_which_words_say_no(header: str, cell: str | None, says_no: bool) -> None:
    """Headers and words of the table alone, in any language and letter case, with whatever follows them."""
    assert check(rows_with(**{header: [cell]}), OPTIONS).counts == ({"row.status": 1} if says_no else {})


def test_the_rule_can_be_switched_off_and_is_told_with_a_late_failure() -> None:
    """Like every house rule; a row that repeats another's id has both reasons."""
    source = rows_with(Status=["Void", "Open"])
    assert check(source, RuleOptions(as_of=OPTIONS.as_of, rules_off=frozenset({"row.status"}))).counts == {}
    both = [{**row, "paymentId": "P"} for row in source.rows]
    counts = check(TextChunks(both, extra=["Status"]), OPTIONS).counts
    assert counts == {"row.status": 1, "paymentId.duplicate": 2}


@pytest.mark.parametrize(("columns", "told"), [
    ({"Pay Date": ["01/29/2027", "01/15/2027"]},
     "date in Pay Date (01/15/2027 to 01/29/2027), and all rows would be sent today"),
    ({"Memo": ["a", "b"], "Marital Status": ["Married", "Married"]}, "status in Marital Status (Married 2); Memo"),
    ({"D/C": ["D", "C"]}, "direction in D/C (C 1, D 1)"), ({"x": ["Weekly", "Monthly"]}, "schedule in x"),
    ({"Dept": ["1", "2"], "Curr.": ["CAD", "CAD"]}, "currency in Curr. (CAD 2); Dept"),
    ({"Due": ["soon", "123456789"]}, "date in Due (********* 1, soon 1), and all rows would be sent today"),
])  # fmt: skip
def test_evidence_is_told_first(columns: dict[str, Any], told: str) -> None:
    """Dates with their range, words with their number, no digits of what may be an account."""
    assert not_used(rows_with(**columns)).startswith(f"not used of this file: {told}")


def test_many_columns_are_counted() -> None:
    """A file may carry five hundred columns; where there is none, there is no line."""
    assert not_used(rows_with(**{f"x{at}": ["1"] for at in range(30)})).endswith("x9, and 20 more")
    assert not_used(TextChunks([VALID])) == ""


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_no_evidence_of_the_table_is_passed_over(data: st.DataObject) -> None:
    """Whatever header or words a column has, in whatever language and letter case, it is an error or it is listed."""
    by_name = data.draw(st.booleans())
    lists = ("status", "transactionType", "recurringBillingCycle")
    lines = [line for line in WORDS if line["of"] in lists and "?" not in line["means"] and line["means"] != "yes"]
    header, cell = "x 7", data.draw(rewritten(data.draw(st.sampled_from(lines))["word"]))
    if by_name:
        told = [line["header"] for line in HEADERS if line["of"] == "payment" and evidence(line["header"])]
        header = data.draw(rewritten(data.draw(st.sampled_from(told))))
    source = rows_with(**{header: [cell] * data.draw(st.integers(1, 3))})
    assert evidence(header, [cell])
    assert not_used(source).startswith(f"not used of this file: {evidence(header, [cell])} in ")
    if evidence(header) == "status" and meaning("status", cell) == "no":
        assert check(source, OPTIONS).counts or not by_name
