"""The days on which a line can be about a row: from the day on which it was sent, whenever somebody settled it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from batchpay.ledger.records import LedgerRow
from batchpay.reconciliation.matching import day_of, in_window
from batchpay.reconciliation.statement import ExportMap, read_export
from tests.reconciliation.test_reconciliation import export
from tests.support.ledger_factory import Planned, add_batch, ledger_in

SENT, SETTLED = datetime(2026, 11, 23, 23, 30, tzinfo=UTC), datetime(2026, 12, 9, 9, 0, tzinfo=UTC)


@pytest.fixture
def row(tmp_path: Path) -> LedgerRow:
    with ledger_in(tmp_path) as ledger:
        return next(iter(ledger.rows(add_batch(ledger, [Planned(1)]))))


def test_a_row_is_of_the_day_on_which_it_was_sent(row: LedgerRow) -> None:
    """In UTC; a person's decision two weeks later is no other day, and one that was never sent has only that."""
    elsewhere = SENT.astimezone(timezone(timedelta(hours=9)))
    assert day_of(replace(row, sent_at=elsewhere, finished_at=SETTLED)) == date(2026, 11, 23)
    assert day_of(replace(row, sent_at=None, finished_at=SETTLED)) == date(2026, 12, 9)
    assert day_of(replace(row, sent_at=None, finished_at=None)) is None


@pytest.mark.parametrize(("day", "fits"), [(21, False), (22, True), (23, True), (28, True), (29, False)])
def test_a_line_fits_from_the_day_before_to_the_last_of_the_days(tmp_path: Path, day: int, fits: bool) -> None:
    """The other side's day may begin earlier."""
    path = export(tmp_path / "export.csv", [f"R1,INV-1,12.50,2026-11-{day},x6789,Settled"])
    (line,) = read_export(path, ExportMap()).lines
    assert in_window(line, SENT.date(), 5) is fits
    assert in_window(line, None, 5)
    line.on = None
    assert in_window(line, SENT.date(), 5)
