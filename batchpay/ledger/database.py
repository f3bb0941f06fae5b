"""What a ledger requires of any database: the same statements by name, consistent views, durable transactions.

What is the same for every database is written once, next to this file, and knows its database only by these protocols.
What each does differently (locks, many rows at a time, shared batches) is in sqlite/ and postgres/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.fact_statements import FactStatements
from batchpay.ledger.keys import Keys
from batchpay.ledger.records import TotalsDelta
from batchpay.ledger.witness import Witness

Parameters = Sequence[Any] | Mapping[str, Any]


Statements = Any
"""A database's own statements, by name (statements.py in each); values are parameters. Those that are run here, for all
databases, both have (tests/ledger/test_statements.py)."""


class View(Protocol):
    """A connection that reads in one consistent view."""

    def execute(self, statement: str, parameters: Any = ..., /) -> Any:
        """Run a statement; return a cursor, as the standard library's."""


class Transaction(View, Protocol):
    """A write transaction: all of it is committed, or nothing."""

    statements: Statements
    """The database's own words for what every ledger asks."""
    keys: Keys
    """The ledger's keys."""

    def execute_many(self, statement: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of many lines."""

    def one(self, statement: str, parameters: Parameters = ...) -> tuple[Any, ...] | None:
        """Run a statement; return its first row."""

    def event(self, kind: str, batch: int | None, who: str, why: str | None, detail: dict[str, Any]) -> object:
        """Append a line to the history."""

    def write_totals(self, changes: TotalsDelta, batch: int) -> None:
        """Write changes of a batch's control totals."""

    def hold_batch(self, batch: int) -> None:
        """Keep every other transaction that moves rows of a batch waiting until this one ends."""

    def now_ms(self) -> int:
        """Return the time that is recorded."""

    def registrations(self) -> int:
        """Count registrations and releases; until this transaction ends, no other adds any or uses a plan."""


class Store(Protocol):
    """A ledger's database, as a program accesses it."""

    keys: Keys
    """The ledger's keys."""
    witness: Witness
    """The witness on this machine."""
    ledger_id: str
    """Which ledger it is, in every copy of it and wherever it moved."""
    outdated: str | None
    """Why a ledger opened to be read may not know of the latest payments; None if a run could use it."""
    differences: Sequence[LedgerNotUsable]
    """See contract.Ledger."""
    statements: Statements
    """The database's own words for what every ledger asks."""
    fact_statements: FactStatements
    """The same for facts."""

    @property
    def ahead_ms(self) -> int:
        """How far the time that is recorded is later than anything explains."""

    def now_ms(self) -> int:
        """Return the time that is recorded."""

    def reading(self) -> AbstractContextManager[View]:
        """Read in one consistent view, without waiting for writers; what can't be read is LedgerDamaged."""

    def stream(self, view: Any, statement: str, parameters: Parameters = ...) -> Iterator[tuple[Any, ...]]:
        """Yield what a statement finds in a view, however many rows there are."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Run one durable transaction: all of it is committed when the block has been left, or nothing is."""

    def close(self) -> None:
        """Release files, connections and locks."""
