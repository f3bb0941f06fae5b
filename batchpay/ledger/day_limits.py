"""What a ledger knows of a day whose sums are limited: what was sent on it, what is planned, which rows still fit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Container
from typing import Any

from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.database import Statements, Transaction, View
from batchpay.ledger.days import DayCheck, MakerCheck, SendingDay, Sums
from batchpay.ledger.event_chain import DIRECTIONS
from batchpay.ledger.records import TotalsDelta
from batchpay.ledger.states import PENDING

DAYS_KEPT = 31
"""Sums of days that are longer ago are dropped: no run lasts as long."""
_ALONE = "alone"
"""What an event notes of a maker without approvals: name and account, and cents by direction."""


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


def added_alone(view: View, statements: Statements, environment: str, maker: MakerCheck) -> Counter[int]:
    """Return what a person registered or released without approval, in cents by the codes of directions."""
    found = Counter[int]()
    for (detail,) in view.execute(statements.ADDED_SINCE, {"environment": environment, "since": maker.since_ms}):
        if (alone := json.loads(detail).get(_ALONE)) and maker.counts(*alone["maker"]):
            found.update({int(direction): cents for direction, cents in alone["cents"].items()})
    return found


def require_alone(transaction: Transaction, check: DayCheck, changes: TotalsDelta) -> dict[str, Any]:
    """Return what the history notes of the maker of what becomes pending, if nobody approves it.

    Raises RegisteredMeanwhile if it takes more approvals than when it was looked at: the maker has added more since.
    """
    maker, adds = check.maker, Counter[int]()
    for state, direction, _, cents in changes.changes():
        adds[direction] += cents if state == PENDING else 0
    if maker.below_cents is not None:
        before = added_alone(transaction, transaction.statements, check.environment, maker)
        if any(cents and before[direction] + cents >= maker.below_cents for direction, cents in adds.items()):
            raise RegisteredMeanwhile("whoever makes this has added more than was known when it was looked at")
    is_alone = maker.name and not maker.is_approved
    return {_ALONE: {"maker": [maker.name, maker.account], "cents": +adds}} if is_alone else {}


def fitting(
    day: SendingDay, ask: Callable[[str, Any], Any], statements: Statements, batch: int, rows: Collection[int]
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
