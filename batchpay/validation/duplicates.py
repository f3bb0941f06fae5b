"""What stands twice in a file of any size, by keyed digests.

Digests wait in an anonymous temporary file, never the texts themselves, so memory does not grow with the file. They are
keyed anew in every call. What counts as equal agrees in two digests of 64 bits under keys of their own: for 10 million
rows the odds that two different texts do so are below 1 in 10^24.
"""

from __future__ import annotations

import io
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import polars as pl

from batchpay.schemas.columns import GATEWAY_COLUMNS, PAYMENT_ID

TELLING = (
    "transactionType", "amount", "invoiceNumber", "billingInternalId", "billingEmail", "achNameOnCheck",
    "achAccountNumber", "achRoutingNumber", "recurringStartDate",
)  # fmt: skip
"""Columns in which two different payments hardly agree all at once: enough to find candidates."""
_DIGESTS_AT_ONCE = 1_000_000

Chunks = Callable[[], Iterator[pl.DataFrame]]


class FrameSpool:
    """Frames kept in the order of their coming in an anonymous temporary file, which lives as long as `storage`."""

    def __init__(self, storage: ExitStack) -> None:
        self._file = storage.enter_context(tempfile.TemporaryFile(prefix="batchpay-"))  # noqa: SIM115 (storage closes it)
        self._ends: list[int] = [0]

    def append(self, frame: pl.DataFrame) -> None:
        """Keep one more frame, if it has a row."""
        if not frame.height:
            return
        piece = io.BytesIO()
        frame.write_ipc_stream(piece)
        self._file.write(piece.getbuffer())
        self._ends.append(self._file.tell())

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            self._file.seek(start)
            yield pl.read_ipc_stream(io.BytesIO(self._file.read(end - start)))


class Digests:
    """Keyed digests of what must be unique, with the numbers of the rows that have it."""

    def __init__(self, texts: pl.Expr, storage: ExitStack) -> None:
        keys = secrets.randbits(63), secrets.randbits(63)
        self._digests = [texts.hash(key).alias(f"digest_{at}") for at, key in enumerate(keys)]
        self._spool = FrameSpool(storage)
        self._count = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Remember a chunk's rows."""
        if rows.height:
            self._spool.append(rows.select("_row", *self._digests))
            self._count += rows.height

    def repeated(self) -> pl.DataFrame:
        """`_row` of every row that shares its digests with another, and `_first`, the first row that has them."""
        parts = max(1, -(-self._count // _DIGESTS_AT_ONCE))
        found = [pl.DataFrame(schema={"_row": pl.UInt32, "_first": pl.UInt32})]
        for part in range(parts if self._count else 0):
            rows = pl.concat(frame.filter(pl.col("digest_0") % parts == part) for frame in self._spool)
            digests = rows.get_column("digest_0").sort()
            again = digests.filter(digests == digests.shift(1)).unique()
            alike = ["digest_0", "digest_1"]
            found.append(
                rows.filter(pl.col("digest_0").is_in(again.implode()))
                .with_columns(pl.col("_row").min().over(alike).alias("_first"))
                .filter(pl.len().over(alike) > 1)
                .select("_row", "_first")
            )
        return pl.concat(found)


class Uniqueness:
    """The two rules about several rows: paymentId is unique, and no row without one is alike another."""

    def __init__(self, storage: ExitStack, *, payment_ids: bool, rows: bool) -> None:
        self._ids = Digests(pl.col(PAYMENT_ID), storage) if payment_ids else None
        self._rows = Digests(pl.struct(TELLING), storage) if rows else None
        self._whole_rows = Digests(pl.struct(GATEWAY_COLUMNS), storage)

    def add(self, frame: pl.DataFrame, unfit_ids: pl.Series | None, unfit_rows: pl.Series | None) -> None:
        """Look at a chunk of the first pass, but not at paymentIds, nor at cells, that can't be compared."""
        without = frame.get_column(PAYMENT_ID).null_count()
        if self._ids is not None and without < frame.height:
            named = _fit(frame, unfit_ids)
            self._ids.add(named.filter(pl.col(PAYMENT_ID).is_not_null()) if without else named)
        if self._rows is not None and without:
            self._rows.add(_fit(frame, unfit_rows).filter(pl.col(PAYMENT_ID).is_null()))

    def duplicates(self, rows: int, chunks: Chunks) -> tuple[pl.Series, pl.Series]:
        """Row numbers of all rows that share a paymentId, and of each row alike an earlier one.

        `chunks` reads the file of so many rows once more; it is called only where rows agree in telling columns.
        """
        none = pl.Series(dtype=pl.UInt32)
        by_id = none if self._ids is None else self._ids.repeated().get_column("_row")
        candidates = none if self._rows is None else self._rows.repeated().get_column("_row")
        if candidates.is_empty():
            return by_id, none
        is_candidate = bits_of(rows, candidates)
        for frame in chunks():
            self._whole_rows.add(frame.filter(is_candidate.gather(frame.get_column("_row") - 1)))
        alike = self._whole_rows.repeated().filter(pl.col("_row") > pl.col("_first"))
        return by_id, alike.get_column("_row")


def _fit(frame: pl.DataFrame, unfit: pl.Series | None) -> pl.DataFrame:
    return frame.filter(~unfit) if unfit is not None and unfit.any() else frame


def bits_of(rows: int, true: pl.Series) -> pl.Series:
    """One bit for each of so many rows, true for the ones named by number."""
    bits = pl.repeat(value=False, n=rows, dtype=pl.Boolean, eager=True)
    return bits.scatter(true - 1, values=True) if len(true) else bits
