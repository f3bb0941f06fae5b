"""What a run claims: pending rows in file order, read on a connection of its own that never waits for a commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import date
from typing import TypeVar

import psycopg

from batchpay.ledger.payload import Bodies
from batchpay.ledger.postgres import deadline
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import LedgerUnreachable, is_retried, is_unknown, translated
from batchpay.ledger.postgres.store import PostgresStore
from batchpay.ledger.records import PendingPayment

PAUSE_S_MAX = 1.0
_Found = TypeVar("_Found")


class Claims:
    """One run's claims. A batch has one run at a time, so the last row claimed is all it needs to know."""

    def __init__(self, store: PostgresStore, batch: int, day: date) -> None:
        self._store, self._batch, self._day = store, batch, day.toordinal()
        self._claimed_to = 0
        self._bodies = Bodies(store.keys, batch, self._sealed_bodies, day)
        self._turn = threading.Lock()
        self._is_closed = False
        self._reader = store.reader()
        self._deadline = deadline.Deadline()

    def claim(self, limit: int) -> list[PendingPayment]:
        with self._turn, translated(self._store.place):
            if self._is_closed:
                return []
            wanted = (self._batch, self._claimed_to, self._day, limit)
            found = self._reading(lambda: self._reader.execute(sql.PENDING_ROWS, wanted, binary=True).fetchall())
            bodies = self._bodies.of([row for row, *_ in found], [chunk for _, _, chunk, *_ in found])
            if found:
                self._claimed_to = found[-1][0]
            return [
                PendingPayment(row, attempts, body, *facts)
                for (row, attempts, _, *facts), body in zip(found, bodies, strict=True)
            ]

    def stop(self) -> None:
        """Claim nothing more."""
        self._is_closed = True

    def close(self) -> None:
        """Release the connection; nothing more is claimed."""
        self.stop()
        self._deadline.close()
        with self._turn:
            self._store.done_reading(self._reader)

    def _sealed_bodies(self, chunk: int) -> bytes | None:
        found = self._reading(lambda: self._reader.execute(sql.BODY, (self._batch, chunk), binary=True).fetchone())
        return found[0] if found else None

    def _reading(self, read: Callable[[], _Found]) -> _Found:
        """Query on the reading connection; if it is lost, keep trying a new one for a while."""
        until, pause_s = time.monotonic() + deadline.RECONNECT_S, 0.05
        while True:
            try:
                if self._reader.closed:
                    self._reader = self._store.reader()
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
