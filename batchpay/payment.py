"""The words that both halves of batchpay share: states of a row, who acts, money in cents.

A leaf: it imports nothing of batchpay and nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import ClassVar

_GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3})+\.[0-9]{2}", re.ASCII)
_AMOUNT = re.compile(r"([0-9]{1,15})\.([0-9]{2})", re.ASCII)
"""Below 2^63 cents, as the ledger keeps them."""


class State(StrEnum):
    """The state of a row, and what a crash leaves of it.

    Code that runs for every row keeps the states it needs: before Python 3.12 the lookup of `State.PENDING` is slow.
    """

    __hash__ = str.__hash__  # Enum's own is plain Python, and some ten lookups are made per row by its state

    REJECTED = "rejected"
    """Failed a rule; never sent. A crash changes nothing."""
    PENDING = "pending"
    """Valid, not sent. The next run sends it."""
    SENDING = "sending"
    """Durably recorded before the first byte leaves. A run that finds it so puts it in doubt, never sends it again."""
    ACCEPTED = "accepted"
    """The gateway answered yes, completely and recognizably. Final."""
    DECLINED = "declined"
    """The gateway answered no. Final."""
    IN_DOUBT = "in_doubt"
    """Bytes left and no recognized answer came back. Stays so until a named person resolves it."""

    @property
    def words(self) -> str:
        """The state as people read it: in doubt."""
        return self.value.replace("_", " ")


class SamePayment(IntEnum):
    """How an earlier payment matches a row; if several apply, the highest counts."""

    ANOTHER_ID = 1
    """The same bill under another paymentId, long ago."""
    DECLINED = 2
    """Any of these, but a person recorded that it was declined when it was in doubt."""
    BILL = 3
    """The same bill."""
    PAYMENT_ID = 4


class Direction(StrEnum):
    """Which way the money moves: the values of transactionType."""

    DEBIT = "DEBIT"
    CREDIT = "CREDIT"


_RUNNING_AS = "login, running as "
ON_THE_WEB = "web"
"""How the identity of whoever acts on the web page is known begins with this word."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: recorded with everything that is decided, registered or sent."""

    name: str
    host: str
    """The machine that the request came from."""
    authenticated_by: str = ""
    """How the identity is known; blank where the operating system provides it."""

    @classmethod
    def by_login(cls, name: str, host: str, account: str) -> Actor:
        """Name a person whose login the kernel recorded, and the account that they act under."""
        return cls(name, host, f"{_RUNNING_AS}{account}")

    @classmethod
    def read(cls, text: str) -> Actor:
        """Return the actor whom the ledger's history names so."""
        named, _, authenticated_by = text.partition(" by ")
        if named.endswith(f" ({ON_THE_WEB})"):
            return cls(named.removesuffix(f" ({ON_THE_WEB})"), "", ON_THE_WEB)
        name, _, host = named.rpartition("@")
        return cls(name or host, host, authenticated_by)

    @property
    def account(self) -> str:
        """The account that the command ran under: for a person without another login, their own name."""
        return self.authenticated_by.removeprefix(_RUNNING_AS) if self.is_by_login else self.name

    @property
    def is_by_login(self) -> bool:
        """Whether the kernel recorded a login other than the account."""
        return self.authenticated_by.startswith(_RUNNING_AS)

    def __str__(self) -> str:
        """Write the actor as the ledger's history names them."""
        if self.authenticated_by.startswith(ON_THE_WEB):
            return f"{self.name} ({ON_THE_WEB})"
        suffix = f" by {self.authenticated_by}" if self.authenticated_by else ""
        return f"{self.name}@{self.host}{suffix}"


class Environment(StrEnum):
    """The two environments that a batch, its duplicates and its gateway belong to, and that never mix."""

    LIVE = "live"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Totals:
    """Control totals: number of rows and sum of cents."""

    rows: int = 0
    cents: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.rows + other.rows, self.cents + other.cents)

    def __sub__(self, other: Totals) -> Totals:
        return Totals(self.rows - other.rows, self.cents - other.cents)


def added_up(parts: Iterable[Mapping[str, Totals]]) -> dict[str, Totals]:
    """Add up what is counted by DEBIT and CREDIT."""
    added: dict[str, Totals] = {}
    for part in parts:
        for name, totals in part.items():
            added[name] = added.get(name, Totals()) + totals
    return added


def parse_cents(text: str) -> int | None:
    """Return the cents of an amount written as RULES.md requires (`12.50`), None for any other."""
    match = _AMOUNT.fullmatch(text)
    return int(match[1]) * 100 + int(match[2]) if match else None


def typed_cents(text: str) -> int | None:
    """Return the cents of an amount that a person types: `12345.67`, or with all thousands commas `12,345.67`."""
    return parse_cents(text.replace(",", "") if _GROUPED.fullmatch(text) else text)


def format_cents(cents: int) -> str:
    """Return an amount as it is written on the wire: 1250 -> `12.50`."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"


@dataclass(frozen=True, slots=True)
class RunWork:
    """What one call did with a batch."""

    STATES: ClassVar = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT)
    """States that a row has once it was sent."""
    by_state: Mapping[State, Totals] = field(default_factory=dict)
    """The rows that it brought into each of these states."""
    attempts: int = 0
    """Requests that it made."""
    refusals: int = 0
    """Those of them that the gateway refused because too many came."""
    seconds: float = 0.0

    @property
    def total(self) -> Totals:
        """Return all the rows that it sent."""
        return sum(self.by_state.values(), Totals())

    def __add__(self, other: RunWork) -> RunWork:
        by_state = {state: self.of(state) + other.of(state) for state in self.STATES}
        refusals, seconds = self.refusals + other.refusals, self.seconds + other.seconds
        return RunWork(by_state, self.attempts + other.attempts, refusals, seconds)

    def of(self, state: State) -> Totals:
        """Return the rows that it brought into a state."""
        return self.by_state.get(state, Totals())
