"""Checking a ledger: whether it is consistent.

`check` reads all of it. `check_at_opening` is what every opening for writing can afford: all of a small ledger, and of
a large one the end of the history and the control totals.

Anyone who edits rows with SQLite's own tools can make a row that was sent look as if it were not. So a run first
replays what the history says of its batch, however large the ledger is, and sends only if rows, attempts and totals
agree. And anyone who edits batches can make a content look as if it were not known: so nothing new is registered unless
all of them are there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from batchpay.errors import LedgerDamaged, once_sent
from batchpay.ledger import event_chain
from batchpay.ledger.payload import payload_problems
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.reading import pieces, values_of_digits
from batchpay.ledger.sqlite.store import SqliteStore, SqliteTransaction
from batchpay.ledger.states import PENDING, REJECTED, SENDING, STATES
from batchpay.ledger.stored_facts import fact_problems
from batchpay.text import counted, read_ranges

SMALL_BYTES = 4 << 20
_EVENTS_AT_OPENING = 50


def check(store: SqliteStore) -> list[str]:
    """Check the whole ledger by itself; return one line for each thing that is wrong."""
    problems: list[str] = []
    try:
        with store.reading(from_disk=True) as connection:
            connection.execute(sql.KEEP_MUCH)
            problems += _check_structure(connection)
            events = connection.execute(f"{sql.EVENTS} ORDER BY number")
            replayed, wrong = _followed(store, events, event_chain.FIRST_MAC, 1)
            problems += [f"the ledger is damaged: {wrong}"] if wrong else []
            problems += event_chain.batches_out_of_totals(connection, sql)
            for (batch,) in connection.execute(sql.BATCH_IDS).fetchall():
                found = _rows_problem(connection, batch, replayed)
                found = found or _seals_problem(store, connection, batch, sql.ENDED_ATTEMPTS, SENDING)
                problems += [f"the ledger is damaged: {found}"] if found else []
            problems += event_chain.sums_unlike_rows(connection, sql)
            problems += fact_problems(store, connection)
            problems += _check_runs(connection, replayed)
            problems += payload_problems(store, connection)
    except LedgerDamaged as error:
        problems.append(once_sent(error))  # whoever reports them says what became of it
    return problems


def check_at_opening(store: SqliteStore) -> None:
    """Raise LedgerDamaged if a run must not rely on this ledger."""
    with store.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        is_small = pages * page_bytes <= SMALL_BYTES
        problems = [] if is_small else check_short(store, connection)
    if is_small:
        problems = check(store)
    if problems:
        raise LedgerDamaged(f"{problems[0]}; nothing was sent (batchpay ledger check says more)")


def check_short(store: SqliteStore, connection: sqlite3.Connection) -> list[str]:
    """Check the end of the history and the control totals: what a check of any ledger can afford."""
    return _check_tail(store, connection) + event_chain.batches_out_of_totals(connection, sql)


def _check_structure(connection: sqlite3.Connection) -> list[str]:
    problems = []
    # SQLite's own lines may quote a record, so they are counted, not shown.
    found = connection.execute("PRAGMA integrity_check").fetchall()
    if found != [("ok",)]:
        problems.append(f"the ledger is damaged: SQLite finds {counted(len(found), 'fault')} in the file's structure")
    lost = len(connection.execute("PRAGMA foreign_key_check").fetchall())
    if lost := lost + connection.execute(sql.LOST_ROWS).fetchone()[0]:
        refer = counted(lost, "record refers", "records refer")
        problems.append(f"the ledger is damaged: {refer} to others that do not exist")
    return problems


def _followed(
    store: SqliteStore, events: Iterable[Any], before: bytes, expected: int, batch: int | None = None
) -> tuple[event_chain.Replay, str | None]:
    """Follow the chain from an event on; return what it says, of one batch only if that is given, and what is wrong."""
    replay = event_chain.Replay()
    for *event, mac in events:
        number, _, of_batch, kind, who, why, detail = event
        if number != expected or mac != event_chain.event_mac(store.keys, before, event):
            return replay, f"the history's chain breaks at event {expected}"
        if of_batch is not None and batch in (None, of_batch):
            impossible = replay.apply(of_batch, kind, who, why, json.loads(detail))
            if impossible:
                return replay, f"event {number}: {impossible}"
        before, expected = mac, expected + 1
    return replay, None if expected > 1 else "its history is empty"


def _check_tail(store: SqliteStore, connection: sqlite3.Connection) -> list[str]:
    """Check the end of the history only."""
    found = connection.execute(f"{sql.EVENTS} ORDER BY number DESC LIMIT ?", (_EVENTS_AT_OPENING + 1,)).fetchall()[::-1]
    before = event_chain.FIRST_MAC if found and found[0][0] == 1 else None
    for *event, mac in found:
        if before is not None and mac != event_chain.event_mac(store.keys, before, event):
            return [f"the ledger is damaged: the history's chain breaks at event {event[0]}"]
        before = mac
    return [] if found else ["the ledger is damaged: its history is empty"]


def _check_runs(connection: sqlite3.Connection, replay: event_chain.Replay) -> list[str]:
    """Compare the runs with the history."""
    stored = {run: values for run, *values in connection.execute(sql.ALL_RUNS)}
    return [] if stored == replay.runs else ["the ledger is damaged: its runs are not those of its history"]


_NOTHING_SENT = "nothing was sent (batchpay ledger check says more)"


def check_batch(store: SqliteStore, batch: int) -> None:
    """Raise LedgerDamaged if a batch is not what its history says; reads the history from its registration on."""
    try:
        with store.reading() as connection:
            replay = _replay(store, connection, batch)
            found = _rows_problem(connection, batch, replay)
            found = found or _seals_problem(store, connection, batch, sql.ATTEMPTS_IN_STATE, PENDING)
        if found:
            raise LedgerDamaged(f"the ledger is damaged: {found}")
    except LedgerDamaged as error:
        raise LedgerDamaged(f"{error}; {_NOTHING_SENT}") from None


def check_registrations(store: SqliteStore, transaction: SqliteTransaction) -> int:
    """Raise LedgerDamaged if what was registered is missing, or would not be found if it came again.

    The bill of each row that was ever pending stays in a table, for good: they are counted, about ten million a second.
    Whether each is its row's own is checked by a check of the whole ledger. Returns how many there should be.
    """
    bills = _bills_noted(store, transaction)
    if bills is None:
        bills = _replay_registrations(store, transaction)
    missing = bills - transaction.execute(sql.COUNT_BILLS).fetchone()[0]
    if missing > 0:
        raise LedgerDamaged(f"{event_chain.unknown_if_it_came_again(missing)}; {_NOTHING_SENT}")
    return bills


def registrations_noted(transaction: SqliteTransaction, bills: int) -> dict[str, Any]:
    """Return what a registration or release notes of all batches, so that the next one need not replay them all."""
    batches = transaction.execute(sql.ALL_REGISTERED).fetchone()[0]
    return {"known": [bills, transaction.keys.mac("registered", batches.encode()).hex()]}


def _bills_noted(store: SqliteStore, transaction: SqliteTransaction) -> int | None:
    """Return how many bills the latest registration or release noted; None unless it noted the batches as they are."""
    mac_before, mac, *event = transaction.execute(sql.LAST_REGISTRATION).fetchone() or (None, None, "{}")
    noted = json.loads(event[-1]).get("known")
    if noted is None or mac != event_chain.event_mac(store.keys, mac_before or event_chain.FIRST_MAC, event):
        return None
    return int(noted[0]) if registrations_noted(transaction, noted[0])["known"] == noted else None


def _replay_registrations(store: SqliteStore, transaction: SqliteTransaction) -> int:
    """Count the rows that were ever pending; raise LedgerDamaged if a batch is not what was registered."""
    replay = event_chain.Replay()
    for name, digest, environment, mac_before, mac, *event in transaction.execute(sql.REGISTRATIONS):
        number, _, batch, kind, who, why, detail = event
        told = json.loads(detail)
        is_first = kind == "registered"
        if mac != event_chain.event_mac(store.keys, mac_before or event_chain.FIRST_MAC, event) or is_first == (
            batch in replay.registered
        ):
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
    return sum(states.count(PENDING) for states in replay.states.values())


def _replay(store: SqliteStore, connection: sqlite3.Connection, batch: int) -> event_chain.Replay:
    """Follow the chain from the batch's registration to the ledger's last event, which its witness knows."""
    first = connection.execute(sql.REGISTRATION, (batch,)).fetchone()
    if first is None:
        raise LedgerDamaged("the ledger is damaged: its history does not know the batch")
    before = connection.execute(sql.MAC_OF_EVENT, (first[0] - 1,)).fetchone()
    events = connection.execute(sql.EVENTS_FROM, first)
    replay, wrong = _followed(store, events, before[0] if before else event_chain.FIRST_MAC, first[0], batch)
    if wrong:
        raise LedgerDamaged(f"the ledger is damaged: {wrong}")
    return replay


def _rows_problem(connection: sqlite3.Connection, batch: int, replay: event_chain.Replay) -> str | None:
    tally = event_chain.BatchTally(replay, batch)
    for ids in pieces(connection, batch):
        found = connection.execute(sql.ROWS_OF_BATCH, ids).fetchone()
        lines, weight, *arrays, directions, states = found
        if not states:
            continue
        rows, amounts = map(json.loads, arrays)
        directions, states = map(values_of_digits, (directions, states))
        if not len(rows) == len(directions) == len(states):  # more than a digit, or a sign
            return "a row stands in a state, or goes in a direction, that there is none of"
        wrong = tally.add(rows, (ids[0] & event_chain.ROW_MASK) * lines + weight, amounts, directions, states)
        if wrong is not None:
            return f"row {wrong[0]} is {STATES[wrong[1]]}, and its history says otherwise"
    return tally.problem(connection, sql)


def _seals_problem(
    store: SqliteStore, connection: sqlite3.Connection, batch: int, attempts: str, state: int
) -> str | None:
    """Check the latest attempts of rows, and the seals of some attempts and of the rows that were not to be sent."""
    first, end = event_chain.id_range(batch)
    differing = connection.execute(sql.ROWS_UNLIKE_ATTEMPTS, (first, end)).fetchone()[0]
    if differing:
        return counted(differing, "row differs from its latest attempt", "rows differ from their latest attempt")
    for kind, statement, of in (("attempt", attempts, state), ("rejected", sql.REJECTED_WITH_SEALS, REJECTED)):
        for identity, *values, seal in connection.execute(statement, (first, end, of)):
            if seal != store.keys.seal_values(kind, (identity, *values)):
                return f"row {identity & event_chain.ROW_MASK} is not what was recorded"
    return None
