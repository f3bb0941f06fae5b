"""The rules of the request's top level, and the schema of a whole payment row."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.ach import ach_rules
from batchpay.schemas.billing import billing_rules
from batchpay.schemas.columns import COLUMNS, PAYMENT_ID, TOP
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.recurring import recurring_rules
from batchpay.schemas.rule import Rule, choice, column_rules, error, money_format, node_schema, required, warning
from batchpay.schemas.shipping import shipping_rules
from batchpay.schemas.tables import CURRENCIES


def payment_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of a payment row: all columns as text, null where not given.

    Validate an eager DataFrame with `lazy=True`: of a LazyFrame pandera looks at no cell. What concerns several rows
    (duplicates) and the reading of the file is beyond a schema.
    """
    return node_schema("payment", COLUMNS, payment_rules(options))


def payment_rules(options: RuleOptions) -> list[Rule]:
    """All rules of a payment row, in the order of the columns."""
    return [
        *column_rules(PAYMENT_ID, [], options),
        *top_rules(options),
        *billing_rules(options),
        *shipping_rules(options),
        *ach_rules(options),
        *recurring_rules(options),
    ]


def top_rules(options: RuleOptions) -> list[Rule]:
    """Rules of the fields that stand beside the nodes."""
    own = {
        "gatewayId": _gateway_id(),
        "transactionType": [
            required("transactionType"),
            choice("transactionType", ("DEBIT", "CREDIT"), "`DEBIT` or `CREDIT`", "write DEBIT or CREDIT, in capitals"),
        ],
        "recurringIndicator": [
            required("recurringIndicator"),
            choice("recurringIndicator", ("TRUE", "FALSE"), "`TRUE` or `FALSE`", "write TRUE or FALSE, in capitals"),
        ],
        "currencyCode": _currency(),
        "amount": _amount(options),
        "taxAmount": _tax_amount(),
    }
    return [rule for column in TOP for rule in column_rules(column, own.get(column, []), options)]


def _gateway_id() -> list[Rule]:
    wrong = checks.not_matching(pl.col("gatewayId"), r"^0*[1-9][0-9]*$")
    return [
        required("gatewayId"),
        error(
            "gatewayId",
            "format",
            "S",
            "a positive whole number, digits only",
            "write the gateway's number with digits only, like 17",
            wrong,
            screen=wrong | checks.may_be_too_long(pl.col("gatewayId")),
            proves_clean=True,
        ),
    ]


def _currency() -> list[Rule]:
    cell = pl.col("currencyCode")
    return [
        choice(
            "currencyCode",
            CURRENCIES,
            "an ISO 4217 code, not given = `USD`",
            "write a currency code of three capitals (ISO 4217), like USD, or leave it empty for USD",
        ),
        warning(
            "currencyCode",
            "currency",
            "N",
            "other than `USD` (ACH moves US dollars)",
            "ACH moves US dollars only, check whether this payment can be made",
            cell != "USD",
            after=("choice",),
        ),
    ]


def _amount(options: RuleOptions) -> list[Rule]:
    cell = pl.col("amount")
    rules = [
        required("amount"),
        money_format("amount"),
        error(
            "amount",
            "range",
            "H",
            "more than 0.00",
            "must be more than 0.00",
            checks.is_zero(cell),
            after=("format",),
            screen=checks.may_be_zero(cell),
        ),
        error(
            "amount",
            "range",
            "N",
            "at most 99999999.99 (the ACH amount field has ten digits)",
            "must be at most 99999999.99, an ACH payment can't carry more",
            checks.has_too_many_digits(cell),
            after=("format",),
            screen=cell.str.len_bytes() > checks.AMOUNT_WHOLE_DIGITS_MAX + 3,
        ),
    ]
    if options.max_amount_cents is not None:
        whole, rest = divmod(options.max_amount_cents, 100)
        rules.append(
            error(
                "amount",
                "limit",
                "H",
                "above the setting `limits.max_amount` (no default)",
                "is above the limit for one payment (setting limits.max_amount), check it",
                checks.is_above(cell, pl.lit(f"{whole}.{rest:02d}")),
                after=("format",),
            )
        )
    return rules


def _tax_amount() -> list[Rule]:
    return [
        money_format("taxAmount"),
        warning(
            "taxAmount",
            "range",
            "H",
            "more than the amount",
            "the tax is more than the amount, check both",
            checks.is_above(pl.col("taxAmount"), pl.col("amount")),
            after=("format",),
            reads=("amount",),
            screen=_may_be_above(pl.col("taxAmount"), pl.col("amount")),
        ),
    ]


def _may_be_above(cell: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Tell cheaply whether one amount may be more than another: compares 64-bit floats, whose rounding keeps order."""
    return cell.cast(pl.Float64, strict=False) >= other.cast(pl.Float64, strict=False)
