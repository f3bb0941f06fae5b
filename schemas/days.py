"""The rules of a day: how a date is written, and payOn, the day before which a payment is not sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pandera.polars as pa
import polars as pl

from batchpay.schemas import calendar, checks
from batchpay.schemas.columns import PAY_ON
from batchpay.schemas.forms import DATE
from batchpay.schemas.rule import Rule, RuleOptions, columns_of, facts, rule


def date_rules(column: str) -> list[Rule]:
    """Make the rules for how a date is written."""
    cell = pl.col(column)
    return [
        rule(
            "date.format",
            checks.is_not_date_format(cell),
            suggestion=checks.date_from_iso(cell),
            form=DATE,
            column=column,
        ),
        rule("date.date", checks.is_not_date(cell), after=("format",), column=column),
    ]


def pay_on_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Return the column of the day before which a payment is not sent, with its rules."""
    cell, day = pl.col(PAY_ON), checks.as_date(pl.col(PAY_ON))
    own = [replace(one, source="H") for one in date_rules(PAY_ON)]
    ahead = options.pay_on_days
    if ahead is not None:
        own += [
            _rule("past", day < pl.lit(options.as_of)),
            _rule("range", day > pl.lit(options.as_of + timedelta(days=ahead)), values={"days": ahead}),
        ]
    around = [
        day.dt.add_business_days(0, holidays=calendar.HOLIDAYS, roll=roll).dt.strftime("%m/%d/%Y")
        for roll in ("backward", "forward")
    ]
    closed = f"{facts('payOn.banking_day').message} (the banking days around it are {{}} and {{}})"
    own += [
        _rule("conflict", pl.col("recurringIndicator") == "TRUE", reads=("recurringIndicator",)),
        rule(
            "payOn.banking_day",
            checks.is_not_banking_day(cell),
            after=("format", "date"),
            reason=pl.format(closed, *around),
        ),
    ]
    given = [replace(one, applies_where=cell.is_not_null()) if one.form is None else one for one in own]
    return columns_of((PAY_ON,), {PAY_ON: given}, options)


def _rule(code: str, fails: pl.Expr, **more: Any) -> Rule:
    return rule(f"payOn.{code}", pl.col(PAY_ON).is_not_null() & fails, after=("format", "date"), **more)
