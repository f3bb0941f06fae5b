"""How keyed digests are put in order before they are written."""

from __future__ import annotations

import random
import struct

from batchpay.ledger.fingerprints import (
    BILL_BYTES,
    PAYMENT_ID_BYTES,
    GatheredLines,
    bill_records,
    payment_id_records,
    record_values,
)


def test_digests_are_sorted_as_the_numbers_that_their_tables_compare() -> None:
    """Negative ones first, whatever all lines begin with; a line stays whole."""
    chance = random.Random(3)
    digests = [chance.randbytes(16) for _ in range(500)]
    for number in (-(2**63), -1, 0, 2**63 - 1):
        digests.append(struct.pack(">q8x", number))
    ids = list(range(len(digests)))
    bills = GatheredLines(BILL_BYTES)
    for some in (slice(200), slice(200, None)):
        bills.add(bill_records(digests[some], ids[some], [True] * len(ids[some])))
    assert len(bills) == len(ids)
    (values,) = record_values(bills.take(), len(ids))
    lines = list(zip(values[0::3], values[1::3], strict=True))
    assert lines == sorted((struct.unpack(">q", digests[row][:8])[0], row) for row in ids)

    with_head = GatheredLines(PAYMENT_ID_BYTES + 4, digest_at=4)
    with_head.add([b"head" + record for record in payment_id_records(digests, ids)])
    assert list(with_head.take()) == [b"head" + struct.pack(">qq", *line) for line in lines]


def test_lines_are_taken_once() -> None:
    """A batch may have more rows than are gathered at a time."""
    lines = GatheredLines(PAYMENT_ID_BYTES)
    for numbers in ([], [5, 3], [-5, -3], [2, -2]):
        lines.add([struct.pack(">qq", number, 1) for number in numbers])
        assert [struct.unpack(">qq", line)[0] for line in lines.take()] == sorted(numbers)
        assert not len(lines)
