"""What banks say of payments that were accepted: facts beside their rows, which change no state; money stays as it is.

A fact is recorded once, with the event that names who took which file in. It is authenticated and bound to its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Literal

from batchpay.payment import State

RETURNS, CONFIRMED, WITHDRAWN = "returns", "return confirmed", "return withdrawn"
"""Kinds of events: a file of returns was taken in, and what a person says of one fact."""
RECALL_REQUESTED = "recall requested"
"""Kind of an event: the bank was asked to reverse payments."""
Key = Literal["payment_id", "reference", "invoice", "account"]
"""What a line of a file of returns may name a payment by."""


class FactKind(StrEnum):
    """What became of a payment."""

    RETURNED = "returned"
    """The money came back."""
    CHANGED = "changed"
    """It arrived, and the bank says what of the account is to be corrected."""


KIND_CODES = {FactKind.RETURNED: 1, FactKind.CHANGED: 2}
KINDS = {code: kind for kind, code in KIND_CODES.items()}


@dataclass(frozen=True, slots=True)
class NewFact:
    """What a line of a file of returns says of the payment that it was matched with."""

    kind: FactKind
    batch: str
    row: int
    code: str
    """The bank's code: R01, C02."""
    day: date
    """The day of the return, by the bank."""
    amount_cents: int
    """Of a return, that of its row."""
    line: int
    """Where it is in the file of returns."""
    corrected: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of a change: corrected values by our column. Encrypted at rest, and only ever shown in a rejects file."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What was recorded."""

    number: int
    kind: FactKind
    batch: str
    row: int
    place: str
    """That row as a person finds it in its payment file: `line 5`, `row 5`."""
    code: str
    day: date
    amount_cents: int
    direction: str
    """DEBIT or CREDIT."""
    account: bytes
    """8 bytes, keyed: routing and account number of its row, as in PaymentColumns."""
    line: int
    """As in NewFact."""
    is_recurring: bool
    """Whether its row is paid again and again: it may come back more than once, and is outside of control totals."""
    taken_at: datetime
    who: str
    file: str
    """The file of returns."""
    is_unattended: bool
    """Taken in where nobody was asked, and not seen by a person since."""
    withdrawn: bool
    """A person said that it was wrong, or that the bank undid it: it says nothing any more."""
    lifted: bool
    """A person released a payment to the account since: this return no longer speaks against the account."""


@dataclass(frozen=True, slots=True)
class SentPayment:
    """A payment that a line of a file of returns may be about."""

    batch: str
    row: int
    line: int | None
    state: State
    amount_cents: int
    direction: str
    sent_at: datetime | None
    account: bytes
    is_recurring: bool
    """False as well where the details of its batch were purged."""
    facts: tuple[Fact, ...]
    """Those that were not withdrawn."""
