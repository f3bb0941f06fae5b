"""What in the ledger needs attention: rows and cents by state, doubts with their age, batches that wait.

Read for `health`, for the metrics and for the end of every call, so that they all report the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, LedgerRow
from batchpay.payment import Environment, State, Totals, added_up


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
    """What a killed run was sending counts as in doubt."""
    in_doubt: Sequence[OpenBatch]
    """Batches with rows in doubt, the oldest doubt first."""
    waiting: Sequence[OpenBatch]
    """Batches with pending rows, the one that has waited longest first."""

    @property
    def oldest_doubt(self) -> datetime | None:
        """When the oldest row in doubt was sent."""
        return self.in_doubt[0].since if self.in_doubt else None


@dataclass(frozen=True, slots=True)
class BatchDoubts:
    """What of a batch may or may not have been paid."""

    apart: Mapping[str, Totals]
    """These rows by DEBIT and CREDIT; without any there is nothing."""
    abandoned: Sequence[LedgerRow]
    """Those of them that a run was sending when it was killed: whatever takes over the batch puts them in doubt."""

    @classmethod
    def of(cls, ledger: Ledger, batch: BatchSummary) -> BatchDoubts:
        """Read what is in doubt, also where nobody has taken over the batch: its file may be gone, and nobody may."""
        abandoned = ledger.abandoned(batch)
        killed = [{row.direction: Totals(1, row.amount_cents)} for row in abandoned]
        recorded = batch.apart[State.IN_DOUBT] if batch.by_state[State.IN_DOUBT].rows else {}
        return cls(added_up([recorded, *killed]), abandoned)


def read_ledger_state(ledger: Ledger, environment: Environment) -> LedgerState:
    """Read the state from the ledger's totals; only batches with doubts are read row by row."""
    by_state = dict.fromkeys(State, Totals())
    in_doubt: list[OpenBatch] = []
    waiting: list[OpenBatch] = []
    batches = [batch for batch in ledger.batches() if batch.environment is environment]
    for batch in batches:
        for state, totals in batch.by_state.items():
            by_state[state] += totals
        doubts = BatchDoubts.of(ledger, batch)
        for row in doubts.abandoned:
            by_state[State.SENDING] -= Totals(1, row.amount_cents)
            by_state[State.IN_DOUBT] += Totals(1, row.amount_cents)
        if doubts.apart:
            since = _oldest_doubt(ledger, batch, doubts.abandoned)
            in_doubt.append(OpenBatch(batch.batch, batch.file, doubts.apart, since))
        if batch.by_state[State.PENDING].rows:
            since = ledger.last_progress_at(batch.batch)
            waiting.append(OpenBatch(batch.batch, batch.file, batch.apart[State.PENDING], since, batch.stopped))
    in_doubt.sort(key=lambda one: one.since)
    waiting.sort(key=lambda one: one.since)
    return LedgerState(environment, len(batches), by_state, in_doubt, waiting)


def _oldest_doubt(ledger: Ledger, batch: BatchSummary, abandoned: Sequence[LedgerRow]) -> datetime:
    """Return when the first of a batch's doubts was sent; rows whose sending a restored ledger forgot have no time."""
    recorded = ledger.row_columns(batch.batch, [State.IN_DOUBT]) if batch.by_state[State.IN_DOUBT].rows else ()
    times = [*(time for columns in recorded for time in columns.sent_at), *(row.sent_at for row in abandoned)]
    return min((time for time in times if time is not None), default=batch.registered_at)
