"""Whether the server is one where nothing of the ledger is lost: after a promotion, a restore, a copy.

The ledger records where it is complete: the name of a server's files, and the timeline that it writes, which a
promotion and a restore to a point in time start anew. Found anywhere else, it sends nothing until every machine that
works with it has compared it with its own witness: a witness knows whatever its machine ever committed, so when all
agree nothing is lost. They do so with whatever command they run next, and in the middle of a run. A witness that does
not agree marks the ledger as behind, and every machine stops at its next commit. From then on, and if a machine is
gone, a person decides.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import closing

from batchpay.errors import LedgerBehind, LedgerNotUsable, LedgerOnAnotherMachine, WrongUse
from batchpay.ledger.decisions import LEDGER_ACCEPTED, require_named
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import LedgerUnreachable
from batchpay.ledger.postgres.store import Connection, PostgresStore, PostgresTransaction
from batchpay.ledger.records import ARRIVED, MACHINE_ACCEPTED, WITNESS_ACCEPTED
from batchpay.ledger.witness import WitnessRecord

CREATED, JOINED, CONFIRMED = "created", "joined", "confirmed"
"""Kinds of events in which a machine says that all it knows of is there."""
_OF_MACHINES = [CREATED, ARRIVED, JOINED, CONFIRMED, WITNESS_ACCEPTED, MACHINE_ACCEPTED]
_BY_ITSELF = "batchpay"
_WAY_OUT = 'a named person who knows why may accept it: batchpay ledger check --accept-witness --reason "…"'


class LedgerElsewhere(LedgerBehind):
    """The database is on a different server than before."""


class LedgerUnconfirmed(LedgerUnreachable):
    """The database moved, and not every machine has confirmed yet that nothing is lost: it may continue later."""


def new_host(mark: str | None) -> str:
    """Create the name by which a ledger knows a machine: random, with the machine's mark if it has one."""
    return f"{secrets.token_hex(8)}.{mark}" if mark else secrets.token_hex(8)


def is_copy(store: PostgresStore, record: WitnessRecord) -> bool:
    """Return whether a witness is another machine's: if a home was cloned, neither may speak for the other."""
    mark = (record.machine or "").partition(".")[2]
    return bool(mark and store.mark and mark != store.mark)


def of_machine(store: PostgresStore) -> dict[str, str | None]:
    """Return what an event of `_OF_MACHINES` says of this machine."""
    return {"host": store.host, "name": os.uname().nodename, "place": store.where}


def problem(store: PostgresStore, connection: Connection, record: WitnessRecord | None) -> LedgerNotUsable | None:
    """Compare the ledger with what this machine remembers of it; return why nothing can be sent."""
    return _problem(store, connection, record, _standing(connection))


def _problem(
    store: PostgresStore, connection: Connection, record: WitnessRecord | None, standing: tuple[str, int, str | None]
) -> LedgerNotUsable | None:
    path = store.witness.path
    if record is None:
        what = "has no record of this key" if store.witness.exists() else "is not there"
        return LedgerBehind(
            f"this machine's witness of the ledger, {path}, {what}, so it can't tell whether the ledger is the latest; "
            f'a machine that never worked with it: batchpay ledger join --reason "…"; else {_WAY_OUT}'
        )
    if record.ledger_id != store.ledger_id:
        return LedgerBehind(f"the witness {path} belongs to another ledger; {_WAY_OUT}")
    if is_copy(store, record):
        return LedgerOnAnotherMachine(
            f"this machine's witness of the ledger, {path}, was copied here from another machine, or this one's "
            "identity (ledger.machine, else /etc/machine-id) has changed; nothing was sent now; to work with the "
            'ledger here: batchpay ledger join --reason "…"'
        )
    place, epoch, behind = standing
    if _knows_more(connection, record, epoch):
        return LedgerBehind(
            f"the ledger is older than this machine's witness {path}: most likely the database was brought back from a "
            f"backup, or a standby took over too late, and it does not know what was sent since; nothing was sent now; "
            f"{_WAY_OUT}"
        )
    if behind is not None:
        return LedgerBehind(
            f"the ledger is older than what the machine {behind} knows of it: most likely the database was brought "
            f"back from a backup, or a standby took over too late; nothing was sent now; {_WAY_OUT}"
        )
    if place == store.where:
        return None
    if _server(place) != _server(store.where):
        return LedgerElsewhere(
            "the ledger lies in another server than before: a copy of it was loaded there, and the first may have gone "
            "on; nothing was sent now; if it is off, and nothing is lost: batchpay ledger check --accept-machine "
            f'--reason "…"; else {_WAY_OUT}'
        )
    missing = _missing(connection, store.where)
    return LedgerUnconfirmed(
        "a standby took over, or the database was brought back; before anything is sent every machine looks whether "
        "anything is lost, by any command such as batchpay status; these have not yet: "
        f"{', '.join(sorted(missing.values()))}; nothing was sent now; where one is gone for good, and nothing is "
        'lost: batchpay ledger check --accept-machine --reason "…"'
    )


def begin_whole(store: PostgresStore) -> PostgresTransaction:
    """Begin a transaction in which it is seen that nothing is lost; raises LedgerNotUsable.

    It looks itself: if it asked another connection meanwhile, two of them might each have the one that the other waits
    for, behind a pooler with few.
    """
    transaction = PostgresTransaction(store)
    record = _witnessed(store)
    found, is_listed, epoch = _look(store, transaction.connection, record, joins=True)
    if found is None and is_listed:
        store.epoch = epoch
        return transaction
    transaction.connection.execute(sql.ROLLBACK)
    require_whole(store, joins=True)
    transaction = PostgresTransaction(store)
    found = problem(store, transaction.connection, store.witness.read())
    if found is not None:
        raise found
    return transaction


def require_whole(store: PostgresStore, *, joins: bool) -> None:
    """Tell the other machines what this one knows, then raise LedgerNotUsable unless nothing is lost.

    `joins` is set by a caller that is about to write: from then on the others wait for this machine.
    """
    record = _witnessed(store)
    with store.reading() as connection:
        found, is_listed, epoch = _look(store, connection, record, joins=joins)
    knows = record is not None and record.ledger_id == store.ledger_id and not is_copy(store, record)
    if record is not None and knows and (found is not None or not is_listed):
        _tell(store, record)
        with store.reading() as connection:
            found = problem(store, connection, store.witness.read())
    if found is not None:
        raise found
    store.epoch = epoch


def _witnessed(store: PostgresStore) -> WitnessRecord | None:
    store.witness.close()  # another command may have replaced it since this one opened it
    return store.witness.read()


def _look(
    store: PostgresStore, connection: Connection, record: WitnessRecord | None, *, joins: bool
) -> tuple[LedgerNotUsable | None, bool, int]:
    """Return why nothing can be sent, whether the others know of this machine, and the ledger's epoch."""
    standing = _standing(connection)
    epoch = standing[1]
    is_listed = record is not None and record.epoch == epoch and (not joins or store.host in _machines(connection))
    return _problem(store, connection, record, standing), is_listed, epoch


def follow(store: PostgresStore) -> None:
    """Let a store that is in use continue with the server that took over; raises LedgerNotUsable."""
    with closing(store.beside()) as own:
        require_whole(own, joins=True)


def _tell(store: PostgresStore, record: WitnessRecord) -> None:
    """Record in the ledger what this machine knows: that events are missing, or that all are there."""
    with closing(store.beside()) as own, own.transaction() as transaction:
        transaction.registrations()  # which locks the ledger: machines check one after another
        place, epoch, behind = _standing(transaction.connection)
        own.epoch = epoch
        if _knows_more(transaction.connection, record, epoch):
            transaction.execute(sql.SET_BEHIND, (os.uname().nodename,))
        elif behind is None and _server(place) == _server(own.where):
            if _machines(transaction.connection).get(own.host, ("", ""))[1] != own.where:
                transaction.event(CONFIRMED, None, _BY_ITSELF, None, of_machine(own))
                transaction.replaces_witness = record.epoch != epoch
            if not _missing(transaction.connection, own.where):
                transaction.execute(sql.SET_PLACE, (own.where,))


def accept_machine(store: PostgresStore, who: str, why: str) -> None:
    """See batchpay.ledger.open: machines that have not checked are no longer waited for, until they come back."""
    require_named(LEDGER_ACCEPTED, who, why)
    record = store.witness.read()
    with store.transaction() as transaction:
        transaction.registrations()
        found = problem(store, transaction.connection, record)
        if found is None:
            raise WrongUse("the ledger is where it was before; there is nothing to accept")
        if not isinstance(found, LedgerElsewhere | LedgerUnconfirmed):
            raise found
        transaction.event(MACHINE_ACCEPTED, None, who, why, of_machine(store))
        transaction.execute(sql.SET_PLACE, (store.where,))


def _standing(connection: Connection) -> tuple[str, int, str | None]:
    found = connection.execute(sql.STANDING_OF_LEDGER).fetchone()
    assert found is not None
    return found[0], found[1], found[2]


def _server(place: str | None) -> str:
    return (place or "").partition("/")[0]


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


def _machines(connection: Connection) -> dict[str, tuple[str, str]]:
    """Return the machines that work with the ledger: name, and where each last said that all it knows is there."""
    machines: dict[str, tuple[str, str]] = {}
    for kind, detail in connection.execute(sql.OF_MACHINES, (_OF_MACHINES,)):
        told = json.loads(detail)
        if "host" not in told:  # from the time when it was one machine's file
            continue
        if kind in (WITNESS_ACCEPTED, MACHINE_ACCEPTED):
            machines = {host: known for host, known in machines.items() if known[1] == told["place"]}
        machines[told["host"]] = (told["name"], told["place"])
    return machines


def _missing(connection: Connection, where: str | None) -> dict[str, str]:
    """Return the machines, by name, that have not yet said that all they know is there."""
    return {host: name for host, (name, place) in _machines(connection).items() if place != where}
