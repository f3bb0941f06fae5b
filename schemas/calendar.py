"""Days on which the Federal Reserve Banks are closed, by their own rules.

Source: Federal Reserve Bank Services, 'Holiday schedules'. A holiday on a Saturday closes nothing, the Friday before is
a banking day; one on a Sunday closes the Monday after. The dates come from 5 U.S.C. 6103, which has Juneteenth since
2021.
"""

from __future__ import annotations

from datetime import date, timedelta

_FIRST_YEAR, _LAST_YEAR = 1990, 2100
_MONDAY, _THURSDAY = 0, 3


def federal_reserve_holidays(year: int) -> tuple[date, ...]:
    """Weekdays of a year on which the Federal Reserve Banks are closed, in order."""
    fixed = [date(year, 1, 1), date(year, 7, 4), date(year, 11, 11), date(year, 12, 25)]
    if year >= 2021:
        fixed.append(date(year, 6, 19))
    moved = [day + timedelta(days=1) if day.weekday() == 6 else day for day in fixed]
    floating = [
        _nth_weekday(year, 1, _MONDAY, 3),
        _nth_weekday(year, 2, _MONDAY, 3),
        _last_monday_of_may(year),
        _nth_weekday(year, 9, _MONDAY, 1),
        _nth_weekday(year, 10, _MONDAY, 2),
        _nth_weekday(year, 11, _THURSDAY, 4),
    ]
    return tuple(sorted(day for day in moved + floating if day.weekday() < 5))


def is_banking_day(day: date) -> bool:
    """Whether the Federal Reserve Banks settle on that day."""
    return day.weekday() < 5 and day not in federal_reserve_holidays(day.year)


def _nth_weekday(year: int, month: int, weekday: int, nth: int) -> date:
    first = date(year, month, 1)
    return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (nth - 1))


def _last_monday_of_may(year: int) -> date:
    last = date(year, 5, 31)
    return last - timedelta(days=last.weekday())


HOLIDAYS = tuple(day for year in range(_FIRST_YEAR, _LAST_YEAR + 1) for day in federal_reserve_holidays(year))
"""Closed weekdays of the years that a payment file may name."""
