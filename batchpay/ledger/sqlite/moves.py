"""Moving rows of a ledger in a file: one by one, or a whole group of a run."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from batchpay.errors import LedgerDamaged
from batchpay.ledger import mover, states
from batchpay.ledger.days import SendingDay
from batchpay.ledger.event_chain import id_range, row_id
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import SqliteTransaction
from batchpay.outcome import Outcome
from batchpay.text import write_ranges

Claimed = tuple[int, int, int, int]
"""A row that was seen to be pending: how many attempts it had, its chunk, its cents and its direction."""
BeingSent = tuple[int, int, int, int, int]
"""A row that is being sent: the number of its attempt, since when, its chunk, its cents and its direction."""


class NotAsClaimed(LedgerDamaged):
    """Not all rows of a group are as they were when claimed; this means damage only if they were just looked up."""


class SqliteMover(mover.Mover):
    """The rows of one batch that one event moves."""

    _transaction: SqliteTransaction

    def __init__(
        self, transaction: SqliteTransaction, batch: int, event: str, who: str, why: str | None = None
    ) -> None:
        super().__init__(transaction, batch, event, who, why)
        self._of_day: Counter[int] = Counter()

    def move(self, rows: Sequence[int], before: int, after: int) -> list[int]:
        states.require(self._event, before, after)
        return [row for row in rows if self._move(row, before, after)]

    def reject(self, rows: Sequence[int], reasons: str) -> list[int]:
        states.require(self._event, states.PENDING, states.REJECTED)
        return [row for row in rows if self._move(row, states.PENDING, states.REJECTED, reasons)]

    def _move(self, row: int, before: int, after: int, reasons: str | None = None) -> bool:
        identity, seal = row_id(self._batch, row), None
        if after == states.REJECTED:
            if self._transaction.one(sql.ATTEMPT_NOT_PENDING, (identity,)):
                raise states.IllegalMove(f"row {row} may have been sent, so it can't be rejected any more")
            facts = self._transaction.one(sql.REJECTED_FACTS, (identity,)) or ()
            seal = self._keys.seal_values("rejected", (identity, *facts, reasons))
        found = self._transaction.one(sql.MOVE_ROW, (after, reasons, seal, identity, before))
        if found is None:
            return False
        cents, direction, chunk = found
        self._has_moved(row, before, after, direction, cents, chunk)
        return True

    def grantable(self, rows: Sequence[int]) -> dict[int, Claimed]:
        """Read what `grant` needs for those of the rows that are pending, and that no attempt contradicts."""
        first = row_id(self._batch, 0)
        asked = set(rows)
        found = self._transaction.execute(sql.GRANTABLE, (json.dumps([first | row for row in asked]),)).fetchall()
        grantable = {row: (attempts, chunk, cents, direction) for row, attempts, chunk, cents, direction in found}
        for row in asked - grantable.keys():
            if self._transaction.one(sql.ROW_IS_PENDING, (first | row,)):  # one damaged byte must never send a payment
                raise LedgerDamaged(f"the ledger is damaged: row {row} is pending, and its attempt is not")
        return grantable

    def grant(self, rows: Mapping[int, Claimed], at: int, day: SendingDay) -> dict[int, BeingSent]:
        """Move rows from pending to sending; return what `end` needs for them. May raise NotAsClaimed.

        That each is pending, and that no attempt contradicts it, is checked where row and attempt change.
        """
        states.require(self._event, states.PENDING, states.SENDING)
        if not rows:
            return {}
        granted: dict[int, BeingSent] = {}
        amounts: defaultdict[int, list[int]] = defaultdict(list)
        for row, (attempts, chunk, cents, direction) in rows.items():
            granted[row] = (attempts + 1, at, chunk, cents, direction)
            amounts[direction].append(cents)
        for direction, moved in amounts.items():
            self._changes.move(states.PENDING, states.SENDING, direction, moved)
            self._of_day[direction] += sum(moved)
        self._moved[states.SENDING].extend(rows)
        ids, which = self._ids(rows)
        for statement, parameters in ((sql.GRANT[ids], which), (sql.BEGIN_ATTEMPTS[ids], (at, day.day, *which))):
            if self._transaction.execute(statement, parameters).rowcount != len(rows):
                raise NotAsClaimed(f"the ledger is damaged: rows {write_ranges(rows)} are not all pending any more")
        self._transaction.execute(sql.COUNT_GRANTED[ids], (day.environment, day.day, *which))
        return granted

    def end(self, outcomes: Mapping[int, Outcome], sent: Mapping[int, BeingSent], at: int) -> None:
        """Move rows from sending to what their attempts proved; raises LedgerDamaged if one is not in sending.

        `sent` is what `grant` returned for them. That rows and attempts are still being sent is checked where they
        change.
        """
        first, lines = row_id(self._batch, 0), []
        by_state: defaultdict[int, list[int]] = defaultdict(list)
        for row, outcome in sorted(outcomes.items()):
            states.require_outcome(self._event, outcome)
            _, sent_at, chunk, cents, direction = sent[row]
            end = (states.STATE_CODES[outcome.state], at, *outcome.answer, outcome.reason)
            lines.append((*end, self._keys.seal_values("attempt", (first | row, sent_at, *end)), first | row))
            self._has_moved(row, states.SENDING, end[0], direction, cents, chunk)
            if end[0] in (states.PENDING, states.DECLINED):
                self._of_day[direction] -= cents
            by_state[end[0]].append(row)
        ended = 0
        for state, rows in by_state.items():
            ids, which = self._ids(rows)
            ended += self._transaction.execute(sql.END_SENDING[ids], (state, *which)).rowcount
        attempts = self._transaction.connection.executemany(sql.END_ATTEMPT, lines).rowcount if lines else 0
        if not attempts == ended == len(lines):
            raise LedgerDamaged(
                f"the ledger is damaged: of rows {write_ranges(outcomes)}, which were being sent, {ended} are,"
                f" and {attempts} of their attempts"
            )

    def count_day(self, day: SendingDay) -> None:
        """Add what a run has granted and ended since the last call to what was sent on its day."""
        for direction, cents in self._of_day.items():
            if cents:
                self._transaction.execute(sql.ADD_TO_DAY, (day.environment, day.day, direction, cents))
        self._of_day.clear()

    def _ids(self, rows: Collection[int]) -> tuple[sql.Ids, tuple[Any, ...]]:
        """Return which rows a statement is about: a range, as rows in file order usually are, or a list."""
        first = row_id(self._batch, 0)
        least, last = min(rows), max(rows)
        if last - least == len(rows) - 1:
            return "range", (first | least, first | last)
        return "list", (json.dumps([first | row for row in rows]),)

    def _note(self, row: int, state: int, at: int | None, reason: str, reference: str | None) -> None:
        identity = row_id(self._batch, row)
        sent, finished, *answer, known = self._transaction.one(sql.ATTEMPT, (identity,)) or (None,) * 6
        end = (state, at or finished, *answer, reference or known, reason)
        seal = self._keys.seal_values("attempt", (identity, sent, *end))
        self._transaction.execute(sql.NOTE_ATTEMPT, (identity, *end, seal))

    def rows_in(self, state: int) -> list[int]:
        return [row for (row,) in self._transaction.execute(sql.ROWS_IN_STATE.format(state), id_range(self._batch))]

    def standing(self, row: int) -> tuple[int, int] | None:
        found = self._transaction.one(sql.STANDING_OF_ROW, (row_id(self._batch, row),))
        return None if found is None else (found[0], found[1])
