"""Days on which a line of an export can be about a row."""

from __future__ import annotations

from datetime import UTC, date

from batchpay.ledger.records import LedgerRow
from batchpay.reconciliation.statement import ExportLine

DAYS_BEFORE = 1
"""A line may be dated this many days before its row was sent: the other side's day begins at another time."""
DAYS_AHEAD = 1
"""A line may be dated this many days after today: the other side's day may have begun already."""


def day_of(row: LedgerRow) -> date | None:
    """The day on which a row was sent."""
    moment = row.sent_at or row.finished_at
    return moment.astimezone(UTC).date() if moment else None


def in_window(line: ExportLine, day: date | None, days: int) -> bool:
    """Whether a line's date fits a row of that day; an unknown one may be any day."""
    return line.on is None or day is None or -DAYS_BEFORE <= (line.on - day).days <= days
