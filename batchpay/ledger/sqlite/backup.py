"""A consistent copy of a ledger, by SQLite's own backup while others read and write."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from batchpay.errors import LedgerDamaged, LedgerNotUsable
from batchpay.ledger.sqlite.audit import check_short
from batchpay.ledger.sqlite.store import FOREIGN, SqliteStore, connect, translate
from batchpay.writing.atomic import sync_directory

_PAGES_A_STEP = 4096


def back_up(store: SqliteStore, target: Path) -> None:
    """Copy the ledger to a new file of mode 0600; an existing file is never overwritten."""
    reader = store.connect_reader()
    try:
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise LedgerNotUsable(f"the backup {target} can't be created: {error.strerror}") from None
        try:
            _copy(store, reader, target)
            sync_directory(target.absolute().parent)
        except BaseException as error:
            for left_over in ("", "-wal", "-shm", "-journal"):  # a full disk keeps SQLite from removing its own
                Path(f"{target}{left_over}").unlink(missing_ok=True)
            if isinstance(error, FOREIGN):
                told = translate(error, target)  # a full disk is the copy's; damage was the ledger's, and was copied
                raise translate(error, store.place.ledger) if isinstance(told, LedgerDamaged) else told from None
            raise
    finally:
        reader.close()


def _copy(store: SqliteStore, reader: sqlite3.Connection, target: Path) -> None:
    copy = connect(target, "rw", 0)
    try:
        reader.backup(copy, pages=_PAGES_A_STEP)
        # A single file without journals can be moved anywhere.
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()
        found = copy.execute("PRAGMA integrity_check").fetchone()  # a quick one does not look into the indexes
        if found != ("ok",) or check_short(store, copy):
            raise LedgerNotUsable(f"the backup {target} could not be read back")
        copy.execute("PRAGMA journal_mode = WAL").fetchone()
    finally:
        copy.close()
