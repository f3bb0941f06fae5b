"""What a ledger asks of any database: the same statements by name, views of one moment, durable transactions.

What is the same wherever a ledger is kept stands once, beside this file, and knows its database by these protocols
alone. What is done in another way in each (locks, many rows at once, shared batches) stands in sqlite/ and postgres/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from batchpay.ledger.keys import Keys
from batchpay.ledger.totals import TotalsDelta

Parameters = Sequence[Any] | Mapping[str, Any]


class Statements(Protocol):
    """Those statements that run in every database (statements.py in each); values are parameters."""

    REGISTRATION_COUNT: str
    NAMED_EVENTS: str
    LATEST_EVENT: str
    LAST_OF_KINDS: str
    LAST_EVENT_OF_BATCH: str
    PURGED_AT: str
    PLANS_USED: str
    LET_THROUGH: str
    BATCHES: str
    BATCH_OF_DIGEST: str
    LATEST_BATCH: str
    BATCH_NAMED: str
    BATCHES_BEGINNING: str
    BATCH_BY_NAME: str
    BATCH_NAMES: str
    NAMES_LIKE: str
    ADD_BATCH: str
    COUNT_BATCHES: str
    ORIGINS: str
    ORIGIN_OF_BATCH: str
    MOVE_BATCH: str
    TOTALS: str
    TOTALS_OF_BATCH: str
    BATCHES_OUT_OF_TOTALS: str
    ROWS_WITHOUT_BILL: str
    BATCH_AS_REGISTERED: str
    REFERENCES: str
    REJECTED_ROWS: str
    CLOSE_ROWS: str
    ERASE_BODY: str
    DETAIL: str
    REMEMBER_PAYEES: str


class Found(Protocol):
    """What a statement found."""

    def fetchone(self) -> Any:
        """Give the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Give all rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """Give row after row."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""


class View(Protocol):
    """A connection that reads in one consistent view."""

    def execute(self, statement: str, parameters: Any = ..., /) -> Found:
        """Run a statement."""


class Transaction(View, Protocol):
    """A write transaction: all of it will stand, or nothing."""

    @property
    def statements(self) -> Statements:
        """The database's own words for what every ledger asks."""

    @property
    def keys(self) -> Keys:
        """The ledger's keys."""

    def one(self, statement: str, parameters: Parameters = ...) -> tuple[Any, ...] | None:
        """Run a statement; gives its first row."""

    def event(self, kind: str, batch: int | None, who: str, why: str | None, detail: dict[str, Any]) -> object:
        """Append a line to the history."""

    def write_totals(self, changes: TotalsDelta, batch: int) -> None:
        """Write changes of a batch's control totals."""

    def registrations(self) -> int:
        """Count registrations and releases; until this transaction ends no other adds any, nor uses a plan."""


class Store(Protocol):
    """A ledger's database, as a program reaches it."""

    @property
    def keys(self) -> Keys:
        """The ledger's keys."""

    @property
    def statements(self) -> Statements:
        """The database's own words for what every ledger asks."""

    def reading(self) -> AbstractContextManager[View]:
        """Read in one consistent view, without waiting for writers; what can't be read is LedgerDamaged."""

    def stream(self, view: Any, statement: str, parameters: Parameters = ...) -> Iterator[tuple[Any, ...]]:
        """Give what a statement finds in a view, however many rows it is."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One durable transaction: all of it stands when the block has been left, or nothing does."""

    def close(self) -> None:
        """Give back files, connections and locks."""
