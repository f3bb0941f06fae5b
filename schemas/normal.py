"""What `--normalize` repairs, and nothing else: white space at the ends, letter case of a closed list, decimals."""

from __future__ import annotations

import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.columns import COLUMNS, MONEY
from batchpay.schemas.tables import CHOICES, STATES

_STATES = {"billingState": "billingCountry", "shippingState": "shippingCountry"}


def normalize(frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Repair the known columns that the frame has; also return how many cells of each column were changed."""
    present = [column for column in COLUMNS if column in frame.columns]
    repaired = frame.with_columns(checks.trimmed(pl.col(column)) for column in present)
    repaired = repaired.with_columns(
        [_in_capitals(column) for column in present if column in CHOICES]
        + [_with_decimals(column) for column in present if column in MONEY]
    )
    repaired = repaired.with_columns(
        [_state_in_capitals(column, _STATES[column], repaired) for column in present if column in _STATES]
    )
    changed = {column: int(frame[column].ne_missing(repaired[column]).sum()) for column in present}
    return repaired, {column: count for column, count in changed.items() if count}


def _in_capitals(column: str) -> pl.Expr:
    cell = pl.col(column)
    return pl.coalesce(checks.member_in_capitals(cell, CHOICES[column]), cell)


def _with_decimals(column: str) -> pl.Expr:
    cell = pl.col(column)
    return pl.coalesce(checks.with_decimals(cell), cell)


def _state_in_capitals(state: str, country: str, frame: pl.DataFrame) -> pl.Expr:
    cell = pl.col(state)
    of = pl.col(country) if country in frame.columns else pl.lit(None, pl.String)
    return pl.coalesce(checks.state_in_capitals(cell, of, STATES), cell)
