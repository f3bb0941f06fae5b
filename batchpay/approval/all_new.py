"""What the valid rows of a file would send if all of them are new; counted as they pass the rules."""

from __future__ import annotations

from datetime import date

import polars as pl

from batchpay.approval.cash_flow import Schedule, grouped
from batchpay.approval.to_send import Origin, ToSend
from batchpay.approval.to_send_count import ToSendCount

_GROUPS_AT_ONCE = 50_000
"""How many groups wait to be counted: most chunks of a file have the same ones, and counting takes a step for each."""


class AllNew:
    """Totals, days and digest of rows that come chunk by chunk, with the columns of CASH_FLOW and `_cents`."""

    def __init__(self, as_of: date) -> None:
        self._schedule, self._count = Schedule(as_of), ToSendCount()
        self._waiting: list[pl.DataFrame] = []
        self._waiting_groups = 0

    def add(self, rows: pl.DataFrame, *, times: int = 1) -> None:
        """Add rows that passed every rule evaluated so far; `times=-1` takes out rows that fail after all."""
        groups = grouped(rows, times=times)
        self._waiting.append(groups)
        self._waiting_groups += groups.height
        if self._waiting_groups >= _GROUPS_AT_ONCE:
            self._count_waiting()

    def finish(self, numbers: pl.Series) -> tuple[ToSend, Schedule]:
        """Return what is left; `numbers` are its row numbers in the file. Called once."""
        self._count_waiting()
        assert self._schedule.rows == len(numbers), "what failed later was taken out"
        self._count.note(Origin.NEW, numbers)
        return self._count.finish(), self._schedule

    def _count_waiting(self) -> None:
        if self._waiting:
            groups = pl.concat(self._waiting)
            self._schedule.add(groups)
            self._count.add(Origin.NEW, groups)
        self._waiting, self._waiting_groups = [], 0
