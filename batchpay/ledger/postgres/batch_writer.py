"""Writing a batch: all of it in one transaction, by binary COPY, which takes a quarter of what inserting takes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import repeat
from typing import Any

import psycopg

from batchpay.ledger.columns import GatheredLines, PaymentColumns, RejectedColumns
from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.days import NO_CHECK, DayCheck
from batchpay.ledger.decisions import require_settled
from batchpay.ledger.event_chain import DIRECTION_CODES
from batchpay.ledger.new_batch import MEANWHILE, BatchInWriting, WritingAside
from batchpay.ledger.payload import pick, sealed_chunks
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import translated
from batchpay.ledger.postgres.moves import rejected_seal, storable
from batchpay.ledger.postgres.reading import signed
from batchpay.ledger.postgres.store import PostgresStore, PostgresTransaction
from batchpay.ledger.records import NewBatch, TotalsDelta
from batchpay.ledger.states import PENDING, REJECTED

_IDENTITIES_MAX = 250_000
"""Digests are gathered up to this many, then written in sorted order."""
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
# A whole row is packed in one call: field by field takes a hundred times as long. Each value follows its length.
_PAYMENT = struct.Struct(">H iq iq iq ii ii ii ii ih ih").pack
_PAYMENT_WITHOUT_LINE = struct.Struct(">H iq iq iq ii ii i ii ih ih").pack
_CHUNK = struct.Struct(">H ii ii ii").pack
_SEALED = struct.Struct(">H ii ii i").pack
_INT4 = struct.Struct(">ii").pack
_COLUMNS_WITH_DAY = struct.pack(">H", 10)
_BILL = struct.Struct(">H i8s ii ii i?")  # the first eight bytes of a digest
_PAYMENT_ID = struct.Struct(">H i8s ii ii")
_DIGEST_AT = struct.calcsize(">H i")


def _copy(transaction: PostgresTransaction, statement: str, lines: Iterable[bytes]) -> None:
    with transaction.connection.cursor().copy(statement) as copying:
        copying.write(_COPY_HEAD + b"".join(lines) + _COPY_END)


def _text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return len(content).to_bytes(4, "big") + content


def _number(value: int | None) -> bytes:
    return _NULL if value is None else _INT4(4, value)


class PostgresChunkWriter:
    """Writes rows' sealed payloads and digests; used for new batches and for rows released later."""

    def __init__(self, transaction: PostgresTransaction, batch: int, seen: int) -> None:
        self._keys = transaction.keys
        self._transaction = transaction
        self._batch, self._seen = batch, seen
        self._fingerprints = GatheredLines(_BILL.size, digest_at=_DIGEST_AT)
        self._payment_ids = GatheredLines(_PAYMENT_ID.size, digest_at=_DIGEST_AT)
        self._next_chunk: int = (transaction.one(sql.NEXT_CHUNK, (batch,)) or (1,))[0]

    def add(self, payments: PaymentColumns) -> list[int]:
        """Write payloads, and gather digests; return the chunk of each row."""
        chunks: list[int] = []
        lines: list[bytes] = []
        sealed_bodies: list[bytes] = []
        sealed_details: list[bytes] = []
        for chunk, rows, bodies, details in sealed_chunks(self._keys, self._batch, payments, self._next_chunk):
            self._next_chunk += 1
            lines.append(_CHUNK(3, 4, self._batch, 4, chunk, 4, len(rows)))
            for into, sealed in ((sealed_bodies, bodies), (sealed_details, details)):
                into.append(_SEALED(3, 4, self._batch, 4, chunk, len(sealed)) + sealed)
            chunks += repeat(chunk, len(rows))
        _copy(self._transaction, sql.COPY_CHUNKS, lines)
        _copy(self._transaction, sql.COPY_BODIES, sealed_bodies)
        _copy(self._transaction, sql.COPY_DETAILS, sealed_details)
        named = [payment_id is not None for payment_id in payments.payment_ids]
        batch = self._batch
        self._fingerprints.add(
            _BILL.pack(4, 8, digest, 4, batch, 4, row, 1, is_named)
            for digest, row, is_named in zip(payments.fingerprints, payments.rows, named, strict=True)
        )
        self._payment_ids.add(
            _PAYMENT_ID.pack(3, 8, digest, 4, batch, 4, row)
            for digest, row in zip(payments.payment_ids, payments.rows, strict=True)
            if digest is not None
        )
        if len(self._fingerprints) >= _IDENTITIES_MAX:
            self._write_identities()
        return chunks

    def _write_identities(self) -> None:
        """Write the gathered digests in their own order: an index that grows at its end is several times faster."""
        _copy(self._transaction, sql.COPY_FINGERPRINTS, self._fingerprints.take())
        _copy(self._transaction, sql.COPY_PAYMENT_IDS, self._payment_ids.take())

    def finish(self) -> None:
        """Count a registration or release, whose digests are written.

        Raises RegisteredMeanwhile if others have added one of the same digests since the lookup: ten machines that
        register ten files at the same time need not wait for each other.
        """
        self._write_identities()
        transaction, asked = self._transaction, {"batch": self._batch, "seen": self._seen}
        count_ = transaction.registrations()
        if count_ != self._seen and transaction.one(sql.ADDED_MEANWHILE, asked) == (True,):
            raise RegisteredMeanwhile(MEANWHILE)
        transaction.execute(sql.COUNT_REGISTRATION)
        transaction.execute(sql.SET_REGISTRATION, (count_ + 1, self._batch))

    def release(self, payments: PaymentColumns, changes: TotalsDelta) -> PaymentColumns:
        found = self._transaction.execute(sql.REJECTED_AMONG, (self._batch, list(payments.rows)))
        rejected = {row: (cents, direction) for row, cents, direction in found}
        at = [
            place
            for place, (row, cents) in enumerate(zip(payments.rows, payments.amounts_cents, strict=True))
            if row in rejected and rejected[row][0] == cents
        ]
        chosen = pick(payments, at)
        if not at:
            return chosen
        directions = [DIRECTION_CODES[word] for word in chosen.directions]
        chunks = self.add(chosen)
        digests = list(map(signed, chosen.payees)), list(map(signed, chosen.accounts))
        pay_on = chosen.pay_on or [None] * len(at)
        self._transaction.execute(
            sql.RELEASE_ROWS, (list(chosen.rows), directions, chunks, *digests, pay_on, self._batch)
        )
        for row, cents, direction in zip(chosen.rows, chosen.amounts_cents, directions, strict=True):
            changes.add(REJECTED, rejected[row][1], -1, -cents)
            changes.add(PENDING, direction, 1, cents)
        return chosen

    def noted(self) -> dict[str, Any]:
        return {}


class PostgresRegistering:
    """A batch being written; see contract.Registering."""

    def __init__(
        self, store: PostgresStore, transaction: PostgresTransaction, batch: NewBatch, who: str, day_check: DayCheck
    ) -> None:
        self._store = store
        self._transaction = transaction
        self._who = who
        self._batch = BatchInWriting(transaction, batch, day_check)
        self._chunks = PostgresChunkWriter(transaction, self._batch.number, batch.registration_count_seen)
        self._aside = WritingAside()

    def add_payments(self, payments: PaymentColumns) -> None:
        with translated(self._store.place):
            self._aside.write(lambda: self._write(payments))

    def _write(self, payments: PaymentColumns) -> None:
        directions = [DIRECTION_CODES[word] for word in payments.directions]
        chunks = self._chunks.add(payments)
        columns = zip(
            payments.amounts_cents, map(signed, payments.payees), map(signed, payments.accounts),
            payments.rows, payments.lines, chunks, directions, strict=True,
        )  # fmt: skip
        batch = self._batch.number
        lines = (
            _PAYMENT_WITHOUT_LINE(
                9, 8, cents, 8, payee, 8, account, 4, batch, 4, row, -1, 4, chunk, 2, PENDING, 2, direction
            )
            if line is None
            else _PAYMENT(
                9, 8, cents, 8, payee, 8, account, 4, batch, 4, row, 4, line, 4, chunk, 2, PENDING, 2, direction
            )
            for cents, payee, account, row, line, chunk, direction in columns
        )
        into = sql.COPY_PAYMENTS
        if any(payments.pay_on):
            into, without_day = sql.COPY_PAYMENTS_WITH_DAYS, lines
            lines = (
                _COLUMNS_WITH_DAY + line[len(_COLUMNS_WITH_DAY) :] + _number(day)
                for line, day in zip(without_day, payments.pay_on, strict=True)
            )
        _copy(self._transaction, into, lines)
        self._batch.add_payments(payments, directions)

    def add_rejected(self, rejected: RejectedColumns) -> None:
        keys, batch, lines = self._store.keys, self._batch.number, []
        columns = zip(rejected.rows, rejected.lines, rejected.amounts_cents, rejected.reasons, strict=True)
        for row, line, cents, reasons in columns:
            head = struct.pack(">H iq ii ii", 8, 8, cents, 4, batch, 4, row)
            codes = struct.pack(">ih ih", 2, REJECTED, 2, 0)
            seal = rejected_seal(keys, batch, row, line, cents, reasons)
            lines.append(head + _number(line) + codes + _text(reasons) + _text(seal))
        with translated(self._store.place):
            self._aside.wait()
            _copy(self._transaction, sql.COPY_REJECTED, lines)
        self._batch.add_rejected(rejected)

    def finish(self) -> str:
        with translated(self._store.place):
            self._aside.wait()
        batch, totals, transaction = self._batch, self._batch.totals.total(), self._transaction
        batch.require_all_rows()
        with translated(self._store.place):
            transaction.write_totals(batch.totals, batch.number)
            transaction.execute(sql.SET_CONTROL_TOTALS, (totals.rows, totals.cents, batch.number))
            self._chunks.finish()
            batch.record(transaction, self._who)
        transaction.commit()
        return batch.name

    def close(self) -> None:
        """Stop writing."""
        self._aside.close()


class PostgresWriting:
    """The part of a ledger that adds rows to be sent; see contract.Ledger."""

    store: PostgresStore

    @contextmanager
    def register(self, batch: NewBatch, who: str, day_check: DayCheck = NO_CHECK) -> Iterator[PostgresRegistering]:
        store = self.store
        transaction = store.begin()
        try:
            with translated(store.place):
                require_settled(transaction)
                # Wait for another machine that writes the very same file: its batch is then the one.
                transaction.execute(sql.WAIT_LONG)
                try:
                    batch = replace(batch, file=storable(batch.file), again_reason=storable(batch.again_reason))
                    writing = PostgresRegistering(store, transaction, batch, who, day_check)
                except psycopg.errors.UniqueViolation:
                    raise RegisteredMeanwhile(MEANWHILE) from None
            with closing(writing):
                yield writing
        finally:
            transaction.rollback()

    def _release_writer(self, transaction: PostgresTransaction, batch: int, seen: int) -> PostgresChunkWriter:
        return PostgresChunkWriter(transaction, batch, seen)
