"""SQLite's errors translated into ours.

They name paths and reasons, never data: SQLite's own texts are not passed on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchpay.errors import BatchpayError, LedgerDamaged, LedgerNotUsable

FOREIGN = (sqlite3.Error, OSError, UnicodeDecodeError, MemoryError)
"""What SQLite may raise when using a ledger; text or sizes in a damaged file can surface as the last two."""


def translate(error: BaseException, path: Path) -> BatchpayError:
    """Return our error for one of FOREIGN."""
    if isinstance(error, UnicodeDecodeError):
        return LedgerDamaged(f"the ledger {path} is damaged; nothing was sent; restore its latest backup")
    if isinstance(error, MemoryError):
        return LedgerNotUsable(f"the ledger {path} is not usable: there is no memory left")
    if isinstance(error, OSError):
        return LedgerNotUsable(f"the ledger {path} is not usable: {error.strerror or type(error).__name__}")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            return LedgerDamaged(f"the ledger {path} contains what batchpay did not write")
        return LedgerNotUsable(f"the ledger {path} is not usable: {type(error).__name__}")
    return _by_code(code, path)


def _by_code(code: int, path: Path) -> BatchpayError:
    primary = code & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH):
        what = f"the ledger {path} is damaged, or is not a ledger"
        return LedgerDamaged(f"{what}; nothing was sent; restore its latest backup")
    if primary in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG):
        return LedgerDamaged(f"the ledger {path} lacks what batchpay wrote into it: damaged, or another program's file")
    words = {
        sqlite3.SQLITE_BUSY: "another program keeps it locked",
        sqlite3.SQLITE_LOCKED: "another program keeps it locked",
        sqlite3.SQLITE_PROTOCOL: "another program keeps it locked",
        sqlite3.SQLITE_FULL: "its disk is full",
        sqlite3.SQLITE_READONLY: "it can't be written",
        sqlite3.SQLITE_PERM: "it may not be opened",
        sqlite3.SQLITE_AUTH: "it may not be opened",
        sqlite3.SQLITE_CANTOPEN: "it can't be opened",
        sqlite3.SQLITE_IOERR: "its disk reports an input/output error",
        sqlite3.SQLITE_NOMEM: "there is no memory left",
        sqlite3.SQLITE_NOLFS: "its file system can't hold a file so large",
        sqlite3.SQLITE_CONSTRAINT: "a record was refused by the ledger's own rules",
    }.get(primary, "SQLite failed")
    return LedgerNotUsable(f"the ledger {path} is not usable: {words} (SQLite {code})")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into ours."""
    try:
        yield
    except FOREIGN as error:
        raise translate(error, path) from None
