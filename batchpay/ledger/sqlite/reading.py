"""Reading many rows, and the accounts of a few payees; all else that reports read is in ledger/reading.py."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence

from batchpay.ledger.encoding import ROW_MASK, id_range
from batchpay.ledger.reading import ROWS_AT_ONCE, Details, batch_number
from batchpay.ledger.records import RowColumns
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import Store
from batchpay.ledger.states import STATE_CODES
from batchpay.payment import Environment, State

_VALUES_OF_DIGITS = bytes.maketrans(b"0123456789", bytes(range(10)))


def pieces(connection: sqlite3.Connection, batch: int) -> Iterator[tuple[int, int]]:
    """Split the ids of a batch's rows into ranges to be read by column: first id, and the one after the last."""
    first, end = id_range(batch)
    for start in range(first, connection.execute(sql.END_OF_ROWS, (first, end)).fetchone()[0], ROWS_AT_ONCE):
        yield start, min(end, start + ROWS_AT_ONCE)


def row_columns(
    store: Store, batch: str, states: Sequence[State] | None, cents: Collection[int] | None
) -> Iterator[RowColumns]:
    number, _ = batch_number(store, batch)
    wanted = [STATE_CODES[state] for state in (State if states is None else states) if state is not State.REJECTED]
    statement = sql.rows_in(len(wanted), of_amounts=cents is not None)
    amounts = () if cents is None else (json.dumps(sorted(cents)),)
    with store.reading() as connection:
        details = Details(store, connection, number)
        for ids in pieces(connection, number):
            codes, directions, *arrays = connection.execute(statement, (*ids, *wanted, *amounts)).fetchone()
            if not codes:
                continue
            rows, lines, amounts, *others = map(json.loads, arrays)
            assert rows == sorted(rows), "SQLite goes through ids in their order"
            codes, directions = map(values_of_digits, (codes, directions))
            if not len(rows) == len(codes) == len(directions):
                raise ValueError("more than a digit")  # reported as damage where the view ends
            yield details.columns([rows, lines, codes, amounts, directions, *others])


def values_of_digits(digits: str) -> bytes:
    """Return the values of numbers of one digit each."""
    return digits.encode().translate(_VALUES_OF_DIGITS)


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
