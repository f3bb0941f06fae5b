"""What the page keeps: web.db, the uploaded files, what is made of them; and the sweep, which removes them in time.

web.db says who may sign in, what was uploaded, who asked, and which work should be running. It holds no account number
and no payment: only the ledger says what was paid. Losing it loses sign-ins and pending requests; nothing in it can
make a payment happen twice.

Files are kept in pieces, each sealed with the ledger's key as it arrives, and are unencrypted only in a child's memory.
A piece is bound to its file and its position: swapped, it can't be read. Every hour what is no longer kept is removed:
unfinished uploads, files long done, exports of the bank, old sessions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from batchpay.errors import NotUsable
from batchpay.ledger.contract import Ledger
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
        self._path, self._address = self.home / "web.db", self.home / "address"
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

    def keep_address(self, url: str) -> None:
        """Keep the page's address, for links that the command line gives out."""
        self._address.write_text(url, "utf-8")

    def address(self) -> str:
        """Return the page's address when it was started last; a blank if it never was."""
        return self._address.read_text("utf-8") if self._address.exists() else ""

    def move(self, db: sqlite3.Connection, file_id: str, before: str, after: str, **values: Any) -> bool:
        """Move a file from one state to another and set columns with it; False if it is in another state by now.

        It is in the list again if it was archived.
        """
        columns = "".join(f", {name} = ?" for name in values)
        statement = f"UPDATE file SET state = ?, archived_at = NULL{columns} WHERE id = ? AND state = ?"  # noqa: S608 - our own names
        return db.execute(statement, (after, *values.values(), file_id, before)).rowcount == 1


PIECE_BYTES = 512 << 10
"""Small enough for the default limits of proxies."""
FILE_BYTES_MAX = 512 << 20
OPEN_MAX, OPEN_S = 20, 600
"""At most this many uploads of one person may be unfinished, of which a piece came within so many seconds."""
FREE_BYTES_MIN = 1 << 30
"""If the disk has less room than the file and this, nothing is accepted."""
_EXPORT = "batch-"
UNFINISHED_S, KEPT_S = 24 * 3600, 30 * 24 * 3600
"""How long an upload that was never finished is kept, and one whose file was checked."""
RETURNABLE_S = 70 * 24 * 3600
"""How long what was sent is kept after its run: a debit may come back for 60 days, and files are late."""
SETTLED = ("checked", "refused", "replaced", "discarded", "failed", "done", "stopped")
"""States in which nothing is under way: what is kept for such a file is removed in time."""
MARKED = "marked"
"""The rows to correct are kept under this name."""


def place(home: Path, file_id: str) -> Path:
    """Return the folder of everything that is kept for a file."""
    return home / "spool" / file_id


def export_place(batch: str) -> str:
    """Return the name of the folder of the export that a batch was compared with, next to those of files."""
    return f"{_EXPORT}{re.sub('[^0-9a-z-]', '', batch)}"


def exports(home: Path) -> Iterator[Path]:
    """Yield the folders of exports."""
    return (home / "spool").glob(f"{_EXPORT}*")


def put_piece(ledger: Ledger, home: Path, file_id: str, number: int, data: bytes) -> None:
    """Seal a piece and make it durable; repeated, it replaces the same piece."""
    folder = place(home, file_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(folder / f"{number}.piece", ledger.seal(data, _piece_place(file_id, "piece", number)))


def pieces(ledger: Ledger, home: Path, file_id: str, count: int) -> Iterator[bytes]:
    """Yield the pieces of a file unencrypted, one after the other; raises NotUsable if one is gone."""
    for number in range(count):
        try:
            sealed = (place(home, file_id) / f"{number}.piece").read_bytes()
        except OSError:
            raise NotUsable("the uploaded file, or a part of it, is no longer here") from None
        yield ledger.unseal(sealed, _piece_place(file_id, "piece", number))


def in_memory(blocks: Iterable[bytes]) -> tuple[int, str]:
    """Put blocks into a file in memory that is never on disk; return its descriptor and the SHA-256 of its content."""
    descriptor, digest = os.memfd_create("payments", os.MFD_CLOEXEC), hashlib.sha256()
    try:
        for block in blocks:
            digest.update(block)
            view = memoryview(block)
            while view:
                view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        raise
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor, digest.hexdigest()


@contextmanager
def memory_file(blocks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yield the descriptor of a file in memory, and the SHA-256 of its content, as long as it is needed."""
    descriptor, digest = in_memory(blocks)
    try:
        yield descriptor, digest
    finally:
        os.close(descriptor)


def blocks_of(descriptor: int) -> Iterator[bytes]:
    """Read a file in memory from its start, a piece at a time."""
    at = 0
    while block := os.pread(descriptor, PIECE_BYTES, at):
        yield block
        at += len(block)


def keep(ledger: Ledger, home: Path, file_id: str, name: str, content: Iterable[bytes]) -> None:
    """Seal what a child made from a file, by blocks, under a name."""
    folder, number = place(home, file_id), 0
    for number, block in enumerate(content, 1):
        _write(folder / f"{name}.{number - 1}", ledger.seal(block, _piece_place(file_id, name, number - 1)))
    while (left := folder / f"{name}.{number}").exists():  # of a longer one that was kept before
        left.unlink()
        number += 1


def kept(ledger: Ledger, home: Path, file_id: str, name: str) -> Iterator[bytes] | None:
    """Return what was kept under a name, block by block; None if there is nothing."""
    folder = place(home, file_id)
    if not (folder / f"{name}.0").exists():
        return None

    def blocks() -> Iterator[bytes]:
        number = 0
        while (path := folder / f"{name}.{number}").exists():
            yield ledger.unseal(path.read_bytes(), _piece_place(file_id, name, number))
            number += 1

    return blocks()


def seal_json(ledger: Ledger, file_id: str, name: str, value: object) -> bytes:
    """Seal what web.db is to keep for a file: it contains names of payees."""
    return ledger.seal(json.dumps(value, ensure_ascii=False).encode(), _piece_place(file_id, name, 0))


def unseal_json(ledger: Ledger, file_id: str, name: str, sealed: bytes | None) -> Any:
    """Read what web.db keeps for a file; None if it keeps nothing."""
    return None if sealed is None else json.loads(ledger.unseal(sealed, _piece_place(file_id, name, 0)))


def has_room(home: Path, size: int) -> bool:
    """Return whether the disk has room for a file of this size and all that is made from it."""
    return shutil.disk_usage(home).free > 2 * size + FREE_BYTES_MIN


def remove(home: Path, file_id: str) -> None:
    """Remove all that is kept for a file."""
    shutil.rmtree(place(home, file_id), ignore_errors=True)


def _piece_place(file_id: str, name: str, number: int) -> str:
    return f"web {file_id} {name} {number}"


def _write(path: Path, sealed: bytes) -> None:
    """Write next to it, sync, rename: a piece is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise NotUsable(f"the upload can't be saved: {error.strerror}") from None


def read_progress(folder: Path) -> dict[str, Any]:
    """Read a job's latest progress; empty if there is none."""
    try:
        found = json.loads((folder / "progress.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def sweep(store: WebStore, purged: Collection[str] = ()) -> int:
    """Remove what is due, of `purged` batches all; return how many folders. What is left of files in web.db stays."""
    now, emptied = store.clock(), 0
    with store.write() as db:
        unfinished = db.execute(
            "DELETE FROM file WHERE state IN ('receiving', 'export') AND uploaded_at < ? RETURNING id",
            (now - UNFINISHED_S,),
        ).fetchall()
        db.execute("DELETE FROM session WHERE made_at < ?", (now - 24 * 3600,))
    marks = ", ".join("?" * len(SETTLED))
    old = store.all(
        f"SELECT id FROM file WHERE state IN ({marks}) AND uploaded_at < ? AND (batch IS NULL"  # noqa: S608 - question marks
        " OR coalesce(ended_at, uploaded_at) < ? OR batch IN (SELECT value FROM json_each(?)))",
        *SETTLED, now - KEPT_S, now - RETURNABLE_S, json.dumps([*purged]),
    )  # fmt: skip
    names = [found["id"] for found in (*unfinished, *old)]
    names += [path.name for path in exports(store.home) if path.stat().st_mtime < now - KEPT_S]
    for name in names:
        if place(store.home, name).exists():
            remove(store.home, name)
            emptied += 1
    return emptied
