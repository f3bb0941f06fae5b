"""Totals among the payments: a row that is the sum of those above it, with or without a word that says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpay.schemas.rule import RuleOptions
from tests.support.text_chunks import VALID, Cells, TextChunks
from tests.support.whole_check import check
from tests.validation.test_words import WORDS, rewritten

OPTIONS = RuleOptions(as_of=date(2026, 11, 21))


def bill(amount: str, account: int, name: str = "Ada Lovelace", **cells: str) -> Cells:
    """A row of a bill of its own."""
    own = {"amount": amount, "achAccountNumber": f"{12340000 + account}", "achNameOnCheck": name}
    return VALID | own | {"invoiceNumber": f"{name}-{amount}-{account}"} | cells


def found(*rows: Cells, height: int = 3, options: RuleOptions = OPTIONS) -> list[tuple[int, str, str]]:
    """Return the findings about sums: row, code, severity."""
    verdict = check(TextChunks(rows, height=height), options)
    findings = [*verdict.failures, *verdict.warning_failures]
    return [(one.row, one.code, one.severity) for one in findings if one.code in ("total", "sum")]


SUBTOTALS = (
    bill("367.58", 1), bill("3386.50", 1), bill("3754.08", 1, invoiceNumber="Subtotal"),
    bill("2985.85", 2), bill("940.91", 2), bill("3926.76", 2, invoiceNumber="Subtotal"),
)  # fmt: skip


@pytest.mark.parametrize("height", [1, 2, 3, 4, 6])
def test_subtotals_with_bank_details_filled_down(height: int) -> None:
    """Each vendor's bills and their subtotal were all paid: twice what was due."""
    assert found(*SUBTOTALS, height=height) == [(3, "total", "error"), (6, "total", "error")]
    whole = (*SUBTOTALS, bill("7680.84", 2, "TOTAL"))
    assert found(*whole, height=height)[-1] == (7, "total", "error")
    assert check(TextChunks(whole), OPTIONS).rejected.rows == 3
    off = replace(OPTIONS, rules_off=frozenset({"row.total"}))
    assert found(*SUBTOTALS, options=off) == []


@pytest.mark.parametrize(("rows", "expected"), [
    ([bill("1.00", 1), bill("2.00", 2), bill("3.00", 3)], [(3, "sum", "warning")]),
    ([bill("1.00", 1), bill("2.00", 2), bill("3.00", 3, "Total Energies")], [(3, "total", "warning")]),
    ([bill("1.00", 1), bill("2.00", 1), bill("3.00", 1, "Total Smith")], [(3, "total", "error")]),
    ([bill("9.00", 1, "Total")], [(1, "total", "warning")]),
    ([bill(amount, 1, "Total Energies") for amount in ("3.00", "2.00", "5.00")], [(3, "sum", "warning")]),
    ([bill("9.00", 1, "Total Energies"), bill("9.00", 1, "Total Energies", invoiceNumber="x")], []),
    ([bill("1.00", 1), bill("1.00", 2), bill("1.00", 3)], []),
    ([bill("5.00", 1), bill("x", 2), bill("5.00", 3)], []),
    ([bill("1.00", 1), bill("1.00", 1, invoiceNumber="Subtotal"), bill("2.00", 2), bill("4.00", 2),
      bill("6.00", 2, invoiceNumber="Subtotal")], [(5, "total", "error"), (2, "total", "warning")]),
])  # fmt: skip
def test_what_is_a_total(rows: list[Cells], expected: list[tuple[int, str, str]]) -> None:
    """A word, a sum and repeated bank details together are an error; a vendor called Total is none."""
    assert found(*rows) == expected


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_a_total_in_any_language_wherever_it_stands(data: st.DataObject) -> None:
    """Whatever word of the table, however it is written, in whatever cell: the sum under its parts is an error."""
    word = data.draw(rewritten(data.draw(st.sampled_from([line["word"] for line in WORDS if line["of"] == "total"]))))
    column = data.draw(st.sampled_from(["invoiceNumber", "achNameOnCheck", "billingCompany", "Comment"]))
    amounts = data.draw(st.lists(st.integers(1, 10**6), min_size=2, max_size=5))
    rows = [bill(f"{cents // 100}.{cents % 100:02d}", 1, Comment="a") for cents in amounts]
    total = sum(amounts)
    last = bill(f"{total // 100}.{total % 100:02d}", 1, **{"Comment": "a", column: word.strip() or "Total"})
    source = TextChunks([*rows, last], height=data.draw(st.integers(1, 6)), extra=["Comment"])
    assert (len(rows) + 1, "total") in [(one.row, one.code) for one in check(source, OPTIONS).failures]
