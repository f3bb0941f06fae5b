"""Removes what is no longer kept: unfinished uploads, files long done, exports of the bank, sessions that are over."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress

from batchpay.web import spool
from batchpay.web.store import Store

_EVERY_S = 3600.0
SETTLED = ("checked", "refused", "replaced", "failed", "done", "stopped")
"""States in which nothing is under way: what is kept for such a file is removed in time."""


def sweep(store: Store) -> int:
    """Remove what is due; return how many folders were removed. What is left of files in web.db stays."""
    now, emptied = store.clock(), 0
    with store.write() as db:
        unfinished = db.execute(
            "DELETE FROM file WHERE state = 'receiving' AND uploaded_at < ? RETURNING id", (now - spool.UNFINISHED_S,)
        ).fetchall()
        db.execute("DELETE FROM session WHERE made_at < ?", (now - 24 * 3600,))
    marks = ", ".join("?" * len(SETTLED))
    old = store.all(
        f"SELECT id FROM file WHERE state IN ({marks}) AND uploaded_at < ?",  # noqa: S608 - question marks
        *SETTLED,
        now - spool.KEPT_S,
    )
    names = [found["id"] for found in (*unfinished, *old)]
    names += [path.name for path in spool.exports(store.home) if path.stat().st_mtime < now - spool.KEPT_S]
    for name in names:
        if spool.place(store.home, name).exists():
            spool.remove(store.home, name)
            emptied += 1
    return emptied


class Sweeper:
    """Sweeps now and every hour."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sweep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while True:
            with suppress(sqlite3.Error, OSError):
                sweep(self._store)
            if self._stopping.wait(_EVERY_S):
                break
        self._store.close()
