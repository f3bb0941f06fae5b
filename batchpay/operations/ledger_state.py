"""What in the ledger needs attention: rows and cents by state, doubts with their age, batches that wait.

Read for `health`, for the metrics and for the end of every call, so that they all report the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Environment, State, Totals


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch with rows in doubt, or with rows that wait to be sent."""

    batch: str
    file: str
    apart: Mapping[str, Totals]
    """These rows by DEBIT and CREDIT."""
    since: datetime
    """When the oldest of the doubts was sent; for rows that wait, when the batch last made progress."""
    stopped: str | None = None
    """Why the last run ended early."""

    @property
    def totals(self) -> Totals:
        """All of these rows."""
        return sum(self.apart.values(), Totals())


@dataclass(frozen=True, slots=True)
class LedgerState:
    """All batches of one environment."""

    environment: Environment
    batches: int
    by_state: dict[State, Totals]
    in_doubt: Sequence[OpenBatch]
    """Batches with rows in doubt, the oldest doubt first."""
    waiting: Sequence[OpenBatch]
    """Batches with pending rows, the one that has waited longest first."""

    @property
    def oldest_doubt(self) -> datetime | None:
        """When the oldest row in doubt was sent."""
        return self.in_doubt[0].since if self.in_doubt else None


def read_ledger_state(ledger: Ledger, environment: Environment) -> LedgerState:
    """Read the state from the ledger's totals; only batches with doubts are read row by row."""
    by_state = dict.fromkeys(State, Totals())
    in_doubt: list[OpenBatch] = []
    waiting: list[OpenBatch] = []
    batches = [batch for batch in ledger.batches() if batch.environment is environment]
    for batch in batches:
        for state, totals in batch.by_state.items():
            by_state[state] += totals
        if batch.by_state[State.IN_DOUBT].rows:
            doubts = batch.apart[State.IN_DOUBT]
            in_doubt.append(OpenBatch(batch.batch, batch.file, doubts, _oldest_doubt(ledger, batch)))
        if batch.by_state[State.PENDING].rows:
            since = batch.finished_at or batch.started_at or batch.registered_at
            waiting.append(OpenBatch(batch.batch, batch.file, batch.apart[State.PENDING], since, batch.stopped))
    in_doubt.sort(key=lambda one: one.since)
    waiting.sort(key=lambda one: one.since)
    return LedgerState(environment, len(batches), by_state, in_doubt, waiting)


def _oldest_doubt(ledger: Ledger, batch: BatchSummary) -> datetime:
    """Return when the first of a batch's doubts was sent; rows whose sending a restored ledger forgot have no time."""
    times = [
        time
        for columns in ledger.row_columns(batch.batch, [State.IN_DOUBT])
        for time in columns.sent_at
        if time is not None
    ]
    return min(times, default=batch.registered_at)
