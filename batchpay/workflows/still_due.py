"""What of a batch may still be sent without its file: not if nobody touched it for long, nor what fails today."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from batchpay.ledger.contract import CLOCK_BEHIND_MAX, Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import State, Totals
from batchpay.settings import Settings
from batchpay.workflows.held_back import Fails, above, any_of, start_has_passed
from batchpay.workflows.requests import max_amount_cents

_DAY = timedelta(days=1)
_COUNTED = (State.PENDING, State.SENDING, State.ACCEPTED, State.IN_DOUBT)
"""A row in one of these states is paid, or may still be."""


def untouched_days(ledger: Ledger, batch: str) -> int:
    """Count the whole days since the last event of a batch."""
    return (datetime.now(UTC) - ledger.last_event_at(batch)) // _DAY


def is_stale(ledger: Ledger, batch: str, stale_days: int) -> bool:
    """Return whether nobody has touched a batch for so long that a person must say whether it is still to be paid."""
    return untouched_days(ledger, batch) >= stale_days


def fails_today(ledger: Ledger, batch: BatchSummary, settings: Settings) -> Fails | None:
    """Return today's rules that can be applied without the file: start dates, a payment's limit, what was let through.

    A bill that was sent with another file since, which a person let through as a duplicate, is not paid here as well.
    """
    looks = []
    if (elsewhere := repeated(ledger, batch)) is not None:
        looks.append(elsewhere)
    today, (first_start, largest_cents) = datetime.now().astimezone().date(), _extremes(ledger, batch)
    if settings.policy.refuses_past_start and first_start < today:
        looks.append(start_has_passed(today))
    if (most := max_amount_cents(settings)) is not None and largest_cents > most:
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
