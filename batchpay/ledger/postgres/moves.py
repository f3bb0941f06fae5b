"""Moving rows of a ledger in a database other than in a run's groups, in a transaction that holds the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from batchpay.errors import LedgerDamaged
from batchpay.ledger import mover, states
from batchpay.ledger.keys import Keys
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.store import PostgresTransaction
from batchpay.outcome import Outcome

_ROWS_AT_ONCE = 4096
_Text = TypeVar("_Text", str, str | None)


def storable(text: _Text) -> _Text:
    """Return a text as PostgreSQL can store it: it has no room for a NUL, nor for half a character."""
    return None if text is None else text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def attempt_seal(keys: Keys, batch: int, row: int, attempt: int, values: Sequence[Any]) -> bytes:
    """Authenticate how an attempt ended: sent_at, state, finished_at, status, code, message, reference, reason."""
    return keys.seal_values("attempt", (batch, row, attempt, *values))


def erase_texts(transaction: PostgresTransaction, batch: int) -> int:
    """Erase details and messages of a batch, and authenticate its attempts without; return the number of messages."""
    transaction.execute(sql.ERASE_DETAILS, (batch,))
    row = attempt = erased = 0
    while found := transaction.execute(sql.TEXTS_OF_ATTEMPTS, (batch, row, attempt, _ROWS_AT_ONCE)).fetchall():
        seals = [
            attempt_seal(transaction.keys, batch, row, attempt, (*kept, status, code, None, reference, None))
            for row, attempt, *kept, status, code, reference in found
        ]
        rows, attempts = [row for row, *_ in found], [attempt for _, attempt, *_ in found]
        transaction.execute(sql.ERASE_TEXTS, (rows, attempts, seals, batch))
        erased += len(found)
        row, attempt = rows[-1], attempts[-1]
    return erased


class PostgresMover(mover.Mover):
    """The rows of one batch that one event moves."""

    def __init__(
        self, transaction: PostgresTransaction, batch: int, event: str, who: str, why: str | None = None
    ) -> None:
        super().__init__(transaction, batch, event, who, why)
        transaction.hold_batch(batch)

    def move(self, rows: Sequence[int], before: int, after: int) -> list[int]:
        states.require(self._event, before, after)
        if not rows:
            return []
        found = self._transaction.execute(sql.MOVE_ROWS, (after, self._batch, list(rows), before)).fetchall()
        return self._take(before, after, [row[:4] for row in found])

    def reject(self, rows: Sequence[int], reasons: str) -> list[int]:
        states.require(self._event, states.PENDING, states.REJECTED)
        sent = self._transaction.one(sql.MAY_HAVE_BEEN_SENT, (self._batch, list(rows)))
        if sent is not None:
            raise states.IllegalMove(f"row {sent[0]} may have been sent, so it can't be rejected any more")
        facts = self._transaction.execute(sql.FACTS, (self._batch, list(rows))).fetchall()
        seals = [rejected_seal(self._keys, self._batch, row, line, cents, reasons) for row, line, cents in facts]
        values = ([row for row, *_ in facts], [reasons] * len(facts), seals, self._batch)
        found = self._transaction.execute(sql.REJECT_ROWS, values).fetchall()
        return self._take(states.PENDING, states.REJECTED, found)

    def end(self, row: int, attempt: int, outcome: Outcome, at: int) -> bool:
        """Move a row from sending to what its very attempt proved; return whether it was still in that attempt."""
        states.require_outcome(self._event, outcome)
        still = self._transaction.one(sql.STILL_IN_ATTEMPT, (self._batch, row, states.SENDING, attempt))
        return still is not None and self._end(row, states.SENDING, outcome, at)

    def _end(self, row: int, before: int, outcome: Outcome, at: int) -> bool:
        state, answer = states.STATE_CODES[outcome.state], outcome.answer
        self.move([row], before, state)
        self._note(row, state, at, outcome.reason, answer.gateway_reference,
                   (answer.http_status, answer.response_code, answer.message))  # fmt: skip
        return True

    def end_late(self, row: int, attempt: int, outcome: Outcome, run: int) -> bool:
        """Move a row in doubt to what its very attempt proved after all; return whether it was still in doubt."""
        states.require(self._event, states.IN_DOUBT, states.STATE_CODES[outcome.state])
        states.require_outcome("progress", outcome)
        still = self._transaction.one(sql.STILL_IN_DOUBT_OF_RUN, (self._batch, row, attempt, run))
        return still is not None and self._end(row, states.IN_DOUBT, outcome, self.now_ms())

    def _note(
        self, row: int, state: int, at: int | None, reason: str, reference: str | None, answer: Sequence[Any] = ()
    ) -> None:
        found = self._transaction.one(sql.LATEST_ATTEMPTS, (self._batch, [row]))
        if found is None:
            raise LedgerDamaged(f"the ledger is damaged: row {row} is missing")
        _, attempt, sent_at, finished, *known, reference_known = found
        status, code, message = answer or known
        values = (
            sent_at, state, at or finished, status, storable(code), storable(message),
            storable(reference or reference_known), storable(reason),
        )  # fmt: skip
        seal = attempt_seal(self._keys, self._batch, row, attempt, values)
        self._transaction.execute(sql.NOTE_ATTEMPT, (self._batch, row, attempt, *values, seal))

    def standing(self, row: int) -> tuple[int, int] | None:
        found = self._transaction.one(sql.STANDING_OF_ROW, (self._batch, row))
        return None if found is None else (found[0], found[1])

    def rows_in(self, state: int) -> list[int]:
        return [row for (row,) in self._transaction.execute(sql.ROWS_IN, (self._batch, state)).fetchall()]

    def _take(self, before: int, after: int, found: Sequence[tuple[Any, ...]]) -> list[int]:
        for row, cents, direction, chunk in sorted(found):
            self._has_moved(row, before, after, direction, cents, chunk)
        return sorted(row for row, *_ in found)


def rejected_seal(keys: Keys, batch: int, row: int, line: int | None, cents: int, reasons: str) -> bytes:
    """Authenticate what a rejected row says."""
    return keys.seal_values("rejected", (batch, row, line, cents, reasons))
