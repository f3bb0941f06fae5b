"""What reports read: batches, rows, rejected rows, history; each call sees one consistent view."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from functools import partial
from itertools import chain, groupby, islice
from typing import Any

from batchpay.errors import LedgerDamaged, WrongUse
from batchpay.ledger.encoding import DIRECTIONS, ROW_MASK, ROWS_BITS, id_range, maybe_datetime, to_datetime
from batchpay.ledger.payload import place_of, unseal_texts
from batchpay.ledger.records import BatchSummary, Event, LedgerRow, RejectedRow, RowColumns
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.states import REJECTED, STATE_CODES, STATES
from batchpay.payment import Answer, Direction, Environment, State, Totals

_COLUMNS = tuple(field.name for field in fields(RowColumns))
_ROWS_FETCHED = 256
"""Few enough to stay in the processor's cache."""
_FETCHES_AT_ONCE = 16
"""Whoever works by column pays for each set of columns; this many rows take a few megabytes."""
_DETAIL_CHUNKS_KEPT = 8
_MASK = "****"
"""What stands before the last four in a row's details."""


def _summary(connection: sqlite3.Connection, found: tuple[Any, ...]) -> BatchSummary:
    identity, name, digest, file, origin, environment, columns, registered_at, rows, cents, again, options, *run = found
    started, finished, stopped, end, purged = run
    by_state = dict.fromkeys(State, Totals())
    by_direction = {direction.value: Totals() for direction in Direction}
    apart: dict[State, dict[str, Totals]] = {}
    for state, direction, count, sum_cents in connection.execute(sql.TOTALS, (identity,)):
        by_state[STATES[state]] += Totals(count, sum_cents)
        if STATES[state] is not State.REJECTED:
            by_direction[DIRECTIONS[direction]] += Totals(count, sum_cents)
            apart.setdefault(STATES[state], {})[DIRECTIONS[direction]] = Totals(count, sum_cents)
    total = sum(by_state.values(), Totals())
    if total != Totals(rows, cents):
        raise LedgerDamaged(f"the ledger is damaged: the states of batch {name} do not add up to its control totals")
    return BatchSummary(
        batch=name, digest=digest, file=file, origin=origin,
        environment=Environment(environment), registered_at=to_datetime(registered_at),
        started_at=maybe_datetime(started), finished_at=maybe_datetime(finished), stopped=stopped,
        columns=tuple(json.loads(columns)), total=total, by_state=by_state, by_direction=by_direction, apart=apart,
        again_reason=again, options=json.loads(options),
        held_back=Totals(*json.loads(end or "{}").get("held back", (0, 0))),
        purged_at=maybe_datetime(purged),
    )  # fmt: skip


def batches(store: Store) -> list[BatchSummary]:
    with store.reading() as connection:
        found = connection.execute(f"{sql.BATCH} ORDER BY batch.id DESC").fetchall()
        return [_summary(connection, one) for one in found]


def find_digest(store: Store, digest: bytes, environment: Environment, again_reason: str | None) -> BatchSummary | None:
    with store.reading() as connection:
        found = connection.execute(
            f"{sql.BATCH} WHERE digest = ? AND environment = ? AND again_reason COLLATE NOCASE IS"
            " coalesce(?, again_reason) ORDER BY batch.id DESC LIMIT 1",
            (digest, environment, again_reason),
        ).fetchone()
        return _summary(connection, found) if found else None


def find(store: Store, reference: str | None, environment: Environment | None) -> BatchSummary:
    with store.reading() as connection:
        if reference is None:
            found = connection.execute(
                f"{sql.BATCH} WHERE environment = coalesce(?, environment) ORDER BY batch.id DESC LIMIT 1",
                (environment,),
            ).fetchall()
            if not found:
                raise WrongUse(f"the ledger contains no {f'{environment} ' if environment else ''}batch yet")
        else:
            found = connection.execute(f"{sql.BATCH} WHERE name = ?", (reference,)).fetchall()
            if not found and reference:
                found = connection.execute(
                    f"{sql.BATCH} WHERE substr(name, 1, length(?)) = ? LIMIT 2", (reference, reference)
                ).fetchall()
            if not found:
                raise WrongUse(f"there is no batch {reference}")
            if len(found) > 1:
                raise WrongUse(f"more than one batch begins with {reference}")
        return _summary(connection, found[0])


def batch_number(store: Store, name: str) -> tuple[int, bytes]:
    """Give a batch's number and digest by its name; raises WrongUse."""
    with store.reading() as connection:
        found = connection.execute(sql.BATCH_BY_NAME, (name,)).fetchone()
    if not found:
        raise WrongUse(f"there is no batch {name}")
    return int(found[0]), found[1]


def last_event_at(store: Store, batch: int) -> datetime:
    """Look at all that seldom happens; a run's progress lies between its start and its end."""
    with store.reading() as connection:
        found = connection.execute(sql.LAST_EVENT_OF_BATCH, (batch,))
        return to_datetime(found.fetchone()[0])


def rows(store: Store, batch: str, states: Sequence[State] | None) -> Iterator[LedgerRow]:
    for columns in row_columns(store, batch, states):
        values = (getattr(columns, name) for name in _COLUMNS if name != "details")
        for (row, line, state, cents, direction, attempts, sent_at, finished_at, status, code, message, reference,
             reason, details) in zip(*values, columns.read_details(), strict=True):  # fmt: skip
            last_four = str(details.get("account") or "").removeprefix(_MASK)
            yield LedgerRow(
                row=row, line=line, state=state, amount_cents=cents, direction=direction, last_four=last_four,
                attempts=attempts, sent_at=sent_at, finished_at=finished_at,
                answer=Answer(status, code, message, reference), reason=reason, details=details,
            )  # fmt: skip


def row_columns(store: Store, batch: str, states: Sequence[State] | None) -> Iterator[RowColumns]:
    number, _ = batch_number(store, batch)
    wanted = [STATE_CODES[state] for state in (State if states is None else states) if state is not State.REJECTED]
    with store.reading() as connection:
        details = _Details(store, connection, number)
        found = connection.execute(
            sql.rows_in(len(wanted)),
            (*id_range(number), *wanted),
        )
        while some := list(_columns_of(islice(iter(partial(found.fetchmany, _ROWS_FETCHED), []), _FETCHES_AT_ONCE))):
            (ids, lines, codes, cents, directions, attempts, chunks, sent, finished, statuses, response_codes, messages,
             references, reasons) = some  # fmt: skip
            numbers = [identity & ROW_MASK for identity in ids]
            # Rows of one commit share their times.
            moment_of = {time: maybe_datetime(time) for time in {*sent, *finished}}.__getitem__
            yield RowColumns(
                numbers, lines, list(map(STATES.__getitem__, codes)), cents,
                list(map(DIRECTIONS.__getitem__, directions)), attempts, list(map(moment_of, sent)),
                list(map(moment_of, finished)), statuses, response_codes, messages, references, reasons,
                details.read(numbers, chunks),
            )  # fmt: skip


def last_accounts(
    store: Store, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None
) -> dict[bytes, str]:
    accounts: dict[bytes, str] = {}
    with store.reading() as connection:
        connection.execute(sql.MAKE_WANTED_PAYEES)
        connection.executemany(sql.ADD_WANTED_PAYEE, ((payee,) for payee in sorted(set(payees))))
        latest = dict(connection.execute(sql.LATEST_OF_WANTED, (environment, exclude_digest or b"")))
        for batch in sorted(set(latest.values())):
            details = _Details(store, connection, batch)
            for payee, identity, chunk in connection.execute(sql.LAST_PAID_IN, id_range(batch)).fetchall():
                text = json.loads(details.read([identity & ROW_MASK], [chunk])[0])
                if latest.get(payee) == batch and text.get("account"):
                    accounts[payee] = text["account"]
    return accounts


def _columns_of(fetched: Iterable[list[tuple[Any, ...]]]) -> Iterator[list[Any]]:
    """Turn rows into columns, some hundred at a time: few enough to stay in the processor's cache."""
    return (
        list(chain.from_iterable(column))
        for column in zip(*(list(zip(*some, strict=True)) for some in fetched), strict=True)
    )


class _Details:
    """What results show of rows, chunk by chunk."""

    def __init__(self, store: Store, connection: sqlite3.Connection, batch: int) -> None:
        self._store, self._connection, self._batch = store, connection, batch
        self._kept: dict[int, dict[int, bytes]] = {}
        self._purged = connection.execute(sql.PURGED_AT, (batch,)).fetchone()[0] is not None

    def read(self, rows: Sequence[int], chunks: Sequence[int]) -> list[bytes]:
        if self._purged:
            return [b"{}"] * len(rows)
        found: list[bytes] = []
        for chunk, some in groupby(chunks):  # rows of a chunk follow each other
            first = len(found)
            found += map(self._chunk(chunk).__getitem__, rows[first : first + len(list(some))])
        return found

    def _chunk(self, chunk: int) -> dict[int, bytes]:
        if chunk not in self._kept:
            while len(self._kept) >= _DETAIL_CHUNKS_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[chunk] = _details(self._store, self._connection, self._batch, chunk)
        return self._kept[chunk]


def _details(store: Store, connection: sqlite3.Connection, batch: int, chunk: int) -> dict[int, bytes]:
    sealed = connection.execute(sql.DETAIL, (chunk,)).fetchone()
    if not sealed:
        raise LedgerDamaged(f"the ledger is damaged: the details of chunk {chunk} are not there")
    return unseal_texts(store.keys, place_of("details", batch, chunk), sealed[0])


def origins(store: Store, environment: Environment) -> list[str]:
    with store.reading() as connection:
        return [origin for (origin,) in connection.execute(sql.ORIGINS, (environment,))]


def gateway_references(store: Store, environment: Environment) -> Iterator[tuple[str, int, str]]:
    with store.reading() as connection:
        names = dict(connection.execute(sql.BATCH_NAMES, (environment,)).fetchall())
        for identity, reference in connection.execute(sql.REFERENCES):
            if identity >> ROWS_BITS in names:
                yield names[identity >> ROWS_BITS], identity & ROW_MASK, reference


def rejected(store: Store, batch: str) -> Iterator[RejectedRow]:
    number, _ = batch_number(store, batch)
    with store.reading() as connection:
        found = connection.execute(
            sql.REJECTED_ROWS,
            (*id_range(number), REJECTED),
        )
        for identity, line, cents, reasons in found:
            yield RejectedRow(identity & ROW_MASK, line, cents, tuple(reasons.split()))


def events(store: Store, batch: str | None) -> Iterator[Event]:
    number = None if batch is None else batch_number(store, batch)[0]
    with store.reading() as connection:
        for row in connection.execute(
            f"{sql.NAMED_EVENTS} WHERE ?1 IS NULL OR event.batch = ?1 ORDER BY number", (number,)
        ):
            yield _event(row)


def latest_event(store: Store, kind: str) -> Event | None:
    with store.reading() as connection:
        latest = f"{sql.NAMED_EVENTS} WHERE kind = ? AND kind <> 'progress' ORDER BY number DESC LIMIT 1"
        row = connection.execute(latest, (kind,)).fetchone()
    return _event(row) if row else None


def _event(row: tuple[int, int, str | None, str, str, str | None, str]) -> Event:
    number, at, batch, kind, who, why, detail = row
    return Event(number, to_datetime(at), batch, kind, who, why, detail)
