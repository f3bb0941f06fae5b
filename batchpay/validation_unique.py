"""What stands twice in a file of any size: keyed 64-bit digests first, then an exact look at the few candidates.

Digests wait in an anonymous temporary file, never the texts themselves, so memory does not grow with the file. They are
keyed anew in every call.
"""

from __future__ import annotations

import io
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import polars as pl

from batchpay.schemas.columns import GATEWAY_COLUMNS, PAYMENT_ID

_TELLING = (
    "transactionType", "amount", "invoiceNumber", "billingInternalId", "billingEmail", "achNameOnCheck",
    "achAccountNumber", "achRoutingNumber", "recurringStartDate",
)  # fmt: skip
"""Columns in which two different payments hardly agree all at once: enough to find candidates."""
_DIGESTS_AT_ONCE = 2_000_000
_ROWS_AT_ONCE = 200_000

Chunks = Callable[[], Iterator[pl.DataFrame]]


class FrameSpool:
    """Frames kept in the order of their coming in an anonymous temporary file, which lives as long as `storage`."""

    def __init__(self, storage: ExitStack) -> None:
        self._file = storage.enter_context(tempfile.TemporaryFile(prefix="batchpay-"))  # noqa: SIM115 (storage closes it)
        self._ends: list[int] = [0]

    def append(self, frame: pl.DataFrame) -> None:
        """Keep one more frame."""
        piece = io.BytesIO()
        frame.write_ipc_stream(piece)
        self._file.write(piece.getbuffer())
        self._ends.append(self._file.tell())

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            self._file.seek(start)
            yield pl.read_ipc_stream(io.BytesIO(self._file.read(end - start)))


class Digests:
    """Keyed digests of what must be unique, one for each row that has it."""

    def __init__(self, texts: pl.Expr, storage: ExitStack) -> None:
        self.expression = texts.hash(secrets.randbits(63)).alias("digest")
        self._spool = FrameSpool(storage)
        self._count = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Remember a chunk's rows."""
        if rows.height:
            self._spool.append(rows.select(self.expression))
            self._count += rows.height

    def repeated(self) -> tuple[pl.Series, int]:
        """Digests that came more than once, and how many rows they stand for."""
        parts = -(-self._count // _DIGESTS_AT_ONCE)
        found, rows = [], 0
        for part in range(parts):
            pieces = [
                frame["digest"].filter(frame["digest"] % parts == part) if parts > 1 else frame["digest"]
                for frame in self._spool
            ]
            digests = pl.concat(pieces).sort()
            again = digests.filter(digests == digests.shift(1))
            found.append(again.unique())
            rows += len(again) + len(found[-1])
        return (pl.concat(found) if found else pl.Series(dtype=pl.UInt64)), rows


class Uniqueness:
    """The two rules about several rows: paymentId is unique, and no row without one is alike another."""

    def __init__(self, storage: ExitStack, *, payment_ids: bool, rows: bool) -> None:
        self._ids = Digests(pl.col(PAYMENT_ID), storage) if payment_ids else None
        self._rows = Digests(pl.struct(_TELLING), storage) if rows else None

    def add(self, frame: pl.DataFrame) -> None:
        """Look at a chunk of the first pass."""
        if self._ids is not None:
            self._ids.add(frame.filter(pl.col(PAYMENT_ID).is_not_null()))
        if self._rows is not None:
            self._rows.add(frame.filter(pl.col(PAYMENT_ID).is_null()))

    def duplicates(self, chunks: Chunks) -> tuple[pl.Series, pl.Series]:
        """Row numbers of all rows that share a paymentId, and of each row alike an earlier one.

        `chunks` reads the file once more, without rows and cells that can't be compared; it is not called where no
        digest came twice.
        """
        return (
            _exact(self._ids, chunks, [PAYMENT_ID], pl.col(PAYMENT_ID).is_not_null(), all_copies=True),
            _exact(self._rows, chunks, GATEWAY_COLUMNS, pl.col(PAYMENT_ID).is_null(), all_copies=False),
        )


def _exact(
    digests: Digests | None, chunks: Chunks, columns: Sequence[str], applies: pl.Expr, *, all_copies: bool
) -> pl.Series:
    """Compare the texts behind repeated digests and give the row numbers; what was seen is held, not its copies."""
    found = [pl.Series(dtype=pl.UInt32)]
    if digests is None:
        return found[0]
    repeated, rows = digests.repeated()
    parts = -(-rows // _ROWS_AT_ONCE)
    for part in range(parts):
        now = repeated.filter(repeated % parts == part)
        if now.is_empty():
            continue
        is_candidate = applies & digests.expression.is_in(now.implode())
        seen = pl.DataFrame()
        for frame in chunks():
            candidates = frame.filter(is_candidate).select("_row", *columns)
            if not candidates.height:
                continue
            both = (seen.vstack(candidates) if seen.height else candidates).with_columns(
                pl.col("_row").min().over(columns).alias("_first")
            )
            copies = both.filter(pl.col("_row") != pl.col("_first"))
            found += [copies["_row"], copies["_first"]] if all_copies else [copies["_row"]]
            seen = both.filter(pl.col("_row") == pl.col("_first")).drop("_first")
    return pl.concat(found)
