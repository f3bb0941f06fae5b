"""Keyed digests by which payments are found again, as a ledger's tables hold them."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def digest_numbers(digests: Sequence[bytes]) -> list[int]:
    """Give the first eight bytes of keyed digests of 16 bytes as signed numbers: half the space, twice the speed.

    Two different payments share a number with a chance of 1 in 2^64 a pair; one would be held back, not paid twice.
    """
    return [number for (number,) in struct.iter_unpack(">q8x", b"".join(digests))]
