"""Batches compared with the history before anything is sent, however large the ledger is.

Anyone who edits rows with SQLite's own tools can make a row that was sent look as if it were not. So a run first
replays what the history says of its batch, and sends only if rows, attempts and totals agree. And anyone who edits
batches can make a content look as if it were not known: so nothing new is registered unless all of them are there.
"""

from __future__ import annotations

import json
import sqlite3

from batchpay.errors import LedgerDamaged
from batchpay.ledger.event_chain import FIRST_MAC, ROW_MASK, Replay, event_mac, id_range, read_ranges
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.reading import pieces, values_of_digits
from batchpay.ledger.sqlite.store import SqliteStore, SqliteTransaction
from batchpay.ledger.states import PENDING, REJECTED
from batchpay.ledger.tally import BatchTally, unknown_if_it_came_again
from batchpay.text import counted

_NOTHING_SENT = "nothing was sent (batchpay ledger check says more)"


def check_batch(store: SqliteStore, batch: int) -> None:
    """Raise LedgerDamaged if a batch is not what its history says; reads the history from its registration on."""
    try:
        with store.reading() as connection:
            replay = _replay(store, connection, batch)
            found = _rows_problem(connection, batch, replay) or _attempts_problem(store, connection, batch)
        if found:
            raise LedgerDamaged(f"the ledger is damaged: {found}")
    except LedgerDamaged as error:
        raise LedgerDamaged(f"{error}; {_NOTHING_SENT}") from None


def check_registrations(store: SqliteStore, transaction: SqliteTransaction) -> None:
    """Raise LedgerDamaged if what was registered is missing, or would not be found if it came again.

    The bill of each row that was ever pending stays in a table, for good: they are counted, about ten million a second.
    Whether each is its row's own is checked by a check of the whole ledger.
    """
    replay = Replay()
    for name, digest, environment, mac_before, mac, *event in transaction.execute(sql.REGISTRATIONS):
        number, _, batch, kind, who, why, detail = event
        told = json.loads(detail)
        is_first = kind == "registered"
        if mac != event_mac(store.keys, mac_before or FIRST_MAC, event) or is_first == (batch in replay.registered):
            raise LedgerDamaged(f"the ledger is damaged: the history's chain breaks at event {number}; {_NOTHING_SENT}")
        if is_first:
            replay.apply(batch, kind, who, why, told)
            is_there = name is not None and digest.hex() == told["digest"]
            if not is_there or environment != told["about"][-1]:
                raise LedgerDamaged(
                    f"the ledger is damaged: batch {told['name']} is not what was registered; {_NOTHING_SENT}"
                )
        else:  # not all of its rows' history is read here: one may have been released again
            for first, last in read_ranges(told["pending"]):
                replay.states[batch][first : last + 1] = bytes((PENDING,)) * (last + 1 - first)
    were_pending = sum(states.count(PENDING) for states in replay.states.values())
    missing = were_pending - transaction.execute(sql.COUNT_BILLS).fetchone()[0]
    if missing > 0:
        raise LedgerDamaged(f"{unknown_if_it_came_again(missing)}; {_NOTHING_SENT}")


def _replay(store: SqliteStore, connection: sqlite3.Connection, batch: int) -> Replay:
    """Follow the chain from the batch's registration to the ledger's last event, which its witness knows."""
    first = connection.execute(sql.REGISTRATION, (batch,)).fetchone()
    if first is None:
        raise LedgerDamaged("the ledger is damaged: its history does not know the batch")
    before = connection.execute(sql.MAC_OF_EVENT, (first[0] - 1,)).fetchone()
    mac_before, expected, replay = before[0] if before else FIRST_MAC, first[0], Replay()
    for *event, mac in connection.execute(sql.EVENTS_FROM, first):
        number, _, of_batch, kind, who, why, detail = event
        if number != expected or mac != event_mac(store.keys, mac_before, event):
            raise LedgerDamaged(f"the ledger is damaged: the history's chain breaks at event {expected}")
        if of_batch == batch:
            impossible = replay.apply(batch, kind, who, why, json.loads(detail))
            if impossible:
                raise LedgerDamaged(f"the ledger is damaged: event {number}: {impossible}")
        mac_before, expected = mac, expected + 1
    return replay


def _rows_problem(connection: sqlite3.Connection, batch: int, replay: Replay) -> str | None:
    tally = BatchTally(replay, batch)
    for ids in pieces(connection, batch):
        found = connection.execute(sql.ROWS_OF_BATCH, ids).fetchone()
        lines, weight, *arrays, directions, states = found
        if not states:
            continue
        rows, amounts = map(json.loads, arrays)
        directions, states = map(values_of_digits, (directions, states))
        if not len(rows) == len(directions) == len(states):  # more than a digit, or a sign
            return "a row stands in a state, or goes in a direction, that there is none of"
        wrong = tally.add(rows, (ids[0] & ROW_MASK) * lines + weight, amounts, directions, states)
        if wrong is not None:
            return f"row {wrong[0]} does not stand where its history says"
    return tally.problem(connection, sql)


def _attempts_problem(store: SqliteStore, connection: sqlite3.Connection, batch: int) -> str | None:
    """Check attempts and seals of the rows that would be sent, and of those that were not to be."""
    first, end = id_range(batch)
    differing = connection.execute(sql.ROWS_UNLIKE_ATTEMPTS_OF_BATCH, (first, end, REJECTED, PENDING)).fetchone()[0]
    if differing:
        return counted(differing, "row differs from its latest attempt", "rows differ from their latest attempt")
    for kind, statement, state in (
        ("attempt", sql.ATTEMPTS_IN_STATE, PENDING),
        ("rejected", sql.REJECTED_WITH_SEALS, REJECTED),
    ):
        for identity, *values, seal in connection.execute(statement, (first, end, state)):
            if seal != store.keys.seal_values(kind, (identity, *values)):
                return f"row {identity & ROW_MASK} is not what was recorded"
    return None
