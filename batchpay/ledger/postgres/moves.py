"""Moving rows from state to state other than by a run's groups: compare-and-set, with totals and chunks.

Every such change goes through `Mover`, which asserts the table of legal moves (ledger/states.py) and appends the event
that records them, in one transaction that holds the batch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from batchpay.errors import LedgerDamaged
from batchpay.ledger.encoding import now_ms
from batchpay.ledger.event_chain import write_ranges
from batchpay.ledger.keys import Keys
from batchpay.ledger.postgres import company_statements as company_sql
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.store import Transaction
from batchpay.ledger.states import (
    IN_DOUBT,
    OPEN,
    PENDING,
    REJECTED,
    SENDING,
    STATE_CODES,
    STATES,
    IllegalMove,
    require,
    require_outcome,
    require_person,
)
from batchpay.ledger.totals import TotalsDelta
from batchpay.payment import Outcome

_Text = TypeVar("_Text", str, str | None)


def storable(text: _Text) -> _Text:
    """Give a text as PostgreSQL can hold it: it has no place for a NUL, nor for half a character."""
    return None if text is None else text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def attempt_seal(keys: Keys, batch: int, row: int, attempt: int, values: Sequence[Any]) -> bytes:
    """Authenticate how an attempt ended: sent_at, state, finished_at, status, code, message, reference, reason."""
    return keys.seal_values("attempt", (batch, row, attempt, *values))


class Mover:
    """The rows of one batch that one event moves."""

    def __init__(self, transaction: Transaction, batch: int, event: str, who: str, why: str | None = None) -> None:
        require_person(event, who, why)
        self._event, self._who, self._why = event, who, why
        self._transaction = transaction
        self._batch = batch
        self._changes = TotalsDelta()
        self._closed: Counter[int] = Counter()
        self._moved: defaultdict[int, list[int]] = defaultdict(list)
        transaction.execute(sql.LOCK_BATCH, (batch,))

    def move(self, rows: Sequence[int], before: int, after: int) -> list[int]:
        """Move those of the rows that are in the state `before`; gives them, in order.

        Raises IllegalMove where the table does not have the move.
        """
        require(self._event, before, after)
        if not rows:
            return []
        found = self._transaction.execute(sql.MOVE_ROWS, (after, self._batch, list(rows), before)).fetchall()
        return self._take(before, after, [row[:4] for row in found])

    def reject(self, rows: Sequence[int], reasons: str) -> list[int]:
        """Reject those of the rows that are pending; gives them, in order. Raises IllegalMove where one was sent."""
        require(self._event, PENDING, REJECTED)
        sent = self._transaction.one(sql.MAY_HAVE_BEEN_SENT, (self._batch, list(rows)))
        if sent is not None:
            raise IllegalMove(f"row {sent[0]} may have been sent, so it can't be rejected any more")
        facts = self._transaction.execute(sql.FACTS, (self._batch, list(rows))).fetchall()
        keys = self._transaction.keys
        seals = [rejected_seal(keys, self._batch, row, line, cents, reasons) for row, line, cents in facts]
        values = ([row for row, *_ in facts], [reasons] * len(facts), seals, self._batch)
        found = self._transaction.execute(sql.REJECT_ROWS, values).fetchall()
        return self._take(PENDING, REJECTED, found)

    def end(self, row: int, attempt: int, outcome: Outcome, at: int) -> bool:
        """Move a row from sending to what its very attempt proved; tells whether it was still in it."""
        require_outcome(self._event, outcome)
        if self._transaction.one(sql.STILL_IN_ATTEMPT, (self._batch, row, SENDING, attempt)) is None:
            return False
        state, answer = STATE_CODES[outcome.state], outcome.answer
        self.move([row], SENDING, state)
        self._note(row, (answer.http_status, answer.response_code, answer.message), state, at, outcome.reason,
                   answer.gateway_reference)  # fmt: skip
        return True

    def end_late(self, row: int, attempt: int, outcome: Outcome, run: int) -> bool:
        """Move a row in doubt to what its very attempt proved after all; tells whether it still was in doubt."""
        state, answer = STATE_CODES[outcome.state], outcome.answer
        require(self._event, IN_DOUBT, state)
        require_outcome("progress", outcome)
        if self._transaction.one(company_sql.STILL_IN_DOUBT_OF_RUN, (self._batch, row, attempt, run)) is None:
            return False
        self.move([row], IN_DOUBT, state)
        self._note(row, (answer.http_status, answer.response_code, answer.message), state, now_ms(), outcome.reason,
                   answer.gateway_reference)  # fmt: skip
        return True

    def note_attempts(
        self,
        rows: Sequence[int],
        state: int,
        reason: str,
        *,
        at: int | None,
        references: Mapping[int, str | None] | None = None,
    ) -> None:
        """Record on rows' latest attempts what became of them other than by an answer."""
        for row in rows:
            self._note(row, None, state, at, reason, (references or {}).get(row))

    def _note(self, row: int, answer: Any, state: int, at: int | None, reason: str, reference: str | None) -> None:
        found = self._transaction.one(sql.LATEST_ATTEMPTS, (self._batch, [row]))
        if found is None:
            raise LedgerDamaged(f"the ledger is damaged: row {row} is not there")
        _, attempt, sent_at, finished, *known, reference_known = found
        status, code, message = known if answer is None else answer
        values = (
            sent_at, state, at or finished, status, storable(code), storable(message),
            storable(reference or reference_known), storable(reason),
        )  # fmt: skip
        seal = attempt_seal(self._transaction.keys, self._batch, row, attempt, values)
        self._transaction.execute(sql.NOTE_ATTEMPT, (self._batch, row, attempt, *values, seal))

    def rows_in(self, state: int) -> list[int]:
        """Rows of the batch in a state, in file order."""
        return [row for (row,) in self._transaction.execute(sql.ROWS_IN, (self._batch, state)).fetchall()]

    def _take(self, before: int, after: int, found: Sequence[tuple[Any, ...]]) -> list[int]:
        for row, cents, direction, chunk in sorted(found):
            self._changes.move(before, after, direction, [cents])
            if before in OPEN and after not in OPEN:
                self._closed[chunk] += 1
            self._moved[after].append(row)
        return sorted(row for row, *_ in found)

    def finish(self, **more: Any) -> None:
        """Write totals, erase the bodies of chunks with no open row, append the event if there is anything to tell."""
        self._transaction.write_totals(self._changes, self._batch)
        for chunk, rows in self._closed.items():
            left = self._transaction.one(sql.CLOSE_ROWS, (rows, self._batch, chunk))
            if left is None:
                raise LedgerDamaged(f"the ledger is damaged: chunk {chunk} is not there")
            if left[0] == 0:
                self._transaction.execute(sql.ERASE_BODY, (self._batch, chunk))
        detail = {STATES[state].value: write_ranges(rows) for state, rows in self._moved.items()} | more
        if detail:
            self._transaction.event(self._event, self._batch, self._who, self._why, detail)


def rejected_seal(keys: Keys, batch: int, row: int, line: int | None, cents: int, reasons: str) -> bytes:
    """Authenticate what a rejected row says."""
    return keys.seal_values("rejected", (batch, row, line, cents, reasons))
