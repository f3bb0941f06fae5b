"""What a person is asked to approve: a file as it was read, what of it would be sent, under which rules and where.

The same file in the same ledger makes the same proposal, whoever views it. Its seal is what maker and checker compare:
twelve characters, keyed, over content, totals, rules and gateway. What would be sent is counted over the ledger's view
of a file: rows of new content, rows of a known batch that are still pending and still valid, rows to be released.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from batchpay.approval.approvals import lasting
from batchpay.errors import BatchpayError
from batchpay.ledger.contract import Ledger
from batchpay.payment import Direction, Totals, format_cents
from batchpay.text import amount, row_count, totals_json

if TYPE_CHECKING:  # reading a plan loads no rules
    from batchpay.schemas.rule import RuleOptions


class SendReason(StrEnum):
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
    by_day: Mapping[str, Mapping[str, Totals]] = field(default_factory=dict)
    """Rows with a payOn, by that day (ISO 8601) and by direction."""
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
            **({"by_day": {day: _sides_json(sides) for day, sides in self.by_day.items()}} if self.by_day else {}),
            "rows_digest": self.rows_digest,
        }


def _sides_json(sides: Mapping[str, Totals]) -> dict[str, Any]:
    return {direction.value: totals_json(sides.get(direction, Totals())) for direction in Direction}


SEAL_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Proposal:
    """Everything that is approved, and everything that a submission from a plan is compared with."""

    digest: bytes
    """The content's keyed digest (NewBatch.digest); empty where there is no ledger to key it."""
    file: str
    """The name that the file had; the same content under another name is the same proposal."""
    sheet: str | None
    """The sheet of a workbook that was read."""
    column_map: str | None
    """SHA-256 of the map that the file was read through, or None."""
    origin: str
    environment: str
    total: Totals
    """The whole file: rejected, left out and valid."""
    valid: Totals
    rejected: Totals
    unreadable_amounts: int
    """Rejected rows whose amount can't be read: they are in no total."""
    to_send: ToSend
    warnings: Mapping[str, int]
    """How many, by `column.code`."""
    accepted_suggestions: Mapping[str, int]
    """Cells that were corrected as suggested, by `column.code`."""
    notes: tuple[str, ...]
    not_checked: tuple[str, ...]
    """What the warnings can't tell, since it was compared with nothing: for whoever approves. It is not part of what is
    approved, since a submission may know more."""
    rules: Mapping[str, Any]
    """The options that decide what passes, as JSON values; without the day that counts as today."""
    again: bool = False
    """Whether the same content is to be paid once more."""
    release: bool = False
    """Whether rows that were rejected earlier are to be sent now."""
    reason: str | None = None
    """Why, for `again`, `release` and duplicates that are let through."""
    changed_accounts: tuple[str, ...] = ()
    """Lines that name the rows with an account that is new for their payee. They name payees, so that a plan has them
    sealed, and not in its JSON."""
    over_limits: tuple[str, ...] = ()
    """The limits that the file exceeds (approvals.FileLimits, workflows/day_limits.py)."""
    currencies: Mapping[str, Totals] = field(default_factory=dict)
    """The valid rows of the file by currency; the notes name them where there are several."""
    left_out: Totals = Totals()
    """Rows that the map leaves out; the notes name the words that say so."""
    batch_total: Totals = field(default_factory=Totals)
    """All of the batch that was sent or would be: what policy.approve_above is compared with, since a batch that goes
    out in parts is still one."""

    def as_json(self) -> dict[str, Any]:
        """The part that a plan file has in plain text."""
        return {
            "file": self.file,
            "sheet": self.sheet,
            "map": self.column_map,
            "digest": self.digest.hex(),
            "origin": self.origin,
            "environment": self.environment,
            "in_file": totals_json(self.total),
            "valid": totals_json(self.valid),
            "rejected": totals_json(self.rejected),
            "unreadable_amounts": self.unreadable_amounts,
            "to_send": self.to_send.as_json(),
            "batch_total": totals_json(self.batch_total),
            "warnings": dict(sorted(self.warnings.items())),
            "accepted_suggestions": dict(sorted(self.accepted_suggestions.items())),
            "notes": list(self.notes),
            "not_checked": list(self.not_checked),
            "rules": dict(self.rules),
            "again": self.again,
            "release": self.release,
            "reason": self.reason,
            **({"left_out": totals_json(self.left_out)} if self.left_out.rows else {}),
            **({"currencies": sorted(self.currencies)} if self.currencies.keys() - {"USD"} else {}),
            **({"over_limits": list(self.over_limits)} if self.over_limits else {}),
        }

    def seal(self, ledger: Ledger) -> str:
        """Return twelve characters that differ for any other content, totals, rules, rows or gateway."""
        sealed = self.as_json()
        # Names, what follows from the content, and what was known at that moment.
        for name in ("sheet", "map", "notes", "warnings", "over_limits", *_NOT_COMPARED):
            sealed.pop(name, None)
        text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
        (digest,) = ledger.digest("seal", [text], SEAL_CHARACTERS // 2)
        assert digest is not None, "a text has a digest"
        return digest.hex().upper()


def rules_json(rules: RuleOptions) -> dict[str, Any]:
    """Return the options of the rules as JSON values. Whatever the date changes shows in the totals."""
    values = dataclasses.asdict(rules)
    del values["as_of"], values["pay_on_days"], values["duplicate_days"]
    if rules.pay_on is None:  # as in a plan of before
        del values["pay_on"]
    for name, value in values.items():
        if isinstance(value, frozenset):
            values[name] = sorted(value)
        elif isinstance(value, date):
            values[name] = value.isoformat()
    return values


def differences(approved: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Name everything in which two proposals (as JSON) differ, except the file's name and what was not checked."""
    return [
        line
        for name in sorted(approved.keys() | found.keys())
        if name not in _NOT_COMPARED
        for line in _difference(name, approved.get(name), found.get(name))
    ]


def _difference(name: str, approved: Any, found: Any) -> list[str]:
    if name == "over_limits" and {*lasting(found or ())} <= {*lasting(approved or ())}:
        return []
    if approved == found:
        return []
    parts = [one for one in (approved, found) if isinstance(one, dict) and set(one) != {"rows", "amount"}]
    if parts:
        approved, found = approved or {}, found or {}
        lines = (
            _difference(f"{name}: {key}", approved.get(key), found.get(key))
            for key in sorted(approved.keys() | found.keys())
        )
        return [line for some in lines for line in some]
    if name in _IN_WORDS:
        return [_IN_WORDS[name]]
    first, *members = name.replace("by_account:", "by account:").replace("by_day:", "by day:").split(": ")
    place = ": ".join([first.replace("_", " "), *members])
    return [f"{place} is {_words(found)}, approved was {_words(approved)}"]


_NOT_COMPARED = ("file", "not_checked")
_IN_WORDS = {
    "digest": "the content differs",
    "map": "the column map differs",
    "to_send: rows_digest": "other rows would be sent",
}


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return f"{row_count(value['rows'])} and {amount(value['amount'])}"
    if isinstance(value, bool) or value is None:
        return {True: "on", False: "off", None: "none"}[value]
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return str(value)
