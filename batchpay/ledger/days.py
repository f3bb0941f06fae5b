"""Limits of a day: what may be sent on it in all, debits and credits apart, and to one account.

A payment counts on the day of the run that sends it, for as long as it may be paid: not if it was declined, or may be
sent again. At registration what is planned for a day counts as well: what is due on it, and what was registered today.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a check needs neither
    from batchpay.ledger.records import PendingPayment

Key = str | bytes
"""DEBIT or CREDIT, or an account's digest."""
Sums = Counter[tuple[int, Key]]
"""Cents by day (`date.toordinal()`) and by direction or account."""
_NEVER_CENTS = 1 << 62


@dataclass(frozen=True, slots=True)
class DayLimits:
    """[limits] of a day, in cents and by the setting's name; None where there is no limit."""

    max_per_day: int | None = None
    max_per_payee_day: int | None = None

    @property
    def are_set(self) -> bool:
        """Whether there is any limit."""
        return self != NO_LIMITS

    def without(self, names: Iterable[str]) -> DayLimits:
        """Return the same with nothing that exceeds those of these names; what is sent counts all the same."""
        return replace(self, **{name: _NEVER_CENTS for name in names if getattr(self, name) is not None})

    def of(self, key: Key | int) -> tuple[str, int | None]:
        """Return name and cents of the limit for a direction or an account."""
        name = "max_per_payee_day" if isinstance(key, bytes) else "max_per_day"
        return name, getattr(self, name)


NO_LIMITS = DayLimits()


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit of a day that rows would exceed."""

    name: str
    limit_cents: int
    day: int
    key: Key
    """Direction or account."""
    adds_cents: int
    """What the rows have for that day."""
    total_cents: int
    """What there would be with them."""


@dataclass(frozen=True, slots=True)
class MakerCheck:
    """What one person may add without more approvals: with what they added since a time without any."""

    name: str = ""
    account: str = ""
    """Whoever has no other name than another's account may be that person (approvals.may_be_one)."""
    since_ms: int = 0
    below_cents: int | None = None
    """The sum, debits and credits apart, from which on more people must approve; None where there is none."""
    exempt: frozenset[str] = frozenset()
    """Names of whom each registration counts by itself."""
    is_approved: bool = False
    """Whether other people have approved it: then it does not count for the next."""

    def counts(self, name: str, account: str) -> bool:
        """Return whether what such a person added counts as this one's."""
        return name not in self.exempt and (name in (self.name, self.account) or account == self.name)


@dataclass(frozen=True, slots=True)
class DayCheck:
    """The limits that a registration must keep, and the day on which it takes place."""

    limits: DayLimits = NO_LIMITS
    environment: str = ""
    today: int = 0
    begins_ms: int = 0
    maker: MakerCheck = MakerCheck()

    def sums(
        self,
        pay_on: Sequence[int | None],
        amounts_cents: Sequence[int],
        directions: Iterable[str],
        accounts: Iterable[bytes],
    ) -> Sums:
        """Add up payments, by column, by the days on which they may be sent, as far as there are limits."""
        found = Sums()
        if not self.limits.are_set:
            return found
        days = [max(self.today, day or 0) for day in pay_on] or [self.today] * len(amounts_cents)
        of_limits: tuple[tuple[int | None, Iterable[Key]], ...] = (
            (self.limits.max_per_day, directions),
            (self.limits.max_per_payee_day, accounts),
        )
        for limit, keys in of_limits:
            for day, key, cents in zip(days, keys, amounts_cents, strict=True) if limit is not None else ():
                found[day, key] += cents
        return found

    def exceeded(self, adds: Sums, known: Sums) -> Iterator[Exceeded]:
        """Yield the limits that rows with these sums would exceed, earlier days first."""
        for (day, key), cents in sorted(adds.items(), key=lambda one: (one[0][0], str(one[0][1]))):
            name, limit = self.limits.of(key)
            if limit is not None and cents and (total := known[day, key] + cents) > limit:
                yield Exceeded(name, limit, day, key, cents, total)


NO_CHECK = DayCheck()


class SendingDay:
    """The day on which a run's payments count, and which of them no longer fit its limits."""

    def __init__(self, environment: str, day: date, limits: DayLimits) -> None:
        self.environment, self.date, self.day, self.limits = environment, day, day.toordinal(), limits
        self.reached: set[str] = set()
        """Names of the limits for which rows were not sent."""
        self._least: dict[int | bytes, int] = {}
        """Cents of the smallest row that did not fit, by direction and by account."""

    def is_over(self, payment: PendingPayment) -> bool:
        """Return whether a payment can't be sent on this day: one that was no larger did not fit."""
        least = self._least
        return bool(least) and payment.cents >= min(
            least.get(payment.direction, math.inf), least.get(payment.account, math.inf)
        )

    def admit(self, rows: Iterable[tuple[int, int, int, bytes]], sent: Counter[int | bytes]) -> list[int]:
        """Return the rows that may be sent one after the other: number, cents, direction, account of each; in order.

        `sent` is what was sent on the day before them, by the codes of directions and by account.
        """
        admitted = []
        for row, cents, direction, account in rows:
            limits = {key: self.limits.of(key) for key in (direction, account)}
            over = {key: name for key, (name, most) in limits.items() if most is not None and sent[key] + cents > most}
            for key, name in over.items():
                self.reached.add(name)
                self._least[key] = min(cents, self._least.get(key, cents))
            if not over:
                admitted.append(row)
                sent[direction] += cents
                sent[account] += cents
        return admitted
