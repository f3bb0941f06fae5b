"""What reports read: batches, rows, rejected rows, history; each call sees one consistent view."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import groupby
from typing import Any

from batchpay.errors import LedgerDamaged, WrongUse
from batchpay.ledger.encoding import DIRECTIONS, maybe_datetime, to_datetime
from batchpay.ledger.hosts import HostRun
from batchpay.ledger.payload import place_of, unseal_texts
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.company_statements import ROWS_BY_RUN, RUNS_OF_BATCH
from batchpay.ledger.postgres.store import Connection, Store, stream
from batchpay.ledger.records import BatchSummary, Event, LedgerRow, RejectedRow, RowColumns
from batchpay.ledger.states import STATE_CODES, STATES
from batchpay.payment import Answer, Direction, Environment, State, Totals

_COLUMNS = tuple(field.name for field in fields(RowColumns))
_ROWS_AT_ONCE = 4096
_DETAIL_CHUNKS_KEPT = 8
_MASK = "****"
"""What stands before the last four in a row's details."""


def _summary(connection: Connection, found: tuple[Any, ...]) -> BatchSummary:
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
    if total != Totals(rows, cents) or any(totals.rows < 0 for totals in by_state.values()):
        raise LedgerDamaged(f"the ledger is damaged: the states of batch {name} do not add up to its control totals")
    return BatchSummary(
        batch=name, digest=digest, file=file, origin=origin,
        environment=Environment(environment), registered_at=to_datetime(registered_at),
        started_at=maybe_datetime(started), finished_at=maybe_datetime(finished), stopped=stopped,
        columns=tuple(json.loads(columns)), total=total, by_state=by_state, by_direction=by_direction, apart=apart,
        again_reason=again, options=json.loads(options),
        held_back=Totals(*json.loads(end or "{}").get("held back", (0, 0))), purged_at=maybe_datetime(purged),
    )  # fmt: skip


def batches(store: Store) -> list[BatchSummary]:
    with store.reading() as connection:
        return [_summary(connection, one) for one in connection.execute(sql.BATCHES, binary=True).fetchall()]


def find_digest(store: Store, digest: bytes, environment: Environment, again_reason: str | None) -> BatchSummary | None:
    wanted = {"digest": digest, "environment": environment.value, "again": again_reason}
    with store.reading() as connection:
        found = connection.execute(sql.BATCH_OF_DIGEST, wanted, binary=True).fetchone()
        return _summary(connection, found) if found else None


def find(store: Store, reference: str | None, environment: Environment | None) -> BatchSummary:
    with store.reading() as connection:
        if reference is None:
            wanted = {"environment": environment and environment.value}
            found = connection.execute(sql.LATEST_BATCH, wanted, binary=True).fetchall()
            if not found:
                raise WrongUse(f"the ledger contains no {f'{environment} ' if environment else ''}batch yet")
        else:
            found = connection.execute(sql.BATCH_NAMED, (reference,), binary=True).fetchall()
            if not found and reference:
                found = connection.execute(sql.BATCHES_BEGINNING, (reference,), binary=True).fetchall()
            if not found:
                raise WrongUse(f"there is no batch {reference}")
            if len(found) > 1:
                raise WrongUse(f"more than one batch begins with {reference}")
        return _summary(connection, found[0])


def batch_number(store: Store, name: str) -> tuple[int, bytes]:
    """Give a batch's number and digest by its name; raises WrongUse."""
    with store.reading() as connection:
        found = connection.execute(sql.BATCH_BY_NAME, (name,), binary=True).fetchone()
    if not found:
        raise WrongUse(f"there is no batch {name}")
    return int(found[0]), found[1]


def last_event_at(store: Store, batch: int) -> datetime:
    """Look at all that seldom happens; a run's progress lies between its start and its end."""
    with store.reading() as connection:
        found = connection.execute(sql.LAST_EVENT_OF_BATCH, (batch,)).fetchone()
        assert found is not None
        return to_datetime(found[0])


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
    with store.reading() as connection, connection.cursor(name="rows") as found:
        details = _Details(store, connection, number)
        found.execute(sql.ROWS_WITH_ATTEMPTS, (number, wanted), binary=True)
        while some := found.fetchmany(_ROWS_AT_ONCE):
            (numbers, lines, codes, cents, directions, attempts, chunks, sent, finished, statuses, response_codes,
             messages, references, reasons) = zip(*some, strict=True)  # fmt: skip
            # Rows of one commit share their times.
            moment_of = {time: maybe_datetime(time) for time in {*sent, *finished}}.__getitem__
            yield RowColumns(
                numbers, lines, list(map(STATES.__getitem__, codes)), cents,
                list(map(DIRECTIONS.__getitem__, directions)), attempts, list(map(moment_of, sent)),
                list(map(moment_of, finished)), statuses, response_codes, messages, references, reasons,
                details.read(numbers, chunks),
            )  # fmt: skip


class _Details:
    """What results show of rows, chunk by chunk."""

    def __init__(self, store: Store, connection: Connection, batch: int) -> None:
        self._store, self._connection, self._batch = store, connection, batch
        self._kept: dict[int, dict[int, bytes]] = {}
        self._purged = connection.execute(sql.IS_PURGED, (batch,)).fetchone() is not None

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
            sealed = self._connection.execute(sql.DETAIL, (self._batch, chunk), binary=True).fetchone()
            if not sealed:
                raise LedgerDamaged(f"the ledger is damaged: the details of chunk {chunk} are not there")
            self._kept[chunk] = unseal_texts(self._store.keys, place_of("details", self._batch, chunk), sealed[0])
        return self._kept[chunk]


def last_accounts(
    store: Store, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None
) -> dict[bytes, str]:
    accounts: dict[bytes, str] = {}
    wanted = [signed(payee) for payee in sorted(set(payees))]
    with store.reading() as connection:
        of_others = (environment.value, exclude_digest or b"", wanted)
        latest = dict(connection.execute(sql.LATEST_BATCH_OF_PAYEES, of_others).fetchall())
        for batch in sorted(set(latest.values())):
            details = _Details(store, connection, batch)
            of_batch = [payee for payee, number in latest.items() if number == batch]
            for payee, row, chunk in connection.execute(sql.LAST_PAID_IN, (batch, of_batch)).fetchall():
                text = json.loads(details.read([row], [chunk])[0])
                if text.get("account"):
                    accounts[unsigned(payee)] = text["account"]
    return accounts


def signed(digest: bytes) -> int:
    """Give a keyed digest of eight bytes as the number that stands for it in the tables."""
    return int.from_bytes(digest, "big", signed=True)


def unsigned(number: int) -> bytes:
    """Give the digest that a number stands for."""
    return number.to_bytes(8, "big", signed=True)


def origins(store: Store, environment: Environment) -> list[str]:
    with store.reading() as connection:
        return [origin for (origin,) in connection.execute(sql.ORIGINS, (environment.value,))]


def gateway_references(store: Store, environment: Environment) -> Iterator[tuple[str, int, str]]:
    with store.reading() as connection:
        names = dict(connection.execute(sql.BATCH_NAMES, (environment.value,)).fetchall())
        for batch, row, reference in stream(connection, sql.REFERENCES):
            if batch in names:
                yield names[batch], row, reference


def rejected(store: Store, batch: str) -> Iterator[RejectedRow]:
    number, _ = batch_number(store, batch)
    with store.reading() as connection:
        for row, line, cents, reasons in stream(connection, sql.REJECTED_ROWS, (number,)):
            yield RejectedRow(row, line, cents, tuple(reasons.split()))


def events(store: Store, batch: str | None) -> Iterator[Event]:
    number = None if batch is None else batch_number(store, batch)[0]
    with store.reading() as connection:
        for row in stream(connection, sql.NAMED_EVENTS, {"batch": number}):
            yield _event(row)


def latest_event(store: Store, kind: str) -> Event | None:
    with store.reading() as connection:
        row = connection.execute(sql.LATEST_EVENT, (kind,), binary=True).fetchone()
    return _event(row) if row else None


def _event(row: tuple[Any, ...]) -> Event:
    number, at, batch, kind, who, why, detail = row
    return Event(number, to_datetime(at), batch, kind, who, why, detail)


def runs(store: Store, batch: int) -> list[HostRun]:
    with store.reading() as connection:
        rows: dict[int, Counter[State]] = {}
        for run, state, count in connection.execute(ROWS_BY_RUN, (batch,)):
            rows.setdefault(run, Counter())[STATES[state]] = count
        return [
            _host_run(found, rows.get(found[0], Counter()))
            for found in connection.execute(RUNS_OF_BATCH, (batch,)).fetchall()
        ]


def _host_run(found: tuple[Any, ...], rows: Counter[State]) -> HostRun:
    _, host, leads, is_live, started, finished, seen, stopped, is_fenced, heard = found
    return HostRun(
        host, leads, is_live, to_datetime(started), maybe_datetime(finished), to_datetime(seen), stopped,
        is_fenced and heard is None, rows.total(), rows[State.IN_DOUBT],
    )  # fmt: skip
