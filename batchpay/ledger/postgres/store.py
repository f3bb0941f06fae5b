"""The ledger's connections: one that writes, some that read; transactions that are durable or nothing.

No state is kept in a session (no locks, no settings, no temporary tables), so that a lost connection loses nothing
silently. A COMMIT that came back with an error or a warning is one whose outcome is unknown: it is never taken for
done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from batchpay.errors import LedgerDamaged, LedgerNotUsable
from batchpay.ledger.database import Parameters, Statements
from batchpay.ledger.event_chain import event_mac, event_text
from batchpay.ledger.keys import Keys
from batchpay.ledger.machine import SharedClock
from batchpay.ledger.paths import LedgerPaths
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import (
    LedgerUnreachable,
    Place,
    connect,
    is_unknown,
    route_of,
    translate,
    translated,
)
from batchpay.ledger.postgres.deadline import Deadline
from batchpay.ledger.postgres.fact_statements import FACTS
from batchpay.ledger.records import TotalsDelta
from batchpay.ledger.witness import Witness, WitnessRecord

Connection = psycopg.Connection[TupleRow]
LOCK_WAIT_S = 60.0
"""How long one part of this program waits for another's transaction."""
_READERS_KEPT = 2
_OWN_CHAIN = 0


class Writer:
    """The connection that writes, with what it warned of; reopened if it was lost.

    Behind a pooler every transaction may be on a different server: each that writes first checks where it is.
    """

    def __init__(self, connect: Callable[[], Connection], pooled: Callable[[], str | None] | None) -> None:
        """`pooled` returns, if a pooler is used, the server that is known."""
        self._connect = connect
        self._pooled = pooled
        self._connection: Connection | None = None
        self.has_warned = False
        """Whether the latest statement came with a warning: a COMMIT that warns is one whose outcome is unknown."""

    def get(self) -> Connection:
        """Return the connection."""
        if self._connection is None or self._connection.closed:
            self.open()
        assert self._connection is not None
        return self._connection

    def open(self) -> None:
        """Connect, whatever became of the connection before; raises LedgerNotUsable."""
        self.close()
        self._connection = self._connect()
        self._connection.add_notice_handler(self._hear)

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        self.has_warned = self.has_warned or notice.severity_nonlocalized == "WARNING"

    def run(self, statement: str, parameters: Parameters = ()) -> psycopg.Cursor[TupleRow]:
        """Run one statement, as its own transaction."""
        connection, self.has_warned = self.get(), False
        return connection.execute(statement, parameters, binary=True)

    def run_group(self, statement: str, parameters: Sequence[Any]) -> list[int]:
        """Commit a group of a run: one statement, one transaction."""
        if self._pooled is None:
            found = self.run(statement, parameters).fetchone()
        else:
            found = self.run(sql.here(statement), (self._pooled(), *parameters)).fetchone()
        if found is None or found[0] is None:
            raise psycopg.OperationalError("another server")
        return list(found[0])

    def begin(self) -> Connection:
        """Begin a transaction, on a new connection if the current one was lost meanwhile."""
        try:
            self._begin()
        except psycopg.Error as error:
            if not is_unknown(error):
                raise
            self.open()
            self._begin()
        return self.get()

    def _begin(self) -> None:
        if self._pooled is None:
            self.run(sql.BEGIN)
            return
        self.get().execute(sql.BEGIN_POOLED)
        if self.run(sql.WHERE).fetchone() != (self._pooled(),):
            raise psycopg.OperationalError("another server")

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class PostgresStore:
    """A ledger's database, as this program accesses it."""

    statements: Statements = sql
    fact_statements = FACTS

    def __init__(self, place: Place, paths: LedgerPaths, keys: Keys, *, read_only: bool) -> None:
        self.place = place
        self.paths = paths
        self.keys = keys
        self.witness = Witness(paths.witness, keys)
        self.ledger_id = ""
        self.outdated: str | None = None
        self.differences: Sequence[LedgerNotUsable] = ()
        self.host = ""
        """The name by which the ledger knows this machine."""
        self.mark: str | None = None
        """Keyed digest of this machine's identity; None if it has none."""
        self.epoch = 1
        self.where: str | None = None
        """The server, timeline, database, table and address that the server told first; no connection is made to
        another before `follow` allows it."""
        self.route = ""
        """How this machine reaches that address."""
        self.follow: Callable[[], None] | None = None
        self.clock: SharedClock | None = None
        self.ahead_ms = 0
        """The server's clock is the one that counts."""
        self.begun: Callable[[], PostgresTransaction] = lambda: PostgresTransaction(self)
        """Begins a transaction. An opened ledger has one that raises LedgerNotUsable if the database was restored
        since: what is written then would be the witness's next records, and after two of them nothing would tell
        anymore. It stays as it is where a person accepts that."""
        self._read_only = read_only
        self._process = os.getpid()
        self._turn = threading.Lock()
        self._readers_turn = threading.Lock()
        self._idle: list[Connection] = []
        self._readers_kept = _READERS_KEPT
        self._is_closed = False
        self.is_unsure = False
        """Whether the outcome of some commit is not known."""
        pooled = (lambda: self.where) if place.is_pooled else None
        self.writer = Writer(lambda: self.connect(writes=True), pooled)

    def beside(self) -> PostgresStore:
        """Return the same ledger over its own connections: to another server, or while this store is in use."""
        store = PostgresStore(self.place, self.paths, self.keys, read_only=False)
        store.ledger_id, store.host, store.mark, store.epoch = self.ledger_id, self.host, self.mark, self.epoch
        return store

    def now_ms(self) -> int:
        """Return what the server's clock shows."""
        return (self.clock or self.ask_clock()).now_ms()

    def ask_clock(self, *, times: int = 1) -> SharedClock:
        """Ask the server for its time, and count on from there."""
        with self.reading() as connection:
            read = partial(connection.execute, sql.CLOCK)
            self.clock = SharedClock.ask(lambda: int((read().fetchone() or (0,))[0]), times=times)
        return self.clock

    def connect(self, *, writes: bool = False) -> Connection:
        """Open a connection, if needed to a server that took over and knows all; raises LedgerNotUsable."""
        connection, where = connect(self.place, writes=writes)
        if self.where is not None and where != self.where:
            try:
                if self.follow is not None:
                    self.follow()
            except BaseException:
                connection.close()
                raise
        self.where, self.route = where, route_of(connection, self.mark or "")
        return connection

    def check_process(self) -> None:
        """Refuse use after a fork: both processes would use one connection."""
        if os.getpid() != self._process:
            raise LedgerNotUsable("the ledger was opened by another process; open it again after a fork")

    def require_writable(self) -> None:
        """Raise LedgerNotUsable if nothing may be written."""
        self.check_process()
        if self._read_only or self._is_closed:
            raise LedgerNotUsable(f"the ledger {self.place.name} is open for reading only, or closed")

    def _take_turn(self) -> None:
        if not self._turn.acquire(timeout=LOCK_WAIT_S):
            raise LedgerNotUsable("another part of this program has locked the ledger")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the writing connection exclusively; within this program nothing else writes meanwhile."""
        self._take_turn()
        try:
            yield
        finally:
            self._turn.release()

    def begin(self) -> PostgresTransaction:
        """Begin a transaction; within this program nothing else writes until it ends."""
        self.require_writable()
        self._take_turn()
        try:
            with translated(self.place):
                return self.begun()
        except BaseException:
            self.writer.close()  # which ends the transaction, if it was begun
            self._turn.release()
            raise

    def ended(self) -> None:
        """Record that a transaction ended."""
        self._turn.release()

    @contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        transaction = self.begin()
        try:
            with translated(self.place):
                yield transaction
        except BaseException:
            transaction.rollback()
            raise
        transaction.commit()

    def note(self, seq: int, mac: bytes, *, replaces: bool = False) -> None:
        """Tell the witness of the latest event that this machine knows to be durable."""
        record = WitnessRecord(self.ledger_id, seq, mac, self.host, self.epoch)
        if replaces:
            self.witness.replace(record)
        else:
            self.witness.write(record)

    def reader(self) -> Connection:
        """Take a connection to read from; return it with `done_reading`."""
        self.check_process()
        with self._readers_turn:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        return self.connect()

    def done_reading(self, connection: Connection) -> None:
        """Keep a connection for the next reader, or close it."""
        with self._readers_turn:
            if len(self._idle) < self._readers_kept and not connection.closed and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def keep_no_readers(self) -> None:
        """Let whoever reads from now on connect anew: on a connection to a server that hangs they would wait for it."""
        with self._readers_turn:
            self._readers_kept = 0
            while self._idle:
                self._idle.pop().close()

    def _begin_reading(self) -> Connection:
        while True:
            connection = self.reader()
            try:
                connection.execute(sql.BEGIN_READING)
            except psycopg.Error as error:
                connection.close()
                if not is_unknown(error):
                    raise translate(error, self.place) from None
                # It was lost while not in use; in the end a new one is made, or can't be.
            else:
                return connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read in one consistent view, without waiting for writers."""
        connection = self._begin_reading()
        try:
            with translated(self.place):
                yield connection
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            # A record's contents do not fit what is ever written to it.
            raise LedgerDamaged(f"the ledger {self.place.name} contains what batchpay did not write") from None
        finally:
            try:
                connection.execute(sql.COMMIT)  # after a rollback psycopg would have to prepare all statements anew
            except psycopg.Error:
                connection.close()
            self.done_reading(connection)

    def stream(self, connection: Connection, statement: str, parameters: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Yield what a statement finds, a few hundred rows at a time."""
        with connection.cursor(name="rows") as cursor:
            cursor.itersize = 2048
            cursor.execute(statement, parameters, binary=True)
            yield from cursor

    def close(self) -> None:
        """Release all connections and files."""
        self._is_closed = True
        if os.getpid() != self._process:
            return
        self.writer.close()
        self.keep_no_readers()
        self.witness.close()


class PostgresTransaction:
    """A transaction of the writing connection, which nothing else uses meanwhile."""

    statements: Statements = sql

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._is_open = True
        self.keys = store.keys
        self.witness = store.paths.witness
        self.replaces_witness = False
        """Whether the witness forgets what it knew: a person accepted the ledger as is."""
        self._last: tuple[int, bytes] | None = None
        self._head: tuple[int, bytes, int] | None = None
        self.connection = store.writer.begin()

    def execute(self, statement: str, parameters: Parameters = ()) -> psycopg.Cursor[TupleRow]:
        """Run a statement."""
        return self.connection.execute(statement, parameters, binary=True)

    def execute_many(self, statement: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for many lines; its parameters are arrays, one for each column."""
        if parameters:
            self.execute(statement, {name: [one[name] for one in parameters] for name in parameters[0]})

    def one(self, statement: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
        return self.execute(statement, parameters).fetchone()

    def now_ms(self) -> int:
        """Return what the server's clock shows."""
        if self._store.clock is None:
            self._store.clock = SharedClock.ask(lambda: int((self.one(sql.CLOCK) or (0,))[0]))
        return self._store.clock.now_ms()

    def write_totals(self, changes: TotalsDelta, batch: int) -> None:
        for state, direction, rows, cents in changes.changes():
            self.execute(sql.ADD_TO_TOTAL, (batch, state, direction, rows, cents))

    def hold_batch(self, batch: int) -> None:
        """Lock the batch's row, as all do that move its rows other than in a run's groups."""
        self.execute(sql.LOCK_BATCH, (batch,))

    def registrations(self) -> int:
        """Lock the ledger's own row, and count registrations and releases: until the end none is added."""
        return self._locked_head()[2]

    def _locked_head(self) -> tuple[int, bytes, int]:
        if self._head is None:
            number, mac, registrations, _ = self.one(sql.LOCK_LEDGER) or (0, b"", 0, None)
            self._head = (number, mac, registrations)
        return self._head

    def event(self, kind: str, batch: int | None, who: str, why: str | None, detail: dict[str, Any]) -> bytes:
        """Append a line to the ledger's own chain; return its mac."""
        number, before, registrations = self._locked_head()
        event = (self.now_ms(), batch, kind, who, why, event_text(detail))
        mac = chained_mac(self.keys, before, _OWN_CHAIN, number + 1, event)
        found = self.one(sql.ADD_EVENT, (number + 1, *event, mac))
        self.execute(sql.SET_HEAD, (number + 1, mac))
        self._head = (number + 1, mac, registrations)
        assert found is not None
        self._last = (found[0], mac)
        return mac

    def commit(self) -> None:
        """Make it durable, then update the witness; raises LedgerNotUsable if it is unknown whether it is committed."""
        store = self._store
        unknown = (
            f"the database {store.place.name} did not confirm a commit, so it is not known whether it took effect: "
            "check with batchpay status"
        )
        deadline = Deadline()
        try:
            try:
                with closing(deadline), deadline.of(self.connection):
                    done = store.writer.run(sql.COMMIT)
            except psycopg.Error as error:
                raise (LedgerUnreachable(unknown) if is_unknown(error) else translate(error, store.place)) from None
            if done.statusmessage != "COMMIT" or store.writer.has_warned:
                raise LedgerNotUsable(unknown)
            if self._last is not None:
                store.note(*self._last, replaces=self.replaces_witness)
        except BaseException:
            store.is_unsure = True
            store.writer.close()  # whatever it still holds, a new connection does not
            raise
        finally:
            self._end()

    def rollback(self) -> None:
        """Undo all of it; do nothing if it has ended."""
        if not self._is_open:
            return
        try:
            with suppress(psycopg.Error):
                self.connection.execute(sql.ROLLBACK)
                return
            self._store.writer.close()
        finally:
            self._end()

    def _end(self) -> None:
        self._is_open = False
        self._store.ended()


def chained_mac(keys: Keys, before: bytes, chain: int, number: int, event: Sequence[Any]) -> bytes:
    """Authenticate an event (at, batch, kind, who, why, detail) of a chain together with the one before it."""
    return event_mac(keys, before, (chain, number, *event))
