"""Pending rows that fail today's rules: they stay pending, are not sent, and are reported.

Also what of a batch may still be sent without its file: not if nobody touched it for long.

Plain Python: what sends imports neither polars nor pandera.
"""

from __future__ import annotations

import json
import math
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

from batchpay.ledger.contract import CLOCK_BEHIND_MAX, Ledger
from batchpay.ledger.records import BatchSummary, PendingPayment, RowColumns, read_details
from batchpay.payment import State, Totals
from batchpay.settings import Settings

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


def find_held_back(ledger: Ledger, batch: str, fails: Fails | None, day: date) -> HeldBack:
    """Check the pending rows of a batch that are due on a day; `fails` is None if nothing can have changed since."""
    held = HeldBack()
    if fails is None:
        return held
    for columns in ledger.row_columns(batch, [State.PENDING], due=day):
        for row, cents, failed in zip(columns.rows, columns.amounts_cents, fails(columns), strict=True):
            if failed:
                held.add(row, cents)
    return held


class Midnight:
    """The end of the day on which a run was requested: what was to start that day would start too late after it.

    A row that was let through with an earlier first day stays let through; without a day nothing is ever too late.
    """

    def __init__(self, day: date | None, zone: tzinfo | None = None) -> None:
        """`zone` is where the day ends; this machine's if None."""
        self._day, self._zone = day or date.max, zone
        ends = datetime.combine(day + timedelta(days=1), datetime.min.time(), zone) if day else None
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
        return self._day <= _start(start) < datetime.now(UTC).astimezone(self._zone).date()


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


_DAY = timedelta(days=1)
_COUNTED = (State.PENDING, State.SENDING, State.ACCEPTED, State.IN_DOUBT)
"""A row in one of these states is paid, or may still be."""


def untouched_days(ledger: Ledger, batch: str) -> int:
    """Count the whole days since the last event of a batch."""
    return (ledger.now() - ledger.last_event_at(batch)) // _DAY


def stale(ledger: Ledger, batch: BatchSummary, stale_days: int) -> Totals:
    """Return the due rows of which a person must say whether they are still to be paid.

    Nobody has touched their batch for so long, and so long ago their day came, if they have one.
    """
    if not batch.due.rows or untouched_days(ledger, batch.batch) < stale_days:
        return Totals()
    return batch.due_by(batch.today - timedelta(days=stale_days))


def is_stale(ledger: Ledger, batch: BatchSummary, stale_days: int) -> bool:
    """Return whether all that is due of a batch waits for a person's word."""
    return batch.due.rows > 0 and stale(ledger, batch, stale_days) == batch.due


def due_before(ledger: Ledger, batch: BatchSummary, day: date) -> Fails:
    """Return which pending rows of a batch were due by a day."""
    rows = {row for columns in ledger.row_columns(batch.batch, [State.PENDING], due=day) for row in columns.rows}
    return lambda columns: [row in rows for row in columns.rows]


def fails_today(ledger: Ledger, batch: BatchSummary, settings: Settings) -> Fails | None:
    """Return today's rules that need no file: start dates, a limit, what was let through, what came back.

    A bill that was sent with another file since, which a person let through as a duplicate, is not paid here as well.
    """
    from batchpay.workflows.returned_accounts import pays_returned_accounts  # reads the table of codes

    looks = [look for look in (repeated(ledger, batch), pays_returned_accounts(ledger, batch)) if look is not None]
    today, (first_start, largest_cents) = ledger.today(), _extremes(ledger, batch)
    if settings.policy.refuses_past_start and first_start < today:
        looks.append(start_has_passed(today))
    if (most := settings.max_amount_cents) is not None and largest_cents > most:
        looks.append(above(most))
    return any_of(looks)


def _extremes(ledger: Ledger, batch: BatchSummary) -> tuple[date, float]:
    """Return a day before which no row starts, and cents that none exceeds: then no row has to be checked.

    They were recorded when the batch was registered, but not by the first versions, nor for rows released since.
    """
    options = batch.options
    if "largest_cents" not in options or (ledger.latest_event("released") and _releases(ledger, batch.batch)):
        return date.min, math.inf
    first_start = options["first_start"]
    return date.max if first_start is None else date.fromisoformat(first_start), options["largest_cents"]


def _releases(ledger: Ledger, batch: str) -> list[dict[str, Any]]:
    """Return what the history says of each release of a batch's rows; it has an event per commit, so check first."""
    return [json.loads(event.detail) for event in ledger.events(batch) if event.kind == "released"]


def repeated(ledger: Ledger, batch: BatchSummary) -> Fails | None:
    """Return which rows another batch repeats that were let through there, and not declined.

    None if there are none, or if no row of the batch waits, or may wait again once a run has begun.
    """
    found, is_cut_off = _repeats(ledger, batch, _COUNTED)
    if not found:
        return None
    # Beyond those listed it is not known which: the file shows it, and submitting the file reports it.
    return lambda columns: [is_cut_off or row in found for row in columns.rows]


def paid_elsewhere(ledger: Ledger, batch: BatchSummary) -> Totals:
    """Return which rows of a batch wait for good, as far as is known: another batch repeats them and paid them."""
    found, _ = _repeats(ledger, batch, [State.ACCEPTED])
    rows = (
        cents
        for columns in (ledger.row_columns(batch.batch, [State.PENDING]) if found else ())
        for row, cents in zip(columns.rows, columns.amounts_cents, strict=True)
        if row in found
    )
    return sum((Totals(1, cents) for cents in rows), Totals())


def rows_set_aside(ledger: Ledger, batch: BatchSummary) -> int:
    """Count the rows in sending, by no run, to which an answer was set aside: the next run records it first."""
    if not batch.by_state[State.SENDING].rows or ledger.is_held(batch.digest):
        return 0
    now = ledger.find(batch.batch)  # a run may have ended since
    answered = now.by_state[State.SENDING].rows - len(ledger.abandoned(now))
    return 0 if ledger.is_held(batch.digest) else answered  # nor has one begun, for which no row is abandoned


def _repeats(ledger: Ledger, batch: BatchSummary, states: Sequence[State]) -> tuple[set[int], bool]:
    """Return which rows of a batch others repeat by rows in these states, let through there; whether there are more."""
    found: set[int] = set()
    if not batch.by_state[State.PENDING].rows and not batch.by_state[State.SENDING].rows:
        return found, False
    is_cut_off = False
    released = ledger.latest_event("released")
    for other in ledger.batches():
        allowed = [other.options.get("allowed_duplicates")]
        if released is not None and released.at >= batch.registered_at - CLOCK_BEHIND_MAX:
            allowed += [detail.get("allowed_duplicates") for detail in _releases(ledger, other.batch)]
        pairs: dict[int, int] = {}
        for one in filter(None, allowed):
            here = {pair["row"]: pair["earlier_row"] for pair in one["list"] if pair["batch"] == batch.batch}
            is_cut_off |= bool(here) and one["rows"] > len(one["list"])
            pairs |= here
        for columns in ledger.row_columns(other.batch, states) if pairs else ():
            found.update(pairs[row] for row in columns.rows if row in pairs)
    return found, is_cut_off
