"""When the payments of a recurring schedule fall due: an assumption, as the interface says only which fields it has.

The first one on the start date; MONTHLY uses the day of the month, or the last day of a shorter month; with end of
month `Y` every payment is due on its month's last day; DAILY is every calendar day; 0 payments means until stopped.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any


def due(plan: Mapping[str, Any], index: int) -> date | None:
    """Return the date on which payment `index` (from 0) is due; None beyond the calendar."""
    month, day, year = (int(part) for part in str(plan["recurringStartDate"]).split("/"))
    try:
        if plan["recurringBillingCycle"] == "DAILY":
            return date(year, month, day) + timedelta(days=index)
        months = year * 12 + month - 1 + index
        last = monthrange(months // 12, months % 12 + 1)[1]
        return date(months // 12, months % 12 + 1, last if plan["recurringEndOfMonth"] == "Y" else min(day, last))
    except (ValueError, OverflowError):
        return None


def made_until(plan: Mapping[str, Any], today: date) -> int:
    """Return how many payments were due up to and including this day."""
    wanted = int(plan["recurringNumOfPayments"])
    first = due(plan, 0)
    if first is None or first > today:
        return 0
    if plan["recurringBillingCycle"] == "DAILY":
        count = (today - first).days + 1
    else:
        count = (today.year - first.year) * 12 + today.month - first.month
        this_month = due(plan, count)
        count += 1 if this_month is not None and this_month <= today else 0
    return min(count, wanted) if wanted else count


def standing(plan: Mapping[str, Any], today: date) -> dict[str, Any]:
    """Return how far a schedule has come: payments made, left (None: until stopped), and the next due date."""
    made = made_until(plan, today)
    wanted = int(plan["recurringNumOfPayments"])
    following = due(plan, made) if not wanted or made < wanted else None
    return {
        "made": made,
        "left": wanted - made if wanted else None,
        "next": following.isoformat() if following else None,
        "cycle": plan["recurringBillingCycle"],
    }
