"""A ledger that may not be the one that knows: a database that was restored, or whose standby took over too late."""

from __future__ import annotations

import json

from batchpay.errors import WaitingForPerson, WrongUse
from batchpay.ledger.encoding import to_datetime
from batchpay.ledger.postgres import failover
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.fences import fence
from batchpay.ledger.postgres.moves import Mover
from batchpay.ledger.postgres.store import Connection, Store
from batchpay.ledger.records import RESTORED_REASON, SETTLED, WITNESS_ACCEPTED, AcceptedWitness, LostWindow
from batchpay.ledger.states import IN_DOUBT, PENDING, SENDING


def accept_witness(store: Store, who: str, why: str) -> AcceptedWitness:
    """Accept the ledger as it stands and make this machine's witness agree.

    It may not know of payments made since: every run that it holds for alive is shut out, every row that it would send
    becomes a row in doubt, for a person to look at, and what it lost is written down.
    """
    _require_person(who, why)
    marked_in_doubt = 0
    record = store.witness.read()
    of_this_ledger = record is not None and record.ledger_id == store.ledger_id
    with store.transaction() as transaction:
        last, at, _ = transaction.one(sql.LAST_EVENT) or (0, 0, b"")
        for run, batch in transaction.execute(sql.LIVE_RUNS).fetchall():
            fence(transaction, run, batch, None, who)
        for (batch,) in transaction.execute(sql.BATCH_IDS).fetchall():
            mover = Mover(transaction, batch, "doubted", who, RESTORED_REASON)
            for state in (PENDING, SENDING):
                rows = mover.move(mover.rows_in(state), state, IN_DOUBT)
                mover.note_attempts(rows, IN_DOUBT, RESTORED_REASON, at=None)
                marked_in_doubt += len(rows)
            mover.finish()
        witnessed = record.number if record is not None and of_this_ledger and record.number > last else None
        (store.epoch,) = transaction.one(sql.ACCEPT_LEDGER, (store.where,)) or (0,)
        detail = {"doubted": marked_in_doubt, "last": last, "since": at, "witnessed": witnessed}
        detail |= failover.of_machine(store)
        transaction.event(WITNESS_ACCEPTED, None, who, why, detail)
        transaction.replaces_witness = True
    return AcceptedWitness(marked_in_doubt, LostWindow(to_datetime(at), last + 1, witnessed))


def settle_lost_window(store: Store, who: str, why: str) -> None:
    """See batchpay.ledger.open."""
    _require_person(who, why)
    with store.transaction() as transaction:
        if open_lost_window(transaction.connection) is None:
            raise WrongUse("no part of this ledger is lost that nobody has settled; there is nothing to settle")
        transaction.event(SETTLED, None, who, why, {})


def open_lost_window(connection: Connection) -> LostWindow | None:
    """Find what the ledger may not know and no person has settled yet."""
    kind, detail = connection.execute(sql.LAST_OF_KINDS, (WITNESS_ACCEPTED, SETTLED)).fetchone() or (SETTLED, "{}")
    if kind == SETTLED:
        return None
    known = json.loads(detail)
    return LostWindow(to_datetime(known["since"]), known["last"] + 1, known["witnessed"])


def require_settled(connection: Connection) -> None:
    """Raise WaitingForPerson where a restored ledger may not know that what is to be registered was paid."""
    lost = open_lost_window(connection)
    if lost is not None:
        raise WaitingForPerson(
            f"the ledger was restored: {lost}; nothing new is registered before a person has looked what was paid: "
            'batchpay ledger check --lost-window-settled --reason "…"'
        )


def _require_person(who: str, why: str) -> None:
    if not who.strip() or not why.strip():
        raise WrongUse("a ledger is accepted by a named person, with a reason")
