"""A payment file that exists only in memory: what the rules need from a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from batchpay.schemas.columns import COLUMNS

VALID = {
    "gatewayId": "17",
    "transactionType": "DEBIT",
    "recurringIndicator": "FALSE",
    "amount": "12.50",
    "billingFirstName": "Ada",
    "billingLastName": "Lovelace",
    "shippingFirstName": "Ada",
    "shippingLastName": "Lovelace",
    "achNameOnCheck": "Ada Lovelace",
    "achAccountNumber": "12345678",
    "achRoutingNumber": "021000021",
    "achAccountType": "PERSONAL",
    "achDepositType": "CHECKING",
    "achAgreementFlag": "1",
}
RECURRING = {
    "recurringIndicator": "TRUE",
    "recurringStartDate": "12/15/2026",
    "recurringBillingCycle": "MONTHLY",
    "recurringEndOfMonth": "N",
    "recurringNumOfPayments": "12",
    "recurringAgreementFlag": "1",
}

Cells = Mapping[str, str | None]


def text_frame(rows: Sequence[Cells], columns: Sequence[str] = COLUMNS) -> pl.DataFrame:
    """Return all columns as text, null if a row gives none."""
    return pl.DataFrame({name: pl.Series([row.get(name) for row in rows], dtype=pl.String) for name in columns})


@dataclass
class TextChunks:
    """Rows in chunks of a given height; counts how often it was read."""

    rows: Sequence[Cells]
    height: int = 3
    columns: Sequence[str] = COLUMNS
    extra: Sequence[str] = ()
    reads: int = field(default=0, compare=False)

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Read it from the beginning."""
        self.reads += 1
        frame = text_frame(self.rows, [*self.columns, *self.extra])
        numbers = pl.int_range(1, len(self.rows) + 1, dtype=pl.UInt32, eager=True).alias("_row")
        frame = frame.select(numbers, (numbers + 1).alias("_line"), pl.all())
        yield from frame.iter_slices(self.height)


@dataclass
class Kept:
    """A rejects file that keeps what it is given."""

    added: list[dict[str, Any]] = field(default_factory=list)
    came_late: list[dict[str, Any]] = field(default_factory=list)

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows of a chunk."""
        self.added += frame.to_dicts()

    def late(self, frame: pl.DataFrame) -> None:
        """Add rows that failed late."""
        self.came_late += frame.to_dicts()
