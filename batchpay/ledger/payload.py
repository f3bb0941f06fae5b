"""The payload of a chunk: texts of a few hundred rows, compressed together, then encrypted."""

from __future__ import annotations

import io
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import zstandard

from batchpay.errors import LedgerDamaged
from batchpay.ledger.columns import CHUNK_ROWS, PackedTexts, PaymentColumns
from batchpay.ledger.keys import Keys

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


def _packed(rows: Sequence[int], texts: PackedTexts) -> bytes:
    """Put texts after their row numbers and lengths."""
    return b"".join((array("I", (len(rows),)), array("I", rows), array("I", texts.lengths), *texts.pieces))


def sealed_chunks(
    keys: Keys, batch: int, payments: PaymentColumns, first: int
) -> Iterator[tuple[int, Sequence[int], bytes, bytes]]:
    """Yield for each chunk, numbered from `first`, its rows and their sealed bodies and details."""
    starts = range(0, len(payments.rows), CHUNK_ROWS)
    texts = zip(starts, payments.bodies.parts(CHUNK_ROWS), payments.details.parts(CHUNK_ROWS), strict=True)
    of_bodies, of_details = (zstandard.ZstdCompressor(compression_params=of) for of in (_BODIES, _DETAILS))
    for chunk, (start, bodies, details) in enumerate(texts, first):
        rows = payments.rows[start : start + CHUNK_ROWS]
        sealed_bodies = keys.seal(of_bodies.compress(_packed(rows, bodies)), place_of("bodies", batch, chunk))
        sealed_details = keys.seal(of_details.compress(_packed(rows, details)), place_of("details", batch, chunk))
        yield chunk, rows, sealed_bodies, sealed_details


def unseal_texts(keys: Keys, place: str, sealed: bytes) -> dict[int, bytes]:
    """Return the texts of a chunk by row; raises LedgerDamaged."""
    compressed = keys.unseal(sealed, place)
    try:
        plain = zstandard.ZstdDecompressor().decompress(compressed, max_output_size=_PLAIN_BYTES_MAX)
    except zstandard.ZstdError:
        raise LedgerDamaged(f"the ledger is damaged: {place} can't be read") from None
    count = int.from_bytes(plain[:4], "little")
    header = array("I")
    header.frombytes(plain[4 : 4 + 8 * count])
    stream = io.BytesIO(plain)
    stream.seek(4 + 8 * count)
    return dict(zip(header[:count], map(stream.read, header[count:]), strict=True))


class Bodies:
    """Request bodies of one batch, read a chunk at a time; those of a few chunks are kept."""

    def __init__(self, keys: Keys, batch: int, read: Callable[[int], bytes | None]) -> None:
        """`read` returns what the ledger has sealed for a chunk; None if nothing."""
        self._keys, self._batch, self._read = keys, batch, read
        self._kept: dict[int, dict[int, bytes]] = {}

    def of(self, rows: Sequence[int], chunks: Sequence[int]) -> list[bytes]:
        """Return the bodies of pending rows, given with their chunks; raises LedgerDamaged if one is missing."""
        bodies: list[bytes] = []
        for chunk, some in groupby(chunks):  # rows of a chunk follow each other
            first, body_of = len(bodies), self._of_chunk(chunk).__getitem__
            try:
                bodies += map(body_of, rows[first : first + len(list(some))])
            except KeyError as row:
                raise LedgerDamaged(f"the ledger is damaged: row {row} is pending, and its body is missing") from None
        return bodies

    def _of_chunk(self, chunk: int) -> dict[int, bytes]:
        bodies = self._kept.get(chunk)
        if bodies is None:
            sealed = self._read(chunk)
            bodies = unseal_texts(self._keys, place_of("bodies", self._batch, chunk), sealed) if sealed else {}
            while len(self._kept) >= _CHUNKS_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[chunk] = bodies
        return bodies


def unreadable(keys: Keys, kind: str, payloads: Iterable[tuple[int, int, bytes]]) -> Iterator[str]:
    """Report which payloads, each given with its batch and chunk, can't be read."""
    for batch, chunk, sealed in payloads:
        try:
            unseal_texts(keys, place_of(kind, batch, chunk), sealed)
        except LedgerDamaged as error:
            yield str(error)


def pick(payments: PaymentColumns, places: Sequence[int]) -> PaymentColumns:
    """Return only the rows at these positions, from 0."""
    details, bodies = payments.details.each(), payments.bodies.each()
    return PaymentColumns(
        rows=[payments.rows[place] for place in places],
        lines=[payments.lines[place] for place in places],
        amounts_cents=[payments.amounts_cents[place] for place in places],
        directions=[payments.directions[place] for place in places],
        fingerprints=[payments.fingerprints[place] for place in places],
        payment_ids=[payments.payment_ids[place] for place in places],
        payees=[payments.payees[place] for place in places],
        accounts=[payments.accounts[place] for place in places],
        details=PackedTexts.of(details[place] for place in places),
        bodies=PackedTexts.of(bodies[place] for place in places),
    )
