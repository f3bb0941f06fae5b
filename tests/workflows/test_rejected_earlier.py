"""Which rejected rows a release may send, and how far back the check for earlier payments goes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from batchpay.payment import Totals
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.options import RuleOptions
from batchpay.workflows import earlier_payments
from batchpay.workflows.earlier_payments import RejectedEarlier, how_to_release

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def rejected(purged_at: datetime | None = None) -> RejectedEarlier:
    """Return rows 2 and 5 of a present batch: 10.00, and one whose amount could not be read."""
    rows = [SimpleNamespace(row=row, amount_cents=cents, reasons=["why"]) for row, cents in ((2, 1_000), (5, None))]
    ledger: Any = SimpleNamespace(rejected=lambda batch: rows)
    batch: Any = SimpleNamespace(batch="b", registered_at=NOW, purged_at=purged_at)
    return RejectedEarlier(ledger, batch)


@pytest.mark.parametrize(
    ("cents", "purged_at", "released"),
    [([1_000, 700], None, 1_000), ([1_001, 700], None, 0), ([1_000, 700], NOW, 0)],
)
def test_only_the_amount_that_was_rejected_is_released(
    cents: list[int], purged_at: datetime | None, released: int
) -> None:
    """A row with a different amount today is a different payment; a purged batch has nothing to compare it with."""
    same, totals = rejected(purged_at).releasable(pl.Series([2, 5], dtype=pl.UInt32), pl.Series(cents, dtype=pl.Int64))
    assert totals == Totals(1 if released else 0, released)
    assert same.fill_null(value=False).to_list() == [bool(released), False]


@pytest.mark.parametrize(("passed", "days"), [(0, 4), (1, 5), (30, 34), (-2, 3)])
def test_the_check_goes_back_to_before_the_batch_was_registered(passed: int, days: int) -> None:
    """Whatever came in while the row was rejected is checked; a clock that was set back doesn't shorten that."""
    assert rejected().days_until(NOW + timedelta(days=passed), 3) == days


TODAY = date(2026, 5, 4)


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        (RuleOptions(TODAY), "--release --reason TEXT"),
        (RuleOptions(TODAY, normalize=True, allow_open_ended=True),
         "--release --allow-open-ended --normalize --reason TEXT"),
        (RuleOptions(TODAY, accept_suggestions=suggesting_rules()), "--release --accept-suggestions --reason TEXT"),
        (RuleOptions(date(2026, 1, 5), accept_suggestions=frozenset(["b.c", "a.b"])),
         "--release --accept-suggestions=a.b,b.c --as-of 2026-01-05 --reason TEXT"),
    ],
)  # fmt: skip
def test_the_options_that_made_a_row_valid_release_it(
    monkeypatch: pytest.MonkeyPatch, rules: RuleOptions, options: str
) -> None:
    """Without them the release checks the row as it was rejected, and leaves it."""
    today = datetime.combine(TODAY, datetime.min.time()).astimezone()
    monkeypatch.setattr(earlier_payments, "datetime", SimpleNamespace(now=lambda: today))
    assert how_to_release(rules) == options
