"""Checking a ledger: whether it is consistent, and whether it is the one that this machine knows.

`check` reads all of it. `check_at_opening` is what every opening for writing can afford: the end of the history, the
control totals and the witness. `check_batch` compares one batch with its history before anything of it is sent: anyone
who edits rows with the database's own tools can make a row that was sent look as if it were not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import mul
from typing import Any

from batchpay.errors import LedgerDamaged
from batchpay.ledger import event_chain
from batchpay.ledger.payload import payload_problems
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.store import Connection, PostgresStore, chained_mac
from batchpay.ledger.records import ARRIVED
from batchpay.ledger.states import PENDING, STATES
from batchpay.ledger.stored_facts import fact_problems

_EVENTS_AT_OPENING = 50
_ROWS_AT_ONCE = 4096
_Head = tuple[int, bytes]
"""Number and mac of a chain's latest event."""


class _History:
    """The chains of events, followed in the order in which they moved rows."""

    def __init__(self, store: PostgresStore, own: _Head) -> None:
        self.replay = event_chain.Replay()
        self.heads: dict[int, _Head] = {0: own}
        self.ends: dict[int, _Head] = {}
        """Where the ledger's own chain says that each run's chain ended."""
        self._keys = store.keys

    def follow(self, events: Iterable[tuple[Any, ...]], batch: int | None = None) -> str | None:
        """Follow events, of one batch only if that is given; return what is wrong."""
        for seq, chain, number, at, of_batch, kind, who, why, detail, mac in events:
            known, before = self.heads.get(chain, (None, b""))
            event = (at, of_batch, kind, who, why, detail)
            if known is None or number != known + 1 or mac != chained_mac(self._keys, before, chain, number, event):
                return f"the history's chain breaks at event {seq}"
            self.heads[chain] = (number, mac)
            if kind == ARRIVED:  # earlier runs are in the ledger's own chain
                self.ends |= {run: self.heads[run] for run in self.replay.runs}
            if of_batch is None or batch not in (None, of_batch):
                continue
            told = json.loads(detail)
            if kind == "started":
                self.heads[told["run"]] = (0, mac)
            elif kind in ("finished", "fenced") and "number" in told:
                self.ends[told["run"]] = (told["number"], bytes.fromhex(told["mac"]))
            impossible = self.replay.apply(of_batch, kind, who, why, told)
            if impossible:
                return f"event {seq}: {impossible}"
        wrong = next((run for run, end in self.ends.items() if self.heads.get(run) != end), None)
        return f"the history of run {wrong} is cut off" if wrong is not None else None


def check(store: PostgresStore) -> list[str]:
    """Check the whole ledger by itself; return one line per problem."""
    problems: list[str] = []
    try:
        with store.reading() as connection:
            history = _History(store, (0, event_chain.FIRST_MAC))
            wrong = history.follow(store.stream(connection, sql.EVENTS))
            if wrong or history.heads[0] != connection.execute(sql.HEAD).fetchone():
                problems.append(f"the ledger is damaged: {wrong or 'the end of its history is cut off'}")
            problems += _check_runs(connection, history)
            problems += event_chain.batches_out_of_totals(connection, sql)
            problems += event_chain.sums_unlike_rows(connection, sql)
            problems += fact_problems(store, connection)
            for (batch,) in connection.execute(sql.BATCH_IDS).fetchall():
                found = _batch_problem(connection, batch, history.replay)
                found = found or _seals_problem(store, connection, batch, None)
                problems += [f"the ledger is damaged: {found}"] if found else []
            if lost := (connection.execute(sql.LOST_ROWS).fetchone() or (0,))[0]:
                problems.append(f"the ledger is damaged: {lost} records refer to others that do not exist")
            problems += payload_problems(store, connection)
    except LedgerDamaged as error:
        problems.append(str(error))
    return problems


def check_at_opening(store: PostgresStore) -> list[str]:
    """Check the end of the ledger's own chain and the control totals."""
    with store.reading() as connection:
        found = connection.execute(sql.LAST_OF_OWN_CHAIN, (_EVENTS_AT_OPENING + 1,)).fetchall()
        before = event_chain.FIRST_MAC if found and found[0][2] == 1 else None
        for seq, chain, number, *event, mac in found:
            if before is not None and mac != chained_mac(store.keys, before, chain, number, event):
                return [f"the ledger is damaged: the history's chain breaks at event {seq}"]
            before = mac
        head = connection.execute(sql.HEAD).fetchone()
        if not found or head != (found[-1][2], found[-1][-1]):
            return ["the ledger is damaged: the end of its history is cut off"]
        return event_chain.batches_out_of_totals(connection, sql)


def check_batch(store: PostgresStore, batch: int) -> None:
    """Raise LedgerDamaged if a batch is not what its history says; reads the history from its registration on."""
    with store.reading() as connection:
        wrong = _problem_of_batch(store, connection, batch)
    if wrong:
        raise LedgerDamaged(f"the ledger is damaged: {wrong}; nothing was sent (batchpay ledger check says more)")


def _problem_of_batch(store: PostgresStore, connection: Connection, batch: int) -> str | None:
    first = connection.execute(sql.REGISTRATION, (batch,)).fetchone()
    if first is None:
        return "its history does not know the batch"
    before = connection.execute(sql.MAC_OF_NUMBER, (first[0] - 1,)).fetchone()
    history = _History(store, (first[0] - 1, before[0] if before else event_chain.FIRST_MAC))
    events = store.stream(connection, sql.EVENTS_OF_BATCH, {"number": first[0], "batch": batch})
    return (
        history.follow(events, batch)
        or _batch_problem(connection, batch, history.replay)
        or _seals_problem(store, connection, batch, PENDING)
    )


def _batch_problem(connection: Connection, batch: int, replay: event_chain.Replay) -> str | None:
    tally = event_chain.BatchTally(replay, batch)
    with connection.cursor(name="rows_of_batch") as found:
        found.execute(sql.ROWS_OF_BATCH, (batch,), binary=True)
        while some := found.fetchmany(_ROWS_AT_ONCE):
            rows, lines, *columns = zip(*some, strict=True)
            wrong = tally.add(rows, sum(map(mul, rows, lines)), *columns)
            if wrong is not None:
                return f"row {wrong[0]} is {STATES[wrong[1]]}, and its history says otherwise"
    return tally.problem(connection, sql)


def _seals_problem(store: PostgresStore, connection: Connection, batch: int, state: int | None) -> str | None:
    """Check the attempts (of one state only, if given) and seals behind the rows."""
    for statement in (sql.ROWS_UNLIKE_ATTEMPTS, sql.LATER_ATTEMPTS):
        differing = (connection.execute(statement, (batch,)).fetchone() or (0,))[0]
        if differing:
            return f"{differing} rows differ from their latest attempt"
    attempts = (
        store.stream(connection, sql.ATTEMPTS, (batch,))
        if state is None
        else store.stream(connection, sql.ATTEMPTS_IN_STATE, (batch, state))
    )
    for row, *values, seal in attempts:
        if seal != store.keys.seal_values("attempt", (batch, row, *values)):
            return f"the answer of row {row} is not what was recorded"
    for row, *values, seal in store.stream(connection, sql.REJECTED_WITH_SEALS, (batch,)):
        if seal != store.keys.seal_values("rejected", (batch, row, *values)):
            return f"row {row} is not what was recorded"
    return None


def _check_runs(connection: Connection, history: _History) -> list[str]:
    """Compare the runs, and the ends of their chains, with the history."""
    found = connection.execute(sql.ALL_RUNS).fetchall()
    stored = {run: list(values) for run, *values, _, _, _ in found}
    heads = {run: (number, mac) for run, *_, number, mac, _ in found}
    ended = {run for run, *_, is_live in found if not is_live}
    if (
        stored != history.replay.runs
        or any(history.heads.get(run) != head for run, head in heads.items())
        or ended != history.ends.keys()
    ):
        return ["the ledger is damaged: its runs are not those of its history"]
    return []
