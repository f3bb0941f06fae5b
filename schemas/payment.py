"""The rules of the request's top level, and the schema of a whole payment row."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from batchpay.schemas import amount_text, checks
from batchpay.schemas.ach import ach_columns
from batchpay.schemas.address import billing_columns, shipping_columns
from batchpay.schemas.columns import PAYMENT_ID, TOP
from batchpay.schemas.days import pay_on_columns
from batchpay.schemas.forms import AMOUNT, GATEWAY_ID, MONEY, closed_list
from batchpay.schemas.recurring import recurring_columns
from batchpay.schemas.rule import (
    Rule,
    RuleOptions,
    choice,
    columns_of,
    money_format,
    placeholder_rules,
    required,
    rule,
    schema_of,
    truth_choice,
)
from batchpay.schemas.tables import NO_DECIMALS

_US_DOLLARS = closed_list(["USD"])


def payment_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of a payment row: all columns as text, null where not given.

    Validate an eager DataFrame with `lazy=True`: pandera checks no cell of a LazyFrame. What concerns several rows
    (duplicates) and the reading of the file is outside a schema.
    """
    columns = columns_of((PAYMENT_ID,), {PAYMENT_ID: placeholder_rules(PAYMENT_ID)}, options)
    columns |= pay_on_columns(options)
    for of_node in (top_columns, billing_columns, shipping_columns, ach_columns, recurring_columns):
        columns |= of_node(options)
    return schema_of("payment", columns)


def top_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Return the columns of the fields outside the nodes, with their rules."""
    own = {
        "gatewayId": _gateway_id(),
        "transactionType": [required("transactionType"), choice("transactionType")],
        "recurringIndicator": [required("recurringIndicator"), *truth_choice("recurringIndicator")],
        "invoiceNumber": placeholder_rules("invoiceNumber"),
        "currencyCode": _currency(),
        "amount": _amount(options),
        "taxAmount": _tax_amount(),
    }
    return columns_of(TOP, own, options)


def _gateway_id() -> list[Rule]:
    wrong = checks.not_matching(pl.col("gatewayId"), r"^0*[1-9][0-9]*$")
    return [
        required("gatewayId"),
        rule("gatewayId.format", wrong, form=GATEWAY_ID),
    ]


def _currency() -> list[Rule]:
    cell = pl.col("currencyCode")
    return [
        choice("currencyCode", _US_DOLLARS),
        rule("currencyCode.currency", cell != "USD", after=("choice",), form=_US_DOLLARS),
    ]


def _amount(options: RuleOptions) -> list[Rule]:
    cell, code = pl.col("amount"), pl.col("currencyCode")
    other = amount_text.other_currency(cell, code)
    rules = [
        required("amount"),
        rule(
            "amount.currency_mark",
            other.is_not_null(),
            reads=("currencyCode",),
            reason=pl.format(amount_text.OTHER_CURRENCY, other),
            form=AMOUNT,
        ),
        money_format("amount", AMOUNT, pl.when(other.is_null()).then(checks.as_money(cell))),
        rule("amount.range:least", checks.is_zero(cell), after=("format",), form=AMOUNT),
        rule("amount.range:most", checks.has_too_many_digits(cell), after=("format",), form=AMOUNT),
        rule(
            "amount.currency_decimals",
            code.is_in(list(NO_DECIMALS)) & ~cell.str.ends_with(".00"),
            after=("format",),
            reads=("currencyCode",),
            # The form of a currencyCode is USD alone.
            applies_where=code.ne_missing(pl.lit("USD")) & code.is_not_null(),
        ),
    ]
    if options.max_amount_cents is not None:
        whole, rest = divmod(options.max_amount_cents, 100)
        rules.append(rule("amount.limit", checks.is_above(cell, pl.lit(f"{whole}.{rest:02d}")), after=("format",)))
    return rules


def _tax_amount() -> list[Rule]:
    return [
        money_format("taxAmount", MONEY),
        rule(
            "taxAmount.range",
            checks.is_above(pl.col("taxAmount"), pl.col("amount")),
            after=("format",),
            reads=("amount",),
            # The form of an amount has no leading zeros: a shorter one is less.
            applies_where=(pl.col("taxAmount").str.len_bytes() >= pl.col("amount").str.len_bytes()).fill_null(
                value=False
            ),
        ),
    ]
