"""The Federal Reserve's calendar, day by day with the standard library: it shares no code with the program."""

from __future__ import annotations

from datetime import date, timedelta

_MONDAY, _THURSDAY, _SATURDAY, _SUNDAY = 0, 3, 5, 6
_JUNETEENTH_SINCE = 2021


def is_banking_day(day: date) -> bool:
    """Return whether the Federal Reserve settles on that day.

    A holiday that falls on a Saturday closes nothing; one that falls on a Sunday closes the Monday after.
    """
    if day.weekday() in (_SATURDAY, _SUNDAY):
        return False
    if _is_holiday(day):
        return False
    return not (day.weekday() == _MONDAY and _is_holiday(day - timedelta(days=1)))


def _is_holiday(day: date) -> bool:
    """Return whether one of the eleven federal holidays falls on that very day."""
    fixed = {(1, 1), (7, 4), (11, 11), (12, 25)}
    if day.year >= _JUNETEENTH_SINCE:
        fixed.add((6, 19))
    if (day.month, day.day) in fixed:
        return True
    nth = (day.day - 1) // 7 + 1  # this weekday occurs for the nth time in its month
    if day.weekday() == _MONDAY:
        last_of_may = day.month == 5 and day.day > 31 - 7
        return (day.month, nth) in {(1, 3), (2, 3), (9, 1), (10, 2)} or last_of_may
    return day.weekday() == _THURSDAY and (day.month, nth) == (11, 4)
