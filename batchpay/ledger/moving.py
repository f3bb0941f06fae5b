"""Moving rows from state to state: compare-and-set, with their totals and their chunk's open rows.

Every change of a row after its registration goes through `Mover`, inside a transaction that also appends an event.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from batchpay.errors import LedgerDamaged
from batchpay.ledger.codes import ROW_MASK, STATE_CODES, STATES, row_id, write_ranges
from batchpay.ledger.store import Transaction
from batchpay.ledger.totals import Changes
from batchpay.payment import Outcome, State

REJECTED = STATE_CODES[State.REJECTED]
PENDING = STATE_CODES[State.PENDING]
SENDING = STATE_CODES[State.SENDING]
ACCEPTED = STATE_CODES[State.ACCEPTED]
DECLINED = STATE_CODES[State.DECLINED]
IN_DOUBT = STATE_CODES[State.IN_DOUBT]
OPEN = (PENDING, SENDING, IN_DOUBT)
"""States from which a row may still be sent: its body is kept."""

_MOVE = (
    "UPDATE row SET state = ?, reasons = ?, seal = ? WHERE id = ? AND state = ?"
    " RETURNING amount_cents, direction, chunk"
)
_GRANT = (
    f"UPDATE row SET state = {SENDING}, attempts = attempts + 1 WHERE id = ? AND state = {PENDING}"  # noqa: S608
    f" AND NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.id = row.id AND attempt.state <> {PENDING})"
    " RETURNING amount_cents, direction, attempts"
)
_BEGIN_ATTEMPT = (
    f"INSERT INTO attempt (id, state, sent_at) VALUES (?, {SENDING}, ?) ON CONFLICT (id) DO UPDATE SET"  # noqa: S608
    f" state = {SENDING}, sent_at = excluded.sent_at, finished_at = NULL, http_status = NULL, response_code = NULL,"
    " message = NULL, gateway_reference = NULL, reason = NULL, seal = NULL"
)
_END_ATTEMPT = (
    "UPDATE attempt SET state = ?, finished_at = ?, http_status = ?, response_code = ?, message = ?,"  # noqa: S608
    f" gateway_reference = ?, reason = ?, seal = ? WHERE id = ? AND state = {SENDING}"
)


class Mover:
    """The rows of one batch that one transaction moves."""

    def __init__(self, transaction: Transaction, batch: int) -> None:
        self._keys = transaction.keys
        self._transaction = transaction
        self._batch = batch
        self._changes = Changes()
        self._closed: Counter[int] = Counter()
        self._moved: defaultdict[int, list[int]] = defaultdict(list)

    def move(self, row: int, before: int, after: int, reasons: str | None = None) -> bool:
        """Move a row if it is in the state `before`; tells whether it was. `reasons` stand on a rejected row only."""
        identity = row_id(self._batch, row)
        seal = self._seal_of_rejected(identity, reasons) if reasons is not None else None
        found = self._transaction.execute(_MOVE, (after, reasons, seal, identity, before)).fetchall()
        if not found:
            return False
        cents, direction, chunk = found[0]
        self._changes.move(before, after, direction, cents)
        if before in OPEN and after not in OPEN:
            self._closed[chunk] += 1
        self._moved[after].append(row)
        return True

    def grant(self, row: int, at: int) -> int | None:
        """Move a pending row to sending; gives the number of its attempt, or None where it isn't pending."""
        identity = row_id(self._batch, row)
        found = self._transaction.execute(_GRANT, (identity,)).fetchall()
        if not found:
            self._refuse_contradiction(identity)
            return None
        cents, direction, attempts = found[0]
        self._transaction.execute(_BEGIN_ATTEMPT, (identity, at))
        self._changes.move(PENDING, SENDING, direction, cents)
        self._moved[SENDING].append(row)
        return int(attempts)

    def end(self, row: int, outcome: Outcome, at: int) -> bool:
        """Move a row from sending to what its attempt proved; tells whether it was in sending."""
        state = STATE_CODES[outcome.state]
        if not self.move(row, SENDING, state):
            return False
        answer, identity = outcome.answer, row_id(self._batch, row)
        end = (state, at, answer.http_status, answer.response_code, answer.message, answer.gateway_reference)
        sent = self._transaction.execute("SELECT sent_at FROM attempt WHERE id = ?", (identity,)).fetchone() or (None,)
        seal = self._keys.seal_values("attempt", (identity, *sent, *end, outcome.reason))
        ended = self._transaction.execute(_END_ATTEMPT, (*end, outcome.reason, seal, identity))
        if ended.rowcount != 1:
            raise LedgerDamaged(f"the ledger is damaged: row {row} was being sent, and its attempt is not recorded")
        return True

    def note_attempt(self, row: int, state: int, reason: str, *, at: int | None, reference: str | None = None) -> None:
        """Record on a row's attempt what became of it other than by an answer."""
        identity = row_id(self._batch, row)
        found = self._transaction.execute(
            "SELECT sent_at, finished_at, http_status, response_code, message, gateway_reference"
            " FROM attempt WHERE id = ?",
            (identity,),
        ).fetchone()
        sent, finished, *answer, known = found or (None,) * 6
        end = (state, at or finished, *answer, reference or known, reason)
        self._transaction.execute(
            "INSERT INTO attempt (id, state, finished_at, http_status, response_code, message, gateway_reference,"
            " reason, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state,"
            " finished_at = excluded.finished_at, gateway_reference = excluded.gateway_reference,"
            " reason = excluded.reason, seal = excluded.seal",
            (identity, *end, self._keys.seal_values("attempt", (identity, sent, *end))),
        )

    def ids_in(self, state: int) -> list[int]:
        """Rows of the batch in a state, in file order."""
        first, end = row_id(self._batch, 0), row_id(self._batch + 1, 0)
        # The literal lets SQLite use the partial index on rows in sending.
        found = self._transaction.execute(
            f"SELECT id FROM row WHERE id >= ? AND id < ? AND state = {int(state)} ORDER BY id",  # noqa: S608
            (first, end),
        )
        return [identity & ROW_MASK for (identity,) in found]

    def finish(self) -> dict[str, str]:
        """Write totals, erase the bodies of chunks with no open row; gives the moved rows for the event."""
        self._changes.write(self._transaction, self._batch)
        for chunk, rows in self._closed.items():
            left = self._transaction.execute(
                "UPDATE chunk SET open_rows = open_rows - ? WHERE id = ? RETURNING open_rows", (rows, chunk)
            ).fetchall()
            if not left:
                raise LedgerDamaged(f"the ledger is damaged: chunk {chunk} is not there")
            if left[0][0] == 0:
                self._transaction.execute("DELETE FROM body WHERE chunk = ?", (chunk,))
        return {STATES[state].value: write_ranges(rows) for state, rows in self._moved.items()}

    def _seal_of_rejected(self, identity: int, reasons: str) -> bytes:
        found = self._transaction.execute("SELECT line, amount_cents FROM row WHERE id = ?", (identity,)).fetchone()
        return self._keys.seal_values("rejected", (identity, *(found or ()), reasons))

    def _refuse_contradiction(self, identity: int) -> None:
        """Stop where the row says pending and its attempt says otherwise: never send on one damaged byte."""
        found = self._transaction.execute(
            f"SELECT 1 FROM row WHERE id = ? AND state = {PENDING}",  # noqa: S608
            (identity,),
        ).fetchone()
        if found:
            raise LedgerDamaged(f"the ledger is damaged: row {identity & ROW_MASK} is pending, and its attempt is not")
