"""Moving rows from state to state: compare-and-set, with their totals and their chunk's open rows.

Every change of a row's state after its registration goes through `Mover`, which asserts the table of legal moves
(ledger/states.py) and appends the event that records them, in one transaction.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from batchpay.errors import LedgerDamaged
from batchpay.ledger.encoding import ROW_MASK, row_id
from batchpay.ledger.event_chain import write_ranges
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import Transaction
from batchpay.ledger.states import (
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
from batchpay.text import row_count

_NINE = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROWS_A_STATEMENT = 100
"""Nine values each are fewer than the 999 that any SQLite takes."""


class Mover:
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

    def move(self, row: int, before: int, after: int, reasons: str | None = None) -> bool:
        """Move a row if it is in the state `before`; tells whether it was. `reasons` stand on a rejected row only.

        Raises IllegalMove where the table does not have the move.
        """
        require(self._event, before, after)
        identity = row_id(self._batch, row)
        if after == REJECTED:
            self._require_unsent(identity)
        seal = self._seal_of_rejected(identity, reasons) if reasons is not None else None
        found = self._transaction.execute(sql.MOVE_ROW, (after, reasons, seal, identity, before)).fetchall()
        if not found:
            return False
        cents, direction, chunk = found[0]
        self._changes.move(before, after, direction, [cents])
        if before in OPEN and after not in OPEN:
            self._closed[chunk] += 1
        self._moved[after].append(row)
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

    def note_attempt(self, row: int, state: int, reason: str, *, at: int | None, reference: str | None = None) -> None:
        """Record on a row's attempt what became of it other than by an answer."""
        identity = row_id(self._batch, row)
        found = self._transaction.execute(
            sql.ATTEMPT,
            (identity,),
        ).fetchone()
        sent, finished, *answer, known = found or (None,) * 6
        end = (state, at or finished, *answer, reference or known, reason)
        self._transaction.execute(
            sql.NOTE_ATTEMPT,
            (identity, *end, self._keys.seal_values("attempt", (identity, sent, *end))),
        )

    def ids_in(self, state: int) -> list[int]:
        """Rows of the batch in a state, in file order."""
        first, end = row_id(self._batch, 0), row_id(self._batch + 1, 0)
        found = self._transaction.execute(
            sql.ids_in(state),
            (first, end),
        )
        return [identity & ROW_MASK for (identity,) in found]

    def finish(self, **more: Any) -> None:
        """Write totals, erase the bodies of chunks with no open row, append the event if there is anything to tell.

        The event holds the rows moved, and `more` of its own.
        """
        self._transaction.write_totals(self._changes, self._batch)
        for chunk, rows in self._closed.items():
            left = self._transaction.execute(sql.CLOSE_ROWS, (rows, chunk)).fetchall()
            if not left:
                raise LedgerDamaged(f"the ledger is damaged: chunk {chunk} is not there")
            if left[0][0] == 0:
                self._transaction.execute(sql.ERASE_BODY, (chunk,))
        detail = {STATES[state].value: write_ranges(rows) for state, rows in self._moved.items()} | more
        if detail:
            self._transaction.event(self._event, self._batch, self._who, self._why, detail)

    def _seal_of_rejected(self, identity: int, reasons: str) -> bytes:
        found = self._transaction.execute(sql.REJECTED_FACTS, (identity,)).fetchone()
        return self._keys.seal_values("rejected", (identity, *(found or ()), reasons))

    def _require_unsent(self, identity: int) -> None:
        found = self._transaction.execute(
            sql.ATTEMPT_NOT_PENDING,
            (identity,),
        ).fetchone()
        if found:
            raise IllegalMove(f"row {identity & ROW_MASK} may have been sent, so it can't be rejected any more")

    def _refuse_contradiction(self, identity: int) -> None:
        """Stop where the row says pending and its attempt says otherwise: never send on one damaged byte."""
        found = self._transaction.execute(
            sql.ROW_IS_PENDING,
            (identity,),
        ).fetchone()
        if found:
            raise LedgerDamaged(f"the ledger is damaged: row {identity & ROW_MASK} is pending, and its attempt is not")
