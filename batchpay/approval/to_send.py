"""What a submission would send at this moment: the rows and cents that a person approves.

Counted over the ledger's view of a file: rows of new content, rows of a known batch that are still pending and still
valid, and rejected rows that a release is to add. Sign-off page, plan and seal are made from this alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from batchpay.errors import BatchpayError
from batchpay.payment import Direction, Totals, format_cents
from batchpay.text import row_count, totals_json


class Origin(StrEnum):
    """Why a row would be sent."""

    NEW = "new"
    """Valid, and of content that the ledger does not have yet."""
    PENDING = "pending"
    """Registered earlier, not sent, and still valid."""
    RELEASED = "released"
    """Rejected earlier, valid now, and requested by `--release`."""


@dataclass(frozen=True, slots=True)
class ToSend:
    """Rows and cents that a submission would send now. Every breakdown adds up to `total`, or creating it raises."""

    new: Totals = Totals()
    pending: Totals = Totals()
    released: Totals = Totals()
    held_back: Totals = Totals()
    """Pending rows that fail today's rules; in no other figure here."""
    by_direction: Mapping[str, Totals] = field(default_factory=dict)
    """DEBIT and CREDIT."""
    released_by_direction: Mapping[str, Totals] = field(default_factory=dict)
    """The same for `released` alone; not in a plan."""
    by_account: Mapping[str, Totals] = field(default_factory=dict)
    """By gateway account id, without leading zeros; a recurring row counts with one payment."""
    rows_digest: str = ""
    """SHA-256 of which rows these are and why each is sent: equal totals of other rows are not the same."""

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
        """Everything that would be sent."""
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
