"""One gateway's pace for all runs on a ledger in a file: who sends is told by locks, pauses and limits by `meta`."""

from __future__ import annotations

import time
from contextlib import suppress

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.locks import BatchLocks
from batchpay.ledger.records import PAUSE_S_MOST, PaceNow
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import SqliteStore
from batchpay.outcome import Finding
from batchpay.settings import RATE_LEAST, RATE_MOST


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
