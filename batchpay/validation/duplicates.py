"""What stands twice in a file of any size, by keyed digests.

Digests wait in an anonymous temporary file, never the texts themselves, so memory does not grow with the file. They are
keyed anew in every call. What counts as equal agrees in two digests of 64 bits under keys of their own: for 10 million
rows the odds that two different texts do so are below 1 in 10^24.
"""

from __future__ import annotations

import io
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import polars as pl

from batchpay.schemas.identity import identities

_DIGESTS = ("digest_0", "digest_1")
_DIGESTS_AT_ONCE = 1_000_000


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
    """Keyed digests of texts that may stand twice, with what is kept of the rows that have them."""

    def __init__(self, storage: ExitStack) -> None:
        self._keys = secrets.randbits(63), secrets.randbits(63)
        self._spool = FrameSpool(storage)
        self._count = 0

    def add(self, rows: pl.DataFrame, text: str) -> None:
        """Remember a chunk's rows that have the column `text`; of that column only digests are kept."""
        digests = [pl.col(text).hash(key).alias(name) for name, key in zip(_DIGESTS, self._keys, strict=True)]
        some = rows.filter(pl.col(text).is_not_null())
        self._spool.append(some.select(pl.exclude(text), *digests))
        self._count += some.height

    def repeated(self) -> Iterator[pl.DataFrame]:
        """Give the rows whose text stands more than once, in row order within each text."""
        parts = max(1, -(-self._count // _DIGESTS_AT_ONCE))
        for part in range(parts if self._count else 0):
            rows = pl.concat(frame.filter(pl.col("digest_0") % parts == part) for frame in self._spool)
            digests = rows.get_column("digest_0").sort()
            again = digests.filter(digests == digests.shift(1)).unique()
            some = rows.filter(pl.col("digest_0").is_in(again.implode()))
            yield some.filter(pl.len().over(_DIGESTS) > 1).sort("_row")


@dataclass(frozen=True, slots=True)
class Repeats:
    """What stands twice in a file."""

    payment_ids: pl.Series
    """Numbers of all rows that share a paymentId with another."""
    bills: pl.DataFrame
    """`_row` and `_first` of each row that repeats the bill of an earlier one, and `named`: whether each of them so far
    has a paymentId of its own."""


class Uniqueness:
    """What several rows must not share: a paymentId, or a bill (batchpay.schemas.identity)."""

    def __init__(self, storage: ExitStack) -> None:
        self._ids, self._bills = Digests(storage), Digests(storage)
        self._key = secrets.randbits(63)

    def add(self, frame: pl.DataFrame, unfit_ids: pl.Series | None, unfit_rows: pl.Series | None) -> None:
        """Look at a chunk of the first pass, but not at paymentIds, nor at cells, that can't be compared."""
        found = identities(frame)
        self._ids.add(_fit(found, unfit_ids).select("_row", "payment_id"), "payment_id")
        bills = _fit(found, unfit_rows).select("_row", "bill", pl.col("payment_id").hash(self._key))
        named = pl.when(_fit(found, unfit_rows)["payment_id"].is_not_null()).then(pl.col("payment_id"))
        self._bills.add(bills.with_columns(payment_id=named), "bill")

    def repeats(self) -> Repeats:
        """Tell, after the last chunk, what stands twice."""
        no_rows = pl.DataFrame(schema={"_row": pl.UInt32, "_first": pl.UInt32, "named": pl.Boolean})
        ids = [frame["_row"] for frame in self._ids.repeated()]
        return Repeats(
            pl.concat([no_rows["_row"], *ids]), pl.concat([no_rows, *map(_repeated_bills, self._bills.repeated())])
        )


def _repeated_bills(rows: pl.DataFrame) -> pl.DataFrame:
    nameless = pl.col("payment_id").is_null()
    again = pl.int_range(pl.len()).over(*_DIGESTS, "payment_id") > 0
    return (
        rows.select(
            "_row",
            pl.col("_row").first().over(_DIGESTS).alias("_first"),
            named=(nameless.cast(pl.UInt32).cum_sum().over(_DIGESTS) == 0) & ~again,
            later=pl.int_range(pl.len()).over(_DIGESTS) > 0,
        )
        .filter("later")
        .drop("later")
    )


def _fit(frame: pl.DataFrame, unfit: pl.Series | None) -> pl.DataFrame:
    return frame.filter(~unfit) if unfit is not None and unfit.any() else frame


def bits_of(rows: int, true: pl.Series) -> pl.Series:
    """One bit for each of so many rows, true for the ones named by number."""
    bits = pl.repeat(value=False, n=rows, dtype=pl.Boolean, eager=True)
    return bits.scatter(true - 1, values=True) if len(true) else bits
