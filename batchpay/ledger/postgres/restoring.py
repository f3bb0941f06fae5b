"""Whether a ledger is the one that this machine knows, where it was, and what named people decide if it is not.

A ledger records where it is in force: the server's files and the timeline that it writes, the database, its own table
(all of which a copy, a dump or a promotion makes anew), and the addresses at which it was accepted, since a copy of the
server's files differs in nothing else. Found anywhere else, it sends nothing until a named person has accepted it. A
machine whose witness knows an event that is missing marks the ledger as behind, and every machine stops at its next
commit: then a person decides as well.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing, suppress
from typing import Any

from batchpay.errors import LedgerBehind, LedgerElsewhere, LedgerNotUsable, LedgerOnAnotherMachine
from batchpay.ledger import decisions
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.audit import check
from batchpay.ledger.postgres.connection import LedgerNotPermitted
from batchpay.ledger.postgres.fences import fence
from batchpay.ledger.postgres.moves import PostgresMover
from batchpay.ledger.postgres.store import Connection, PostgresStore, PostgresTransaction
from batchpay.ledger.reading import today
from batchpay.ledger.records import HOW_TO_ACCEPT, RESTORED_REASON, WITNESS_ACCEPTED, Accepted
from batchpay.ledger.witness import WitnessRecord

CREATED, JOINED = "created", "joined"


class OlderThanWitness(LedgerBehind):
    """The machine knows of events that the ledger has lost."""


def new_host(mark: str | None) -> str:
    """Create the name by which a ledger knows a machine: random, with the machine's mark if it has one."""
    return f"{secrets.token_hex(8)}.{mark}" if mark else secrets.token_hex(8)


def is_copy(store: PostgresStore, record: WitnessRecord) -> bool:
    """Return whether a witness is another machine's: if a home was cloned, neither may speak for the other."""
    mark = (record.machine or "").partition(".")[2]
    return bool(mark and store.mark and mark != store.mark)


def of_machine(store: PostgresStore) -> dict[str, Any]:
    """Return what an event says of the machine that wrote it, and of where the ledger was."""
    return {"host": store.host, "name": os.uname().nodename, "place": " ".join(_here(store)[::2])}


def place(store: PostgresStore, connection: Connection, known: str = "") -> str:
    """Write down that the ledger is in force here: where, then each address on a line; `known` is what was before.

    The address at which an owner reaches the server need not be batchpay's own: the first one that writes adds that.
    """
    (store.where,) = connection.execute(sql.WHERE).fetchone() or (None,)  # its tables may be new
    core, _, address = _here(store)
    before, *addresses = known.split("\n")
    kept = addresses if before == core else []
    new = [] if address in kept or store.place.name != store.paths.url else [address]
    return "\n".join([core, *kept, *new])


def _here(store: PostgresStore) -> tuple[str, str, str]:
    """Return server with timeline, database and table; the same without the timeline; and the address."""
    core, _, address = (store.where or "").partition(" ")
    server, _, tables = core.partition("/")
    seen = store.route if store.route.partition("@")[0] == address else f"{address} by {store.route}"
    return core, f"{server}/{tables.partition('/')[2]}", seen


def problem(store: PostgresStore, connection: Connection, record: WitnessRecord | None) -> LedgerNotUsable | None:
    """Compare the ledger with what this machine remembers of it; return why nothing can be sent."""
    return _problem(store, connection, record, standing_of(connection))


def _problem(
    store: PostgresStore, connection: Connection, record: WitnessRecord | None, standing: tuple[str, int, str | None]
) -> LedgerNotUsable | None:
    path = store.witness.path
    if record is None:
        what = "has no record of this key" if store.witness.exists() else "is not there"
        return LedgerBehind(
            f"this machine's witness of the ledger, {path}, {what}, so it can't tell whether the ledger is the latest; "
            f'a machine that never worked with it: batchpay ledger join --reason "…"; else {HOW_TO_ACCEPT}'
        )
    if record.ledger_id != store.ledger_id:
        return LedgerBehind(f"the witness {path} belongs to another ledger; {HOW_TO_ACCEPT}")
    if is_copy(store, record):
        return LedgerOnAnotherMachine(
            f"this machine's witness of the ledger, {path}, was copied here from another machine, or this one's "
            "identity (ledger.machine, else /etc/machine-id) has changed; nothing was sent now; to work with the "
            'ledger here: batchpay ledger join --reason "…"'
        )
    known, epoch, behind = standing
    if _knows_more(connection, record, epoch):
        return OlderThanWitness(
            f"the ledger is older than this machine's witness {path}: most likely the database was brought back from a "
            f"backup, or a standby took over too late, and it does not know what was sent since; nothing was sent now; "
            f"{HOW_TO_ACCEPT}"
        )
    if behind is not None:
        return LedgerBehind(
            f"the ledger is older than what the machine {behind} knows of it: most likely the database was brought "
            f"back from a backup, or a standby took over too late; nothing was sent now; {HOW_TO_ACCEPT}"
        )
    return _elsewhere(store, known)


def _elsewhere(store: PostgresStore, known: str) -> LedgerNotUsable | None:
    core, *addresses = known.split("\n")
    here, tables, address = _here(store)
    server, _, of_server = core.partition("/")
    if f"{server}/{of_server.partition('/')[2]}" != tables:
        return LedgerBehind(
            "the ledger is in another database or other tables than before: it was copied, or loaded from a dump, and "
            f"the first may have gone on; nothing was sent now; {HOW_TO_ACCEPT}"
        )
    if here != core:
        what = "a standby took over, or the database was brought back from a backup"
    elif addresses and address not in addresses:
        what = (
            f"the ledger's server has another address ({address}) than before ({', '.join(addresses)}): its files may "
            "have been copied"
        )
    else:
        return None
    return LedgerElsewhere(f"{what}; nothing was sent now; if the first sends nothing more: {HOW_TO_ACCEPT}")


def begin_whole(store: PostgresStore) -> PostgresTransaction:
    """Begin a transaction in which it is seen that nothing is lost; raises LedgerNotUsable.

    It looks itself: if it asked another connection meanwhile, two of them might each have the one that the other waits
    for, behind a pooler with few.
    """
    transaction = PostgresTransaction(store)
    record = _witnessed(store)
    standing = standing_of(transaction.connection)
    found = _problem(store, transaction.connection, record, standing)
    if found is None:
        store.epoch = standing[1]
        transaction.replaces_witness = record is not None and record.epoch != store.epoch
        if "\n" not in standing[0]:
            transaction.execute(sql.SET_PLACE, (place(store, transaction.connection, standing[0]),))
        return transaction
    transaction.connection.execute(sql.ROLLBACK)
    raise _told(store, record, found)


def require_whole(store: PostgresStore) -> None:
    """Raise LedgerNotUsable unless nothing is lost; tell the other machines of what this one knows to be missing."""
    record = _witnessed(store)
    with store.reading() as connection:
        standing = standing_of(connection)
        found = _problem(store, connection, record, standing)
        last = connection.execute(sql.LAST_EVENT, binary=True).fetchone()
    if found is not None:
        raise _told(store, record, found)
    store.epoch = standing[1]
    if record is not None and last is not None and (store.epoch, last[0]) > (record.epoch or 0, record.number):
        # What it knew of before a restore was accepted may have higher numbers than all that came since.
        store.note(last[0], last[2], replaces=record.epoch != store.epoch)


def _witnessed(store: PostgresStore) -> WitnessRecord | None:
    store.witness.close()  # another command may have replaced it since this one opened it
    return store.witness.read()


def follow(store: PostgresStore) -> None:
    """Let a store that is in use go on at another address of the ledger; raises LedgerNotUsable."""
    with closing(store.beside()) as own:
        require_whole(own)


def _told(store: PostgresStore, record: WitnessRecord | None, found: LedgerNotUsable) -> LedgerNotUsable:
    """Return what was found; mark the ledger as behind if this machine alone may know of events that it has lost.

    Whoever may only read can't mark it, and is told all the same.
    """
    if isinstance(found, OlderThanWitness):
        with suppress(LedgerNotPermitted), closing(store.beside()) as own, own.transaction() as transaction:
            transaction.registrations()  # which locks the ledger: a person may have accepted it meanwhile
            if _knows_more(transaction.connection, record, standing_of(transaction.connection)[1]):
                transaction.execute(sql.SET_BEHIND, (os.uname().nodename,))
    return found


def standing_of(connection: Connection) -> tuple[str, int, str | None]:
    """Return where the ledger is in force, how many restores were accepted and one, and which machine knows more."""
    found = connection.execute(sql.STANDING_OF_LEDGER).fetchone()
    assert found is not None
    return found[0], found[1], found[2]


def _knows_more(connection: Connection, record: WitnessRecord | None, epoch: int) -> bool:
    """Return whether the witness knows a missing event. What was lost before a restore was accepted is settled.

    The latest number alone does not tell: of two runs on one machine, one may draw its number first and commit last.
    """
    if record is None:
        return False
    if (record.epoch or 0) >= epoch:
        found = connection.execute(sql.MAC_OF_EVENT, (record.number,)).fetchone()
        if record.epoch != epoch or found is None or found[0] != record.mac:
            return True
    return _knows_more(connection, record.other, epoch)


def accept(store: PostgresStore, who: str, why: str, clock: list[LedgerNotUsable], *, rows_in_doubt: bool) -> Accepted:
    """Accept the ledger as is, where it is, for all machines, and make this machine's witness agree.

    If it may not know of payments made since, every run that it considers alive is fenced, every row that it would send
    becomes a row in doubt, for a person to check, and what it lost is recorded. Raises LedgerDamaged if more is wrong
    with it than that: what the witness knows is kept.
    """
    decisions.require_named(decisions.LEDGER_ACCEPTED, who, why)
    decisions.require_undamaged(check(store))
    marked_in_doubt, lost = 0, None
    record = store.witness.read()
    of_this_ledger = record is not None and record.ledger_id == store.ledger_id
    with store.transaction() as transaction:
        transaction.registrations()  # which locks the ledger
        found = problem(store, transaction.connection, record)
        kind = decisions.kind_of_acceptance([*clock, *([found] if found else [])], rows_in_doubt=rows_in_doubt)
        known, store.epoch, _ = standing_of(transaction.connection)
        where, detail = place(store, transaction.connection, known), of_machine(store)
        if kind == WITNESS_ACCEPTED:
            last, at, _ = transaction.one(sql.LAST_EVENT) or (0, 0, b"")
            for run, batch in transaction.execute(sql.LIVE_RUNS).fetchall():
                fence(transaction, run, batch, who, heard_at=transaction.now_ms())
            for (batch,) in transaction.execute(sql.BATCH_IDS).fetchall():
                marked_in_doubt += decisions.doubt(
                    PostgresMover(transaction, batch, "doubted", who, RESTORED_REASON), today(store, transaction)
                )
            witnessed = record.number if record is not None and of_this_ledger and record.number > last else None
            (store.epoch,) = transaction.one(sql.ACCEPT_LEDGER, (where,)) or (0,)
            lost = decisions.lost_by_now(transaction, sql, last, at, witnessed)
            detail |= {"doubted": marked_in_doubt, **lost}
        else:
            transaction.execute(sql.SET_PLACE, (where,))
        transaction.event(kind, None, who, why, detail)
        transaction.replaces_witness = True
    return Accepted(marked_in_doubt, decisions.window(lost) if lost else None)
