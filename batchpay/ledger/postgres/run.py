"""One run of a batch: recovery at its start, durable intents and outcomes, its end.

A group goes to the server as one function, one transaction, one round trip. Nobody sends before that call has come back
clean. Where it does not (the connection or the server went away, or the commit came with a warning), nobody knows what
stands: the run connects anew and raises its `generation`, which waits for the lost transaction, or shuts it out. That
commit is the run's own and later than the lost one, so what it sees is as durable as itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from batchpay.errors import BatchHeld, LedgerDamaged, LedgerNotUsable
from batchpay.ledger.encoding import now_ms
from batchpay.ledger.event_chain import event_text, write_ranges
from batchpay.ledger.payload import place_of, unseal_texts
from batchpay.ledger.postgres import failover
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import LedgerUnreachable, is_retried, is_unknown, translate, translated
from batchpay.ledger.postgres.deadline import Deadline
from batchpay.ledger.postgres.marks import RunMarks
from batchpay.ledger.postgres.moves import IN_DOUBT, PENDING, SENDING, Mover, attempt_seal, storable
from batchpay.ledger.postgres.restoring import fence
from batchpay.ledger.postgres.store import Store, Transaction, chained_mac
from batchpay.ledger.records import RECOVERED_REASON, PendingPayment
from batchpay.ledger.spill import Spill, Spilled, read_spill, spill_files, spill_path
from batchpay.ledger.states import STATE_CODES, IllegalMove, require, require_outcome
from batchpay.payment import Outcome, State, Totals

RECONNECT_S = 20.0
"""So long a run tries to reach its database again; it is less than other hosts wait before they call it dead."""
_TRIES = 3
_PAUSE_S_MAX = 1.0
_Found = TypeVar("_Found")
_TAKEN_OVER = "another run has taken the batch over; this one sends nothing more"


class _NotPending(Exception):
    """Not all rows of a group's intents are pending: it is asked again with those that are."""


class PostgresRun:
    """See contract.Run. `commit` and `claim` may be called from different threads."""

    def __init__(self, store: Store, batch: int, name: str, who: str, why: str | None = None) -> None:
        self._store = store
        self._batch = batch
        self._who = who
        self._dead: str | None = None
        self._token = os.urandom(16)
        self._generation = 1
        self._number = 0
        self._mac = b""
        self._attempts: dict[int, tuple[int, int]] = {}
        """Number and start of the attempt of each row being sent."""
        self._claimed: deque[PendingPayment] = deque()
        self._chunks_read: list[int] = []
        self._read_turn = threading.Lock()
        self._marks = RunMarks(store.paths.witness)
        files = spill_files(store.paths.witness, name)
        # The mark is there before the run is: a run without one is another machine's.
        self._marks.make(self._token)
        try:
            with store.transaction() as transaction:
                replaced = self._start(transaction, name, why)
        except BaseException:
            # Where nobody knows whether the start was committed the mark must stay; a mark too many does no harm.
            if not store.is_unsure:
                self._marks.remove(self._token)
            raise
        for token in replaced:
            self._marks.remove(token)
        for path in files:
            with suppress(OSError):
                path.unlink()
        self._spill = Spill(spill_path(store.paths.witness, name, self._id), store.keys, name)
        store.witness.sync()
        self._reader = store.reader()
        self._deadline = Deadline()

    def _start(self, transaction: Transaction, name: str, why: str | None) -> list[bytes]:
        """Shut out dead runs, merge what was spilled, put what is still in sending in doubt: one transaction."""
        at = now_ms()
        transaction.execute(sql.LOCK_BATCH, (self._batch,))
        live = transaction.execute(sql.LIVE_RUNS_OF_BATCH, (self._batch,)).fetchall()
        for _, host, _, token in live:
            if not self._marks.exists(token):
                raise BatchHeld(f"a run on {host} is working on this batch")
        found = transaction.one(
            sql.ADD_RUN, (self._batch, self._who, os.uname().nodename, at, self._token, bytes(32), not live)
        )
        assert found is not None
        self._id = int(found[0])
        for run, *_ in live:
            fence(transaction, run, self._batch, self._id, self._who)
        if live:
            transaction.execute(sql.ENLIVEN_RUN, (self._id,))
        self._merge_spilled(transaction, name, at)
        recovering = Mover(transaction, self._batch, "recovered", self._who, RECOVERED_REASON)
        rows = recovering.move(recovering.rows_in(SENDING), SENDING, IN_DOUBT)
        recovering.note_attempts(rows, IN_DOUBT, RECOVERED_REASON, at=None)
        recovering.finish()
        self.recovered = len(rows)
        transaction.execute(sql.FREE_CHUNKS, (self._batch,))
        detail = {"run": self._id, "at": at, "process": os.getpid()}
        self._mac = transaction.event("started", self._batch, self._who, why, detail)
        transaction.execute(sql.SET_RUN_MAC, (self._mac, self._id))
        return [token for *_, token in live]

    def _merge_spilled(self, transaction: Transaction, name: str, at: int) -> None:
        """Take over spilled outcomes whose rows are still in the very attempts they belong to."""
        merging = Mover(transaction, self._batch, "merged", self._who)
        unused: list[int] = []
        for path in spill_files(self._store.paths.witness, name):
            for spilled in read_spill(path, self._store.keys, name):
                try:
                    merged = merging.end(spilled.row, spilled.attempt, spilled.outcome, at)
                except IllegalMove:
                    merged = False  # what proves nothing is not merged: the row is in doubt like any other
                if not merged:
                    unused.append(spilled.row)
        merging.finish(**({"unused": unused} if unused else {}))

    # Claims

    def claim(self, limit: int) -> list[PendingPayment]:
        """See contract.Run. Whole chunks are taken, so that several machines could share a batch."""
        self._store.check_process()
        with self._read_turn, translated(self._store.place):
            while len(self._claimed) < limit and self._dead is None and self._claim_chunks():
                pass
            return [self._claimed.popleft() for _ in range(min(limit, len(self._claimed)))]

    def _claim_chunks(self) -> bool:
        """Take the next chunk in file order, and those that overlap it; tells whether there was one."""
        place = {"run": self._id, "batch": self._batch}
        taken = self._reading(lambda: self._reader.execute(sql.CLAIM_CHUNKS, place, binary=True).fetchall())
        if not taken:
            return False
        chunks = [chunk for chunk, *_ in taken]
        # At once: were the connection lost while they are read, they would be given back, and claimed a second time.
        self._chunks_read += chunks
        span = (min(first for _, first, _ in taken), max(last for *_, last in taken))
        wanted = (self._batch, *span, chunks)
        rows = self._reading(lambda: self._reader.execute(sql.PENDING_OF_CHUNKS, wanted, binary=True).fetchall())
        bodies = {chunk: self._bodies(chunk) for chunk in {chunk for *_, chunk in rows}}
        for row, attempts, chunk in rows:
            if row not in bodies[chunk]:
                raise LedgerDamaged(f"the ledger is damaged: row {row} is pending, and its body is not there")
            self._claimed.append(PendingPayment(row, attempts, bodies[chunk][row]))
        return True

    def _bodies(self, chunk: int) -> dict[int, bytes]:
        found = self._reading(lambda: self._reader.execute(sql.BODY, (self._batch, chunk), binary=True).fetchone())
        if not found:
            raise LedgerDamaged(f"the ledger is damaged: rows of chunk {chunk} are pending, and their bodies are gone")
        return unseal_texts(self._store.keys, place_of("bodies", self._batch, chunk), found[0])

    def _reading(self, read: Callable[[], _Found]) -> _Found:
        """Ask on the reading connection, opened anew for a while where it is lost."""
        until, pause_s = time.monotonic() + RECONNECT_S, 0.05
        while True:
            try:
                if self._reader.closed:
                    self._reader = self._store.reader()
                    # A claim whose answer was lost may stand: its chunks were not read, so they are given back.
                    mine = (self._batch, self._id, self._chunks_read)
                    self._reader.execute(sql.FREE_UNREAD_CHUNKS, mine)
                return read()
            except (psycopg.Error, LedgerUnreachable) as error:
                if isinstance(error, psycopg.Error) and not (is_unknown(error) or is_retried(error)):
                    raise
                if time.monotonic() > until or self._dead:
                    raise
                if isinstance(error, psycopg.Error) and is_unknown(error):
                    self._reader.close()
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    # Intents and outcomes

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        self._refuse_if_dead()
        self._store.require_writable()
        asked = sorted(set(intents))
        try:
            with self._store.alone():
                while asked or outcomes:
                    try:
                        self._commit_group(asked, outcomes)
                        break
                    except _NotPending:
                        asked = self._still_pending(asked)
        except BaseException:
            # Outcomes of this group go to the spill file. A later commit could let a row be sent anew, and a spilled
            # outcome of its earlier attempt must never be held against that one: so there is no later commit.
            self._dead = "a commit of this run failed; nothing more is sent by it"
            raise
        return set(asked)

    def _commit_group(self, intents: list[int], outcomes: Sequence[tuple[int, Outcome]]) -> None:
        """Commit one group, once, whatever becomes of the connection; raises _NotPending, LedgerNotUsable."""
        at, number = now_ms(), self._number + 1
        moved: dict[str, list[int]] = {}
        for row, outcome in outcomes:
            require_outcome("progress", outcome)
            moved.setdefault(outcome.state.value, []).append(row)
        if intents:
            require("progress", PENDING, SENDING)
            moved[State.SENDING.value] = intents
        detail = event_text({state: write_ranges(rows) for state, rows in moved.items()})
        event = (at, self._batch, "progress", self._who, None, detail)
        mac = chained_mac(self._store.keys, self._mac, self._id, number, event)
        columns = self._outcome_columns(outcomes, at)

        def arguments() -> tuple[Any, ...]:
            head = (self._id, self._token, self._generation, self._batch, intents)
            return (*head, *columns, at, number, self._who, detail, mac)

        *attempts, seq = self._call(arguments, intents, number, mac)
        self._number, self._mac = number, mac
        for row, _ in outcomes:
            self._attempts.pop(row, None)
        self._attempts.update(zip(intents, ((attempt, at) for attempt in attempts), strict=True))
        self._store.note(seq, mac)

    def _outcome_columns(self, outcomes: Sequence[tuple[int, Outcome]], at: int) -> list[list[Any]]:
        """Give outcomes by column, in order of their rows, sealed."""
        lines = []
        for row, outcome in sorted(outcomes, key=lambda one: one[0]):
            known = self._attempts.get(row)
            if known is None:
                raise LedgerDamaged(f"row {row} has an outcome, and the ledger does not hold it as being sent")
            attempt, sent_at = known
            state, answer = STATE_CODES[outcome.state], outcome.answer
            texts = map(storable, (answer.response_code, answer.message, answer.gateway_reference, outcome.reason))
            end = (answer.http_status, *texts)
            values = (sent_at, state, at, *end)
            lines.append((row, state, *end, attempt_seal(self._store.keys, self._batch, row, attempt, values)))
        return [list(column) for column in zip(*lines, strict=True)] if lines else [[] for _ in range(8)]

    def _call(self, arguments: Callable[[], tuple[Any, ...]], intents: list[int], number: int, mac: bytes) -> list[int]:
        """Ask for a group until it certainly stands, or certainly does not."""
        writer, tries = self._store.writer, 0
        while True:
            try:
                with self._deadline.of(writer.get()):
                    found = writer.run_group(arguments())
                if not writer.warned():
                    return found
            except (psycopg.Error, LedgerUnreachable) as error:
                if isinstance(error, psycopg.Error) and not is_unknown(error):
                    tries += 1
                    self._refuse(error, tries)
                    continue
            stood = self._settle_unknown(intents, number, mac)
            if stood is not None:
                return stood

    def _refuse(self, error: psycopg.Error, tries: int) -> None:
        """Raise what a server's refusal means, unless the group may be asked for again as it is."""
        if is_retried(error) and tries < _TRIES:
            return
        if error.sqlstate == "BP001":
            raise _NotPending from None
        if error.sqlstate == "BP003":
            raise LedgerNotUsable(_TAKEN_OVER) from None
        if error.sqlstate == "BP006":
            failover.follow(self._store)  # which says what is lost
        if error.sqlstate == "BP004":
            raise LedgerDamaged("a row has an outcome, and the ledger does not hold it as being sent") from None
        raise translate(error, self._store.place) from None

    def _settle_unknown(self, intents: list[int], number: int, mac: bytes) -> list[int] | None:
        """Find out by a commit of our own what became of one whose answer was lost; None: it does not stand.

        Raises LedgerNotUsable where the database is not reached in time: then nobody knows.
        """
        writer, until, pause_s = self._store.writer, time.monotonic() + RECONNECT_S, 0.05
        while True:
            try:
                writer.open()
                with self._deadline.of(writer.get()):
                    found = writer.run(sql.RAISE_GENERATION, (self._id, self._token)).fetchone()
                if not writer.warned():
                    if found is None:
                        raise LedgerNotUsable(_TAKEN_OVER)
                    self._generation, stands_at, head = found
                    if stands_at == number - 1:
                        return None
                    if stands_at != number:
                        failover.follow(self._store)  # which says what is lost
                    if head != mac:
                        raise LedgerNotUsable(_TAKEN_OVER)
                    attempts = writer.run(sql.ATTEMPT_NUMBERS, (self._batch, intents, self._id)).fetchall()
                    seq = writer.run(sql.SEQ_OF_EVENT, (self._id, number)).fetchone() or (0,)
                    return [*(attempt for (attempt,) in attempts), seq[0]]
            except (psycopg.Error, LedgerUnreachable) as error:
                if isinstance(error, psycopg.Error) and not (is_unknown(error) or is_retried(error)):
                    raise translate(error, self._store.place) from None
                if time.monotonic() > until and isinstance(error, failover.LedgerUnconfirmed):
                    raise
            if time.monotonic() > until:
                raise LedgerNotUsable(
                    f"the connection to the database {self._store.place.name} was lost, and did not come back in "
                    f"{RECONNECT_S:.0f} seconds"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _still_pending(self, intents: list[int]) -> list[int]:
        """Give those rows that may be asked for again; raises LedgerDamaged where a row contradicts its attempt.

        One damaged byte must never send a payment.
        """
        with translated(self._store.place):
            found = self._store.writer.run(sql.STANDING, (self._batch, intents)).fetchall()
        for row, state, attempt in found:
            if state == PENDING and attempt != PENDING:
                raise LedgerDamaged(f"the ledger is damaged: row {row} is pending, and its attempt is not")
        left = sorted(row for row, state, _ in found if state == PENDING)
        if left == intents:
            raise LedgerDamaged("the ledger is damaged: rows are pending, and can't be sent")
        return left

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        self._store.check_process()
        self._dead = self._dead or "outcomes of this run were spilled; nothing more is sent by it"
        self._spill.write(
            [Spilled(row, self._attempts[row][0], outcome) for row, outcome in outcomes if row in self._attempts]
        )

    def reject(self, rows: Sequence[int], reason: str) -> None:
        self._refuse_if_dead()
        with self._store.transaction() as transaction:
            self._lock(transaction)
            mover = Mover(transaction, self._batch, "rejected", self._who, reason)
            moved = set(mover.reject(rows, reason))
            for row in rows:
                if row not in moved:
                    raise LedgerNotUsable(f"row {row} is not pending, so it is not rejected any more")
            mover.finish()

    # The end

    def finish(self, stopped: str | None, held_back: Totals | None = None) -> None:
        try:
            with self._store.transaction() as transaction:
                number, mac = self._lock(transaction)
                transaction.execute(sql.REMEMBER_PAYEES, (self._batch,))
                at = now_ms()
                transaction.execute(sql.END_RUN, (at, stopped, self._id))
                transaction.execute(sql.FREE_CHUNKS, (self._batch,))
                detail: dict[str, Any] = {"run": self._id, "at": at, "number": number, "mac": mac.hex()}
                if held_back is not None and held_back.rows:
                    detail["held back"] = [held_back.rows, held_back.cents]
                transaction.event("finished", self._batch, self._who, stopped, detail)
            self._marks.remove(self._token)
            self._store.witness.sync()
        finally:
            self.close()

    def close(self) -> None:
        """Give back the spill file and the reading connection; a run that was not finished can do no more."""
        self._dead = self._dead or "this run has ended"
        self._spill.close()
        self._deadline.close()
        with self._read_turn:
            self._store.done_reading(self._reader)

    def _refuse_if_dead(self) -> None:
        if self._dead:
            raise LedgerNotUsable(self._dead)

    def _lock(self, transaction: Transaction) -> tuple[int, bytes]:
        """Lock batch and run; gives the head of the run's chain. Raises LedgerNotUsable where it is not ours."""
        transaction.execute(sql.LOCK_BATCH, (self._batch,))
        found = transaction.one(sql.LOCK_RUN, (self._id, self._token, self._generation))
        if found is None:
            raise LedgerNotUsable(_TAKEN_OVER)
        return found[0], found[1]
