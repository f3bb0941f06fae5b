"""A ledger that comes from another database: all of it is copied, checked, and then in force here.

The copy is one transaction and leaves a ledger that is arriving, which can't be opened; a copy that was left like that
is replaced by the next one. Only after the ledger has ended where it was does this one begin.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from batchpay.errors import LedgerDamaged, LedgerNotUsable
from batchpay.ledger.event_chain import FIRST_MAC, event_text
from batchpay.ledger.keys import Keys
from batchpay.ledger.moving import TABLES, Contents, Rows
from batchpay.ledger.postgres import restoring, schema
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.audit import check
from batchpay.ledger.postgres.moves import attempt_seal, rejected_seal, storable
from batchpay.ledger.postgres.reading import signed
from batchpay.ledger.postgres.store import PostgresStore, PostgresTransaction, chained_mac
from batchpay.ledger.records import ARRIVED
from batchpay.ledger.witness import WitnessRecord


def receive(store: PostgresStore, contents: Contents, who: str, why: str) -> None:
    """Copy a whole ledger, as one that is arriving; raises LedgerNotUsable if another one is here."""
    store.ledger_id, store.host = contents.ledger_id, restoring.new_host(store.mark)
    with store.transaction() as transaction:
        transaction.execute(sql.LOCK_SCHEMA)
        if (transaction.one(sql.HAS_SCHEMA) or (False,))[0] is False:
            schema.migrate(transaction, 0)
        elif (found := transaction.one(sql.STANDING_OF_ARRIVING)) is not None:
            if found != (contents.ledger_id, True):
                raise LedgerNotUsable(f"{store.place.name} already contains a ledger; nothing was moved")
            transaction.connection.execute(sql.EMPTY_LEDGER.encode(), prepare=False)
        _copy_all(transaction, store, contents, who, why)
    with store.transaction() as transaction:
        transaction.execute("ANALYZE")
    problems = check(store)
    if problems:
        raise LedgerDamaged(f"the copy in {store.place.name} is not what was copied: {problems[0]}; nothing was moved")


def begin(store: PostgresStore, contents: Contents) -> None:
    """Put a ledger that arrived in force here, and let this machine know it; do nothing if it already is."""
    with store.reading() as connection:
        standing = connection.execute(sql.STANDING_OF_ARRIVING).fetchone()
        found = connection.execute(sql.LATEST_EVENT_OF_KIND, (ARRIVED,)).fetchone()
    if standing is None or found is None or standing[0] != contents.ledger_id:
        raise LedgerNotUsable(f"the ledger that moved to {store.place.name} is missing")
    seq, mac, detail = found
    told = json.loads(detail)
    if (told["number"], told["mac"]) != (contents.number, contents.mac.hex()):
        raise LedgerNotUsable(f"the ledger in {store.place.name} is not what has moved there")
    if standing[1]:
        store.ledger_id = contents.ledger_id
        store.witness.replace(WitnessRecord(contents.ledger_id, seq, mac, told["host"], store.epoch))
        with store.transaction() as transaction:
            transaction.execute(sql.END_ARRIVING)


def _copy_all(transaction: PostgresTransaction, store: PostgresStore, contents: Contents, who: str, why: str) -> None:
    keys, version = store.keys, len(schema.scripts())
    macs: dict[int, bytes] = {}
    """By run, the mac of the event that began it."""
    head: list[Any] = [contents.number, FIRST_MAC]
    _copy(transaction, "event", _events(transaction, contents, macs, head), ", chain, mac")
    arrived = {**restoring.of_machine(store), "from": contents.place, "number": contents.number}
    arrived["mac"] = contents.mac.hex()
    event = (transaction.now_ms(), None, ARRIVED, who, why, event_text(arrived))
    mac = chained_mac(keys, head[1], 0, contents.number + 1, event)
    _copy(transaction, "event", [(contents.number + 1, *event, 0, mac)], ", chain, mac")
    values = (contents.ledger_id, keys.key_id, contents.number + 1, mac, restoring.place(store, transaction.connection))
    transaction.execute(sql.ADD_ARRIVING, (version, *values, contents.registrations, contents.has_older_digests))
    host = os.uname().nodename
    made: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
        "run": (
            ", host, token, mac, is_live",
            lambda rows: ((run, *told, host, os.urandom(16), macs[run], False) for run, *told in rows),
        ),
        "payment": (", seal", partial(_payments, keys)),
        "attempt": (", seal", partial(_attempts, keys)),
        "paid": ("", lambda rows: ((signed(payee), signed(account), *rest) for payee, account, *rest in rows)),
    }
    """What is made anew: further columns, and the rows with them."""
    for table in list(TABLES)[1:]:
        more, anew = made.get(table, ("", iter))
        _copy(transaction, table, anew(contents.rows(table)), more)
    for statement in sql.ARRIVED_ROWS:
        transaction.execute(statement)


def _events(
    transaction: PostgresTransaction, contents: Contents, macs: dict[int, bytes], head: list[Any]
) -> Iterator[tuple[Any, ...]]:
    """Yield the old history as the ledger's own chain, reauthenticated; `head` ends as number and mac of the last."""
    for number, *event in contents.rows("event"):
        mac = chained_mac(transaction.keys, head[1], 0, number, event)
        head[:] = number, mac
        if event[2] == "started":
            macs[json.loads(event[5])["run"]] = mac
        yield number, *event, 0, mac


def _payments(keys: Keys, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for batch, row, line, cents, *codes, payee, account, sent_at, reasons, pay_on, sent_on in rows:
        seal = None if reasons is None else rejected_seal(keys, batch, row, line, cents, reasons)
        digests = (None if one is None else signed(one) for one in (payee, account))
        yield batch, row, line, cents, *codes, *digests, sent_at, reasons, pay_on, sent_on, seal


def _attempts(keys: Keys, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for batch, row, attempt, sent_at, state, finished_at, status, *texts in rows:
        values = (sent_at, state, finished_at, status, *map(storable, texts))
        yield batch, row, attempt, *values, attempt_seal(keys, batch, row, attempt, values)


def _copy(transaction: PostgresTransaction, table: str, rows: Rows, more: str) -> None:
    columns = TABLES[table] + more
    with transaction.connection.cursor().copy(f"COPY batchpay.{table} ({columns}) FROM STDIN") as copying:
        for row in rows:
            copying.write_row(row)
