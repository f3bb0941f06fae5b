"""Reading rows, payments to payees, earlier payments and the runs of machines; all else is in ledger/reading.py."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Sequence
from datetime import date, datetime
from itertools import starmap
from typing import Any

from batchpay.ledger.columns import Earlier, Lookup, lookup_keys
from batchpay.ledger.event_chain import maybe_datetime, to_datetime
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.store import PostgresStore
from batchpay.ledger.reading import ROWS_AT_ONCE, Details, batch_number, summed_up, windows, zone
from batchpay.ledger.records import HostRun, PayeeFacts, RowColumns
from batchpay.ledger.states import STATE_CODES, STATES
from batchpay.ledger.stored_facts import EarlierMatch, told
from batchpay.payment import Environment, State


def signed(digest: bytes) -> int:
    """Return a keyed digest of eight bytes as the number stored for it in the tables."""
    return int.from_bytes(digest, "big", signed=True)


def unsigned(number: int) -> bytes:
    """Return the digest for a stored number."""
    return number.to_bytes(8, "big", signed=True)


_KEYS_AT_ONCE = 50_000
_CLOSEST = re.compile(r"DISTINCT ON \(.*?\) ")
"""What in a statement leaves out all but the closest match of a row."""


class PostgresReading:
    """The part of a ledger that reads rows, payments to payees and earlier payments; see contract.Ledger."""

    store: PostgresStore

    def row_columns(
        self,
        batch: str,
        states: Sequence[State] | None = None,
        cents: Collection[int] | None = None,
        due: date | None = None,
    ) -> Iterator[RowColumns]:
        number, _ = batch_number(self.store, batch)
        wanted = [STATE_CODES[state] for state in (State if states is None else states) if state is not State.REJECTED]
        with self.store.reading() as connection, connection.cursor(name="rows") as found:
            details = Details(self.store, connection, number)
            also = {
                "cents": None if cents is None else list(cents),
                "due": date.max.toordinal() if due is None else due.toordinal(),
            }
            found.execute(sql.ROWS_WITH_ATTEMPTS, {"batch": number, "states": wanted, **also}, binary=True)
            while some := found.fetchmany(ROWS_AT_ONCE):
                yield details.columns(list(zip(*some, strict=True)))

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, str]:
        accounts: dict[bytes, str] = {}
        wanted = [signed(payee) for payee in sorted(set(payees))]
        with self.store.reading() as connection:
            of_others = (environment.value, exclude_digest or b"", wanted)
            latest = dict(connection.execute(sql.LATEST_BATCH_OF_PAYEES, of_others).fetchall())
            for batch in sorted(set(latest.values())):
                details = Details(self.store, connection, batch)
                of_batch = [payee for payee, number in latest.items() if number == batch]
                for payee, row, chunk in connection.execute(sql.LAST_PAID_IN, (batch, of_batch)).fetchall():
                    text = json.loads(details.read([row], [chunk])[0])
                    if text.get("account"):
                        accounts[unsigned(payee)] = text["account"]
        return accounts

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, PayeeFacts]:
        wanted = sorted({signed(payee) for payee in payees})
        of_others = (environment.value, exclude_digest or b"")
        with self.store.reading() as connection:
            return summed_up(
                (unsigned(payee), unsigned(account), *sums)
                for start in range(0, len(wanted), _KEYS_AT_ONCE)
                for payee, account, *sums in connection.execute(
                    sql.PAID_TO, (*of_others, wanted[start : start + _KEYS_AT_ONCE]), binary=True
                )
            )

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
        compared = {"digest": exclude_digest or b"", "within": within, "environment": environment.value}
        with self.store.reading() as connection:
            found = connection.execute(sql.COMPARED_BATCHES, compared).fetchall()
            names = {identity: (name, file) for identity, name, file in found}
            if not names:
                return []
            near = windows(now.astimezone(zone(self.store, connection)), days, apart, in_file=bool(within))
            (with_older,) = connection.execute(sql.HAS_OLDER_DIGESTS).fetchone() or (False,)
            by_id, by_bill = lookup_keys(lookup, with_older=with_older)

            def matches(rows: Container[int] | None = None) -> Iterator[EarlierMatch]:
                """Yield the closest match of each row, by paymentId last, or all matches of some rows."""
                for keys, wanted in ((by_bill, sql.EARLIER_BY_BILL), (by_id, sql.EARLIER_BY_PAYMENT_ID)):
                    # In key order, so that the index is scanned in one direction.
                    some = sorted(keys if rows is None else [key for key in keys if key[1] in rows])
                    statement = wanted if rows is None else _CLOSEST.sub("", wanted)
                    for start in range(0, len(some), _KEYS_AT_ONCE):
                        names_of = ("keys", "rows", "named", "invoiced", "pay_on")
                        of_keys = map(list, zip(*some[start : start + _KEYS_AT_ONCE], strict=True))
                        parameters: dict[str, Any] = dict(zip(names_of, of_keys, strict=True))
                        found = connection.execute(statement, compared | near | parameters, binary=True)
                        yield from (match for match in starmap(EarlierMatch, found) if match.same)

            return told(self.store, connection, names, lookup, matches)

    def runs(self, batch: str) -> list[HostRun]:
        number = batch_number(self.store, batch)[0]
        with self.store.reading() as connection:
            rows: defaultdict[int, Counter[State]] = defaultdict(Counter)
            for run, state, count in connection.execute(sql.ROWS_BY_RUN, (number,)):
                rows[run][STATES[state]] = count
            found = connection.execute(sql.RUNS_OF_BATCH, (number,)).fetchall()
        return [
            HostRun(
                host, is_live, to_datetime(started), maybe_datetime(finished), to_datetime(seen), age_ms // 1000,
                stopped, is_fenced and heard is None, rows[run].total(), rows[run][State.IN_DOUBT],
            )
            for run, host, is_live, started, finished, seen, age_ms, stopped, is_fenced, heard in found
        ]  # fmt: skip
