"""What a ledger takes by column, one sequence each: rows of a batch, rows to look up in earlier ones.

Plain dataclasses that name no database. Amounts are cents. Payments are found again by keyed digests, packed here as
they are stored in a ledger's tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import islice, starmap
from typing import NamedTuple

from batchpay.payment import SamePayment

CHUNK_ROWS = 512
"""Rows whose texts a ledger keeps in one piece."""
CANCELLED = "row.cancelled"
"""The code of a pending row that a named person cancelled."""
RELEASED_BY_NAME = frozenset({"achAccountNumber.returned"})
"""A row that was rejected for one of these alone waits for a person's word about it: a release must name it.

So does one that was rejected for a warning that `policy.hold` names.
"""


@dataclass(frozen=True, slots=True)
class PackedTexts:
    """Texts of rows, end to end: a Python object for each of a million would cost more than building them."""

    pieces: Sequence[bytes | memoryview] = field(repr=False)
    """UTF-8; where one piece ends and the next begins has no meaning."""
    lengths: Sequence[int]
    """Bytes of each row's text."""

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> PackedTexts:
        """Put texts end to end."""
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        return cls(encoded, [len(text) for text in encoded])

    def each(self) -> list[bytes]:
        """Split them again."""
        return [b"".join(part.pieces) for part in self.parts(1)]

    def parts(self, rows: int) -> Iterator[PackedTexts]:
        """Yield `rows` rows at a time, without a copy."""
        coming, rest = iter(self.pieces), memoryview(b"")
        for first in range(0, len(self.lengths), rows):
            lengths = self.lengths[first : first + rows]
            missing, pieces = sum(lengths), list[memoryview]()
            while missing:
                rest = rest or memoryview(next(coming))
                pieces.append(rest[:missing])
                rest = rest[missing:]
                missing -= len(pieces[-1])
            yield PackedTexts(pieces, lengths)


@dataclass(frozen=True, slots=True)
class PaymentColumns:
    """Rows that passed every rule, by column (all sequences of one length, in file order)."""

    rows: Sequence[int]
    lines: Sequence[int | None]
    amounts_cents: Sequence[int]
    directions: Sequence[str]
    """DEBIT or CREDIT."""
    fingerprints: Sequence[bytes]
    """16 bytes, keyed: the bill (batchpay.schemas.identity)."""
    payment_ids: Sequence[bytes | None]
    """16 bytes, keyed: the caller's paymentId as it is compared; None if not given."""
    payees: Sequence[bytes]
    """8 bytes, keyed: the payee's name, for the check of changed accounts."""
    accounts: Sequence[bytes]
    """8 bytes, keyed: routing and account number, for the same check."""
    details: PackedTexts
    """One JSON object per row: what results and reports show of it (see registration/request_body.py)."""
    bodies: PackedTexts
    """The exact request body as JSON text."""
    pay_on: Sequence[int | None] = ()
    """The day (`date.toordinal()`) before which each row is not sent; None has no such day, and empty no row has."""


@dataclass(frozen=True, slots=True)
class RejectedColumns:
    """Rows that failed a rule, by column."""

    rows: Sequence[int]
    lines: Sequence[int | None]
    amounts_cents: Sequence[int]
    """0 if the amount can't be read."""
    reasons: Sequence[str]
    """`column.code` of every failed rule, separated by blanks; no text of the row."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows to compare with earlier batches, by column."""

    rows: Sequence[int]
    fingerprints: Sequence[bytes]
    payment_ids: Sequence[bytes | None]
    with_invoice: Sequence[bool] = ()
    """Whether each row's bill has an invoice number; none has if this is empty."""
    pay_on: Sequence[int | None] = ()
    """The day of each row, as in PaymentColumns."""
    accounts: Callable[[], Sequence[bytes]] = tuple
    """Digests of routing and account number, as in PaymentColumns; made where an earlier payment came back."""
    older: Callable[[], tuple[Sequence[bytes], Sequence[bytes | None]]] = lambda: ((), ())
    """Fingerprints and paymentIds in the form that ledgers before version 3 have; made for those alone."""


@dataclass(frozen=True, slots=True)
class EarlierReturn:
    """That all earlier payments of a row's paymentId, or of its bill, came back, and that a person has seen it."""

    code: str
    day: date
    """Code and day of the latest return."""
    amount_cents: int
    direction: str
    """Of the payment that it was, DEBIT or CREDIT."""
    same_account: bool
    """Whether one of them was of the row's own routing and account number."""
    count: int
    """How many there were."""
    first_sent_at: datetime


class PersonsWord(NamedTuple):
    """When a person decided, who, and how they know, as the ledger recorded it."""

    at: datetime
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Earlier:
    """A row of this file that an earlier batch already has."""

    row: int
    same: SamePayment
    earlier_batch: str
    earlier_row: int
    earlier_place: str
    """That row as a person finds it in its file: `line 5`, `row 5`."""
    at: datetime
    """When it was registered or, if later, last sent."""
    was_cancelled: bool = False
    """Whether a person has cancelled it: no payment, but one that was not to be made."""
    declined: PersonsWord | None = None
    """Set if it was in doubt, until a person recorded that it was declined."""
    returned: EarlierReturn | None = None
    """Set if nothing of the kind stands: neither this payment, nor any other that would be found instead."""


@dataclass(frozen=True, slots=True)
class PaidTo:
    """A payment of an earlier batch to an account of this file."""

    account: bytes
    """As in PaymentColumns."""
    direction: str
    """DEBIT or CREDIT."""
    invoice: str
    """Its invoice number as it was sent; empty if it had none, or its texts were purged."""
    has_payment_id: bool
    amount_cents: int
    batch: str
    row: int
    place: str
    """That row as a person finds it, as in Earlier."""
    at: datetime


_BILL, _PAYMENT_ID = struct.Struct(">8sq?"), struct.Struct(">8sq")
"""A digest's first eight bytes, a row's id and, with a bill, whether the row has a paymentId."""
BILL_BYTES, PAYMENT_ID_BYTES = _BILL.size, _PAYMENT_ID.size


def digest_numbers(digests: Sequence[bytes]) -> list[int]:
    """Return the first eight bytes of 16-byte keyed digests as signed numbers: half the space, twice the speed.

    Two different payments share a number with a chance of 1 in 2^64 per pair; one would be held back, not paid twice.
    """
    return [number for (number,) in struct.iter_unpack(">q8x", b"".join(digests))]


def bill_records(bills: Sequence[bytes], ids: Sequence[int], named: Sequence[bool]) -> Iterable[bytes]:
    """Return lines of the table of bills, packed."""
    return starmap(_BILL.pack, zip(bills, ids, named, strict=True))


def payment_id_records(payment_ids: Sequence[bytes | None], ids: Sequence[int]) -> Iterable[bytes]:
    """Return lines of the table of paymentIds, for the rows that have one, packed."""
    pack = _PAYMENT_ID.pack
    return [pack(digest, row) for digest, row in zip(payment_ids, ids, strict=True) if digest is not None]


class GatheredLines:
    """Packed lines of a table of digests: kept in little memory, and taken out in the order of their table.

    A table that grows at its end alone is written in less time and fewer pages. Lines are parted by the first byte of
    their digest as they come: each part fits the processor's cache, a million lines do not. Then by the second byte,
    which takes less than the comparisons that it saves.
    """

    def __init__(self, line_bytes: int, *, digest_at: int = 0) -> None:
        self._line_bytes, self._digest_at = line_bytes, digest_at
        self._parts = [bytearray() for _ in range(256)]

    def __len__(self) -> int:
        return sum(map(len, self._parts)) // self._line_bytes

    def add(self, lines: Iterable[bytes]) -> None:
        """Keep lines, in any order; what precedes their digest, up to `digest_at`, is the same in all."""
        parts, digest_at = self._parts, self._digest_at
        for line in lines:
            parts[line[digest_at]] += line

    def take(self) -> Iterator[bytes]:
        """Yield all lines, and forget them: sorted as their table compares digests, as numbers, negative ones first."""
        size, second_byte = self._line_bytes, self._digest_at + 1
        for part in filter(None, (*self._parts[128:], *self._parts[:128])):
            by_second_byte: list[list[bytes]] = [[] for _ in range(256)]
            for line in struct.unpack(f"{size}s" * (len(part) // size), part):
                by_second_byte[line[second_byte]].append(line)
            part.clear()
            for lines in by_second_byte:
                lines.sort()
                yield from lines


def record_values(records: Iterable[bytes], at_once: int) -> Iterator[tuple[int, ...]]:
    """Yield values of packed lines of one table, `at_once` lines each; flags as numbers, which sqlite3 binds as is."""
    coming = iter(records)
    while some := list(islice(coming, at_once)):
        line = "qqb" if len(some[0]) == BILL_BYTES else "qq"
        yield struct.unpack(f">{line * len(some)}", b"".join(some))


Key = tuple[int, int, bool, bool, int | None]
"""What is looked up: a digest's number, the row, whether it has a paymentId, whether an invoice number, its day."""


def lookup_keys(lookup: Lookup, *, with_older: bool) -> tuple[list[Key], list[Key]]:
    """Return the keys of paymentIds and of bills; `with_older` also in the form that digests had before version 3."""
    named = [payment_id is not None for payment_id in lookup.payment_ids]
    invoiced, days = lookup.with_invoice or [False] * len(named), lookup.pay_on or [None] * len(named)
    by_id: list[Key] = []
    by_bill: list[Key] = []
    older_fingerprints, older_payment_ids = lookup.older() if with_older else ((), ())
    for payment_ids in (lookup.payment_ids, older_payment_ids):
        given = [(one, row) for one, row in zip(payment_ids, lookup.rows, strict=False) if one is not None]
        numbers = digest_numbers([one for one, _ in given])
        by_id += [(number, row, True, False, None) for number, (_, row) in zip(numbers, given, strict=True)]
    for fingerprints in (lookup.fingerprints, older_fingerprints):
        by_bill += zip(digest_numbers(fingerprints), lookup.rows, named, invoiced, days, strict=False)
    return by_id, by_bill
