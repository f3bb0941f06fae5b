"""Reading many rows, what was paid to payees, and payments that an earlier batch has; see also ledger/reading.py.

What was paid to payees is noted as runs finish, not while rows are sent: an index on the rows themselves made accepting
ten times as expensive.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Container, Iterator, Sequence
from datetime import date, datetime

from batchpay.ledger.columns import Earlier, Lookup, lookup_keys
from batchpay.ledger.event_chain import ROW_MASK, ROWS_BITS, id_range
from batchpay.ledger.reading import ROWS_AT_ONCE, Details, batch_number, summed_up, windows, zone
from batchpay.ledger.records import PayeeFacts, RowColumns
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import SqliteStore
from batchpay.ledger.states import STATE_CODES
from batchpay.ledger.stored_facts import EarlierMatch, told
from batchpay.payment import Environment, State

_VALUES_OF_DIGITS = bytes.maketrans(b"0123456789", bytes(range(10)))


def pieces(connection: sqlite3.Connection, batch: int) -> Iterator[tuple[int, int]]:
    """Split the ids of a batch's rows into ranges to be read by column: first id, and the one after the last."""
    first, end = id_range(batch)
    for start in range(first, connection.execute(sql.END_OF_ROWS, (first, end)).fetchone()[0], ROWS_AT_ONCE):
        yield start, min(end, start + ROWS_AT_ONCE)


def values_of_digits(digits: str) -> bytes:
    """Return the values of numbers of one digit each."""
    return digits.encode().translate(_VALUES_OF_DIGITS)


class SqliteReading:
    """The part of a ledger that reads rows, payments to payees and earlier payments; see contract.Ledger."""

    store: SqliteStore

    def row_columns(
        self,
        batch: str,
        states: Sequence[State] | None = None,
        cents: Collection[int] | None = None,
        due: date | None = None,
    ) -> Iterator[RowColumns]:
        number, _ = batch_number(self.store, batch)
        wanted = [STATE_CODES[state] for state in (State if states is None else states) if state is not State.REJECTED]
        statement = sql.rows_in(len(wanted), of_amounts=cents is not None, of_due=due is not None)
        also = [*([] if cents is None else [json.dumps(sorted(cents))]), *([] if due is None else [due.toordinal()])]
        with self.store.reading() as connection:
            details = Details(self.store, connection, number)
            for ids in pieces(connection, number):
                codes, directions, *arrays = connection.execute(statement, (*ids, *wanted, *also)).fetchone()
                if not codes:
                    continue
                rows, lines, amounts, *others = map(json.loads, arrays)
                assert rows == sorted(rows), "SQLite goes through ids in their order"
                codes, directions = map(values_of_digits, (codes, directions))
                if not len(rows) == len(codes) == len(directions):
                    raise ValueError("more than a digit")  # reported as damage where the view ends
                yield details.columns([rows, lines, codes, amounts, directions, *others])

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, str]:
        accounts: dict[bytes, str] = {}
        with self.store.reading() as connection:
            connection.execute(sql.MAKE_WANTED_PAYEES)
            connection.executemany(sql.ADD_WANTED_PAYEE, ((payee,) for payee in sorted(set(payees))))
            latest = dict(connection.execute(sql.LATEST_OF_WANTED, (environment, exclude_digest or b"")))
            for batch in sorted(set(latest.values())):
                details = Details(self.store, connection, batch)
                for payee, identity, chunk in connection.execute(sql.LAST_PAID_IN, id_range(batch)).fetchall():
                    text = json.loads(details.read([identity & ROW_MASK], [chunk])[0])
                    if latest.get(payee) == batch and text.get("account"):
                        accounts[payee] = text["account"]
        return accounts

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, PayeeFacts]:
        with self.store.reading() as connection:
            connection.execute(sql.MAKE_WANTED_PAYEES)
            # In key order, so that the table is scanned in one direction.
            connection.executemany(sql.ADD_WANTED_PAYEE, ((payee,) for payee in sorted(set(payees))))
            return summed_up(connection.execute(sql.PAID_TO_WANTED, (environment, exclude_digest or b"")))

    def earlier(
        self,
        lookup: Lookup,
        environment: Environment,
        *,
        days: int,
        apart: int = 1,
        now: datetime,
        exclude_digest: bytes | None = None,
        within: str = "",
    ) -> list[Earlier]:
        compared = (within, exclude_digest or b"", within, environment)
        with self.store.reading() as connection:
            found = connection.execute(sql.COMPARED_BATCHES, compared).fetchall()
            names = {identity: (name, file) for identity, name, file in found}
            if not names:
                return []
            near = windows(now.astimezone(zone(self.store, connection)), days, apart, in_file=bool(within))
            with_older = connection.execute(sql.HAS_OLDER_DIGESTS).fetchone()
            by_id, by_bill = lookup_keys(lookup, with_older=bool(with_older))
            connection.execute(sql.MAKE_WANTED_KEYS)

            def matches(rows: Container[int] | None = None) -> Iterator[EarlierMatch]:
                """Yield the closest match of each row, by paymentId last, or all matches of some rows."""
                for keys, known, wanted in (
                    (by_bill, sql.KNOWN_BILLS, sql.EARLIER_BY_BILL.format(**near)),
                    (by_id, sql.KNOWN_PAYMENT_IDS, sql.EARLIER_BY_PAYMENT_ID),
                ):
                    # Nearly all are new: only those that are there at all are looked at more closely. In order, so that
                    # the index is scanned in one direction.
                    some = keys if rows is None else [key for key in keys if key[1] in rows]
                    numbers = str(sorted([key[0] for key in some]))
                    there = {number for (number,) in connection.execute(known, (numbers,))}
                    if not there:
                        continue
                    connection.execute(sql.CLEAR_WANTED_KEYS)
                    connection.executemany(sql.ADD_WANTED_KEY, sorted(key for key in some if key[0] in there))
                    if rows is not None:  # all of a row, not only the closest
                        wanted = wanted.replace("wanted.row, max(", "wanted.row, (").replace("GROUP BY wanted.row", "")
                    found = connection.execute(wanted, compared).fetchall()
                    for row, ranked, line, at in found:
                        rank, identity = ranked >> sql.RANK_BITS, ranked & (1 << sql.RANK_BITS) - 1
                        if rank > 1:
                            place = identity >> ROWS_BITS, identity & ROW_MASK
                            yield EarlierMatch(row, rank >> 1, *place, line, at, was_cancelled=not rank & 1)

            return told(self.store, connection, names, lookup, matches)
