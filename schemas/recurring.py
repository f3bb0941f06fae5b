"""The rules of the recurring node: all of it for a recurring payment, none of it for a single one."""

from __future__ import annotations

from dataclasses import replace

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.columns import RECURRING
from batchpay.schemas.days import date_rules
from batchpay.schemas.forms import NUMBER_OF_PAYMENTS, closed_list
from batchpay.schemas.rule import Rule, RuleOptions, choice, columns_of, error, schema_of, truth_choice, warning

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
        "recurringBillingCycle": [
            choice(
                "recurringBillingCycle",
                "`MONTHLY` or `DAILY`, upper case, no hyphens",
                "write MONTHLY or DAILY, in capitals",
            )
        ],
        "recurringEndOfMonth": _end_of_month(),
        "recurringNumOfPayments": _number_of_payments(options),
        "recurringAgreementFlag": _agreement(options),
    }
    own = {column: _given(column) + own[column] for column in RECURRING}
    own = {column: [replace(rule, applies_where=_APPLIES_WHERE) for rule in rules] for column, rules in own.items()}
    return columns_of(RECURRING, own, options)


def _given(column: str) -> list[Rule]:
    """Required for a recurring payment, unexpected for a single one; neither where the indicator can't be read."""
    cell, indicator = pl.col(column), pl.col(INDICATOR)
    return [
        error(
            column,
            "required",
            "S",
            f"{INDICATOR} `TRUE`: required",
            "is missing and every recurring payment needs it, fill it in or set recurringIndicator to FALSE",
            (indicator == "TRUE") & cell.is_null(),
            reads=(INDICATOR,),
        ),
        error(
            column,
            "unexpected",
            "S",
            f"{INDICATOR} `FALSE`: must be blank",
            "must be empty for a single payment, empty it or set recurringIndicator to TRUE",
            (indicator == "FALSE") & cell.is_not_null(),
            reads=(INDICATOR,),
        ),
    ]


def _start_date(options: RuleOptions) -> list[Rule]:
    cell = pl.col("recurringStartDate")
    rules = date_rules("recurringStartDate")
    if options.past_start:
        rules.append(
            error(
                "recurringStartDate",
                "past",
                "H",
                "before today (`--as-of DATE` sets today, setting `policy.past_start`, on)",
                "is before today, choose a later day",
                checks.as_date(cell) < pl.lit(options.as_of),
                after=("format", "date"),
            )
        )
    rules += [
        warning(
            "recurringStartDate",
            "banking_day",
            "N",
            "not a banking day (Saturday, Sunday, Federal Reserve holiday)",
            "is a weekend or a bank holiday, the payment will move to the next banking day",
            checks.is_not_banking_day(cell),
            after=("format", "date"),
        ),
        warning(
            "recurringStartDate",
            "month_end",
            "H",
            "day 29, 30 or 31, `MONTHLY`, recurringEndOfMonth `N` (shorter months)",
            "shorter months have no such day, set recurringEndOfMonth to Y if the last day is meant",
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
        *truth_choice("recurringEndOfMonth", "`Y` or `N`", "write Y or N, in capitals"),
        error(
            "recurringEndOfMonth",
            "conflict",
            "H",
            "`Y` with `DAILY`",
            "Y goes with MONTHLY only, write N or correct recurringBillingCycle",
            (cell == "Y") & (pl.col("recurringBillingCycle") == "DAILY"),
            reads=("recurringBillingCycle",),
        ),
    ]


def _number_of_payments(options: RuleOptions) -> list[Rule]:
    cell = pl.col("recurringNumOfPayments")
    rules = [
        error(
            "recurringNumOfPayments",
            "format",
            "S",
            "digits, `0` = until stopped",
            "write the number of payments in digits",
            checks.not_matching(cell, r"^[0-9]+$"),
            form=NUMBER_OF_PAYMENTS,
        ),
        error(
            "recurringNumOfPayments",
            "format",
            "H",
            "at most 5 digits",
            "write the number of payments with at most 5 digits",
            cell.str.contains(r"^[0-9]{6,}$"),
            form=NUMBER_OF_PAYMENTS,
        ),
    ]
    if not options.allow_open_ended:
        rules.append(
            error(
                "recurringNumOfPayments",
                "open_ended",
                "H",
                "`0`: nothing can stop it through this interface (`--allow-open-ended`)",
                "0 goes on until stopped and nothing here can stop it, write a number or use --allow-open-ended",
                cell.str.contains(r"^0+$"),
                after=("format",),
                form=NUMBER_OF_PAYMENTS,
            )
        )
    return rules


def _agreement(options: RuleOptions) -> list[Rule]:
    cell = pl.col("recurringAgreementFlag")
    words, message = "`1`, `0`, `Y` or `N`", "write 1 or Y (the payer agrees), 0 or N"
    rules = truth_choice("recurringAgreementFlag", words, message, form=_AGREED)
    if options.require_agreement:
        rules.append(
            error(
                "recurringAgreementFlag",
                "agreement",
                "H",
                "`0` or `N`: the payer does not agree (setting `policy.require_agreement`, on)",
                "the payer does not agree to further payments, take the row out or get the agreement",
                checks.one_of(cell, ("0", "N")),
                form=_AGREED,
            )
        )
    return rules
