"""The rules of the recurring node: all of it for a recurring payment, none of it for a single one."""

from __future__ import annotations

from dataclasses import replace

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.columns import RECURRING
from batchpay.schemas.days import date_rules
from batchpay.schemas.forms import NUMBER_OF_PAYMENTS, closed_list
from batchpay.schemas.rule import Rule, RuleOptions, choice, columns_of, rule, schema_of, truth_choice

INDICATOR = "recurringIndicator"
_AGREED = closed_list(["1", "Y"])
_APPLIES_WHERE = pl.any_horizontal(pl.col(INDICATOR).ne_missing(pl.lit("FALSE")), pl.col(RECURRING).is_not_null())
"""A single payment without any of these cells keeps all their rules."""


def recurring_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the recurring node; it also reads recurringIndicator."""
    return schema_of("recurring", recurring_columns(options))


def recurring_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Columns of the recurring node, with its rules."""
    own = {
        "recurringStartDate": _start_date(options),
        "recurringBillingCycle": [choice("recurringBillingCycle")],
        "recurringEndOfMonth": _end_of_month(),
        "recurringNumOfPayments": _number_of_payments(options),
        "recurringAgreementFlag": _agreement(options),
    }
    own = {column: _given(column) + own[column] for column in RECURRING}
    own = {column: [replace(one, applies_where=_APPLIES_WHERE) for one in rules] for column, rules in own.items()}
    return columns_of(RECURRING, own, options)


def _given(column: str) -> list[Rule]:
    """Required for a recurring payment, unexpected for a single one; neither where the indicator can't be read."""
    cell, indicator = pl.col(column), pl.col(INDICATOR)
    return [
        rule("recurring.required", (indicator == "TRUE") & cell.is_null(), reads=(INDICATOR,), column=column),
        rule("recurring.unexpected", (indicator == "FALSE") & cell.is_not_null(), reads=(INDICATOR,), column=column),
    ]


def _start_date(options: RuleOptions) -> list[Rule]:
    cell = pl.col("recurringStartDate")
    rules = date_rules("recurringStartDate")
    if options.past_start:
        rules.append(
            rule("recurringStartDate.past", checks.as_date(cell) < pl.lit(options.as_of), after=("format", "date"))
        )
    rules += [
        rule("recurringStartDate.banking_day", checks.is_not_banking_day(cell), after=("format", "date")),
        rule(
            "recurringStartDate.month_end",
            (checks.as_date(cell).dt.day() >= 29)
            & (pl.col("recurringBillingCycle") == "MONTHLY")
            & (pl.col("recurringEndOfMonth") == "N"),
            after=("format", "date"),
            reads=("recurringBillingCycle", "recurringEndOfMonth"),
        ),
    ]
    return rules


def _end_of_month() -> list[Rule]:
    cell = pl.col("recurringEndOfMonth")
    return [
        *truth_choice("recurringEndOfMonth"),
        rule(
            "recurringEndOfMonth.conflict",
            (cell == "Y") & (pl.col("recurringBillingCycle") == "DAILY"),
            reads=("recurringBillingCycle",),
        ),
    ]


def _number_of_payments(options: RuleOptions) -> list[Rule]:
    cell = pl.col("recurringNumOfPayments")
    rules = [
        rule("recurringNumOfPayments.format", checks.not_matching(cell, r"^[0-9]+$"), form=NUMBER_OF_PAYMENTS),
        rule("recurringNumOfPayments.format:length", cell.str.contains(r"^[0-9]{6,}$"), form=NUMBER_OF_PAYMENTS),
    ]
    if not options.allow_open_ended:
        rules.append(
            rule(
                "recurringNumOfPayments.open_ended",
                cell.str.contains(r"^0+$"),
                after=("format",),
                form=NUMBER_OF_PAYMENTS,
            )
        )
    return rules


def _agreement(options: RuleOptions) -> list[Rule]:
    cell = pl.col("recurringAgreementFlag")
    rules = truth_choice("recurringAgreementFlag", _AGREED)
    if options.require_agreement:
        rules.append(rule("recurringAgreementFlag.agreement", checks.one_of(cell, ("0", "N")), form=_AGREED))
    return rules
