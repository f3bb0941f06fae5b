"""What a ledger knows of a day whose sums are limited: what was sent on it, what is planned, which rows still fit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Container
from typing import Any

from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.database import Found, Statements, View
from batchpay.ledger.days import DayCheck, SendingDay, Sums
from batchpay.ledger.event_chain import DIRECTIONS

DAYS_KEPT = 31
"""Sums of days that are longer ago are dropped: no run lasts as long."""


def known(
    check: DayCheck, view: View, statements: Statements, *, batch: int = 0, keys: Container[Any] | None = None
) -> Sums:
    """Return what was sent and is planned, today and later, but for what is pending of `batch`; of `keys` alone."""
    asked = {"environment": check.environment, "today": check.today, "begins": check.begins_ms, "batch": batch}
    found = Sums()
    for limit, statement in (
        (check.limits.max_per_day, statements.PLANNED_BY_DIRECTION),
        (check.limits.max_per_payee_day, statements.PLANNED_BY_ACCOUNT),
    ):
        for day, key, cents in view.execute(statement, asked) if limit is not None else ():
            place = day, DIRECTIONS.get(key, key)
            if keys is None or place in keys:
                found[place] += cents
    return found


def require_within(check: DayCheck, adds: Sums, found: Sums) -> None:
    """Raise RegisteredMeanwhile if rows exceed a limit: more is registered than when they were looked at."""
    if any(check.exceeded(adds, found)):
        raise RegisteredMeanwhile("a day has more than was known when it was looked at; look again")


def fitting(
    day: SendingDay, ask: Callable[[str, Any], Found], statements: Statements, batch: int, rows: Collection[int]
) -> list[int]:
    """Return those rows, in file order, that may be sent on a day one after the other."""
    asked = {"environment": day.environment, "day": day.day, "batch": batch, "rows": json.dumps(sorted(rows))}
    sent: Counter[int | bytes] = Counter()
    for limit, statement in (
        (day.limits.max_per_day, statements.SENT_BY_DIRECTION),
        (day.limits.max_per_payee_day, statements.SENT_BY_ACCOUNT),
    ):
        sent.update(dict(ask(statement, asked).fetchall()) if limit is not None else {})
    return day.admit(ask(statements.ROWS_TO_FIT, asked).fetchall(), sent)
