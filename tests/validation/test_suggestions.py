"""A suggestion is the end of the way: the cell that a person is offered keeps every rule of its cell."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date

import pytest

from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.columns import RECURRING
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.verdict import Failure
from tests.support.text_chunks import RECURRING as RECURRING_CELLS
from tests.support.text_chunks import VALID, Kept, TextChunks
from tests.support.whole_check import check

OPTIONS = RuleOptions(as_of=date(2026, 11, 21), max_amount_cents=100_000_000)
_COLUMNS = sorted({name.partition(".")[0] for name in suggesting_rules()})
_TEXTS = {
    "amount": ("$1411.09", "$ 1411.09", "1,411.09", "$1,411.09", "12", "12.5", "$0.00", "0", "1,411", "12.345",
               "(3.00)", "123456789012", "12345678901.00", "$2,000,000.00", "99999999.99"),
    "billingPhone": ("5125550100", "+1 (512) 555 0100", "555-0100", "+44 20 7946 0018"),
    "billingEmail": ("a@example.com; b@example.com;", "a@example", ";a@example.com", "a b@example.com"),
    "billingState": ("tx", "on", "zz"),
    "billingCountry": ("us", "ca", "usa"),
    "achRoutingNumber": ("21000021", "21000022", "00000000", "021000021", "99000000"),
    "recurringStartDate": ("2026-12-15", "2026-11-20", "2026-02-30", "12/15/2026", "15.12.2026"),
    "achSecCode": ("tel", "ppd", "arc", "cie"),
    "recurringNumOfPayments": ("12", "0", "1,000"),
    "achCheckNumber": ("1001", "12A"),
    "currencyCode": ("usd", "cad", "us"),
    "paymentId": ("P-1", "P-2"),
}  # fmt: skip
_LIKE = {"taxAmount": "amount", "shippingTax": "amount", "payOn": "recurringStartDate"}
_EDGES = ("", "", " ", "\t", "\xa0", "  ", "\n", "\u200b")
_CASES = (str, str.lower, str.title, str.swapcase)


def _cells(chance: random.Random, column: str) -> str:
    usual = (VALID | RECURRING_CELLS).get(column) or "Ada & Sons"
    like = _LIKE.get(column, column.replace("shipping", "billing"))
    text = chance.choice((*_TEXTS.get(like, ()), usual, "x" * 256))
    text = chance.choice(_CASES)(text)
    if chance.random() < 0.2:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(" $,.-;0a\x00") + text[at:]
    return chance.choice(_EDGES) + text + chance.choice(_EDGES)


@pytest.mark.parametrize("column", _COLUMNS)
def test_what_is_suggested_keeps_every_rule_of_its_cell(column: str) -> None:
    """` $1411.09` was to become `$1411.09`, which the amount's rule then refused; `$0.00` became `0.00`."""
    chance = random.Random(column)
    base = VALID | (RECURRING_CELLS if column in RECURRING else {})
    rows = [base | {"invoiceNumber": f"I{number}"} for number in range(300)]
    rows = [row | {column: _cells(chance, column)} for row in rows]
    kept = Kept()
    found = [one for one in check(TextChunks(rows, height=300), OPTIONS, rejects=kept).failures if one.column == column]
    offered = {one.row: one.suggestion for one in found if one.suggestion is not None}
    assert offered, "some of these cells have a certain value"
    told = {row["_row"]: row["_suggestions"] for row in kept.added if row["_suggestions"]}
    assert told == {row: f"{column}: {value}" for row, value in offered.items()}
    corrected = [rows[row - 1] | {column: value} for row, value in offered.items()]

    def is_of(failure: Failure) -> bool:  # that another row has the same paymentId is no rule of the cell
        return failure.column == column and failure.code != "duplicate"

    errors = [one for one in check(TextChunks(corrected, height=300), OPTIONS).failures if one.severity == "error"]
    assert [(corrected[one.row - 1][column], one.code) for one in errors if is_of(one)] == []


@pytest.mark.parametrize(
    ("cell", "right"), [(" $1411.09", "1411.09"), ("$ 1411.09 ", "1411.09"), (" 1,000", None), ("$0.00", None)]
)
def test_all_suggestions_of_a_cell_are_made_in_turn(cell: str, right: str | None) -> None:
    """White space first, then how it is written; accepting all of them comes to the same cell."""
    rows = [VALID | {"amount": cell}]
    (failure,) = check(TextChunks(rows), OPTIONS).failures
    assert failure.suggestion == right
    accepted = check(TextChunks(rows), replace(OPTIONS, accept_suggestions=suggesting_rules()))
    assert (accepted.rejected.rows == 0) is (right is not None)
