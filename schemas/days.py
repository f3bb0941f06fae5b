"""The rules of a day: how a date is written, and payOn, the day before which a payment is not sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pandera.polars as pa
import polars as pl

from batchpay.schemas import calendar, checks
from batchpay.schemas.columns import PAY_ON
from batchpay.schemas.forms import DATE
from batchpay.schemas.rule import Rule, RuleOptions, columns_of, error, warning

_CLOSED = "is a weekend or a bank holiday, what is sent then moves to the next banking day"


def date_rules(column: str) -> list[Rule]:
    """Make the rules for how a date is written."""
    cell = pl.col(column)
    return [
        error(
            column,
            "format",
            "S",
            "`MM/DD/YYYY`",
            "write the date as MM/DD/YYYY, like 01/31/2027",
            checks.is_not_date_format(cell),
            suggestion=checks.date_from_iso(cell),
            form=DATE,
        ),
        error(
            column,
            "date",
            "S",
            "a real calendar date",
            "the calendar has no such day, write month/day/year",
            checks.is_not_date(cell),
            after=("format",),
        ),
    ]


def pay_on_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Return the column of the day before which a payment is not sent, with its rules."""
    cell, day = pl.col(PAY_ON), checks.as_date(pl.col(PAY_ON))
    own = [replace(rule, source="H") for rule in date_rules(PAY_ON)]
    if options.pay_on_days is not None:
        own += [
            _rule(
                "past",
                "before today at registration (`--as-of DATE` sets today)",
                "is before today, choose a later day, or leave it empty to send it at once",
                day < pl.lit(options.as_of),
            ),
            _rule(
                "range",
                "more than `limits.pay_on_days` (90) after today at registration",
                f"is more than {options.pay_on_days} days from today (setting limits.pay_on_days), submit it later",
                day > pl.lit(options.as_of + timedelta(days=options.pay_on_days)),
            ),
        ]
    own += [
        _rule(
            "conflict",
            "with recurringIndicator `TRUE`",
            "a recurring payment begins on its recurringStartDate, it can't have a payOn as well",
            pl.col("recurringIndicator") == "TRUE",
            reads=("recurringIndicator",),
        ),
        warning(
            PAY_ON,
            "banking_day",
            "N",
            "not a banking day (Saturday, Sunday, Federal Reserve holiday)",
            _CLOSED,
            checks.is_not_banking_day(cell),
            after=("format", "date"),
            reason=pl.format(
                f"{_CLOSED} (the banking days around it are {{}} and {{}})",
                *(
                    day.dt.add_business_days(0, holidays=calendar.HOLIDAYS, roll=roll).dt.strftime("%m/%d/%Y")
                    for roll in ("backward", "forward")
                ),
            ),
        ),
    ]
    given = [replace(rule, applies_where=cell.is_not_null()) if rule.form is None else rule for rule in own]
    return columns_of((PAY_ON,), {PAY_ON: given}, options)


def _rule(code: str, words: str, message: str, fails: pl.Expr, reads: tuple[str, ...] = ()) -> Rule:
    return error(
        PAY_ON, code, "H", words, message, pl.col(PAY_ON).is_not_null() & fails, after=("format", "date"), reads=reads
    )
