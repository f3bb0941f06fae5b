"""The payload of a chunk: texts of a few hundred rows, compressed together, then encrypted."""

from __future__ import annotations

import io
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import date
from itertools import groupby
from typing import Any

import zstandard

from batchpay.errors import LedgerDamaged
from batchpay.ledger.columns import CHUNK_ROWS, PackedTexts, PaymentColumns
from batchpay.ledger.database import Store, View
from batchpay.ledger.keys import Keys
from batchpay.text import counted, write_ranges

_BODIES = zstandard.ZstdCompressionParameters.from_level(3, hash_log=14, chain_log=13, min_match=7)
"""With this, bodies take 124 bytes a row; at level 5 they take 103, for 3 more microseconds a row.

The tables are an eighth of the level's own size: they leave the processor's cache to others, and take no more bytes.
"""
_DETAILS = zstandard.ZstdCompressionParameters.from_level(1)
_PLAIN_BYTES_MAX = 1 << 30
_CHUNKS_KEPT = 4


def place_of(kind: str, batch: int, chunk: int) -> str:
    """Return the name of a payload's place; it is authenticated, so that a payload moved elsewhere can't be read."""
    return f"{kind} of chunk {chunk} of batch {batch}"


def _packed(rows: Sequence[int], texts: PackedTexts, days: Sequence[int | None] = ()) -> bytes:
    """Put texts after their row numbers and lengths; then, where any row has one, the day of each, 0 for none."""
    lists = ((len(rows),), rows, texts.lengths)
    last = (array("I", [day or 0 for day in days]),) if any(days) else ()
    return b"".join((*(array("I", numbers) for numbers in lists), *texts.pieces, *last))


def sealed_chunks(
    keys: Keys, batch: int, payments: PaymentColumns, first: int
) -> Iterator[tuple[int, Sequence[int], bytes, bytes]]:
    """Yield for each chunk, numbered from `first`, its rows and their sealed bodies and details."""
    starts = range(0, len(payments.rows), CHUNK_ROWS)
    texts = zip(starts, payments.bodies.parts(CHUNK_ROWS), payments.details.parts(CHUNK_ROWS), strict=True)
    of_bodies, of_details = (zstandard.ZstdCompressor(compression_params=of) for of in (_BODIES, _DETAILS))
    for chunk, (start, bodies, details) in enumerate(texts, first):
        rows, days = payments.rows[start : start + CHUNK_ROWS], payments.pay_on[start : start + CHUNK_ROWS]
        sealed_bodies = keys.seal(of_bodies.compress(_packed(rows, bodies, days)), place_of("bodies", batch, chunk))
        sealed_details = keys.seal(of_details.compress(_packed(rows, details)), place_of("details", batch, chunk))
        yield chunk, rows, sealed_bodies, sealed_details


def unseal_bodies(keys: Keys, place: str, sealed: bytes) -> tuple[dict[int, bytes], dict[int, int]]:
    """Return the texts of a chunk by row, and the days of those that have one; raises LedgerDamaged."""
    return texts_in(unsealed(keys, place, sealed), place)


def unsealed(keys: Keys, place: str, sealed: bytes) -> bytes:
    """Return a chunk's payload, with its texts end to end; raises LedgerDamaged."""
    compressed = keys.unseal(sealed, place)
    try:
        return zstandard.ZstdDecompressor().decompress(compressed, max_output_size=_PLAIN_BYTES_MAX)
    except zstandard.ZstdError:
        raise LedgerDamaged(f"the ledger is damaged: {place} can't be read") from None


def texts_in(plain: bytes, place: str) -> tuple[dict[int, bytes], dict[int, int]]:
    """Return what `unseal_bodies` does, of a payload that is decrypted."""
    count = int.from_bytes(plain[:4], "little")
    header = array("I")
    header.frombytes(plain[4 : 4 + 8 * count])
    stream = io.BytesIO(plain)
    stream.seek(4 + 8 * count)
    texts = dict(zip(header[:count], map(stream.read, header[count:]), strict=True))
    days = array("I", stream.read())
    if len(days) not in (0, count):
        raise LedgerDamaged(f"the ledger is damaged: {place} can't be read")
    return texts, {row: day for row, day in zip(header, days, strict=False) if day}


class Bodies:
    """Request bodies of one batch, read a chunk at a time; those of a few chunks are kept.

    With them is sealed on which day each row is due: a day that was changed in a table sends nothing early.
    """

    def __init__(self, keys: Keys, batch: int, read: Callable[[int], bytes | None], day: date) -> None:
        """`read` returns what the ledger has sealed for a chunk; None if nothing. `day` is that of the run."""
        self._keys, self._batch, self._read, self._day = keys, batch, read, day.toordinal()
        self._kept: dict[int, tuple[dict[int, bytes], dict[int, int]]] = {}

    def of(self, rows: Sequence[int], chunks: Sequence[int]) -> list[bytes]:
        """Return the bodies of due rows, by their chunks; raises LedgerDamaged if one has none, or isn't due."""
        bodies: list[bytes] = []
        for chunk, some in groupby(chunks):  # rows of a chunk follow each other
            first, (texts, days) = len(bodies), self._of_chunk(chunk)
            of_chunk = rows[first : first + len(list(some))]
            try:
                bodies += map(texts.__getitem__, of_chunk)
            except KeyError as row:
                raise LedgerDamaged(f"the ledger is damaged: row {row} is pending, and its body is missing") from None
            if days and (early := [row for row in of_chunk if days.get(row, 0) > self._day]):
                raise LedgerDamaged(
                    f"the ledger is damaged: rows {write_ranges(early)} were registered for a later day"
                )
        return bodies

    def _of_chunk(self, chunk: int) -> tuple[dict[int, bytes], dict[int, int]]:
        found = self._kept.get(chunk)
        if found is None:
            sealed = self._read(chunk)
            found = unseal_bodies(self._keys, place_of("bodies", self._batch, chunk), sealed) if sealed else ({}, {})
            while len(self._kept) >= _CHUNKS_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[chunk] = found
        return found


def payload_problems(store: Store, view: View) -> Iterator[str]:
    """Report payloads that can't be read, and pending rows whose day is not the one that was registered.

    Bodies are to exist exactly as long as a row may still be sent, and texts until they are purged.
    """
    statements = store.statements
    if wrong := view.execute(statements.CHUNKS_UNLIKE_ROWS).fetchone()[0]:
        fit = counted(wrong, "chunk of payloads does not fit its rows", "chunks of payloads do not match their rows")
        yield f"the ledger is damaged: {fit}"
    if left := view.execute(statements.TEXTS_OF_PURGED).fetchone()[0]:
        have = counted(left, "answer of a purged batch has a text", "answers of purged batches have texts")
        yield f"the ledger is damaged: {have}"
    dated = set(view.execute(statements.CHUNKS_WITH_DAYS).fetchall())
    for kind, payloads in (("bodies", statements.BODIES), ("details", statements.DETAILS)):
        for batch, chunk, sealed in store.stream(view, payloads):
            try:
                texts, days = unseal_bodies(store.keys, place_of(kind, batch, chunk), sealed)
            except LedgerDamaged as error:
                yield str(error)
                continue
            if kind == "bodies" and (days or (batch, chunk) in dated):
                asked = {"batch": batch, "chunk": chunk, "first": min(texts), "last": max(texts)}
                rows = view.execute(statements.PENDING_DAYS_OF_CHUNK, asked).fetchall()
                if any(days.get(row) != day for row, day in rows):
                    yield f"the ledger is damaged: the days of chunk {chunk} of batch {batch} are not those registered"


def pick(payments: PaymentColumns, places: Sequence[int]) -> PaymentColumns:
    """Return only the rows at these positions, from 0."""
    chosen: dict[str, Any] = {}
    for name in (field.name for field in fields(PaymentColumns)):
        column = getattr(payments, name)
        if isinstance(column, PackedTexts):
            texts = column.each()
            chosen[name] = PackedTexts.of(texts[place] for place in places)
        else:
            chosen[name] = [column[place] for place in places] if column else ()
    return PaymentColumns(**chosen)
