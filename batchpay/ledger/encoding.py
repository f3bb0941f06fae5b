"""How words of the ledger are written in tables: directions, row ids, times."""

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
    """Give the id of a batch's row."""
    return batch << ROWS_BITS | row


def id_range(batch: int) -> tuple[int, int]:
    """Give the ids between which (first included, last not) all rows of a batch lie."""
    return batch << ROWS_BITS, batch + 1 << ROWS_BITS


def now_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970 of an aware moment."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def to_datetime(milliseconds: int) -> datetime:
    """Give the moment of a stored time."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def maybe_datetime(milliseconds: int | None) -> datetime | None:
    """Give the moment of a stored time that may be missing."""
    return None if milliseconds is None else to_datetime(milliseconds)
