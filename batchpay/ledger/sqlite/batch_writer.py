"""Writing a batch: all of it in one transaction, in a second thread beside the one that builds the rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, compress, count, repeat
from operator import mul
from typing import Any

from batchpay.errors import BatchpayError, WrongUse
from batchpay.ledger import plans
from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.encoding import DIRECTION_CODES, now_ms, row_id
from batchpay.ledger.event_chain import write_ranges
from batchpay.ledger.fingerprints import bill_records, payment_id_records, record_values
from batchpay.ledger.lost_window import require_settled
from batchpay.ledger.payload import BODIES_LEVEL, CHUNK_ROWS, DETAILS_LEVEL, pick, place_of, seal_texts
from batchpay.ledger.records import NewBatch, PaymentColumns, RejectedColumns, SignOff
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.failures import translated
from batchpay.ledger.sqlite.store import Store, Transaction
from batchpay.ledger.states import NEW, PENDING, REJECTED, require, require_person
from batchpay.ledger.totals import TotalsDelta
from batchpay.ledger.writing_aside import WritingAside
from batchpay.text import row_count

_IDENTITIES_MAX = 100_000
"""Digests are gathered up to this many, then inserted in sorted order: several times faster than one by one."""
_MEANWHILE = "other rows were registered or released meanwhile; look at earlier payments again"


class ChunkWriter:
    """Writes rows' sealed payloads and digests; used for new batches and for rows released later."""

    def __init__(self, store: Store, transaction: Transaction, batch: int) -> None:
        self._keys = store.keys
        self._transaction = transaction
        self._batch = batch
        self._fingerprints: list[bytes] = []
        self._payment_ids: list[bytes] = []
        self._next_chunk: int = transaction.execute(sql.NEXT_CHUNK).fetchone()[0]

    def add(self, ids: Sequence[int], payments: PaymentColumns) -> list[int]:
        """Write payloads and, now and then, digests; gives the chunk of each row."""
        chunks: list[int] = []
        texts = zip(payments.bodies.parts(CHUNK_ROWS), payments.details.parts(CHUNK_ROWS), strict=True)
        for start, (bodies, details) in zip(range(0, len(ids), CHUNK_ROWS), texts, strict=True):
            chunk = self._next_chunk
            self._next_chunk += 1
            rows = payments.rows[start : start + CHUNK_ROWS]
            sealed_bodies = seal_texts(self._keys, place_of("bodies", self._batch, chunk), rows, bodies, BODIES_LEVEL)
            sealed = seal_texts(self._keys, place_of("details", self._batch, chunk), rows, details, DETAILS_LEVEL)
            self._transaction.execute(sql.ADD_CHUNK, (chunk, self._batch, len(rows)))
            self._transaction.execute(sql.ADD_BODY, (chunk, sealed_bodies))
            self._transaction.execute(sql.ADD_DETAIL, (chunk, sealed))
            chunks += repeat(chunk, len(rows))
        named = [payment_id is not None for payment_id in payments.payment_ids]
        self._fingerprints += bill_records(payments.fingerprints, ids, named)
        self._payment_ids += payment_id_records(payments.payment_ids, ids)
        if len(self._fingerprints) >= _IDENTITIES_MAX:
            self.write_identities()
        return chunks

    def write_identities(self) -> None:
        """Write the gathered digests in their own order."""
        for into, values, records in (
            (sql.ADD_FINGERPRINTS, "(?, ?, ?)", self._fingerprints),
            (sql.ADD_PAYMENT_IDS, "(?, ?)", self._payment_ids),
        ):
            records.sort()
            self._transaction.insert(into, values, record_values(records))
            records.clear()


class SqliteRegistering:
    """A batch being written; see contract.Registering."""

    def __init__(self, store: Store, transaction: Transaction, batch: NewBatch, who: str) -> None:
        self._store = store
        self._transaction = transaction
        self._new = batch
        self._who = who
        self._meanwhile = transaction.registrations() != batch.registration_count_seen
        self._name = self._free_name()
        for state in (PENDING, REJECTED):
            require("registered", NEW, state)
        self._id = self._insert_batch()
        self._chunks = ChunkWriter(store, transaction, self._id)
        self._changes = TotalsDelta()
        self._rows: dict[int, list[int]] = {PENDING: [], REJECTED: []}
        self._ranges: dict[int, list[str]] = {PENDING: [], REJECTED: []}
        self._weight = self._line_weight = 0
        self._aside = WritingAside()
        self.finished = False

    def add_payments(self, payments: PaymentColumns) -> None:
        with translated(self._store.place.ledger):
            self._aside.write(lambda: self._write(payments))

    def _write(self, payments: PaymentColumns) -> None:
        first = row_id(self._id, 0)
        ids = [first | row for row in payments.rows]
        directions = [DIRECTION_CODES[word] for word in payments.directions]
        chunks = self._chunks.add(ids, payments)
        columns = (
            ids, payments.lines, payments.amounts_cents, directions, chunks,
            *(map(bytearray, digests) for digests in (payments.payees, payments.accounts)),
        )  # fmt: skip
        values: list[Any] = [None] * (len(columns) * len(ids))
        for at, column in enumerate(columns):
            values[at :: len(columns)] = column
        self._transaction.insert(sql.ADD_PENDING_ROWS, f"(?, ?, ?, ?, ?, ?, ?, {PENDING})", values)
        for code in (1, 2):
            amounts = list(compress(payments.amounts_cents, [direction == code for direction in directions]))
            self._changes.add(PENDING, code, len(amounts), sum(amounts))
        self._count(PENDING, payments.rows, payments.lines, payments.amounts_cents)

    def add_rejected(self, rejected: RejectedColumns) -> None:
        with translated(self._store.place.ledger):
            self._aside.wait()
            ids = [row_id(self._id, row) for row in rejected.rows]
            columns = list(zip(ids, rejected.lines, rejected.amounts_cents, rejected.reasons, strict=True))
            self._transaction.connection.executemany(
                sql.ADD_REJECTED_ROW,
                [(*values, self._store.keys.seal_values("rejected", values)) for values in columns],
            )
        self._changes.add(REJECTED, 0, len(ids), sum(rejected.amounts_cents))
        self._count(REJECTED, rejected.rows, rejected.lines, rejected.amounts_cents)

    def finish(self) -> str:
        if self._meanwhile:
            raise RegisteredMeanwhile(_MEANWHILE)
        with translated(self._store.place.ledger):
            self._aside.wait()
        totals = self._changes.total()
        if totals.rows != self._new.rows:
            raise BatchpayError(f"the batch was to have {row_count(self._new.rows)}, not {totals.rows:,}")
        with translated(self._store.place.ledger):
            self._chunks.write_identities()
            self._transaction.write_totals(self._changes, self._id)
            self._transaction.execute(sql.SET_CONTROL_TOTALS, (totals.rows, totals.cents, self._id))
            self._transaction.event("registered", self._id, self._who, self._new.again_reason, self._detail())
            if self._new.sign_off is not None:
                adds = self._changes.of(PENDING)
                plans.use(self._transaction, self._id, self._who, self._new.sign_off, adds)
        self._transaction.commit()
        self.finished = True
        self._store.checkpoint()
        return self._name

    def close(self) -> None:
        """Undo what was not finished."""
        self._aside.close()
        self._transaction.rollback()

    def _detail(self) -> dict[str, Any]:
        for state in self._rows:
            self._close_ranges(state)
        return {
            "name": self._name,
            "digest": self._new.digest.hex(),
            "rows": self._changes.total().rows,
            "cents": self._changes.total().cents,
            "weight": str(self._weight),
            "line weight": str(self._line_weight),
            "about": self._about,
            "pending": ",".join(self._ranges[PENDING]),
            "rejected": ",".join(self._ranges[REJECTED]),
        }

    def _count(self, state: int, rows: Sequence[int], lines: Sequence[int | None], amounts: Sequence[int]) -> None:
        self._weight += sum(map(mul, rows, amounts))
        self._line_weight += sum(map(mul, rows, [line or 0 for line in lines]))
        self._rows[state] += rows
        self._close_ranges(state)

    def _close_ranges(self, state: int) -> None:
        if self._rows[state]:
            self._ranges[state].append(write_ranges(self._rows[state]))
            self._rows[state].clear()

    def _free_name(self) -> str:
        name = self._new.digest.hex()[:12]
        taken = {found for (found,) in self._transaction.execute(sql.NAMES_LIKE, (name,))}
        return next(free for free in chain((name,), (f"{name}-{n}" for n in count(2))) if free not in taken)

    def _insert_batch(self) -> int:
        new = self._new
        columns, options = json.dumps(list(new.columns)), json.dumps(new.options)
        self._about = [new.file, new.origin, columns, options, now_ms(), new.again_reason, new.environment]
        cursor = self._transaction.execute(
            sql.ADD_BATCH,
            (self._name, new.digest, *self._about),
        )
        return int(cursor.lastrowid or 0)


@contextmanager
def registering(store: Store, batch: NewBatch, who: str) -> Iterator[SqliteRegistering]:
    """Begin to write a batch; nothing of it stands unless it was finished."""
    transaction = store.begin()
    try:
        with translated(store.place.ledger):
            require_settled(transaction)
            writing = SqliteRegistering(store, transaction, batch, who)
    except BaseException:
        transaction.rollback()
        raise
    try:
        yield writing
    finally:
        writing.close()


def release(
    store: Store,
    batch: int,
    payments: Iterable[PaymentColumns],
    who: str,
    why: str,
    registration_count_seen: int,
    sign_off: SignOff | None,
) -> int:
    """Turn rejected rows to pending; see contract.Ledger.release."""
    released: list[int] = []
    require("released", REJECTED, PENDING)
    require_person("released", who, why)
    with store.transaction() as transaction:
        require_settled(transaction)
        if transaction.execute(sql.PURGED_AT, (batch,)).fetchone()[0] is not None:
            raise WrongUse("the batch was purged, so its rejected rows can't be released; submit them in another file")
        if transaction.registrations() != registration_count_seen:
            raise RegisteredMeanwhile(_MEANWHILE)
        writer = ChunkWriter(store, transaction, batch)
        changes = TotalsDelta()
        for columns in payments:
            released += _release_columns(transaction, batch, columns, writer, changes)
        writer.write_identities()
        if released:
            transaction.write_totals(changes, batch)
            transaction.event("released", batch, who, why, {"pending": write_ranges(released)})
        if sign_off is not None:
            plans.use(transaction, batch, who, sign_off, changes.of(PENDING))
    return len(released)


def _release_columns(
    transaction: Transaction, batch: int, payments: PaymentColumns, writer: ChunkWriter, changes: TotalsDelta
) -> list[int]:
    """Release those rows of one set of columns that are rejected and carry the same amount."""
    rejected: dict[int, int] = {}
    for position, (row, amount) in enumerate(zip(payments.rows, payments.amounts_cents, strict=True)):
        found = transaction.execute(
            sql.REJECTED_ROW,
            (row_id(batch, row), REJECTED, amount),
        ).fetchone()
        if found:
            rejected[position] = found[0]
    chosen = pick(payments, list(rejected))
    ids = [row_id(batch, row) for row in chosen.rows]
    chunks = writer.add(ids, chosen)
    for index, before in enumerate(rejected.values()):
        direction = DIRECTION_CODES[chosen.directions[index]]
        transaction.execute(
            sql.RELEASE_ROW,
            (PENDING, direction, chunks[index], chosen.payees[index], chosen.accounts[index], ids[index], REJECTED),
        )
        changes.add(REJECTED, before, -1, -chosen.amounts_cents[index])
        changes.add(PENDING, direction, 1, chosen.amounts_cents[index])
    return list(chosen.rows)
