"""Writing a batch: all of it in one transaction, in a second thread besides the one that builds the rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from batchpay.ledger.columns import (
    BILL_BYTES,
    PAYMENT_ID_BYTES,
    GatheredLines,
    PaymentColumns,
    RejectedColumns,
    bill_records,
    payment_id_records,
    record_values,
)
from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.days import NO_CHECK, DayCheck
from batchpay.ledger.decisions import require_settled
from batchpay.ledger.event_chain import DIRECTION_CODES, row_id
from batchpay.ledger.new_batch import MEANWHILE, BatchInWriting, WritingAside
from batchpay.ledger.payload import pick, sealed_chunks
from batchpay.ledger.records import NewBatch, TotalsDelta
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.audit import check_registrations, registrations_noted
from batchpay.ledger.sqlite.store import ROWS_A_STATEMENT, SqliteStore, SqliteTransaction, translated
from batchpay.ledger.states import PENDING, REJECTED

_IDENTITIES_MAX = 1_000_000
"""Digests are gathered up to this many, then inserted in sorted order: several times faster than one by one.

They take 33 bytes a row. Each insertion touches most pages of their tables, whatever earlier batches left there.
"""


class SqliteChunkWriter:
    """Writes rows' sealed payloads and digests; used for new batches and for rows released later.

    `news` are the batches that others added rows to since earlier payments were looked up.
    """

    def __init__(self, store: SqliteStore, transaction: SqliteTransaction, batch: int, news: Sequence[int]) -> None:
        self._news = json.dumps(news) if news else None
        self._has_shared = False
        self._keys = store.keys
        self._transaction = transaction
        self._batch = batch
        self._fingerprints, self._payment_ids = GatheredLines(BILL_BYTES), GatheredLines(PAYMENT_ID_BYTES)
        self._next_chunk: int = transaction.execute(sql.NEXT_CHUNK).fetchone()[0]

    def add(self, ids: Sequence[int], payments: PaymentColumns) -> list[int]:
        """Write payloads and, from time to time, digests; return the chunk of each row."""
        chunks: list[int] = []
        for chunk, rows, bodies, details in sealed_chunks(self._keys, self._batch, payments, self._next_chunk):
            self._next_chunk += 1
            self._transaction.execute(sql.ADD_CHUNK, (chunk, self._batch, len(rows)))
            self._transaction.execute(sql.ADD_BODY, (chunk, bodies))
            self._transaction.execute(sql.ADD_DETAIL, (chunk, details))
            chunks += repeat(chunk, len(rows))
        named = [payment_id is not None for payment_id in payments.payment_ids]
        self._fingerprints.add(bill_records(payments.fingerprints, ids, named))
        self._payment_ids.add(payment_id_records(payments.payment_ids, ids))
        if len(self._fingerprints) >= _IDENTITIES_MAX:
            self.write_identities()
        return chunks

    def write_identities(self) -> None:
        """Write the gathered digests in their own order."""
        for into, shared, values, lines in (
            (sql.ADD_FINGERPRINTS, sql.BILLS_SHARED_WITH, "(?, ?, ?)", self._fingerprints),
            (sql.ADD_PAYMENT_IDS, sql.PAYMENT_IDS_SHARED_WITH, "(?, ?)", self._payment_ids),
        ):
            for some in record_values(lines.take(), ROWS_A_STATEMENT):
                self._transaction.insert(into, values, some)
                if self._news is not None and not self._has_shared:
                    asked = json.dumps(some[:: values.count("?")]), self._news
                    self._has_shared = bool(self._transaction.execute(shared, asked).fetchone()[0])

    def finish(self) -> None:
        """Write what is left; raises RegisteredMeanwhile if others have added one of the same digests meanwhile."""
        self.write_identities()
        if self._has_shared:
            raise RegisteredMeanwhile(MEANWHILE)

    def release(self, payments: PaymentColumns, changes: TotalsDelta) -> PaymentColumns:
        rejected: dict[int, int] = {}
        for position, (row, amount) in enumerate(zip(payments.rows, payments.amounts_cents, strict=True)):
            found = self._transaction.execute(sql.REJECTED_ROW, (row_id(self._batch, row), REJECTED, amount)).fetchone()
            if found:
                rejected[position] = found[0]
        chosen = pick(payments, list(rejected))
        ids = [row_id(self._batch, row) for row in chosen.rows]
        chunks = self.add(ids, chosen)
        pay_on = chosen.pay_on or [None] * len(ids)
        for index, before in enumerate(rejected.values()):
            direction = DIRECTION_CODES[chosen.directions[index]]
            values = direction, chunks[index], chosen.payees[index], chosen.accounts[index], pay_on[index], ids[index]
            self._transaction.execute(sql.RELEASE_ROW, (PENDING, *values, REJECTED))
            changes.add(REJECTED, before, -1, -chosen.amounts_cents[index])
            changes.add(PENDING, direction, 1, chosen.amounts_cents[index])
        return chosen

    def noted(self) -> dict[str, Any]:
        # A row that the gateway's accounts kept back once it was pending has its bill already.
        return registrations_noted(self._transaction, self._transaction.execute(sql.COUNT_BILLS).fetchone()[0])


class SqliteRegistering:
    """A batch being written; see contract.Registering."""

    def __init__(
        self, store: SqliteStore, transaction: SqliteTransaction, batch: NewBatch, who: str, day_check: DayCheck
    ) -> None:
        self._store = store
        self._transaction = transaction
        self._bills = check_registrations(store, transaction)
        self._who = who
        news = _registered_since(transaction, batch.registration_count_seen)
        if news and (batch.digest,) in transaction.execute(sql.DIGESTS_OF_BATCHES, (json.dumps(news),)).fetchall():
            raise RegisteredMeanwhile(MEANWHILE)  # this very content: that batch is then the one
        self._batch = BatchInWriting(transaction, batch, day_check)
        self._chunks = SqliteChunkWriter(store, transaction, self._batch.number, news)
        self._aside = WritingAside()

    def add_payments(self, payments: PaymentColumns) -> None:
        with translated(self._store.place.ledger):
            self._aside.write(lambda: self._write(payments))

    def _write(self, payments: PaymentColumns) -> None:
        first = row_id(self._batch.number, 0)
        ids = [first | row for row in payments.rows]
        directions = [DIRECTION_CODES[word] for word in payments.directions]
        chunks = self._chunks.add(ids, payments)
        columns: list[Iterable[Any]] = [
            ids, payments.lines, payments.amounts_cents, directions, chunks,
            *(map(bytearray, digests) for digests in (payments.payees, payments.accounts)),
        ]  # fmt: skip
        into, row = sql.ADD_PENDING_ROWS, f"(?, ?, ?, ?, ?, ?, ?, {PENDING})"
        if any(payments.pay_on):
            columns.append(payments.pay_on)
            into, row = sql.ADD_PENDING_ROWS_WITH_DAYS, f"(?, ?, ?, ?, ?, ?, ?, {PENDING}, ?)"
        values: list[Any] = [None] * (len(columns) * len(ids))
        for at, column in enumerate(columns):
            values[at :: len(columns)] = column
        self._transaction.insert(into, row, values)
        self._batch.add_payments(payments, directions)

    def add_rejected(self, rejected: RejectedColumns) -> None:
        with translated(self._store.place.ledger):
            self._aside.wait()
            ids = [row_id(self._batch.number, row) for row in rejected.rows]
            columns = list(zip(ids, rejected.lines, rejected.amounts_cents, rejected.reasons, strict=True))
            self._transaction.connection.executemany(
                sql.ADD_REJECTED_ROW,
                [(*values, self._store.keys.seal_values("rejected", values)) for values in columns],
            )
            self._batch.add_rejected(rejected)

    def finish(self) -> str:
        with translated(self._store.place.ledger):
            self._aside.wait()
        self._batch.require_all_rows()
        with translated(self._store.place.ledger):
            self._chunks.finish()
            totals = self._batch.totals.total()
            self._transaction.execute(sql.SET_CONTROL_TOTALS, (totals.rows, totals.cents, self._batch.number))
            self._transaction.write_totals(self._batch.totals, self._batch.number)
            bills = self._bills + self._batch.totals.of(PENDING).rows
            self._batch.record(self._transaction, self._who, **registrations_noted(self._transaction, bills))
        self._transaction.commit()
        self._store.checkpoint()
        return self._batch.name

    def close(self) -> None:
        """Undo what was not finished."""
        self._aside.close()
        self._transaction.rollback()


def _registered_since(transaction: SqliteTransaction, seen: int) -> list[int]:
    """Return the batches that others registered, or released rows of, since the ledger had `seen` of both."""
    return [batch for (batch,) in transaction.execute(sql.REGISTERED_SINCE, (seen,))]


class SqliteWriting:
    """The part of a ledger that adds rows to be sent; see contract.Ledger."""

    store: SqliteStore

    @contextmanager
    def register(self, batch: NewBatch, who: str, day_check: DayCheck = NO_CHECK) -> Iterator[SqliteRegistering]:
        store = self.store
        transaction = store.begin()
        try:
            with translated(store.place.ledger):
                require_settled(transaction)
                writing = SqliteRegistering(store, transaction, batch, who, day_check)
        except BaseException:
            transaction.rollback()
            raise
        try:
            yield writing
        finally:
            writing.close()

    def _release_writer(self, transaction: SqliteTransaction, batch: int, seen: int) -> SqliteChunkWriter:
        check_registrations(self.store, transaction)
        news = _registered_since(transaction, seen)
        return SqliteChunkWriter(self.store, transaction, batch, [one for one in news if one != batch])
