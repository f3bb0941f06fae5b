"""What a submission would send at this moment: the rows and cents that a person approves.

Counted over the ledger's view of a file: rows of a content that is new, rows of a known batch that are still pending
and still right, and rejected rows that a release is to add. Page to sign, plan and seal are made of this alone.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import polars as pl

from batchpay.errors import BatchpayError
from batchpay.payment import Direction, Totals, format_cents
from batchpay.schemas import checks
from batchpay.text import row_count, totals_json


def with_cents(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows that pass every rule their `_cents`, by which ToSendCount and Schedule count."""
    return rows.with_columns(_cents=checks.cents_of_plain(pl.col("amount")))


class Origin(StrEnum):
    """Why a row would be sent."""

    NEW = "new"
    """Right, and of a content that the ledger does not hold yet."""
    PENDING = "pending"
    """Registered earlier, not sent, and still right."""
    RELEASED = "released"
    """Rejected earlier, right now, and asked for by `--release`."""


@dataclass(frozen=True, slots=True)
class ToSend:
    """Rows and cents that a submission would send now. Every breakdown adds up to `total`, or making it raises."""

    new: Totals = Totals()
    pending: Totals = Totals()
    released: Totals = Totals()
    held_back: Totals = Totals()
    """Pending rows that fail today's rules; in no other figure here."""
    by_direction: Mapping[str, Totals] = field(default_factory=dict)
    """DEBIT and CREDIT."""
    by_account: Mapping[str, Totals] = field(default_factory=dict)
    """By gateway account id, without leading zeros; a recurring row counts with one payment."""
    rows_digest: str = ""
    """SHA-256 of which rows these are and why each is sent: equal totals of other rows are another matter."""

    def __post_init__(self) -> None:
        """Refuse breakdowns that do not add up."""
        for name, parts in (("direction", self.by_direction), ("account", self.by_account)):
            added = sum(parts.values(), Totals())
            if added != self.total:
                raise BatchpayError(
                    f"by {name} {row_count(added.rows)} and {format_cents(added.cents)} would be sent, "
                    f"in total {row_count(self.total.rows)} and {format_cents(self.total.cents)}"
                )

    @property
    def total(self) -> Totals:
        """All that would be sent."""
        return self.new + self.pending + self.released

    def as_json(self) -> dict[str, Any]:
        """Rows and amounts, the same on a plan, in a seal and for --json."""
        parts = {"total": self.total, "new": self.new, "pending": self.pending, "released": self.released}
        parts["held_back"] = self.held_back
        parts |= {direction.value: self.by_direction.get(direction, Totals()) for direction in Direction}
        return {
            **{name: totals_json(totals) for name, totals in parts.items()},
            "by_account": {name: totals_json(self.by_account[name]) for name in sorted(self.by_account)},
            "rows_digest": self.rows_digest,
        }


class ToSendCount:
    """Counts rows chunk by chunk into a ToSend; memory grows with gateway accounts, never with rows."""

    def __init__(self) -> None:
        self._totals: defaultdict[Origin, Totals] = defaultdict(Totals)
        self._held_back = Totals()
        self._directions: defaultdict[str, Totals] = defaultdict(Totals)
        self._accounts: defaultdict[str, Totals] = defaultdict(Totals)
        self._rows = {origin: hashlib.sha256() for origin in Origin}

    def add(self, origin: Origin, rows: pl.DataFrame) -> None:
        """Count rows of one origin that pass every rule, in file order, with `_cents`."""
        counted = (
            rows.group_by("gatewayId", "transactionType")
            .agg(pl.len(), pl.col("_cents").sum())
            .with_columns(pl.col("gatewayId").str.strip_chars_start("0"))
        )
        for gateway_id, direction, count, cents in counted.iter_rows():
            totals = Totals(count, cents)
            self._totals[origin] += totals
            self._directions[direction] += totals
            self._accounts[gateway_id] += totals
        self._rows[origin].update(array("I", rows["_row"].to_list()).tobytes())

    def hold_back(self, totals: Totals) -> None:
        """Count pending rows that fail today's rules, by the cents that the ledger has for them."""
        self._held_back += totals

    def finish(self) -> ToSend:
        """Give what was counted."""
        return ToSend(
            new=self._totals[Origin.NEW],
            pending=self._totals[Origin.PENDING],
            released=self._totals[Origin.RELEASED],
            held_back=self._held_back,
            by_direction=dict(self._directions),
            by_account=dict(self._accounts),
            rows_digest=hashlib.sha256(b"".join(rows.digest() for rows in self._rows.values())).hexdigest(),
        )
