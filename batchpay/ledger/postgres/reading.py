"""Reading many rows, accounts, and the runs of machines; all else that reports read is in ledger/reading.py."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from batchpay.ledger.encoding import maybe_datetime, to_datetime
from batchpay.ledger.hosts import HostRun
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.store import Store
from batchpay.ledger.reading import ROWS_AT_ONCE, Details, batch_number
from batchpay.ledger.records import RowColumns
from batchpay.ledger.states import STATE_CODES, STATES
from batchpay.payment import Environment, State


def row_columns(
    store: Store, batch: str, states: Sequence[State] | None, cents: Collection[int] | None
) -> Iterator[RowColumns]:
    number, _ = batch_number(store, batch)
    wanted = [STATE_CODES[state] for state in (State if states is None else states) if state is not State.REJECTED]
    with store.reading() as connection, connection.cursor(name="rows") as found:
        details = Details(store, connection, number)
        found.execute(
            sql.ROWS_WITH_ATTEMPTS, (number, wanted, *(None if cents is None else list(cents),) * 2), binary=True
        )
        while some := found.fetchmany(ROWS_AT_ONCE):
            yield details.columns(list(zip(*some, strict=True)))


def last_accounts(
    store: Store, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None
) -> dict[bytes, str]:
    accounts: dict[bytes, str] = {}
    wanted = [signed(payee) for payee in sorted(set(payees))]
    with store.reading() as connection:
        of_others = (environment.value, exclude_digest or b"", wanted)
        latest = dict(connection.execute(sql.LATEST_BATCH_OF_PAYEES, of_others).fetchall())
        for batch in sorted(set(latest.values())):
            details = Details(store, connection, batch)
            of_batch = [payee for payee, number in latest.items() if number == batch]
            for payee, row, chunk in connection.execute(sql.LAST_PAID_IN, (batch, of_batch)).fetchall():
                text = json.loads(details.read([row], [chunk])[0])
                if text.get("account"):
                    accounts[unsigned(payee)] = text["account"]
    return accounts


def signed(digest: bytes) -> int:
    """Return a keyed digest of eight bytes as the number stored for it in the tables."""
    return int.from_bytes(digest, "big", signed=True)


def unsigned(number: int) -> bytes:
    """Return the digest for a stored number."""
    return number.to_bytes(8, "big", signed=True)


def runs(store: Store, batch: int) -> list[HostRun]:
    with store.reading() as connection:
        rows: dict[int, Counter[State]] = {}
        for run, state, count in connection.execute(sql.ROWS_BY_RUN, (batch,)):
            rows.setdefault(run, Counter())[STATES[state]] = count
        return [
            _host_run(found, rows.get(found[0], Counter()))
            for found in connection.execute(sql.RUNS_OF_BATCH, (batch,)).fetchall()
        ]


def _host_run(found: tuple[Any, ...], rows: Counter[State]) -> HostRun:
    _, host, is_live, started, finished, seen, age_ms, stopped, is_fenced, heard = found
    return HostRun(
        host, is_live, to_datetime(started), maybe_datetime(finished), to_datetime(seen), age_ms // 1000, stopped,
        is_fenced and heard is None, rows.total(), rows[State.IN_DOUBT],
    )  # fmt: skip
