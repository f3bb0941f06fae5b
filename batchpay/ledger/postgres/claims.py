"""What a run claims: whole chunks, in file order, alongside other runs that do the same.

It has a connection of its own, so that reading never waits for a commit, and there it also checks whether others of the
batch are still at work.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from batchpay.errors import LedgerDamaged
from batchpay.ledger.payload import place_of, unseal_texts
from batchpay.ledger.postgres import company_statements, deadline
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import LedgerUnreachable, is_retried, is_unknown, translated
from batchpay.ledger.postgres.store import Store
from batchpay.ledger.records import PendingPayment

PAUSE_S_MAX = 1.0
_Found = TypeVar("_Found")


class Claims:
    """One run's claims. A claim is not permission to send: a row claimed twice is granted once."""

    def __init__(self, store: Store, batch: int, run: int) -> None:
        self._store, self._batch, self._run = store, batch, run
        self._claimed: deque[PendingPayment] = deque()
        self._chunks_read: list[int] = []
        self._turn = threading.Lock()
        self._is_closed = False
        self._may_be_idle = False
        self._reader = store.reader()
        self._deadline = deadline.Deadline()

    def claim(self, limit: int) -> list[PendingPayment]:
        """See contract.Run."""
        with self._turn, translated(self._store.place):
            if self._may_be_idle:  # before anything is claimed: others that check must not take this run for idle
                place = (self._run,)
                self._reading(lambda: self._reader.execute(company_statements.WAKE, place))
                self._may_be_idle = False
            while len(self._claimed) < limit and not self._is_closed and self._claim_chunks():
                pass
            return [self._claimed.popleft() for _ in range(min(limit, len(self._claimed)))]

    def idle(self, is_idle: bool) -> None:
        """Record that the ledger was told that no row is in progress: the next claim first takes that back."""
        self._may_be_idle = self._may_be_idle or is_idle

    def others_at_work(self) -> bool:
        """See contract.Company.at_work."""
        place = {"run": self._run, "batch": self._batch}
        with self._turn, translated(self._store.place):
            found = self._reading(lambda: self._reader.execute(company_statements.OTHERS_AT_WORK, place).fetchone())
        return bool(found and found[0])

    def stop(self) -> None:
        """Claim nothing more."""
        self._is_closed = True

    def close(self) -> None:
        """Release the connection; nothing more is claimed."""
        self.stop()
        self._deadline.close()
        with self._turn:
            self._store.done_reading(self._reader)

    def _claim_chunks(self) -> bool:
        """Take the next chunk in file order, and those that overlap it; return whether there was one."""
        place = {"run": self._run, "batch": self._batch}
        taken = self._reading(
            lambda: self._reader.execute(company_statements.CLAIM_CHUNKS, place, binary=True).fetchall()
        )
        if not taken:
            return False
        chunks = [chunk for chunk, *_ in taken]
        # Immediately: if the connection were lost while they are read, they would be freed, and claimed a second time.
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
        """Query on the reading connection; if it is lost, keep trying a new one for a while."""
        until, pause_s = time.monotonic() + deadline.RECONNECT_S, 0.05
        while True:
            try:
                if self._reader.closed:
                    self._reader = self._store.reader()
                    # A claim whose answer was lost may be committed: its chunks were not read, so they are freed.
                    mine: tuple[Any, ...] = (self._batch, self._run, self._chunks_read)
                    self._reader.execute(sql.FREE_UNREAD_CHUNKS, mine)
                with self._deadline.of(self._reader):
                    return read()
            except (psycopg.Error, LedgerUnreachable) as error:
                if isinstance(error, psycopg.Error) and not (is_unknown(error) or is_retried(error)):
                    raise
                if time.monotonic() > until or self._is_closed:
                    raise
                if isinstance(error, psycopg.Error) and is_unknown(error):
                    self._reader.close()
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
