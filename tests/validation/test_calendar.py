"""The Federal Reserve's closed days, against the years that it has published."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest

from batchpay.schemas import checks
from batchpay.schemas.calendar import federal_reserve_holidays, is_banking_day

PUBLISHED = {
    2022: ["01-17", "02-21", "05-30", "06-20", "07-04", "09-05", "10-10", "11-11", "11-24", "12-26"],
    2023: ["01-02", "01-16", "02-20", "05-29", "06-19", "07-04", "09-04", "10-09", "11-23", "12-25"],
    2024: ["01-01", "01-15", "02-19", "05-27", "06-19", "07-04", "09-02", "10-14", "11-11", "11-28", "12-25"],
    2025: ["01-01", "01-20", "02-17", "05-26", "06-19", "07-04", "09-01", "10-13", "11-11", "11-27", "12-25"],
    2026: ["01-01", "01-19", "02-16", "05-25", "06-19", "09-07", "10-12", "11-11", "11-26", "12-25"],
    2027: ["01-01", "01-18", "02-15", "05-31", "07-05", "09-06", "10-11", "11-11", "11-25"],
}
"""Weekdays without settlement: a holiday on a Saturday (2022-01-01, 2023-11-11, 2026-07-04, 2027-06-19) is none."""


@pytest.mark.parametrize("year", PUBLISHED)
def test_holidays_are_the_published_ones(year: int) -> None:
    """The computed closed weekdays are those of the Federal Reserve's published schedule."""
    assert [day.strftime("%m-%d") for day in federal_reserve_holidays(year)] == PUBLISHED[year]


def test_juneteenth_begins_in_2021() -> None:
    """June 19 is an ordinary day before the law of 2021."""
    assert is_banking_day(date(2020, 6, 19))
    assert not is_banking_day(date(2023, 6, 19))


def test_saturday_closes_nothing_and_sunday_the_monday_after() -> None:
    """Friday 2026-07-03 is a banking day, Monday 2027-07-05 is none."""
    assert is_banking_day(date(2026, 7, 3))
    assert not is_banking_day(date(2027, 7, 5))


def test_expression_agrees_with_the_calendar() -> None:
    """The expression behind `banking_day` says of every day of two decades what the calendar says."""
    days = pl.date_range(date(2020, 1, 1), date(2040, 12, 31), eager=True)
    closed = pl.select(checks.is_not_banking_day(pl.lit(days.dt.strftime("%m/%d/%Y")))).to_series()
    assert closed.to_list() == [not is_banking_day(day) for day in days]
