"""Moving rows of a ledger in a file: one by one, or a whole group of a run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from batchpay.errors import LedgerDamaged
from batchpay.ledger import mover
from batchpay.ledger.encoding import ROW_MASK, id_range, row_id
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.states import (
    OPEN,
    PENDING,
    REJECTED,
    SENDING,
    STATE_CODES,
    IllegalMove,
    require,
    require_outcome,
)
from batchpay.outcome import Outcome
from batchpay.text import row_count

_NINE = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROWS_A_STATEMENT = 100
"""Nine values each are fewer than the 999 that any SQLite takes."""


class Mover(mover.Mover):
    """The rows of one batch that one event moves."""

    def move(self, rows: Sequence[int], before: int, after: int) -> list[int]:
        require(self._event, before, after)
        return [row for row in rows if self._move(row, before, after, None, None)]

    def reject(self, rows: Sequence[int], reasons: str) -> list[int]:
        require(self._event, PENDING, REJECTED)
        return [
            row for row in rows if self._move(row, PENDING, REJECTED, reasons, self._seal_of_rejected(row, reasons))
        ]

    def _seal_of_rejected(self, row: int, reasons: str) -> bytes:
        identity = row_id(self._batch, row)
        facts = self._transaction.one(sql.REJECTED_FACTS, (identity,)) or ()
        return self._keys.seal_values("rejected", (identity, *facts, reasons))

    def _move(self, row: int, before: int, after: int, reasons: str | None, seal: bytes | None) -> bool:
        identity = row_id(self._batch, row)
        if after == REJECTED and self._transaction.one(sql.ATTEMPT_NOT_PENDING, (identity,)):
            raise IllegalMove(f"row {row} may have been sent, so it can't be rejected any more")
        found = self._transaction.one(sql.MOVE_ROW, (after, reasons, seal, identity, before))
        if found is None:
            return False
        cents, direction, chunk = found
        self._has_moved(row, before, after, direction, cents, chunk)
        return True

    def grant(self, rows: Sequence[int], at: int) -> dict[int, int]:
        """Move pending rows to sending; gives the number of each one's attempt. Others are left out."""
        require(self._event, PENDING, SENDING)
        first = row_id(self._batch, 0)
        identities = {first | row: row for row in rows}
        granted: dict[int, int] = {}
        amounts: defaultdict[int, list[int]] = defaultdict(list)
        for identity, cents, direction, attempts in self._group(sql.GRANTABLE, list(identities)):
            granted[identities.pop(identity)] = attempts + 1
            amounts[direction].append(cents)
        for direction, moved in amounts.items():
            self._changes.move(PENDING, SENDING, direction, moved)
        for identity in identities:
            self._refuse_contradiction(identity)
        if granted:
            ids = json.dumps([first | row for row in granted])
            self._all(len(granted), sql.GRANT, (ids,))
            self._all(len(granted), sql.BEGIN_ATTEMPTS, (at, ids))
            self._moved[SENDING].extend(granted)
        return granted

    def end(self, outcomes: Sequence[tuple[int, Outcome]], at: int) -> set[int]:
        """Move rows from sending to what their attempts proved; gives those that were in sending, the others stay."""
        first = row_id(self._batch, 0)
        proved = {first | row: outcome for row, outcome in outcomes}
        ended: defaultdict[int, list[int]] = defaultdict(list)
        amounts: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        attempts: list[int | str | bytearray | None] = []
        for identity, cents, direction, chunk, attempt, sent_at in self._group(sql.BEING_SENT, list(proved)):
            outcome = proved[identity]
            require_outcome(self._event, outcome)
            if attempt is None:
                row = identity & ROW_MASK
                raise LedgerDamaged(f"the ledger is damaged: row {row} was being sent, and its attempt is not recorded")
            state, answer = STATE_CODES[outcome.state], outcome.answer
            end = (
                state, at, answer.http_status, answer.response_code, answer.message, answer.gateway_reference,
                outcome.reason,
            )  # fmt: skip
            attempts += (identity, *end, bytearray(self._keys.seal_values("attempt", (identity, sent_at, *end))))
            ended[state].append(identity)
            amounts[state, direction].append(cents)
            if state not in OPEN:
                self._closed[chunk] += 1
        for (state, direction), moved in amounts.items():
            self._changes.move(SENDING, state, direction, moved)
        for state, identities in ended.items():
            self._moved[state] += [identity & ROW_MASK for identity in identities]
            self._all(len(identities), sql.END_SENDING, (state, json.dumps(identities)))
        for start in range(0, len(attempts), 9 * _ROWS_A_STATEMENT):
            some = attempts[start : start + 9 * _ROWS_A_STATEMENT]
            values = ", ".join(repeat(_NINE, len(some) // 9))
            self._all(len(some) // 9, f"{sql.END_ATTEMPTS} {values} {sql.OF_ATTEMPTS_BEING_SENT}", tuple(some))
        return {identity & ROW_MASK for identities in ended.values() for identity in identities}

    def _group(self, statement: str, identities: list[int]) -> list[list[Any]]:
        """Read the rows of a group."""
        if not identities:
            return []
        found = self._transaction.execute(statement, (json.dumps(identities),)).fetchone()
        rows: list[list[Any]] = json.loads(found[0])
        return rows

    def _all(self, count: int, statement: str, parameters: tuple[Any, ...]) -> None:
        """Change so many rows, and no other number: they were just read in this very transaction."""
        changed = self._transaction.execute(statement, parameters).rowcount
        if changed != count:
            raise LedgerDamaged(f"the ledger is damaged: of {row_count(count)} only {changed} could be changed")

    def _note(self, row: int, state: int, at: int | None, reason: str, reference: str | None) -> None:
        identity = row_id(self._batch, row)
        sent, finished, *answer, known = self._transaction.one(sql.ATTEMPT, (identity,)) or (None,) * 6
        end = (state, at or finished, *answer, reference or known, reason)
        seal = self._keys.seal_values("attempt", (identity, sent, *end))
        self._transaction.execute(sql.NOTE_ATTEMPT, (identity, *end, seal))

    def rows_in(self, state: int) -> list[int]:
        return [row for (row,) in self._transaction.execute(sql.rows_in_state(state), id_range(self._batch))]

    def _refuse_contradiction(self, identity: int) -> None:
        """Stop where the row says pending and its attempt says otherwise: never send on one damaged byte."""
        if self._transaction.one(sql.ROW_IS_PENDING, (identity,)):
            raise LedgerDamaged(f"the ledger is damaged: row {identity & ROW_MASK} is pending, and its attempt is not")
