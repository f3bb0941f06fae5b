"""How words of the ledger are written in its tables: states, directions, row ids, times, sets of rows."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
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


def write_ranges(rows: Iterable[int]) -> str:
    """Write row numbers compactly: 1, 2, 3, 7 -> `1-3,7`."""
    parts: list[str] = []
    first = last = -1
    for row in sorted(rows):
        if row == last + 1 and parts:
            last = row
            parts[-1] = f"{first}-{last}"
        else:
            first = last = row
            parts.append(str(row))
    return ",".join(parts)


def read_ranges(text: str) -> Iterator[int]:
    """Read what `write_ranges` wrote; raises ValueError."""
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def digest_numbers(digests: Sequence[bytes]) -> list[int]:
    """Give the first eight bytes of keyed digests of 16 bytes as signed numbers: half the space, twice the speed.

    Two different payments share a number with a chance of 1 in 2^64 a pair; one would be held back, not paid twice.
    """
    return [number for (number,) in struct.iter_unpack(">q8x", b"".join(digests))]
