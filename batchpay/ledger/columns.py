"""What a ledger takes by column, one sequence each: rows of a batch, rows to look up in earlier ones.

Plain dataclasses that name no database. Amounts are cents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from batchpay.payment import SamePayment

CHUNK_ROWS = 512
"""Rows whose texts a ledger keeps in one piece."""


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
    older: Callable[[], tuple[Sequence[bytes], Sequence[bytes | None]]] = lambda: ((), ())
    """Fingerprints and paymentIds in the form that ledgers before version 3 have; made for those alone."""


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
