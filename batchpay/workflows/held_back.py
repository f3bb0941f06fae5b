"""Pending rows that fail today's rules: they stay pending, are not sent, and are reported.

Plain Python: what sends imports neither polars nor pandera.
"""

from __future__ import annotations

import json
import math
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import PendingPayment, RowColumns, read_details
from batchpay.payment import State, Totals

_MAY_RECUR = b'"TRUE"'
"""Appears in the details of each recurring payment; reading all the others would take most of the time."""
Fails = Callable[[RowColumns], Sequence[bool]]
"""Returns for each of a batch's rows whether it fails today's rules."""


class HeldBack:
    """Row numbers in file order, four bytes each: a Container of those that must not be sent now."""

    def __init__(self) -> None:
        self._rows = array("I")
        self.totals = Totals()

    def __contains__(self, row: object) -> bool:
        if not isinstance(row, int):
            return False
        index = bisect_left(self._rows, row)
        return index < len(self._rows) and self._rows[index] == row

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def add(self, row: int, cents: int) -> None:
        """Add a row; rows come in file order."""
        self._rows.append(row)
        self.totals += Totals(1, cents)


def find_held_back(ledger: Ledger, batch: str, fails: Fails | None) -> HeldBack:
    """Check the pending rows of a batch; `fails` is None if nothing can have changed since it was checked."""
    held = HeldBack()
    if fails is None:
        return held
    for columns in ledger.row_columns(batch, [State.PENDING]):
        for row, cents, failed in zip(columns.rows, columns.amounts_cents, fails(columns), strict=True):
            if failed:
                held.add(row, cents)
    return held


class Midnight:
    """The end of the day on which a run was requested: what was to start that day would start too late after it.

    A row that was let through with an earlier first day stays let through; without a day nothing is ever too late.
    """

    def __init__(self, day: date | None) -> None:
        self._day = day or date.max
        ends = datetime.combine(day + timedelta(days=1), datetime.min.time()) if day else None
        self._ends_s = ends.timestamp() if ends else math.inf

    @property
    def has_passed(self) -> bool:
        """Return whether another day has begun."""
        return time.time() >= self._ends_s

    def missed_by(self, payment: PendingPayment) -> bool:
        """Return whether a payment that was in time when the run was requested is too late now."""
        if not self.has_passed or payment.body.find(b'"recurringStartDate"') < 0:
            return False
        return self._is_missed(json.loads(payment.body)["recurring"]["recurringStartDate"])

    def missed(self, columns: RowColumns) -> list[bool]:
        """Return the same for rows of the ledger."""
        return _of_recurring(columns, self._is_missed)

    def _is_missed(self, start: object) -> bool:
        return self._day <= _start(start) < datetime.now().astimezone().date()


def start_has_passed(today: date) -> Fails:
    """Return which rows are recurring payments whose first day is before today: they would start too late."""
    return lambda columns: _of_recurring(columns, lambda start: _start(start) < today)


def _of_recurring(columns: RowColumns, fails: Callable[[object], bool]) -> list[bool]:
    """Apply a rule to the first day of each recurring payment; no other payment fails it."""
    found = [False] * len(columns.details)
    places = [place for place, text in enumerate(columns.details) if _MAY_RECUR in text]
    for place, details in zip(places, read_details([columns.details[place] for place in places]), strict=True):
        if details.get("recurringIndicator") == "TRUE":
            found[place] = fails(details.get("recurringStartDate"))
    return found


def above(max_cents: int) -> Fails:
    """Return which rows move more than a payment may."""
    return lambda columns: [cents > max_cents for cents in columns.amounts_cents]


def any_of(checks: Sequence[Fails]) -> Fails | None:
    """Combine several checks of the same rows; None if there are none."""
    if not checks:
        return None
    return lambda columns: [any(failed) for failed in zip(*(check(columns) for check in checks), strict=True)]


@lru_cache(maxsize=4096)
def _start(text: object) -> date:
    """Read a start date as RULES.md writes it; one that is not recorded is before every other."""
    if not isinstance(text, str):
        return date.min
    month, day, year = text.split("/")
    return date(int(year), int(month), int(day))
