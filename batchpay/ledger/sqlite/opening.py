"""Opening and making a ledger: where its files are, and every reason not to build on them."""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from dataclasses import replace
from pathlib import Path

from batchpay.errors import (
    BatchpayError,
    LedgerDamaged,
    LedgerMissing,
    LedgerNewer,
    LedgerNotUsable,
)
from batchpay.ledger.event_chain import FIRST_MAC, event_mac
from batchpay.ledger.folders import make_private_directory
from batchpay.ledger.keys import Keys, create_key_file, load_keys
from batchpay.ledger.records import LedgerPaths
from batchpay.ledger.sqlite import resolution, schema
from batchpay.ledger.sqlite.audit import check_at_opening
from batchpay.ledger.sqlite.backup import back_up
from batchpay.ledger.sqlite.encoding import now_ms
from batchpay.ledger.sqlite.ledger import SqliteLedger
from batchpay.ledger.sqlite.preconditions import check_directory, check_file, translated
from batchpay.ledger.sqlite.store import LOCK_WAIT_S, FileLock, Store, connect, lock_path
from batchpay.ledger.sqlite.witness import Witness, WitnessRecord
from batchpay.settings import LedgerSettings, config_directory, state_directory
from batchpay.writing.atomic import sync_directory

SQLITE_LEAST = (3, 38, 0)
"""STRICT tables, RETURNING, and JSON functions in every build."""


def location(settings: LedgerSettings) -> LedgerPaths:
    """Tell where the ledger, its key and its witness are.

    A ledger at a place of its own has a witness of its own, beside the key: its name carries a digest of the place.
    """
    default = state_directory() / "ledger.db"
    ledger = Path(settings.url).expanduser().absolute() if settings.url else default
    key = Path(settings.key_file).expanduser().absolute() if settings.key_file else config_directory() / "ledger.key"
    if settings.witness:
        witness = Path(settings.witness).expanduser().absolute()
    elif ledger == default:
        witness = key.with_name("ledger.witness")
    else:
        mark = hashlib.sha256(os.fsencode(ledger.resolve())).hexdigest()[:8]
        witness = key.with_name(f"ledger-{mark}.witness")
    return LedgerPaths(ledger, key, witness)


def open_ledger(place: LedgerPaths, *, create_as: str | None = None, read_only: bool = False) -> SqliteLedger:
    if create_as is not None and not read_only and not os.path.lexists(place.ledger):
        try:
            create_ledger(place, create_as)
        except LedgerNotUsable:
            # Another process may have made it at the same moment.
            if not os.path.lexists(place.ledger):
                raise
    return _open(place, read_only=read_only, trusts_witness=True)


def create_ledger(place: LedgerPaths, who: str) -> LedgerPaths:
    """See batchpay.ledger.open; a witness that remembers payments says that the ledger's disk may not be mounted."""
    make_private_directory(place.ledger.parent)
    check_directory(place.ledger.parent)
    if not os.path.lexists(place.key):
        create_key_file(place.key)
    keys = load_keys(place.key)
    with translated(place.ledger):
        lock = FileLock(lock_path(place))
    try:
        lock.acquire(LOCK_WAIT_S)
        if os.path.lexists(place.ledger):
            raise LedgerNotUsable(f"there is a ledger at {place.ledger} already")
        remembered = Witness(place.witness, keys).read()
        if remembered is not None and remembered.number > 1:
            raise LedgerNotUsable(
                f"the witness {place.witness} remembers a ledger with payments, which is not at {place.ledger}: "
                "is its disk mounted? To begin anew, move the witness away"
            )
        if remembered is None and os.path.lexists(place.witness):
            raise LedgerNotUsable(f"the witness {place.witness} is of another key; to begin anew, move it away")
        with translated(place.ledger):
            _write_new(place, keys, who)
    finally:
        lock.close()
    return place


def accept_ledger(place: LedgerPaths, who: str, why: str) -> int:
    ledger = _open(place, read_only=False, trusts_witness=False)
    try:
        return resolution.accept_witness(ledger._store, who, why)
    finally:
        ledger.close()


def _write_new(place: LedgerPaths, keys: Keys, who: str) -> None:
    """Write under another name and rename, the witness first: a crash leaves either no ledger or a whole one."""
    temporary = place.ledger.with_name(place.ledger.name + ".new")
    for left_over in ("", "-wal", "-shm", "-journal"):
        Path(f"{temporary}{left_over}").unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    ledger_id = secrets.token_hex(16)
    event = (1, now_ms(), None, "created", who, None, "{}")
    mac = event_mac(keys, FIRST_MAC, event)
    connection = connect(temporary, "rw", 0)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        schema.migrate(connection, schema.scripts(), 0)
        meta = {"ledger id": ledger_id, "key id": keys.key_id, "probe": "0"}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*event, mac))
        connection.execute("COMMIT")
    finally:
        connection.close()
    Witness(place.witness, keys).replace(WitnessRecord(ledger_id, 1, mac))
    temporary.replace(place.ledger)
    sync_directory(place.ledger.parent)


def _open(place: LedgerPaths, *, read_only: bool, trusts_witness: bool, wait_s: float = LOCK_WAIT_S) -> SqliteLedger:
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        least = ".".join(map(str, SQLITE_LEAST[:2]))
        raise LedgerNotUsable(f"SQLite {sqlite3.sqlite_version} is too old; {least} is needed")
    place = replace(place, ledger=check_file(place.ledger))
    keys = load_keys(place.key)
    store = Store(place, keys, read_only=read_only, wait_s=wait_s)
    try:
        _check_version(store, read_only=read_only)
        with store.reading() as connection:
            meta = dict(connection.execute("SELECT name, value FROM meta"))
        if meta.get("key id") != keys.key_id:
            raise LedgerNotUsable(f"the key {place.key} is not the key of the ledger {place.ledger}")
        store.ledger_id = meta.get("ledger id", "")
        if not read_only:
            if trusts_witness:
                check_at_opening(store)
            _probe(store)
    except BaseException:
        store.close()
        raise
    return SqliteLedger(store)


def _check_version(store: Store, *, read_only: bool) -> None:
    """Refuse what is not a ledger or a newer one; bring an older one up to date, after a backup."""
    path = store.place.ledger
    migrations = schema.scripts()
    with store.reading() as connection:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != schema.APPLICATION_ID or version < 1:
        raise LedgerDamaged(f"{path} is not a ledger of batchpay")
    if version > len(migrations):
        raise LedgerNewer(f"the ledger {path} was written by a later version of batchpay; update batchpay")
    if version == len(migrations):
        return
    if read_only:
        raise LedgerNotUsable(f"the ledger {path} is of an older version; run: batchpay ledger check")
    back_up(store, path.with_name(f"{path.name}.version-{version}.{now_ms()}"))
    with store.transaction() as transaction:
        # Another process may have been here since.
        version = transaction.execute("PRAGMA user_version").fetchone()[0]
        schema.migrate(transaction.connection, migrations, version)


def _probe(store: Store) -> None:
    """Write and sync for real: a full or read-only disk is met before anything is sent."""
    try:
        with store.transaction() as transaction:
            transaction.execute("UPDATE meta SET value = ? WHERE name = 'probe'", (str(now_ms()),))
    except LedgerMissing:
        raise
    except BatchpayError as error:
        raise LedgerNotUsable(f"{error}; nothing was sent") from None
