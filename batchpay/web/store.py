"""web.db: who may sign in, what was uploaded, who asked, and which work should be running.

It holds no account number and no payment: only the ledger says what was paid. Losing it loses sign-ins and pending
requests; nothing in it can make a payment happen twice.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchpay.errors import NotUsable
from batchpay.settings import state_directory

_WAIT_S = 15.0
_APPLICATION_ID = 0x62707765
Row = sqlite3.Row


def default_home() -> Path:
    """Return where the page keeps its own files by default."""
    return state_directory() / "web"


class WebStore:
    """The page's own database; one connection per thread, one writer at a time."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self.home = home.expanduser().absolute()
        self.clock = clock
        self._path = self.home / "web.db"
        self._local = threading.local()
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._migrate()
        except (OSError, sqlite3.Error):
            raise NotUsable(
                f"{self._path} can't be used: it must be a file that you own, on a disk with room"
            ) from None

    def _migrate(self) -> None:
        scripts = sorted(Path(__file__).parent.glob("[0-9][0-9][0-9][0-9].sql"))
        with self.write() as db:
            application, version = (
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            )
            if version > len(scripts):
                raise NotUsable(f"{self._path} was written by a later version of batchpay; update batchpay")
            if version and application != _APPLICATION_ID:
                raise NotUsable(f"{self._path} is not the page's own database")
            for script in scripts[version:]:
                for statement in script.read_text("utf-8").split(";\n"):
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {len(scripts)}")

    @property
    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
            db.row_factory = sqlite3.Row
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF"):
                db.execute(f"PRAGMA {pragma}")
        return db

    def close(self) -> None:
        """Close this thread's connection."""
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is not None:
            db.close()
            self._local.db = None

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Write in one durable transaction; an error undoes all of it."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def one(self, statement: str, *values: Any) -> Row | None:
        """Read one row, or None."""
        row: Row | None = self._db.execute(statement, values).fetchone()
        return row

    def all(self, statement: str, *values: Any) -> list[Row]:
        """Read all rows."""
        return self._db.execute(statement, values).fetchall()

    def count(self, statement: str, *values: Any) -> int:
        """Read one number."""
        return int(self._db.execute(statement, values).fetchone()[0])

    def file(self, file_id: str) -> Row | None:
        """Read an uploaded file."""
        return self.one("SELECT * FROM file WHERE id = ?", file_id)

    def note(self, db: sqlite3.Connection, who: str, file_id: str | None, what: str, how: str = "") -> None:
        """Record what a person did, in the transaction that does it."""
        db.execute(
            "INSERT INTO event (at, who, how, file, what) VALUES (?, ?, ?, ?, ?)",
            (self.clock(), who, how, file_id, what),
        )

    def move(self, db: sqlite3.Connection, file_id: str, before: str, after: str, **values: Any) -> bool:
        """Move a file from one state to another and set columns with it; False if it is in another state by now."""
        columns = "".join(f", {name} = ?" for name in values)
        statement = f"UPDATE file SET state = ?{columns} WHERE id = ? AND state = ?"  # noqa: S608 - our own names
        return db.execute(statement, (after, *values.values(), file_id, before)).rowcount == 1
