"""Every rule as plain facts: what `batchpay rules` prints, and the messages for what file readers find."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

from batchpay.schemas.columns import ACCOUNT, COLUMNS, DIGITS_MATTER, MAP_FAULT, MONEY, ROUTING
from batchpay.schemas.payment import payment_schema
from batchpay.schemas.rule import RuleFacts, RuleOptions, facts, rules_of
from batchpay.schemas.tables import RULES

ROW = "row"
"""Stands for a column where a rule concerns the row as a whole."""


PAYMENT_ID_DUPLICATE = facts("paymentId.duplicate")
ROW_DUPLICATE = facts("row.duplicate")
ROW_INVOICE_PAID = facts("row.same_invoice")
ROW_SAME_INVOICE = facts("row.same_invoice:in_file")
ROW_SAME_PAYMENT = facts("row.same_payment")
ACCOUNT_RETURNED = facts("achAccountNumber.returned")
CHANGED_BY_BANK = [
    facts(f"{column}.changed_by_bank") for column in (ACCOUNT, ROUTING, "achDepositType", "achNameOnCheck")
]
"""Of a change of several columns, the first is named."""
ROW_STATUS = facts("row.status")
ROW_TOTAL = facts("row.total")
ROW_SUM = facts("row.sum")
ROW_SAME_AMOUNT = facts("row.same_amount")
ROW_SHARED_ACCOUNT = facts("row.shared_account")
ROW_SPREAD_PAYEE = facts("row.spread_payee")
ROW_RAGGED = facts("row.ragged")
ROW_QUOTATION = facts("row.quotation")
ROW_NO_PAYMENT = facts("row.no_payment")
ROW_MAYBE_TOTAL = facts("row.total:maybe")
_TYPED = ("leading_zero", "precision", "format", "formula", "text_formula", "error_cell", MAP_FAULT)
"""Codes of cells that are not our text."""


def every_rule_on() -> RuleOptions:
    """Return options that enable every rule."""
    return RuleOptions(as_of=date(2026, 1, 1), max_amount_cents=0)


def rules() -> list[RuleFacts]:
    """Return all rules of cells in the order of the columns, then those of the row as a whole."""
    found: list[RuleFacts] = [*rules_of(payment_schema(every_rule_on()))]
    for one in (PAYMENT_ID_DUPLICATE, ACCOUNT_RETURNED, *CHANGED_BY_BANK):
        columns = [fact.column for fact in found]
        found.insert(len(columns) - columns[::-1].index(one.column), one)
    of_rows = [ROW_STATUS, ROW_TOTAL, ROW_MAYBE_TOTAL, ROW_SUM, ROW_SAME_AMOUNT, ROW_SHARED_ACCOUNT, ROW_SPREAD_PAYEE]
    of_rows += [ROW_INVOICE_PAID, ROW_SAME_INVOICE, ROW_DUPLICATE, ROW_SAME_PAYMENT]
    return [*found, *of_rows, ROW_RAGGED, ROW_QUOTATION, ROW_NO_PAYMENT]


def typed_cell_rules() -> list[RuleFacts]:
    """Return the rules for cells that a Parquet file, a spreadsheet or a map has as something other than our text."""
    found = []
    for column in COLUMNS:
        for code in _TYPED:
            if code == "leading_zero" and column != ROUTING:
                continue
            if code == "precision" and column not in DIGITS_MATTER:
                continue
            found.append(replace(facts(f"typed.{code}", column), message=typed_cell_message(column, code)))
    return [*found, facts("typed.numeric_account", ACCOUNT)]


@cache
def suggesting_rules() -> frozenset[str]:
    """Name the rules that can say what the right value is."""
    names = {rule.name for rule in rules_of(payment_schema(every_rule_on())) if rule.suggestion is not None}
    names |= {f"{column}.text_formula" for column in COLUMNS if column != ACCOUNT}
    return frozenset(names | {"achRoutingNumber.leading_zero"})


def typed_cell_message(column: str, code: str) -> str:
    """Return the message for a typed-cell fault, whatever its code."""
    key = "typed.money" if code == "format" and column in MONEY else f"typed.{code}"
    return RULES.get(key, RULES["typed.other"])["message"]


def check_rules_off(names: frozenset[str]) -> list[str]:
    """Return the names that can't be switched off: unknown rules, rules that are not house rules, and some that are.

    Cells of a ragged or malformed row can't be told apart, so no other rule could take the place of those.
    """
    if not names:  # nearly always; otherwise all rules are built once more
        return []
    kept = {ROW_RAGGED.name, ROW_QUOTATION.name, ROW_NO_PAYMENT.name, PAYMENT_ID_DUPLICATE.name}
    house = {fact.name for fact in rules() if fact.source == "H"} - kept
    return sorted(names - house)


@cache
def warning_names() -> frozenset[str]:
    """Return the names of all warnings: of the rules, and of the checks against earlier payments."""
    return frozenset(one.name for one in (*rules(), *typed_cell_rules()) if one.severity == "warning") | OF_HISTORY


OF_HISTORY = frozenset(
    {"achAccountNumber.changed_account", "achNameOnCheck.new_payee", "amount.first_payment", "amount.unusual_amount"}
)
"""Warnings of approval/anomalies.py."""
