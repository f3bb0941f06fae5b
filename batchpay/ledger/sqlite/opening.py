"""Opening and creating a ledger, and every reason not to rely on it.

The schema's versions are the numbered .sql files next to this one, applied forward only, each in one transaction. A new
ledger goes through all of them, so there is one description of the schema and nothing to keep in sync with it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

from batchpay.errors import (
    BatchpayError,
    ClockBehind,
    LedgerDamaged,
    LedgerMissing,
    LedgerNewer,
    LedgerNotUsable,
    LedgerOlder,
    WrongUse,
    once_sent,
)
from batchpay.ledger import decisions
from batchpay.ledger.event_chain import FIRST_MAC, event_mac
from batchpay.ledger.keys import Keys, create_key_file, load_keys
from batchpay.ledger.machine import OwnClock, clock_behind, machine_name, now_ms, parse_mark
from batchpay.ledger.moving import Contents
from batchpay.ledger.paths import FileLock, LedgerPaths, check_directory, check_file, location, make_private_directory
from batchpay.ledger.records import Accepted
from batchpay.ledger.sqlite import restoring
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.audit import check_at_opening
from batchpay.ledger.sqlite.backup import back_up
from batchpay.ledger.sqlite.ledger import SqliteLedger
from batchpay.ledger.sqlite.restoring import contents, depart, moved_to, refuse_moved, refuse_restored_after_move
from batchpay.ledger.sqlite.store import LOCK_WAIT_S, SqliteStore, connect, lock_path, translated
from batchpay.ledger.witness import Witness, WitnessRecord, refuse_beside_another
from batchpay.settings import LedgerSettings
from batchpay.writing.atomic import sync_directory

APPLICATION_ID = 0x62706179
"""`bpay`: distinguishes a ledger from another program's SQLite file."""


def scripts() -> list[str]:
    """Return the texts of all migrations in order; the schema's version is their number."""
    sources = [source for source in files("batchpay.ledger.sqlite").iterdir() if source.name.endswith(".sql")]
    return [source.read_text("utf-8") for source in sorted(sources, key=lambda source: source.name)]


def statements(script: str) -> Iterator[str]:
    """Split a script; sqlite3's own executescript would commit before each."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if any(not line.startswith("--") for line in pending.splitlines() if line.strip()):
        raise ValueError("a migration ends in the middle of a statement")


def migrate(connection: sqlite3.Connection, migrations: Sequence[str], version: int) -> None:
    """Apply what is missing above `version`; the caller holds the transaction."""
    for script in migrations[version:]:
        for statement in statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")


LOOPBACK = "created automatically for a test gateway on this machine"
"""Why a ledger for rehearsals needs no person's word to exist next to another one."""
SQLITE_LEAST = (3, 38, 0)
"""STRICT tables, RETURNING, and JSON functions in every build."""


def open_ledger(settings: LedgerSettings, *, create_as: str | None, read_only: bool) -> SqliteLedger:
    path = location(settings).ledger
    if create_as is not None and not read_only and not os.path.lexists(path):
        try:
            create_ledger(settings, create_as, LOOPBACK)
        except LedgerNotUsable:
            # Another process may have created it at the same time.
            if not os.path.lexists(path):
                raise
    return _open(settings, read_only=read_only)


def bring_up_to_date(settings: LedgerSettings) -> None:
    try:
        _open(settings, read_only=True).close()
    except LedgerOlder:
        _open(settings).close()


def create_ledger(
    settings: LedgerSettings, who: str, beside_another: str | None, owner_url: str | None = None
) -> LedgerPaths:
    """See batchpay.ledger.open; a witness that remembers payments says that the ledger's disk may not be mounted."""
    if owner_url is not None:
        raise WrongUse("--owner-url is for a ledger in a database server; ledger.url names a file")
    place = location(settings)
    keys = _look_before_creation(place, beside_another)
    make_private_directory(place.ledger.parent)
    check_directory(place.ledger.parent)
    if keys is None:
        create_key_file(place.key)
        keys = load_keys(place.key)
    with translated(place.ledger):
        lock = FileLock(lock_path(place))
    try:
        lock.acquire(LOCK_WAIT_S)
        if os.path.lexists(place.ledger):
            raise LedgerNotUsable(f"a ledger already exists at {place.ledger}")
        remembered = Witness(place.witness, keys).read()
        if remembered is not None and remembered.number > 1:
            raise LedgerNotUsable(
                f"the witness {place.witness} remembers a ledger with payments, which is not at {place.ledger}: "
                "is its disk mounted? Restore its latest backup: a new one would not know what was paid. To start "
                "over anyway, move the witness away"
            )
        if remembered is None and os.path.lexists(place.witness):
            raise LedgerNotUsable(f"the witness {place.witness} is of another key; to start over, move it away")
        with translated(place.ledger):
            _write_new(place, keys, machine_name(settings), who, beside_another)
    finally:
        lock.close()
    return place


def accept(settings: LedgerSettings, who: str, why: str, *, rows_in_doubt: bool) -> Accepted:
    with closing(_open(settings, accepts=True)) as ledger:
        return restoring.accept(ledger.store, who, why, ledger.differences, rows_in_doubt=rows_in_doubt)


def confirm(settings: LedgerSettings, who: str, why: str) -> None:
    with closing(_open(settings)) as ledger:
        decisions.confirm(ledger.store, who, why)


def move(settings: LedgerSettings, to: str, who: str, why: str, hand_over: Callable[[Contents], None]) -> Contents:
    """Pass a ledger on to another database, unless that was already done; return what it was when it ended.

    The tables of what is returned can no longer be read. Raises WrongUse if it went elsewhere.
    """
    look = partial(_open, settings, read_only=True, may_have_moved=True)
    with closing(look()) as ledger, ledger.store.reading() as connection:
        known = moved_to(connection)
    if known not in (None, to):
        raise WrongUse(f"the ledger {location(settings).ledger} has moved to {known} already; nothing was done")
    if known is None:
        with closing(_open(settings)) as ledger:
            depart(ledger, to, who, why, hand_over)
    with closing(look()) as ledger, ledger.store.reading() as connection:
        return contents(ledger.store, connection)


def _look_before_creation(place: LedgerPaths, beside_another: str | None) -> Keys | None:
    """Refuse a new ledger if another one has payments; return the key if there is one. Write nothing."""
    if os.path.lexists(place.ledger):
        raise LedgerNotUsable(f"a ledger already exists at {place.ledger}")
    keys = load_keys(place.key) if os.path.lexists(place.key) else None
    if keys is None and os.path.lexists(place.witness):
        raise LedgerNotUsable(
            f"the witness {place.witness} remembers a ledger, and its key {place.key} does not exist: is its disk "
            "mounted? Without the key nobody can tell what was paid. To start over anyway, move the witness away"
        )
    refuse_beside_another(place, keys, beside_another)
    return keys


def _write_new(place: LedgerPaths, keys: Keys, machine: str | None, who: str, why: str | None) -> None:
    """Write under another name and rename, the witness first: a crash leaves either no ledger or a complete one."""
    temporary = place.ledger.with_name(place.ledger.name + ".new")
    for left_over in ("", "-wal", "-shm", "-journal"):
        Path(f"{temporary}{left_over}").unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    ledger_id = secrets.token_hex(16)
    event = (1, now_ms(), None, "created", who, why, "{}")
    mac = event_mac(keys, FIRST_MAC, event)
    connection = connect(temporary, "rw", 0)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        migrate(connection, scripts(), 0)
        meta = {"ledger id": ledger_id, "key id": keys.key_id, "probe": "0"}
        connection.executemany(sql.ADD_META, meta.items())
        connection.execute(sql.ADD_EVENT, (*event, mac))
        connection.execute("COMMIT")
    finally:
        connection.close()
    mark = keys.machine_mark(machine) if machine else None
    where = restoring.file_mark(keys, temporary, place.ledger.parent.resolve() / place.ledger.name)
    Witness(place.witness, keys).replace(WitnessRecord(ledger_id, 1, mac, mark, place=where))
    temporary.replace(place.ledger)
    sync_directory(place.ledger.parent)


def _open(
    settings: LedgerSettings,
    *,
    read_only: bool = False,
    accepts: bool = False,
    may_have_moved: bool = False,
    wait_s: float = LOCK_WAIT_S,
) -> SqliteLedger:
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        least = ".".join(map(str, SQLITE_LEAST[:2]))
        raise LedgerNotUsable(f"SQLite {sqlite3.sqlite_version} is too old; {least} is needed")
    place, machine = location(settings), machine_name(settings)
    place = replace(place, ledger=check_file(place.ledger))
    keys = load_keys(place.key)
    store = SqliteStore(place, keys, read_only=read_only, wait_s=wait_s)
    try:
        _check_version(store, read_only=read_only)
        with store.reading() as connection:
            meta = dict(connection.execute(sql.META))
            last = connection.execute(sql.LAST_EVENT).fetchone()
        if meta.get("key id") != keys.key_id:
            raise LedgerNotUsable(f"the key {place.key} is not the key of the ledger {place.ledger}")
        store.ledger_id, store.clock_mark = meta.get("ledger id", ""), meta.get("clock")
        store.machine = keys.machine_mark(machine) if machine else None
        opened_after_s = (now_ms() - last[1]) / 1000 if last else 0.0
        known_boot, before_ms = parse_mark(meta.get("last before boot"))
        boot = OwnClock.compare(store.clock_mark).boot
        store.last_before_boot_ms = before_ms if boot and boot == known_boot else last[1] if last else 0
        if not may_have_moved:
            refuse_moved(store)
        store.differences = _differences(store, opened_after_s)
        if read_only:
            store.outdated = next(
                (once_sent(one) for one in store.differences if not isinstance(one, ClockBehind)), None
            )
        elif not accepts:
            if store.differences:
                raise store.differences[0]
            check_at_opening(store)
        if not read_only:
            _probe(store)
    except BaseException:
        store.close()
        raise
    return SqliteLedger(store, opened_after_s)


def _differences(store: SqliteStore, opened_after_s: float) -> list[LedgerNotUsable]:
    """Return in what the ledger is not the one that this machine knows, or why nobody may use it."""
    try:
        refuse_restored_after_move(store)
    except LedgerNotUsable as error:
        return [error]
    is_known = OwnClock.compare(store.clock_mark).is_known  # then the event was written while it was ahead
    return [*restoring.differences(store), *([] if is_known else clock_behind(opened_after_s))]


def _check_version(store: SqliteStore, *, read_only: bool) -> None:
    """Refuse what is not a ledger or is a newer one; upgrade an older one, after a backup."""
    path = store.place.ledger
    migrations = scripts()
    with store.reading() as connection:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID or version < 1:
        raise LedgerDamaged(f"{path} is not a ledger of batchpay")
    if version > len(migrations):
        raise LedgerNewer(f"the ledger {path} was written by a later version of batchpay; update batchpay")
    if version == len(migrations):
        return
    if read_only:
        raise LedgerOlder(f"the ledger {path} is of an older version; run: batchpay ledger check")
    back_up(store, path.with_name(f"{path.name}.version-{version}.{now_ms()}"))
    with store.transaction() as transaction:
        # Another process may have been here since.
        version = transaction.execute("PRAGMA user_version").fetchone()[0]
        migrate(transaction.connection, migrations, version)


def _probe(store: SqliteStore) -> None:
    """Write and sync for real: a full or read-only disk is found before anything is sent."""
    try:
        with store.transaction() as transaction:
            transaction.execute(sql.PROBE, (str(now_ms()),))
            store.clock_mark = OwnClock.compare(store.clock_mark).mark
            transaction.execute(sql.KEEP_CLOCK_MARK, (store.clock_mark,))
            before = f"{OwnClock.compare(store.clock_mark).boot} {store.last_before_boot_ms}"
            transaction.execute(sql.SET_META, ("last before boot", before))
    except LedgerMissing:
        raise
    except BatchpayError as error:
        raise LedgerNotUsable(f"{error}; nothing was sent") from None
