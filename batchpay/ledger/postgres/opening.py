"""Opening and creating a ledger on PostgreSQL: its files on this machine, and every reason not to rely on it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from batchpay.errors import (
    LedgerBehind,
    LedgerDamaged,
    LedgerElsewhere,
    LedgerNotUsable,
    LedgerOlder,
    LedgerOnAnotherMachine,
    WrongUse,
    once_sent,
)
from batchpay.ledger import decisions
from batchpay.ledger.decisions import require_named
from batchpay.ledger.event_chain import FIRST_MAC
from batchpay.ledger.keys import Keys, create_key_file, load_keys
from batchpay.ledger.machine import CLOCK_TIMES, clock_behind, machine_name
from batchpay.ledger.moving import Contents
from batchpay.ledger.paths import LedgerPaths, key_path, make_private_directory, own_path
from batchpay.ledger.postgres import arrival, restoring, schema
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.audit import check_at_opening
from batchpay.ledger.postgres.connection import LedgerNotPermitted, Place, no_ledger, place_of
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.ledger.postgres.marks import RunMarks
from batchpay.ledger.postgres.store import PostgresStore, PostgresTransaction
from batchpay.ledger.records import Accepted
from batchpay.ledger.witness import Witness, refuse_beside_another, witness_of
from batchpay.settings import LedgerSettings, state_directory


def _place(settings: LedgerSettings) -> Place:
    return place_of(settings.url, is_pooled=settings.pooler)


def location(settings: LedgerSettings) -> LedgerPaths:
    """Return where key and witness are, and the path next to which this machine keeps its own files for the ledger."""
    place, key = _place(settings), key_path(settings)
    witness = own_path(settings.witness, key.with_name(f"ledger-{place.mark}.witness"))
    return LedgerPaths(state_directory() / f"ledger-{place.mark}", key, witness, place.name)


def weaknesses(settings: LedgerSettings) -> list[str]:
    store = _store(settings, read_only=True)
    try:
        with closing(store), store.reading() as connection:
            checksums, owns = connection.execute(sql.WEAKNESSES).fetchone() or ("on", False)
    except LedgerNotPermitted:
        return ["this login has no right to the ledger's tables yet; the administrator runs: GRANT batchpay_app TO …"]
    found = [] if checksums == "on" else [f"{store.place.name} keeps no data checksums: a damaged page may be believed"]
    if owns:
        found.append(
            "this login owns the ledger's tables, and could change an amount; let batchpay log in as a member of "
            "batchpay_app that owns nothing"
        )
    return found


def schema_text() -> str:
    """Return the SQL with which a database's administrator creates the schema; `ledger init` then fills it."""
    return "\n".join(["BEGIN;", "", *schema.scripts(), "COMMIT;", ""])


def receive(settings: LedgerSettings, owner_url: str | None, contents: Contents, who: str, why: str) -> None:
    """Copy a ledger that is moving here; it is not in force before `begin`."""
    with _taking_over(settings, owner_url, contents) as store:
        arrival.receive(store, contents, who, why)


def begin(settings: LedgerSettings, owner_url: str | None, contents: Contents) -> None:
    """Put a ledger that moved in force here, and give this machine its witness."""
    with _taking_over(settings, owner_url, contents) as store:
        arrival.begin(store, contents)


@contextmanager
def _taking_over(settings: LedgerSettings, owner_url: str | None, contents: Contents) -> Iterator[PostgresStore]:
    paths, owner = location(settings), _owner(settings, owner_url)
    keys = load_keys(paths.key)
    record = Witness(paths.witness, keys).read()
    if os.path.lexists(paths.witness) and (record is None or record.ledger_id != contents.ledger_id):
        raise LedgerNotUsable(
            f"the witness {paths.witness} remembers another ledger in {paths.name}; nothing was moved"
        )
    make_private_directory(paths.ledger.parent)
    with closing(PostgresStore(owner, paths, keys, read_only=False)) as store:
        store.mark = _mark(settings, keys)
        try:
            yield store
        except LedgerNotPermitted:
            raise _not_permitted(owner) from None


def create_ledger(settings: LedgerSettings, who: str, beside_another: str | None, owner_url: str | None) -> LedgerPaths:
    """See batchpay.ledger.open; the schema may already exist, created by an administrator, but no ledger in it."""
    paths, owner = location(settings), _owner(settings, owner_url)
    known = load_keys(paths.key) if os.path.lexists(paths.key) else None
    _refuse_others(paths, known, beside_another)
    if known is None:
        create_key_file(paths.key)
    keys = load_keys(paths.key)
    make_private_directory(paths.ledger.parent)
    with closing(PostgresStore(owner, paths, keys, read_only=False)) as store:
        store.mark = _mark(settings, keys)
        store.ledger_id, store.host = secrets.token_hex(16), restoring.new_host(store.mark)
        try:
            with store.transaction() as transaction:
                _write_new(transaction, store, who, beside_another)
        except LedgerNotPermitted:
            raise _not_permitted(owner) from None
    return paths


def _owner(settings: LedgerSettings, owner_url: str | None) -> Place:
    place = _place(settings)
    owner = place_of(owner_url) if owner_url else place
    if owner.name != place.name and not place.is_pooled:
        raise WrongUse(f"--owner-url names another database ({owner.name}) than {place.name}")
    return owner


def _not_permitted(place: Place) -> LedgerNotUsable:
    return LedgerNotUsable(
        f"this login may not make the ledger in {place.name}: give the owner's by --owner-url, also where an "
        "administrator made the tables from what batchpay ledger init --print-sql prints"
    )


def _write_new(transaction: PostgresTransaction, store: PostgresStore, who: str, beside_another: str | None) -> None:
    transaction.execute(sql.LOCK_SCHEMA)
    if (transaction.one(sql.HAS_SCHEMA) or (False,))[0] is False:
        schema.migrate(transaction, 0)
    elif transaction.one(sql.LEDGER) is not None:
        raise LedgerNotUsable(
            f"a ledger already exists in {store.place.name}; another machine joins it: "
            'batchpay ledger join --reason "…"'
        )
    version = len(schema.scripts())
    where = restoring.place(store, transaction.connection)
    transaction.execute(sql.ADD_LEDGER, (version, store.ledger_id, store.keys.key_id, FIRST_MAC, where))
    transaction.event(restoring.CREATED, None, who, beside_another, restoring.of_machine(store))
    transaction.replaces_witness = True


def _refuse_others(paths: LedgerPaths, keys: Keys | None, beside_another: str | None) -> None:
    """Refuse a new ledger if this machine remembers one with payments, here or elsewhere."""
    if os.path.lexists(paths.witness):
        raise LedgerNotUsable(
            f"the witness {paths.witness} remembers a ledger in {paths.name}: is it the right database? Restore its "
            "latest backup: a new one would not know what was paid. To start over anyway, move the witness away"
        )
    refuse_beside_another(paths, keys, beside_another)


def bring_up_to_date(settings: LedgerSettings) -> None:
    """Apply what the schema lacks, if this login owns it; leave any other ledger as is."""
    try:
        _open(settings, read_only=True).close()
    except LedgerOlder:
        store = _store(settings, read_only=False)
        with closing(store), store.transaction() as transaction:
            transaction.execute(sql.LOCK_SCHEMA)
            version = (transaction.one(sql.LEDGER) or (0,))[0]
            schema.migrate(transaction, version)
            transaction.execute(sql.SET_VERSION, (len(schema.scripts()),))


def open_ledger(settings: LedgerSettings, *, create_as: str | None, read_only: bool) -> PostgresLedger:
    """See batchpay.ledger.open; none is ever created here."""
    return _open(settings, read_only=read_only)


def join(settings: LedgerSettings, who: str, why: str) -> LedgerPaths:
    """Let this machine, which has no witness of the ledger yet, work with it; the key must be here already."""
    require_named("a machine is let in", who, why)
    paths = location(settings)
    with closing(_open(settings, checks_witness=False)) as ledger:
        store = ledger.store
        record = store.witness.read()
        if record is not None and not restoring.is_copy(store, record):
            raise WrongUse(f"this machine already knows the ledger: {store.witness.path}")
        with store.transaction() as transaction:
            transaction.event(restoring.JOINED, None, who, why, restoring.of_machine(store))
            transaction.replaces_witness = True
        if record is not None:
            RunMarks(store.paths.witness).forget()
        make_private_directory(paths.ledger.parent)
    return paths


def accept(settings: LedgerSettings, who: str, why: str, *, rows_in_doubt: bool) -> Accepted:
    with closing(_open(settings, checks_witness=False, checks_clock=False)) as ledger:
        clock = clock_behind(ledger.opened_after_s)
        return restoring.accept(ledger.store, who, why, clock, rows_in_doubt=rows_in_doubt)


def confirm(settings: LedgerSettings, who: str, why: str) -> None:
    with closing(_open(settings)) as ledger:
        decisions.confirm(ledger.store, who, why)


def _store(settings: LedgerSettings, *, read_only: bool) -> PostgresStore:
    place, paths = _place(settings), location(settings)
    if not os.path.lexists(paths.key):
        raise LedgerNotUsable(
            f"ledger.key_file: {paths.key} does not exist; copy it from a machine that works with this ledger"
        )
    store = PostgresStore(place, paths, load_keys(paths.key), read_only=read_only)
    store.mark = _mark(settings, store.keys)
    return store


def _mark(settings: LedgerSettings, keys: Keys) -> str | None:
    machine = machine_name(settings)
    return keys.machine_mark(machine) if machine else None


def _open(
    settings: LedgerSettings, *, read_only: bool = False, checks_witness: bool = True, checks_clock: bool = True
) -> PostgresLedger:
    store = _store(settings, read_only=read_only)
    try:
        with store.reading() as connection:
            found = connection.execute(sql.LEDGER).fetchone()
            last = connection.execute(sql.LAST_EVENT, binary=True).fetchone()
        if found is None:
            raise no_ledger(store.place)
        version, store.ledger_id, key_id, store.epoch, is_arriving = found
        if key_id != store.keys.key_id:
            raise LedgerNotUsable(f"the key {store.paths.key} is not the key of the ledger {store.place.name}")
        schema.require_current(version, store.place.name)
        if is_arriving:
            raise LedgerNotUsable(
                f"a ledger is being moved to {store.place.name}, and the move was not completed: run batchpay ledger "
                "move again, where it was begun"
            )
        if not settings.witness:
            # This machine's witness of the ledger keeps its name even if the ledger's address changes.
            store.paths = replace(store.paths, witness=witness_of(store.ledger_id, store.paths, store.keys))
            store.witness = Witness(store.paths.witness, store.keys)
        clock = store.ask_clock(times=1 if read_only else CLOCK_TIMES)
        opened_after_s = (clock.now_ms() - last[1]) / 1000 if last else 0.0
        record = store.witness.read()
        is_known = record is not None and record.ledger_id == store.ledger_id and not restoring.is_copy(store, record)
        store.host = record.machine if record and is_known and record.machine else restoring.new_host(store.mark)
        store.follow = lambda: restoring.follow(store)
        if read_only:
            _note_what_is_there(store)
            store.differences = [*store.differences, *clock_behind(opened_after_s)]
        else:
            if checks_witness:
                restoring.require_whole(store)
                if problems := check_at_opening(store):
                    raise LedgerDamaged(f"{problems[0]}; nothing was sent (batchpay ledger check says more)")
                store.begun = lambda: restoring.begin_whole(store)
            if checks_clock:
                clock.require_alike()
                if behind := clock_behind(opened_after_s):
                    raise behind[0]
    except BaseException:
        store.close()
        raise
    return PostgresLedger(store, opened_after_s)


def _note_what_is_there(store: PostgresStore) -> None:
    """Remember the latest event of all machines, so that a database restored from before it is noticed here too.

    A ledger that can't be sent from can still be read; nothing that fails here prevents that. A machine that never
    worked with the ledger can't tell whether it is the latest.
    """
    try:
        restoring.require_whole(store)
    except (LedgerBehind, LedgerElsewhere, LedgerOnAnotherMachine) as error:
        store.differences = [error]
        store.outdated = once_sent(error) if store.witness.read() else None
    except LedgerNotUsable:
        pass
