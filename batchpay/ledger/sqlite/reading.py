"""Reading many rows, and the accounts of a few payees; all else that reports read stands in ledger/reading.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from batchpay.ledger.encoding import ROW_MASK, id_range
from batchpay.ledger.reading import Details, batch_number
from batchpay.ledger.records import RowColumns
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.states import STATE_CODES
from batchpay.payment import Environment, State

_ROWS_FETCHED = 256
"""Few enough to stay in the processor's cache."""
_FETCHES_AT_ONCE = 16
"""Whoever works by column pays for each set of columns; this many rows take a few megabytes."""


def row_columns(store: Store, batch: str, states: Sequence[State] | None) -> Iterator[RowColumns]:
    number, _ = batch_number(store, batch)
    wanted = [STATE_CODES[state] for state in (State if states is None else states) if state is not State.REJECTED]
    with store.reading() as connection:
        details = Details(store, connection, number)
        found = connection.execute(
            sql.rows_in(len(wanted)),
            (*id_range(number), *wanted),
        )
        while some := list(_columns_of(islice(iter(partial(found.fetchmany, _ROWS_FETCHED), []), _FETCHES_AT_ONCE))):
            ids, *others = some
            yield details.columns([[identity & ROW_MASK for identity in ids], *others])


def last_accounts(
    store: Store, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None
) -> dict[bytes, str]:
    accounts: dict[bytes, str] = {}
    with store.reading() as connection:
        connection.execute(sql.MAKE_WANTED_PAYEES)
        connection.executemany(sql.ADD_WANTED_PAYEE, ((payee,) for payee in sorted(set(payees))))
        latest = dict(connection.execute(sql.LATEST_OF_WANTED, (environment, exclude_digest or b"")))
        for batch in sorted(set(latest.values())):
            details = Details(store, connection, batch)
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
