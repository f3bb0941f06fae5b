"""Moving rows from state to state: compare-and-set, with their totals and their chunk's open rows.

Every change of a row's state after its registration, except a run's group in PostgreSQL, goes through a database's
`Mover`, which asserts the table of legal moves (ledger/states.py) and appends the event that records them, in one
transaction.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from batchpay.errors import LedgerDamaged, LedgerNotUsable
from batchpay.ledger.database import Transaction
from batchpay.ledger.records import TotalsDelta
from batchpay.ledger.states import DECLINED, IN_DOUBT, OPEN, PENDING, SENDING, STATES, require_person
from batchpay.outcome import CUT, MASK, Outcome
from batchpay.payment import State
from batchpay.text import write_ranges

_Others = Mapping[int, tuple[int, int]]
"""Batch and number of another row with the same reference, by row."""


def asked_references(batch: int, outcomes: Mapping[int, Outcome]) -> dict[str, Any]:
    """Return the parameters of ROWS_WITH_REFERENCES, which looks for other rows with the references of these."""
    return {"references": json.dumps(_first_rows(outcomes)), "batch": batch}


def doubt_repeated(batch: int, outcomes: Mapping[int, Outcome], others: _Others) -> dict[int, Outcome]:
    """Return outcomes as they may be recorded: an accepted row with the reference of another row is in doubt.

    The other row was looked up, or comes before it in `outcomes`. A row may have the reference that it had before.
    """
    first, judged = _first_rows(outcomes), dict(outcomes)
    for row, outcome in outcomes.items():
        owner = first.get(outcome.answer.gateway_reference or "", row)
        where, other = others.get(owner, (batch, owner))
        if outcome.state is State.ACCEPTED and (where, other) != (batch, row):
            place = "this batch" if where == batch else "another batch"
            reason = f"accepted, with the reference of row {other} of {place} (gateway.reference_is_unique)"
            judged[row] = outcome._replace(state=State.IN_DOUBT, reason=reason)
    return judged


def _first_rows(outcomes: Mapping[int, Outcome]) -> dict[str, int]:
    """Return the first row by reference. One that was masked or cut may be that of several payments."""
    found: dict[str, int] = {}
    for row, outcome in outcomes.items():
        reference = outcome.answer.gateway_reference
        if reference and MASK not in reference and not reference.endswith(CUT):
            found.setdefault(reference, row)
    return found


class Mover(ABC):
    """The rows of one batch that one event moves."""

    def __init__(self, transaction: Transaction, batch: int, event: str, who: str, why: str | None = None) -> None:
        require_person(event, who, why)
        self._event, self._who, self._why = event, who, why
        self._keys = transaction.keys
        self._transaction = transaction
        self._batch = batch
        self._changes = TotalsDelta()
        self._closed: Counter[int] = Counter()
        self._moved: defaultdict[int, list[int]] = defaultdict(list)

    @abstractmethod
    def move(self, rows: Sequence[int], before: int, after: int) -> list[int]:
        """Move those of the rows that are in the state `before`; return them.

        Raises IllegalMove if the move is not in the table.
        """

    @abstractmethod
    def reject(self, rows: Sequence[int], reasons: str) -> list[int]:
        """Reject those of the rows that are pending; return them. Raises IllegalMove if one may have been sent."""

    def reject_all(self, rows: Sequence[int], reasons: str) -> None:
        """Reject rows, as one event; raises LedgerNotUsable if one is not pending."""
        if missing := set(rows).difference(self.reject(rows, reasons)):
            raise LedgerNotUsable(f"row {min(missing)} is not pending, so it is not rejected any more")
        self.finish()

    def doubt_sending(self) -> int:
        """Put what is still in sending in doubt, as one event, for its reason; return how many rows."""
        rows = self.move(self.rows_in(SENDING), SENDING, IN_DOUBT)
        self.note_attempts(rows, IN_DOUBT, self._why or "", at=None)
        self.finish()
        return len(rows)

    def note_attempts(
        self,
        rows: Sequence[int],
        state: int,
        reason: str,
        *,
        at: int | None,
        references: Mapping[int, str | None] | None = None,
    ) -> None:
        """Record on rows' latest attempts an outcome that did not come from an answer."""
        for row in rows:
            self._note(row, state, at, reason, (references or {}).get(row))

    @abstractmethod
    def _note(self, row: int, state: int, at: int | None, reason: str, reference: str | None) -> None:
        """Record it on one row's latest attempt."""

    def judged(self, outcomes: Mapping[int, Outcome], *, is_unique: bool) -> Mapping[int, Outcome]:
        """Return outcomes as they may be recorded where a reference is of one row alone."""
        if not is_unique or not outcomes:
            return outcomes
        asked = asked_references(self._batch, outcomes)
        found = self._transaction.execute(self._transaction.statements.ROWS_WITH_REFERENCES, asked)
        return doubt_repeated(self._batch, outcomes, {row: (batch, other) for row, batch, other in found})

    @abstractmethod
    def rows_in(self, state: int) -> list[int]:
        """Return the batch's rows in a state, in file order."""

    @abstractmethod
    def standing(self, row: int) -> tuple[int, int] | None:
        """Return a row's state and how many attempts it has had; None if there is no such row."""

    def now_ms(self) -> int:
        """Return the time that the ledger records."""
        return self._transaction.now_ms()

    def remember_payees(self) -> None:
        """Update what the ledger remembers of the batch's payees; doing it again changes nothing."""
        self._transaction.execute(self._transaction.statements.REMEMBER_PAYEES, (self._batch,))

    def _has_moved(self, row: int, before: int, after: int, direction: int, cents: int, chunk: int) -> None:
        self._changes.move(before, after, direction, [cents])
        if before in OPEN and after not in OPEN:
            self._closed[chunk] += 1
        self._moved[after].append(row)

    def finish(self, **more: Any) -> None:
        """Write totals, erase the bodies of chunks with no open row, append the event if there is anything to record.

        The event contains the rows moved, and `more` values of its own.
        """
        transaction, statements = self._transaction, self._transaction.statements
        transaction.write_totals(self._changes, self._batch)
        for chunk, rows in self._closed.items():
            place = {"batch": self._batch, "chunk": chunk}
            left = transaction.one(statements.CLOSE_ROWS, place | {"rows": rows})
            if left is None:
                raise LedgerDamaged(f"the ledger is damaged: chunk {chunk} is missing")
            if left[0] == 0:
                transaction.execute(statements.ERASE_BODY, place)
        detail = {STATES[state].value: write_ranges(rows) for state, rows in self._moved.items()} | more
        if detail:
            transaction.event(self._event, self._batch, self._who, self._why, detail)
        if self._event != "progress":  # a run counts what it sends itself
            self._count_on_days([*self._moved[PENDING], *self._moved[DECLINED]], -1)

    def _count_on_days(self, rows: Sequence[int], sign: int) -> None:
        """Add rows to what was sent on their days, or with -1 take them out. Called last: others then wait."""
        asked = {"batch": self._batch, "rows": json.dumps(rows), "sign": sign}
        for statement in self._transaction.statements.COUNT_ON_DAYS if rows else ():
            self._transaction.execute(statement, asked)

    def doubt_today(self, rows: Sequence[int], day: int) -> None:
        """Let rows count on a day that may have been sent on it, for all that the ledger knows."""
        asked = {"batch": self._batch, "rows": json.dumps(rows), "day": day}
        self._transaction.execute(self._transaction.statements.DOUBT_TODAY, asked)
        self._count_on_days(rows, 1)
