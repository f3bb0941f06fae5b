"""What was meant: economic payments, the rows that request them, and the rules that decide, in plain Python.

Written only from CONTRACT.md and RULES.md; nothing of the program is imported. A payment has a number that no change
of a file touches, so that the gateway can count it whatever the row looks like by then.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from dataclasses import dataclass, field, replace

DUPLICATE_DAYS = 5
UNCLEAR_H = 12
"""How close to the limit of days the model does not decide: a walk's days aren't the program's milliseconds."""
_AMOUNT = re.compile(r"([0-9]+)\.([0-9]{2})")
_REPAIRABLE = re.compile(r"([0-9]+)(\.[0-9])?")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a payment file: what people change, and the number of the payment it means."""

    number: int
    account: str
    amount: str
    direction: str = "DEBIT"
    invoice: str = ""
    payment_id: str = ""
    start: str = ""
    """recurringStartDate, or blank."""
    pay_on: str = ""
    """payOn, or blank."""

    @property
    def waits(self) -> bool:
        """Whether it waits for a person: its account has letters, which the policy holds."""
        return not self.account.isdigit()

    @property
    def cents(self) -> int | None:
        """The amount in cents; None if it can't be read."""
        found = _AMOUNT.fullmatch(self.amount)
        return int(found[1]) * 100 + int(found[2]) if found else None

    @property
    def bill(self) -> tuple[str, str, int | None, str]:
        """Return what makes two rows the same bill."""
        return self.account, self.direction.upper(), self.repaired.cents, same(self.invoice)

    @property
    def repaired(self) -> Row:
        """Return the row as `--normalize` reads it."""
        amount = self.amount
        if found := _REPAIRABLE.fullmatch(amount):
            amount = f"{found[1]}{(found[2] or '.').ljust(3, '0')}"
        return replace(self, amount=amount, direction=self.direction.upper())

    def faults(self, max_cents: int | None, today: datetime.date, *, normalize: bool) -> set[str]:
        """Return what is wrong with the row on a day; empty if it is valid."""
        row = self.repaired if normalize else self
        found: set[str] = set()
        if row.cents is None:
            found.add("amount.format")
        elif max_cents is not None and row.cents > max_cents:
            found.add("amount.limit")
        if row.direction not in ("DEBIT", "CREDIT"):
            found.add("transactionType.choice")
        if (start := day_of(row.start)) is not None and start < today:
            found.add("recurringStartDate.past")
        for name, text in (("paymentId", row.payment_id), ("invoiceNumber", row.invoice)):
            if any(unicodedata.category(character) == "Cf" for character in text):
                found.add(f"{name}.characters")
        return found


def written(day: datetime.date) -> str:
    """Write a day as a payment file does."""
    return day.strftime("%m/%d/%Y")


def day_of(text: str) -> datetime.date | None:
    """Read a day of a payment file; None if there is none."""
    return datetime.datetime.strptime(text, "%m/%d/%Y").date() if text else None  # noqa: DTZ007


def same(text: str) -> str:
    """Return an identifier as RULES.md compares it: NFKC, case folded, trimmed."""
    return unicodedata.normalize("NFKC", text).casefold().strip()


def is_duplicate(new: Row, old: Row, age_h: float, unclear_h: float = UNCLEAR_H) -> bool | None:
    """Return whether a row repeats one of an earlier batch this many hours old; None if it is a matter of minutes."""
    if new.payment_id and same(new.payment_id) == same(old.payment_id):
        return True
    if new.bill != old.bill:
        return False
    both_named = bool(new.payment_id and old.payment_id)
    if same(new.invoice) and not both_named:
        return True
    if abs(age_h - DUPLICATE_DAYS * 24) < unclear_h:
        return None
    return age_h < DUPLICATE_DAYS * 24


def repeats_in_file(rows: list[Row]) -> set[int]:
    """Return the numbers of payments that are in a file more than once, by id or bill."""
    found: set[int] = set()
    for place, row in enumerate(rows):
        for other in rows[:place]:
            if is_duplicate(row, other, 0.0):
                found |= {row.number, other.number}
    return found


@dataclass
class Batch:
    """One registered batch, as the walk saw it registered."""

    name: str
    rows: list[Row]
    registered_h: float
    live: bool
    again: str = ""
    """The reason why its content is paid again."""
    allows_duplicates: bool = False
    states: dict[int, str] = field(default_factory=dict)
    """What the program last said of each payment."""
    settled: dict[int, str] = field(default_factory=dict)
    """What a person decided about rows in doubt."""
    unheard: bool = False
    """A command was killed while working on it, and none has reported its rows' states since."""
    lost: bool = False
    """Registered in a ledger that was replaced by an older copy."""
    purged: bool = False
    """Whether names, details and messages were erased."""
    pay_on: datetime.date | None = None
    """The day of all its rows (--pay-on)."""
    returned: dict[int, str] = field(default_factory=dict)
    """Payments that came back: whether a person has seen it, or withdrawn it since."""
    return_codes: dict[int, tuple[str, datetime.date]] = field(default_factory=dict)
    """The bank's code and day of each."""
    cancelled: set[int] = field(default_factory=set)
    """Payments that a person took back before they were sent."""

    @property
    def doubts(self) -> int:
        return sum(state in ("in_doubt", "sending") for state in self.states.values())

    def row(self, number: int) -> Row | None:
        return next((row for row in self.rows if row.number == number), None)

    def day_of(self, number: int) -> datetime.date | None:
        """Return the day before which a payment is not sent; None if it has none."""
        row = self.row(number)
        return self.pay_on or day_of(row.pay_on if row else "")
