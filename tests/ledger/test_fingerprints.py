"""How keyed digests are put in order before they are written."""

from __future__ import annotations

import random
import struct

from batchpay.ledger.fingerprints import bill_records, payment_id_records, record_values, sort_as_numbers


def test_digests_are_sorted_as_the_numbers_that_their_tables_compare() -> None:
    """Negative ones first, whatever all lines begin with; a line stays whole."""
    chance = random.Random(3)
    digests = [chance.randbytes(16) for _ in range(500)]
    for number in (-(2**63), -1, 0, 2**63 - 1):
        digests.append(struct.pack(">q8x", number))
    ids = list(range(len(digests)))
    records = bill_records(digests, ids, [True] * len(ids))
    sort_as_numbers(records)
    (values,) = record_values(records, len(records))
    lines = list(zip(values[0::3], values[1::3], strict=True))
    assert lines == sorted((struct.unpack(">q", digests[row][:8])[0], row) for row in ids)

    with_head = [b"head" + record for record in payment_id_records(digests, ids)]
    sort_as_numbers(with_head, b"head")
    assert [record[4:20] for record in with_head] == [record[:16] for record in records]


def test_digests_of_one_sign_or_none_are_sorted_too() -> None:
    """There need not be a negative one."""
    for numbers in ([], [5, 3], [-5, -3], [2, -2]):
        records = [struct.pack(">qq", number, 1) for number in numbers]
        sort_as_numbers(records)
        assert [struct.unpack(">qq", record)[0] for record in records] == sorted(numbers)
