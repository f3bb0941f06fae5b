"""Keyed digests by which payments are found again, as stored in a ledger's tables."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import starmap

from batchpay.ledger.columns import Lookup

_BILL, _PAYMENT_ID = struct.Struct(">8sq?"), struct.Struct(">8sq")
"""A digest's first eight bytes, a row's id and, with a bill, whether the row has a paymentId."""


def digest_numbers(digests: Sequence[bytes]) -> list[int]:
    """Return the first eight bytes of 16-byte keyed digests as signed numbers: half the space, twice the speed.

    Two different payments share a number with a chance of 1 in 2^64 per pair; one would be held back, not paid twice.
    """
    return [number for (number,) in struct.iter_unpack(">q8x", b"".join(digests))]


def bill_records(bills: Sequence[bytes], ids: Sequence[int], named: Sequence[bool]) -> list[bytes]:
    """Return lines of the table of bills, packed: sorting moves whole lines, so nothing has to be looked up."""
    return list(starmap(_BILL.pack, zip(bills, ids, named, strict=True)))


def payment_id_records(payment_ids: Sequence[bytes | None], ids: Sequence[int]) -> list[bytes]:
    """Return lines of the table of paymentIds, for the rows that have one, packed."""
    pack = _PAYMENT_ID.pack
    return [pack(digest, row) for digest, row in zip(payment_ids, ids, strict=True) if digest is not None]


def sort_as_numbers(records: list[bytes], head: bytes = b"") -> None:
    """Sort packed lines that all begin with `head` and a digest, as their table does, to which digests are numbers.

    A table that grows at its end alone is written in less time and fewer pages. Negative numbers come last as bytes.
    """
    records.sort()
    negative = bisect_left(records, head + b"\x80")
    records[:] = records[negative:] + records[:negative]


def record_values(records: Sequence[bytes], at_once: int) -> Iterator[tuple[int, ...]]:
    """Yield values of packed lines of one table, `at_once` lines each; flags as numbers, which sqlite3 binds as is."""
    line = "qqb" if records and len(records[0]) == _BILL.size else "qq"
    for start in range(0, len(records), at_once):
        some = records[start : start + at_once]
        yield struct.unpack(f">{line * len(some)}", b"".join(some))


Key = tuple[int, int, bool, bool]
"""What is looked up: a digest's number, the row, whether it has a paymentId, whether an invoice number."""


def lookup_keys(lookup: Lookup, *, with_older: bool) -> tuple[list[Key], list[Key]]:
    """Return the keys of paymentIds and of bills; `with_older` also in the form that digests had before version 3."""
    named = [payment_id is not None for payment_id in lookup.payment_ids]
    invoiced = lookup.with_invoice or [False] * len(named)
    by_id: list[Key] = []
    by_bill: list[Key] = []
    for payment_ids in (lookup.payment_ids, lookup.older_payment_ids if with_older else ()):
        given = [(one, row) for one, row in zip(payment_ids, lookup.rows, strict=False) if one is not None]
        numbers = digest_numbers([one for one, _ in given])
        by_id += [(number, row, True, False) for number, (_, row) in zip(numbers, given, strict=True)]
    for fingerprints in (lookup.fingerprints, lookup.older_fingerprints if with_older else ()):
        by_bill += zip(digest_numbers(fingerprints), lookup.rows, named, invoiced, strict=False)
    return by_id, by_bill
