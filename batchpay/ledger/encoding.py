"""How values of the ledger are written in tables: directions, row ids, times."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from batchpay.payment import Direction

DIRECTION_CODES = {Direction.DEBIT.value: 1, Direction.CREDIT.value: 2}
DIRECTIONS = {code: word for word, code in DIRECTION_CODES.items()}

ROWS_BITS = 32
"""A row's id is its batch's number shifted by this, plus its row number."""
ROW_MASK = (1 << ROWS_BITS) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_id(batch: int, row: int) -> int:
    """Return the id of a batch's row."""
    return batch << ROWS_BITS | row


def id_range(batch: int) -> tuple[int, int]:
    """Return the range of ids (first included, last not) that contains all rows of a batch."""
    return batch << ROWS_BITS, batch + 1 << ROWS_BITS


def now_ms() -> int:
    """Return the milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def to_ms(moment: datetime) -> int:
    """Convert an aware datetime to milliseconds since 1970."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def to_datetime(milliseconds: int) -> datetime:
    """Convert a stored time to a datetime."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def maybe_datetime(milliseconds: int | None) -> datetime | None:
    """Convert a stored time that may be missing to a datetime."""
    return None if milliseconds is None else to_datetime(milliseconds)
