"""Connections and transactions of the SQLite ledger: one writer at a time, durable commits, the chained history.

SQLite before 3.51.3 can corrupt a write-ahead log when two connections write or checkpoint at the same instant. So
every write transaction, every checkpoint and the closing of the writing connection happen under our own lock on the
file `<ledger>.lock`; SQLite's automatic checkpoints are off, and reading connections are opened read-only, which cannot
checkpoint. The ledger's file itself is never opened outside SQLite: closing it would drop SQLite's own locks.
Errors are translated into ours, which name paths and reasons, never data: SQLite's own texts are not passed on.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any

from batchpay.errors import BatchpayError, LedgerBehind, LedgerDamaged, LedgerNotUsable
from batchpay.ledger.database import Parameters, Statements
from batchpay.ledger.event_chain import FIRST_MAC, event_mac, event_text
from batchpay.ledger.keys import Keys
from batchpay.ledger.machine import OwnClock, now_ms
from batchpay.ledger.paths import FileLock, LedgerPaths
from batchpay.ledger.records import HOW_TO_ACCEPT, MOVED, TotalsDelta
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.fact_statements import FACTS
from batchpay.ledger.witness import Witness, WitnessRecord

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


LOCK_WAIT_S = 30.0
"""How long a transaction waits for another one: registering a million rows takes about ten seconds."""
_COMMITS_A_CHECKPOINT = 200
"""A log that restarts is overwritten, which syncs in half the time that a growing one takes."""
ROWS_A_STATEMENT = 124
"""With eight values each, this stays below the 999 that any SQLite takes."""


@lru_cache(16)
def _of_rows(into: str, row: str, count: int) -> str:
    """Write the statement that inserts `count` rows; it is a few kilobytes long."""
    return f"{into} {', '.join(repeat(row, count))}"


def lock_path(place: LedgerPaths) -> Path:
    """Return the path of the file with which writers lock each other out."""
    return place.ledger.with_name(place.ledger.name + ".lock")


def connect(path: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    """Open a connection without implicit transactions; `mode` is `ro`, `rw` or `rwc`."""
    connection = sqlite3.connect(
        f"file:{urllib.parse.quote(str(path))}?mode={mode}",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY", "mmap_size = 0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(sql.KEEP_SOME)
    except BaseException:
        connection.close()
        raise
    return connection


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return which file is there: SQLite keeps writing to one that was moved away, where nobody would find it."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


class SqliteStore:
    """The ledger's writing connection, if it may write, and its reading ones."""

    statements: Statements = sql
    fact_statements = FACTS

    def __init__(self, place: LedgerPaths, keys: Keys, *, read_only: bool, wait_s: float = LOCK_WAIT_S) -> None:
        self.place, self.keys = place, keys
        self.witness = Witness(place.witness, keys)
        self.wait_s = wait_s
        self.ledger_id = ""
        self.outdated: str | None = None
        self.differences: Sequence[LedgerNotUsable] = ()
        self.where = ""
        """What the witness remembers of the file: a keyed digest of its number and path."""
        self.machine: str | None = None
        """What the witness remembers of the machine: this one's identity, or the last known if it has none."""
        self.clock_mark: str | None = None
        """What the ledger knows of this machine's boot and clock."""
        self.last_before_boot_ms = 0
        """Time of the last event when the ledger was first opened since the machine was started."""
        self._process = os.getpid()
        self._turn = threading.Lock()
        self._broken: str | None = None
        self._commits = 0
        self.head: bytes | None = None
        """Code of the latest event, if this process wrote it."""
        self._connection: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        """Connections that nobody reads from now; none where this ledger only reads, and so keeps no file open."""
        self._file: tuple[int, int] | None = None
        self._lock: FileLock | None = None
        if not read_only:
            with translated(place.ledger):
                self._lock = FileLock(lock_path(place))
            try:
                self._lock.acquire(self.wait_s)
                try:
                    self._connection = self._connect_writer()
                finally:
                    self._lock.release()
            except BaseException:
                self._lock.close()
                raise

    def _connect_writer(self) -> sqlite3.Connection:
        path = self.place.ledger
        with translated(path):
            connection = connect(path, "rw", self.wait_s)
            try:
                mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
                if mode != "wal":
                    raise LedgerDamaged(f"the ledger {path} is damaged, or is not a ledger: journal mode {mode}")
                for pragma in ("synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON",
                               "secure_delete = ON", "wal_autocheckpoint = 0"):  # fmt: skip
                    connection.execute(f"PRAGMA {pragma}")
            except BaseException:
                connection.close()
                raise
            self._file = _file_at(path)
        return connection

    def check_process(self) -> None:
        """Refuse use after a fork: SQLite's locks don't survive one."""
        if os.getpid() != self._process:
            raise LedgerNotUsable("the ledger was opened by another process; open it again after a fork")

    def begin(self) -> SqliteTransaction:
        """Begin a write transaction; no other process writes until it ends."""
        self.check_process()
        if self._connection is None or self._lock is None:
            raise LedgerNotUsable(f"the ledger {self.place.ledger} is open for reading only, or closed")
        if self._broken:
            raise LedgerNotUsable(self._broken)
        if not self._turn.acquire(timeout=self.wait_s):
            raise LedgerNotUsable("another part of this program has locked the ledger")
        try:
            self._lock.acquire(self.wait_s)
            try:
                if _file_at(self.place.ledger) != self._file:
                    raise LedgerNotUsable(f"the ledger {self.place.ledger} was moved away or replaced: restore it")
                return SqliteTransaction(self, self._connection)
            except BaseException:
                self._lock.release()
                raise
        except BaseException as error:
            self._turn.release()
            if isinstance(error, FOREIGN):
                raise translate(error, self.place.ledger) from None
            raise

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        transaction = self.begin()
        try:
            with translated(self.place.ledger):
                yield transaction
        except BaseException:
            transaction.rollback()
            raise
        transaction.commit()

    def ended(self, *, error: BaseException | None = None) -> None:
        """Record that a transaction ended; an error while committing makes this ledger unusable from then on."""
        assert self._lock is not None
        if error is not None:
            # After a failed sync it is not known what is on the disk; only a new start, which rereads it, shows that.
            self._broken = f"the ledger {self.place.ledger} failed in a commit; nothing more is written to it"
        try:
            self._lock.release()
        finally:
            self._turn.release()

    def committed(self, connection: sqlite3.Connection, last: WitnessRecord | None, replaces_witness: bool) -> None:
        """After a commit, still under the lock: update the witness, and checkpoint from time to time."""
        self.head = last.mac if last is not None else self.head
        if last is not None and replaces_witness:
            self.witness.replace(last)
        elif last is not None:
            self.witness.write(last)
        self._commits += 1
        if self._commits % _COMMITS_A_CHECKPOINT == 0:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def checkpoint(self) -> None:
        """Merge the write-ahead log into the ledger and shorten it, unless a process is reading from it."""
        if self._connection is None or self._broken:
            return
        with self._alone() as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(self.wait_s * 1000)}")

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Hold the ledger outside a transaction; no other process writes meanwhile."""
        self.check_process()
        if self._connection is None or self._lock is None or self._broken:
            raise LedgerNotUsable(self._broken or f"the ledger {self.place.ledger} is open for reading only, or closed")
        with self._turn, translated(self.place.ledger):
            self._lock.acquire(self.wait_s)
            try:
                yield self._connection
            finally:
                self._lock.release()

    def write_anew(self) -> bool:
        """Rewrite the ledger without what was deleted, and empty its log; return False if a reader prevented that.

        Needs room for two more copies of the ledger: one in the log, one in the system's folder for temporary files.
        """
        with self._alone() as connection:
            connection.execute("PRAGMA temp_store = FILE")  # a large ledger's copy must not take that much memory
            try:
                connection.execute("VACUUM")
            finally:
                connection.execute("PRAGMA temp_store = MEMORY")
            return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]

    @contextmanager
    def files_alone(self) -> Iterator[list[Path]]:
        """Yield the ledger's files to be read outside SQLite, which has to close them for that time.

        This process may have no other connection to them: closing a file drops the locks of all that have it open.
        """
        with self._alone() as connection:
            self._connection = None
            self._close_readers()
            connection.close()
            try:
                names = [f"{self.place.ledger}{ending}" for ending in ("", "-wal", "-shm")]
                yield [path for path in map(Path, names) if path.exists()]
            finally:
                self._connection = self._connect_writer()

    def connect_reader(self) -> sqlite3.Connection:
        """Open a read-only connection; the caller closes it."""
        self.check_process()
        with translated(self.place.ledger):
            return connect(self.place.ledger, "ro", self.wait_s)

    def now_ms(self) -> int:
        """Return the machine's time."""
        return now_ms()

    @property
    def ahead_ms(self) -> int:
        """How far the clock went ahead since this boot while no time passed."""
        return OwnClock.compare(self.clock_mark).ahead_ms

    @contextmanager
    def reading(self, *, from_disk: bool = False) -> Iterator[sqlite3.Connection]:
        """Read in one consistent view, without waiting for writers; leaves no statement that is not read to its end.

        `from_disk` takes nothing from what was read before.
        """
        self.check_process()
        is_kept = not from_disk and self._connection is not None and _file_at(self.place.ledger) == self._file
        connection, is_whole = self._idle_reader() if is_kept else self.connect_reader(), False
        try:
            with translated(self.place.ledger):
                connection.execute("BEGIN")
                yield connection
                connection.execute("ROLLBACK")
                is_whole = True
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            # A record's contents do not fit what is ever written to it.
            raise LedgerDamaged(f"the ledger {self.place.ledger} contains what batchpay did not write") from None
        finally:
            if is_whole and is_kept and self._connection is not None:
                self._readers.append(connection)
            else:
                connection.close()

    def _idle_reader(self) -> sqlite3.Connection:
        with suppress(IndexError):
            return self._readers.pop()
        return self.connect_reader()

    def _close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def stream(
        self, connection: sqlite3.Connection, statement: str, parameters: Parameters = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield what a statement finds, row after row."""
        return connection.execute(statement, parameters)

    def close(self) -> None:
        """Close under the lock: the last connection to close checkpoints."""
        if os.getpid() != self._process or self._lock is None:
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            locked = False
            try:
                with suppress(LedgerNotUsable):
                    self._lock.acquire(self.wait_s)
                    locked = True
                self._close_readers()
                connection.close()
            except sqlite3.Error as error:
                raise translate(error, self.place.ledger) from None
            finally:
                if locked:
                    self._lock.release()
        self.witness.close()
        self._lock.close()


class SqliteTransaction:
    """A write transaction that holds the ledger's lock until it is committed or rolled back."""

    statements: Statements = sql

    def __init__(self, store: SqliteStore, connection: sqlite3.Connection) -> None:
        self._store = store
        self._is_open = True
        self.keys = store.keys
        self.connection = connection
        self.replaces_witness = False
        """Whether the witness forgets what it knew: a person accepts the ledger as is."""
        self._last: WitnessRecord | None = None
        connection.execute("BEGIN IMMEDIATE")

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run a statement."""
        return self.connection.execute(statement, parameters)

    def execute_many(self, statement: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        self.connection.executemany(statement, parameters)

    def one(self, statement: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
        """Run a statement to its end; return its first row."""
        found = self.execute(statement, parameters).fetchall()
        return found[0] if found else None

    def hold_batch(self, batch: int) -> None:
        """There is no other transaction."""

    def registrations(self) -> int:
        """Count registrations and releases; no other transaction adds any while this one is open."""
        return int(self.execute(sql.REGISTRATION_COUNT).fetchone()[0])

    def insert(self, into: str, row: str, values: Sequence[Any]) -> None:
        """Insert many rows, their values one after another, a hundred rows per statement.

        `row` is one row's `(?, ?)`. executemany releases Python's lock for every row. For each None, bytes and bool,
        but not for a bytearray, sqlite3 looks for an adapter, which takes longer than binding it: use few.
        """
        width = row.count("?")
        step = ROWS_A_STATEMENT * width
        for start in range(0, len(values), step):
            some = values[start : start + step]
            self.connection.execute(_of_rows(into, row, len(some) // width), some)

    def now_ms(self) -> int:
        """Return the machine's time."""
        return self._store.now_ms()

    def write_totals(self, changes: TotalsDelta, batch: int) -> None:
        """Write changes of totals; the table refuses a count below zero, which undoes the transaction."""
        for state, direction, rows, cents in changes.changes():
            updated = self.execute(sql.ADD_TO_TOTAL, (rows, cents, batch, state, direction))
            if updated.rowcount == 0:
                self.execute(sql.ADD_TOTAL, (batch, state, direction, rows, cents))

    def event(self, kind: str, batch: int | None, who: str, why: str | None, detail: dict[str, Any]) -> None:
        """Append a line to the history, chained to the one before; raises LedgerNotUsable if it is not in force."""
        number, before, latest = self.execute(sql.CHAIN_HEAD).fetchone() or (0, FIRST_MAC, "")
        if self._last is None and before != self._store.head and not self.replaces_witness:
            store = self._store
            require_in_force(self.connection, latest, store.place, store.ledger_id, store.witness)
        event = (number + 1, self.now_ms(), batch, kind, who, why, event_text(detail))
        mac = event_mac(self._store.keys, before, event)
        self.execute(sql.ADD_EVENT, (*event, mac))
        self._last = WitnessRecord(self._store.ledger_id, number + 1, mac, self._store.machine, place=self._store.where)

    def commit(self) -> None:
        """Make it durable, then update the witness; after an error this ledger object may write nothing more."""
        failure: BaseException | None = None
        try:
            self.connection.execute("COMMIT")
            self._store.committed(self.connection, self._last, self.replaces_witness)
        except BaseException as error:
            failure = error
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            if isinstance(error, FOREIGN):
                raise translate(error, self._store.place.ledger) from None
            raise
        finally:
            self._end(failure)

    def rollback(self) -> None:
        """Undo all of it; do nothing if it has ended."""
        if not self._is_open:
            return
        with suppress(sqlite3.Error):
            self.connection.execute("ROLLBACK")
        # A transaction that can't be undone keeps its lock in SQLite: the object is then unusable.
        failure = RuntimeError("rollback failed") if self.connection.in_transaction else None
        self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        self._is_open = False
        self._store.ended(error=failure)


def require_in_force(
    connection: sqlite3.Connection, latest: str, place: LedgerPaths, ledger_id: str, witness: Witness
) -> None:
    """Raise LedgerNotUsable if an open ledger, whose latest event is of this kind, was moved or restored meanwhile.

    The caller holds the ledger's lock. A write to a restored one would be its witness's next record: after two of them
    nothing would tell anymore that it was restored.
    """
    if latest == MOVED:  # since this process opened it, which would go on here, and others there
        raise LedgerNotUsable(
            f"the ledger {place.ledger} has moved to a database meanwhile; run the command again with the ledger.url "
            "(BATCHPAY_LEDGER) of that one"
        )
    witness.close()  # whoever accepted the ledger meanwhile has replaced it
    if behind := check_witness(connection, ledger_id, witness, witness.read()):
        raise LedgerBehind(behind[0])


def check_witness(
    connection: sqlite3.Connection, ledger_id: str, witness: Witness, testimony: WitnessRecord | None
) -> list[str]:
    """Compare the ledger with what was read from its witness; return what is wrong, if anything."""
    path = witness.path
    if testimony is None:
        what = "has no record of this key" if witness.exists() else "is not there"
        return [
            f"the ledger's witness {path} {what}, so nobody can tell whether the ledger is the latest; {HOW_TO_ACCEPT}"
        ]
    if testimony.ledger_id != ledger_id:
        return [f"the witness {path} belongs to another ledger; {HOW_TO_ACCEPT}"]
    found = connection.execute(sql.MAC_OF_EVENT, (testimony.number,)).fetchone()
    if found is None or found[0] != testimony.mac:
        return [
            f"the ledger is older than its witness {path}: most likely it was brought back from a backup, and does not "
            f"know what was sent since; nothing was sent now; {HOW_TO_ACCEPT}"
        ]
    return []
