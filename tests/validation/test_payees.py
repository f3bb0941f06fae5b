"""Accounts of many payees and payees of many accounts: asked about once, and never of honest files."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest

from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.verdict import Verdict
from tests.support.payment_files import VALID
from tests.support.text_chunks import TextChunks
from tests.support.whole_check import check

ADDRESS = {"billingAddressLine1": "1 Main St", "billingZip": "78701"}


def _verdict(rows: Sequence[dict[str, str]], **options: Any) -> Verdict:
    cells = [
        {name: {**VALID, "transactionType": "CREDIT", "amount": f"{number}.50", **row}.get(name) for name in COLUMNS}
        for number, row in enumerate(rows, 10)
    ]
    return check(TextChunks(cells, height=3), RuleOptions(datetime.date(2026, 11, 21), **options))


def _names(count: int, **more: str) -> list[dict[str, str]]:
    return [{"achNameOnCheck": f"Payee {number}", **more} for number in range(count)]


def _accounts(count: int, **more: str) -> list[dict[str, str]]:
    return [{"achAccountNumber": f"55500{number}", **more} for number in range(count)]


@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [
        (_names(5), "shared_account", "5 payees are paid to this account in this file (line 3, line 4, line 5, "),
        ([*_names(11), {}], "shared_account", "line 11, line 12 and 2 more)"),
        (
            _accounts(5, billingInternalId="V-7"),
            "spread_payee",
            "this payee is paid to 5 accounts in this file (line 3",
        ),
        (_accounts(6, **ADDRESS), "spread_payee", "this payee is paid to 6 accounts"),
    ],
    ids=["account", "many", "id", "address"],
)
def test_a_person_is_asked_once_and_told_where_the_rows_are(
    rows: list[dict[str, str]], name: str, message: str
) -> None:
    """Five or more, over chunks, in one line; never an error."""
    verdict = _verdict([_accounts(1)[0] | {"achAccountNumber": "1"}, *rows], warnings_as_errors=False)
    found = [one for one in verdict.warning_failures if one.code in ("shared_account", "spread_payee")]
    assert [(one.row, one.code) for one in found] == [(2, name)]
    assert message in found[0].message
    assert (verdict.warning_counts[f"row.{name}"], verdict.rejected.rows) == (1, 0)
    assert f"row.{name}" not in _verdict(rows, rules_off=frozenset({f"row.{name}"})).warning_counts


@pytest.mark.parametrize(
    "rows",
    [
        _names(4),
        [{**one, "achNameOnCheck": "Ada Byron"} for one in _names(30)],
        _accounts(4, **ADDRESS, billingInternalId="E-1"),
        _accounts(30),
        [{**one, "billingInternalId": f"E-{number}"} for number, one in enumerate(_accounts(30, **ADDRESS))],
        [{**one, **ADDRESS, "billingZip": f"7870{number}"} for number, one in enumerate(_accounts(9))],
        _names(30, transactionType="DEBIT"),
        _accounts(30, transactionType="DEBIT", **ADDRESS),
    ],
    ids=["family", "bills", "split salary", "namesakes", "ids", "addresses", "collected", "debits"],
)
def test_honest_files_are_let_be(rows: list[dict[str, str]]) -> None:
    """A family with one account, a salary over several, people with one name, and money that is collected."""
    assert not _verdict(rows).warning_counts.keys() & {"row.shared_account", "row.spread_payee"}
