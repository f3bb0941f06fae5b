"""One run of a batch: recovery at its start, durable intents and outcomes, its end.

One gateway's pace for all runs on a ledger in a file: who sends is told by locks, pauses and limits by `meta`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

from batchpay.errors import LedgerDamaged, LedgerNotUsable
from batchpay.ledger.day_limits import DAYS_KEPT, fitting
from batchpay.ledger.days import SendingDay
from batchpay.ledger.event_chain import id_range, row_id
from batchpay.ledger.machine import now_ms
from batchpay.ledger.paths import BatchLocks
from batchpay.ledger.payload import Bodies
from batchpay.ledger.records import PAUSE_S_MOST, RECOVERED_REASON, PaceNow, PendingPayment
from batchpay.ledger.spill import Spill, Spilled, merge, spill_files, spill_path
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.moves import BeingSent, Claimed, NotAsClaimed, SqliteMover
from batchpay.ledger.sqlite.store import SqliteStore, SqliteTransaction, translated
from batchpay.ledger.states import SENDING
from batchpay.outcome import Finding, Outcome
from batchpay.payment import State, Totals
from batchpay.settings import RATE_LEAST, RATE_MOST

_CLAIMED_MAX = 4096
"""Facts are kept for at most this many rows: rows that are held back are claimed, and never sent."""


class SqliteRun:
    """See contract.Run. `commit` and `claim` may be called from different threads."""

    late: Sequence[str]
    refusal: str | None = None

    def __init__(
        self,
        store: SqliteStore,
        batch: int,
        name: str,
        who: str,
        why: str | None,
        noted: dict[str, Any],
        *,
        is_unique: bool,
        sending: SendingDay,
    ) -> None:
        self._store = store
        self.sending = sending
        self._is_unique = is_unique
        self.repeated = 0
        self._batch = batch
        self._who = who
        self._token = os.urandom(16)
        self._dead: str | None = None
        self._claimed: dict[int, Claimed] = {}
        """What was read of rows when they were claimed, until they are sent. What is missing here is looked up."""
        self._sent: dict[int, BeingSent] = {}
        self._bodies = Bodies(store.keys, batch, self._sealed_bodies, sending.date)
        self._claimed_to, _ = id_range(batch)
        self._read_turn = threading.Lock()
        self._reader = store.connect_reader()
        try:
            spilled_files = spill_files(store.place.witness, name)
            with store.transaction() as transaction:
                self.recovered, self._id = self._start(transaction, name, spilled_files, why, noted)
                transaction.execute(sql.KEEP_LITTLE)
            for path in spilled_files:
                # What a crash leaves of them is merged again, to no effect: the rows are no longer in sending.
                with suppress(OSError):
                    path.unlink()
            self._spill = Spill(spill_path(store.place.witness, name, self._id), store.keys, name)
            store.witness.sync()
        except BaseException:
            self._reader.close()
            raise

    def _start(
        self,
        transaction: SqliteTransaction,
        name: str,
        spilled_files: Sequence[Path],
        why: str | None,
        noted: dict[str, Any],
    ) -> tuple[int, int]:
        """Merge what was spilled, mark what is still in sending in doubt, take over the batch: one transaction."""
        at = now_ms()
        merging = SqliteMover(transaction, self._batch, "merged", self._who)

        def use(spilled: Spilled, outcome: Outcome) -> bool:
            place = row_id(self._batch, spilled.row)
            still = transaction.one(sql.ROW_IN_ATTEMPT, (place, SENDING, spilled.attempt))
            if still is not None:
                attempt, since, chunk, cents, direction = still
                merging.end({spilled.row: outcome}, {spilled.row: (attempt, since, chunk, cents, direction)}, at)
            return still is not None

        late = merge(merging, spilled_files, self._store.keys, name, use, is_unique=self._is_unique)
        merging.finish(**late.detail)
        self.late = tuple(late.told)
        doubted = SqliteMover(transaction, self._batch, "recovered", self._who, RECOVERED_REASON).doubt_sending()
        transaction.execute(sql.DROP_DAYS, (self.sending.day - DAYS_KEPT,))
        transaction.execute(sql.TAKE_BATCH, (self._token, self._batch))
        run = transaction.execute(sql.ADD_RUN, (self._batch, self._who, at)).lastrowid
        detail = {"run": run, "at": at, "process": os.getpid(), **noted}
        transaction.event("started", self._batch, self._who, why, detail)
        return doubted, int(run or 0)

    def claim(self, limit: int) -> list[PendingPayment]:
        """See contract.Run. A batch has one run at a time here, so the last row claimed is all it needs to know."""
        self._store.check_process()
        _, end = id_range(self._batch)
        with self._read_turn, translated(self._store.place.ledger):
            by_account = self.sending.limits.max_per_payee_day is not None
            asked = (by_account, self._claimed_to, end, self.sending.day, limit)
            found = self._reader.execute(sql.PENDING_ROWS, asked).fetchone()
            rows, attempts, chunks, cents, directions, accounts = map(json.loads, found)
            accounts = map(bytes.fromhex, accounts) if by_account else repeat(b"")
            bodies = self._bodies.of(rows, chunks)
            claimed = list(map(PendingPayment, rows, attempts, bodies, cents, directions, accounts))
            if rows:
                self._claimed_to = row_id(self._batch, rows[-1])
            if len(self._claimed) > _CLAIMED_MAX:
                self._claimed = {}
            self._claimed.update(zip(rows, zip(attempts, chunks, cents, directions, strict=True), strict=True))
            return claimed

    def _sealed_bodies(self, chunk: int) -> bytes | None:
        found = self._reader.execute(sql.BODY, (chunk,)).fetchone()
        return found[0] if found else None

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        self._refuse_if_dead()
        claimed = {row: facts for row in intents if (facts := self._claimed.pop(row, None))}
        try:
            try:
                granted = self._commit(intents, outcomes, claimed if len(claimed) == len(intents) else None)
            except NotAsClaimed:  # nothing of it was committed: try again, with only the rows that are as claimed
                granted = self._commit(intents, outcomes, None)
        except BaseException:
            # Outcomes of this group go to the spill file. A later commit could let a row be sent again, and a spilled
            # outcome of its earlier attempt must never be applied to the new one: so there is no later commit.
            self._dead = "a commit of this run failed; nothing more is sent by it"
            raise
        for row, _ in outcomes:
            self._sent.pop(row, None)
        self._sent.update(granted)
        return set(granted)

    def _commit(
        self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]], claimed: Mapping[int, Claimed] | None
    ) -> dict[int, BeingSent]:
        """Commit a group; its intents are looked up if it is not known what they were claimed as."""
        at = now_ms()
        with self._store.transaction() as transaction:
            self._check_token(transaction)
            mover = SqliteMover(transaction, self._batch, "progress", self._who)
            proved = dict(outcomes)
            if unknown := proved.keys() - self._sent.keys():
                row = min(unknown)
                raise LedgerDamaged(f"row {row} has an outcome, but the ledger does not show it as being sent")
            judged = mover.judged(proved, is_unique=self._is_unique)
            mover.end(judged, self._sent, at)
            wanted = mover.grantable(intents) if claimed is None else claimed
            day = self.sending
            if back := [row for row, one in judged.items() if one.state in (State.PENDING, State.DECLINED)]:
                asked = {"batch": self._batch, "rows": json.dumps(back), "sign": -1}
                transaction.execute(sql.COUNT_ON_PAYEE_DAY, asked)
            if day.limits.are_set:  # what is given back makes room
                mover.count_day(day)
                wanted = {row: wanted[row] for row in fitting(day, transaction.execute, sql, self._batch, wanted)}
            granted = mover.grant(wanted, at, day)
            mover.count_day(day)
            mover.finish()
        self.repeated += sum(judged[row] is not outcome for row, outcome in proved.items())
        return granted

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        self._store.check_process()
        self._dead = self._dead or "outcomes of this run were spilled; nothing more is sent by it"
        self._spill.write([Spilled(row, self._sent[row][0], outcome) for row, outcome in outcomes if row in self._sent])

    def reject(self, rows: Sequence[int], reason: str) -> None:
        self._refuse_if_dead()
        with self._store.transaction() as transaction:
            self._check_token(transaction)
            mover = SqliteMover(transaction, self._batch, "rejected", self._who, reason)
            mover.reject_all(rows, reason)

    def finish(self, stopped: str | None, held_back: Totals | None = None) -> None:
        try:
            with self._store.transaction() as transaction:
                self._check_token(transaction)
                transaction.execute(sql.LEAVE_BATCH, (self._batch,))
                transaction.execute(sql.REMEMBER_PAYEES, (self._batch,))
                at = now_ms()
                transaction.execute(sql.END_RUN, (at, stopped, self._id))
                detail: dict[str, Any] = {"run": self._id, "at": at}
                if held_back is not None and held_back.rows:
                    detail["held back"] = [held_back.rows, held_back.cents]
                transaction.event("finished", self._batch, self._who, stopped, detail)
                transaction.execute(sql.KEEP_SOME)
            self._store.witness.sync()
            self._store.checkpoint()
        finally:
            self.close()

    def close(self) -> None:
        """Release the spill file and the reading connection; a run that was not finished can do nothing more."""
        self._dead = self._dead or "this run has ended"
        self._spill.close()
        with self._read_turn, suppress(sqlite3.Error):
            self._reader.close()

    def _refuse_if_dead(self) -> None:
        if self._dead:
            raise LedgerNotUsable(self._dead)

    def _check_token(self, transaction: SqliteTransaction) -> None:
        held = transaction.execute(sql.HOLDER_OF_BATCH, (self._batch,)).fetchone()
        if not held or held[0] != self._token:
            raise LedgerNotUsable("another run has taken over the batch; this one sends nothing more")


class SqlitePace:
    """See contract.SharedPace."""

    def __init__(self, store: SqliteStore, locks: BatchLocks, environment: str, origin: str) -> None:
        self._store, self._locks, self._gateway = store, locks, (environment, origin)
        self._pause, self._limit = (f"{what} {environment} {origin}" for what in ("pause", "limit"))

    def found(self) -> Finding | None:
        with suppress(LedgerNotUsable, ValueError), self._store.reading() as connection:
            for (text,) in connection.execute(sql.META_VALUE, (self._limit,)):
                rate, *window_s = map(float, text.split())
                return Finding(rate, *window_s) if RATE_LEAST <= rate <= RATE_MOST else None
        return None

    def remember(self, finding: Finding) -> None:
        window = "" if finding.window_s is None else f" {finding.window_s:.3f}"
        self._write(self._limit, f"{finding.rate:.3f}{window}")

    def look(self) -> PaceNow | None:
        try:
            with self._store.reading() as connection:
                begun = connection.execute(sql.DIGESTS_BEGUN, self._gateway).fetchall()
                pause = connection.execute(sql.META_VALUE, (self._pause,)).fetchone()
            paused_s = 0.0 if pause is None else float(pause[0]) - time.time()
            runs = sum(self._locks.is_held(digest) for (digest,) in begun)
        except (LedgerNotUsable, ValueError):
            return None
        return PaceNow(max(1, runs), paused_s if paused_s <= PAUSE_S_MOST else 0.0)

    def pause(self, seconds: float) -> None:
        now = self.look()
        if now is None or now.paused_s < seconds:
            self._write(self._pause, f"{time.time() + seconds:.3f}")

    def _write(self, name: str, value: str) -> None:
        with suppress(LedgerNotUsable), self._store.transaction() as transaction:
            transaction.execute(sql.SET_META, (name, value))

    def close(self) -> None:
        """Nothing is held."""
