"""A ledger that comes from another database: all of it is copied, checked, and then in force here.

The copy is one transaction and leaves a ledger that is arriving, which can't be opened; a copy that was left like that
is replaced by the next one. Only after the ledger has ended where it was does this one begin.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from batchpay.errors import LedgerDamaged, LedgerNotUsable
from batchpay.ledger.event_chain import FIRST_MAC, event_text
from batchpay.ledger.fact_statements import SEALED
from batchpay.ledger.postgres import restoring, schema
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.audit import check
from batchpay.ledger.postgres.moves import attempt_seal, rejected_seal, storable
from batchpay.ledger.postgres.reading import signed
from batchpay.ledger.postgres.store import PostgresStore, PostgresTransaction, chained_mac
from batchpay.ledger.records import ARRIVED, Contents
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
    events = _events(transaction, contents, macs, head)
    columns = "chain, number, at, batch, kind, who, why, detail, mac"
    _copy(transaction, "event", columns, events)
    arrived = {**restoring.of_machine(store), "from": contents.place, "number": contents.number}
    arrived["mac"] = contents.mac.hex()
    event = (transaction.now_ms(), None, ARRIVED, who, why, event_text(arrived))
    mac = chained_mac(keys, head[1], 0, contents.number + 1, event)
    _copy(transaction, "event", columns, [(0, contents.number + 1, *event, mac)])
    values = (contents.ledger_id, keys.key_id, contents.number + 1, mac, restoring.place(store, transaction.connection))
    transaction.execute(sql.ADD_ARRIVING, (version, *values, contents.registrations, contents.has_older_digests))
    _copy(
        transaction, "batch", "id, name, digest, file, origin, columns, options, registered_at, again_reason,"
        " environment, row_count, cents", contents.batches(),
    )  # fmt: skip
    host = os.uname().nodename
    runs = ((run, *told, host, os.urandom(16), macs[run], False) for run, *told in contents.runs())
    _copy(transaction, "run", "id, batch, who, started_at, finished_at, stopped, host, token, mac, is_live", runs)
    _copy(transaction, "total", "batch, state, direction, row_count, cents", contents.totals())
    _copy_rows(transaction, contents)
    for table, rows in (("fingerprint", contents.fingerprints), ("payment_id", contents.payment_ids)):
        more = ", named" if table == "fingerprint" else ""
        _copy(transaction, table, f"{table}, batch, row{more}", rows())
    paid = ((signed(payee), signed(account), *rest) for payee, account, *rest in contents.paid())
    _copy(transaction, "paid", "payee, account, batch, row_count, cents", paid)
    _copy(transaction, "fact", f"{', '.join(SEALED)}, seal, corrected", contents.facts())
    for statement in sql.ARRIVED_ROWS:
        transaction.execute(statement)


def _events(
    transaction: PostgresTransaction, contents: Contents, macs: dict[int, bytes], head: list[Any]
) -> Iterator[tuple[Any, ...]]:
    """Yield the old history as the ledger's own chain, reauthenticated; `head` ends as number and mac of the last."""
    for number, *event in contents.events():
        mac = chained_mac(transaction.keys, head[1], 0, number, event)
        head[:] = number, mac
        if event[2] == "started":
            macs[json.loads(event[5])["run"]] = mac
        yield 0, number, *event, mac


def _copy_rows(transaction: PostgresTransaction, contents: Contents) -> None:
    keys = transaction.keys

    def payments() -> Iterator[tuple[Any, ...]]:
        for (
            batch,
            row,
            line,
            cents,
            direction,
            state,
            attempts,
            chunk,
            payee,
            account,
            sent_at,
            reasons,
            *days,
        ) in contents.payments():
            seal = None if reasons is None else rejected_seal(keys, batch, row, line, cents, reasons)
            digests = (None if one is None else signed(one) for one in (payee, account))
            yield batch, row, line, cents, direction, state, attempts, chunk, *digests, sent_at, reasons, seal, *days

    def attempts() -> Iterator[tuple[Any, ...]]:
        for batch, row, attempt, sent_at, state, finished_at, status, *texts in contents.attempts():
            values = (sent_at, state, finished_at, status, *map(storable, texts))
            yield batch, row, attempt, *values, attempt_seal(keys, batch, row, attempt, values)

    _copy(
        transaction, "payment", "batch, row, line, amount_cents, direction, state, attempts, chunk, payee, account,"
        " sent_at, reasons, seal, pay_on, sent_on", payments(),
    )  # fmt: skip
    _copy(
        transaction, "attempt", "batch, row, attempt, sent_at, state, finished_at, http_status, response_code,"
        " message, gateway_reference, reason, seal", attempts(),
    )  # fmt: skip
    _copy(transaction, "chunk", "batch, chunk, open_rows", contents.chunks())
    _copy(transaction, "body", "batch, chunk, sealed", contents.bodies())
    _copy(transaction, "detail", "batch, chunk, sealed", contents.details())


def _copy(transaction: PostgresTransaction, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with transaction.connection.cursor().copy(f"COPY batchpay.{table} ({columns}) FROM STDIN") as copying:
        for row in rows:
            copying.write_row(row)
