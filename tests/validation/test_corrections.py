"""`--accept-suggestions`: what is certain replaces what was read, counted by rule, and nothing else changes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import date

import polars as pl
import pytest

from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.columns import CORRECTED
from batchpay.schemas.options import RuleOptions
from batchpay.validation.check import all_rows, valid_rows
from tests.support.text_chunks import VALID, Cells, Kept, TextChunks
from tests.support.whole_check import check

PLAIN = RuleOptions(as_of=date(2026, 11, 21))
ALL = replace(PLAIN, accept_suggestions=suggesting_rules())
AMOUNTS = replace(PLAIN, accept_suggestions=frozenset({"amount.format"}))
_NUMBERS = itertools.count(1)


def _row(**cells: str | None) -> Cells:
    number = next(_NUMBERS)
    return VALID | {"paymentId": f"P{number}", "invoiceNumber": f"I{number}"} | cells


@pytest.mark.parametrize(
    ("amount", "meant"),
    [("1,381.12", "1381.12"), ("$1,381.12", "1381.12"), ("12,345,678.90", "12345678.90"), ("$7.00", "7.00"),
     ("12.5", "12.50"), (" 1,381.12 ", "1381.12")],
)  # fmt: skip
def test_a_certain_amount_is_sent_as_suggested(amount: str, meant: str) -> None:
    """The row passes with the amount that was meant, it says what it was, and the file's total is the same without."""
    source = TextChunks([_row(amount="1.00"), _row(amount=amount)])
    verdict = check(source, ALL)
    assert verdict.rejected.rows == 0
    rows = pl.concat(list(valid_rows(source, ALL, verdict)))
    assert rows["amount"].to_list() == ["1.00", meant]
    assert rows[CORRECTED].to_list() == [None, f"amount: {amount} -> {meant}"]
    cents = int(meant.replace(".", "")) + 100
    assert (verdict.total.cents, verdict.valid.cents, verdict.unreadable_amounts) == (cents, cents, 0)
    assert check(source, PLAIN).total == verdict.total


@pytest.mark.parametrize(
    "amount",
    ["1,381", "1.381,12", "1,38.12", "1381,12", "(12.00)", "-12.00", "1,381.1", "12.345", "123,456,789.00", "€7.00"],
)
def test_a_doubtful_amount_stays_rejected(amount: str) -> None:
    """What may mean something else is no correction, and its amount is in no sum."""
    source = TextChunks([_row(amount=amount), _row(amount="1.00")])
    verdict = check(source, ALL)
    assert (verdict.accepted, verdict.counts) == ({}, {"amount.format": 1})
    assert (verdict.unreadable_amounts, verdict.total.cents) == (1, 100)


def test_only_the_rules_that_were_named() -> None:
    """Other suggestions stay suggestions; a cell that is wrong in two ways needs both."""
    rows = [_row(amount="1,381.12", transactionType="debit"), _row(amount="1,381.12"), _row(amount=" 1,381.12")]
    verdict = check(TextChunks(rows), AMOUNTS)
    assert verdict.accepted == {"amount.format": 2}
    assert verdict.counts == {"transactionType.choice": 1, "amount.whitespace": 1}
    both = check(TextChunks(rows), ALL)
    assert both.accepted == {"amount.format": 3, "amount.whitespace": 1, "transactionType.choice": 1}
    assert both.valid.cents == 3 * 138112


def test_a_corrected_row_must_keep_every_other_rule() -> None:
    """A correction is judged like a typed cell; the rejects tell old -> new, beside what is only suggested."""
    rows = [_row(amount="$0.00"), _row(amount="1,000.00", billingPhone="5125550100", gatewayId="x")]
    kept = Kept()
    verdict = check(TextChunks(rows), AMOUNTS, rejects=kept)
    assert verdict.counts == {"amount.range": 1, "gatewayId.format": 1, "billingPhone.phone": 1}
    assert [row["amount"] for row in kept.added] == ["$0.00", "1,000.00"], "cells come back as they were read"
    told = ["amount: $0.00 -> 0.00", "amount: 1,000.00 -> 1000.00; billingPhone: 512-555-0100"]
    assert [row["_suggestions"] for row in kept.added] == told


def test_corrected_bills_are_compared_with_others() -> None:
    """The same bill with and without a comma is the same bill twice."""
    bill: Cells = {"paymentId": None, "invoiceNumber": "I-77"}
    verdict = check(TextChunks([_row(**bill, amount="1,381.12"), _row(**bill, amount="1381.12")]), ALL)
    assert verdict.counts == {"row.duplicate": 1}


def test_a_routing_number_without_its_zero() -> None:
    """By its check digit, from text and from a numeric cell; without one that fits nothing is changed."""
    lost = {"_fault.achRoutingNumber": "leading_zero", "_suggest.achRoutingNumber": "021000021"}
    unfit = {"_fault.achRoutingNumber": "leading_zero", "_suggest.achRoutingNumber": None}
    rows = [
        _row(achRoutingNumber="21000021"),
        _row(achRoutingNumber="21000021", **lost),
        _row(achRoutingNumber="21000022"),
        _row(achRoutingNumber="21000022", **unfit),
    ]
    source = TextChunks(rows, extra=list(lost))
    verdict = check(source, ALL)
    assert verdict.accepted == {"achRoutingNumber.format": 1, "achRoutingNumber.leading_zero": 1}
    assert verdict.counts == {"achRoutingNumber.format": 1, "achRoutingNumber.leading_zero": 1}
    assert pl.concat(list(valid_rows(source, ALL, verdict)))["achRoutingNumber"].to_list() == ["021000021"] * 2


def test_an_account_number_is_never_corrected() -> None:
    """It has no suggestion, so that it stands in no list."""
    assert not [name for name in suggesting_rules() if name.startswith("achAccountNumber.")]
    verdict = check(TextChunks([_row(achAccountNumber=" 123456789")]), ALL)
    assert (verdict.accepted, verdict.counts) == ({}, {"achAccountNumber.whitespace": 1})


def test_repairs_and_corrections_are_counted_apart() -> None:
    """--normalize goes first and stays what it is; the old text is the one that was read."""
    options = replace(ALL, normalize=True)
    source = TextChunks([_row(amount=" 1,381.12", currencyCode="usd"), _row(amount=" 2.00")])
    verdict = check(source, options)
    assert verdict.repairs == {"amount": 2, "currencyCode": 1}
    assert verdict.accepted == {"amount.format": 1}
    assert pl.concat(list(all_rows(source, options)))[CORRECTED].to_list() == ["amount:  1,381.12 -> 1381.12", None]
