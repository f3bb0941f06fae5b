"""What the valid rows of a file would send if all of them are new; counted as they pass the rules."""

from __future__ import annotations

from datetime import date

import polars as pl

from batchpay.approval.cash_flow import Schedule
from batchpay.approval.to_send import Origin, ToSend
from batchpay.approval.to_send_count import ToSendCount


class AllNew:
    """Totals, days and digest of rows that come chunk by chunk, with the columns of CASH_FLOW and `_cents`."""

    def __init__(self, as_of: date) -> None:
        self._schedule, self._count = Schedule(as_of), ToSendCount()

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows that passed every rule evaluated so far."""
        self._schedule.add(rows)
        self._count.count(Origin.NEW, rows)

    def take_out(self, rows: pl.DataFrame) -> None:
        """Subtract rows that fail after all."""
        self._schedule.add(rows, times=-1)
        self._count.count(Origin.NEW, rows, times=-1)

    def finish(self, numbers: pl.Series) -> tuple[ToSend, Schedule]:
        """Return what is left; `numbers` are its row numbers in the file. Called once."""
        assert self._schedule.rows == len(numbers), "what failed later was taken out"
        self._count.note(Origin.NEW, numbers)
        return self._count.finish(), self._schedule
