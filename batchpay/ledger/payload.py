"""The payload of a chunk: texts of some hundred rows, compressed together, then encrypted."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Iterator, Sequence

import zstandard

from batchpay.errors import LedgerDamaged
from batchpay.ledger.columns import PackedTexts, PaymentColumns
from batchpay.ledger.keys import Keys

CHUNK_ROWS = 512
BODIES_LEVEL = 3
"""Of zstd; bodies take 124 bytes a row at this level, 103 at level 5, for 3 more microseconds a row."""
DETAILS_LEVEL = 1
_PLAIN_BYTES_MAX = 1 << 30


def place_of(kind: str, batch: int, chunk: int) -> str:
    """Name a payload's place; it is authenticated, so that a payload moved elsewhere can't be read."""
    return f"{kind} of chunk {chunk} of batch {batch}"


def seal_texts(keys: Keys, place: str, rows: Sequence[int], texts: PackedTexts, level: int) -> bytes:
    """Pack texts with their row numbers, compress, encrypt."""
    header = array("I", [len(rows), *rows, *texts.lengths])
    compressed = zstandard.ZstdCompressor(level=level).compress(b"".join((header, texts.joined)))
    return keys.seal(compressed, place)


def sealed_chunks(
    keys: Keys, batch: int, payments: PaymentColumns, first: int
) -> Iterator[tuple[int, Sequence[int], bytes, bytes]]:
    """Give chunk by chunk, numbered from `first`, its rows and their sealed bodies and details."""
    starts = range(0, len(payments.rows), CHUNK_ROWS)
    texts = zip(starts, payments.bodies.parts(CHUNK_ROWS), payments.details.parts(CHUNK_ROWS), strict=True)
    for chunk, (start, bodies, details) in enumerate(texts, first):
        rows = payments.rows[start : start + CHUNK_ROWS]
        of_bodies, of_details = (place_of(kind, batch, chunk) for kind in ("bodies", "details"))
        sealed_bodies = seal_texts(keys, of_bodies, rows, bodies, BODIES_LEVEL)
        yield chunk, rows, sealed_bodies, seal_texts(keys, of_details, rows, details, DETAILS_LEVEL)


def unseal_texts(keys: Keys, place: str, sealed: bytes) -> dict[int, bytes]:
    """Give the texts of a chunk by row; raises LedgerDamaged."""
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


def unreadable(keys: Keys, kind: str, payloads: Iterable[tuple[int, int, bytes]]) -> Iterator[str]:
    """Tell which payloads, each after its batch and chunk, can't be read."""
    for batch, chunk, sealed in payloads:
        try:
            unseal_texts(keys, place_of(kind, batch, chunk), sealed)
        except LedgerDamaged as error:
            yield str(error)


def pick(payments: PaymentColumns, places: Sequence[int]) -> PaymentColumns:
    """Give those rows alone that stand at these places, from 0."""
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
