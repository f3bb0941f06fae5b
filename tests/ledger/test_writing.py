"""How the SQLite ledger writes: what is undone, what is synced, what a second thread may do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

import pytest

from batchpay.errors import BatchHeld, LedgerNotUsable
from batchpay.ledger.columns import PaymentColumns
from batchpay.ledger.contract import Ledger, Run
from batchpay.ledger.open import accept, confirm
from batchpay.ledger.sqlite import store
from batchpay.ledger.sqlite.batch_writer import SqliteChunkWriter
from batchpay.ledger.sqlite.store import SqliteTransaction
from batchpay.ledger.witness import Witness
from tests.ledger.batches import ACCEPTED, columns, held_run, new_batch, register
from tests.ledger.factories import LedgerFactory

FILE = pytest.mark.ledgers("sqlite", why="when a file is synced, checkpointed and kept in memory")


@FILE
def test_a_registration_that_is_left_ends_its_writing_first(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are written when the transaction is undone would stand by themselves, and no batch would know them."""
    released, writing_at_rollback = threading.Event(), list[bool]()
    add, join, rollback = SqliteChunkWriter.add, threading.Thread.join, SqliteTransaction.rollback

    def slow_add(writer: SqliteChunkWriter, ids: Sequence[int], payments: PaymentColumns) -> list[int]:
        released.wait()
        return add(writer, ids, payments)

    def releasing_join(thread: threading.Thread, timeout: float | None = None) -> None:
        released.set()
        join(thread, timeout)

    def watched_rollback(transaction: SqliteTransaction) -> None:
        writing_at_rollback.append(any(one.name.startswith("register") for one in threading.enumerate()))
        rollback(transaction)

    monkeypatch.setattr(SqliteChunkWriter, "add", slow_add)
    monkeypatch.setattr(threading.Thread, "join", releasing_join)
    monkeypatch.setattr(SqliteTransaction, "rollback", watched_rollback)
    payments = columns(ledger, [1])
    with pytest.raises(KeyError), ledger.register(new_batch(ledger, 1), "ada") as registering:
        registering.add_payments(payments)
        raise KeyError
    released.set()
    assert writing_at_rollback == [False]
    assert ledger.batches() == []


@pytest.mark.parametrize("ends", [
    lambda run, _: run.finish(None), lambda run, _: run.close(), lambda _, ledger: ledger.close(),
], ids=["finished", "given up", "with its ledger"])  # fmt: skip
def test_a_run_gives_back_the_space_that_it_reserved(
    ledger_factory: LedgerFactory, ends: Callable[[Run, Ledger], None]
) -> None:
    """A quarter of a megabyte beside the witness, each night, would fill the disk of the keys."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1]))
    folder = ledger_factory.witness.parent
    with held_run(ledger, name) as run:
        (reserved,) = folder.glob("*.spill.*")
        assert reserved.stat().st_blocks * 512 >= 262_144
        ends(run, ledger)
    assert not reserved.exists()


def test_a_closed_ledger_takes_nothing_more(ledger: Ledger) -> None:
    """In words, and not with a raw error of SQLite."""
    payments = columns(ledger, [1])
    ledger.close()
    with pytest.raises(LedgerNotUsable, match="or closed"):
        register(ledger, payments)


@FILE
def test_after_a_commit_that_failed_nothing_more_is_written(
    ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what stands on the disk: only a new start, which reads it again, may go on."""
    ledger = ledger_factory.create()
    payments = columns(ledger, [1])
    with monkeypatch.context() as patched:
        patched.setattr(Witness, "write", lambda *_: os.close(1 << 20))
        with pytest.raises(LedgerNotUsable):
            register(ledger, payments)
    with pytest.raises(LedgerNotUsable, match="failed in a commit; nothing more is written"):
        register(ledger, columns(ledger, [2]), content=b"two")
    assert len(ledger_factory.open().batches()) == 1, "the commit itself had worked"


@FILE
def test_the_log_does_not_grow_with_a_run(ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million payments are ten thousand commits: the log is written over now and then."""
    monkeypatch.setattr(store, "_COMMITS_A_CHECKPOINT", 4)
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 41)))
    log, sizes = ledger_factory.path.with_name("ledger.db-wal"), list[int]()
    with held_run(ledger, name) as run:
        for row in range(1, 41):
            run.commit([row], [(row - 1, ACCEPTED)] if row > 1 else [])
            sizes.append(log.stat().st_size)
    assert 0 < sizes[-1] < 1.5 * sizes[10]


@FILE
def test_a_run_keeps_little_of_the_ledger_in_memory(ledger_factory: LedgerFactory) -> None:
    """SQLite looks through all that it keeps in nearly every commit: a fifth of the ledger's time in a large batch.

    What registers keeps more, but no 64 MiB: a million rows were no faster by them, and the next look-up was slower.
    """
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1]))

    def kept_kib() -> int:
        with ledger.store.transaction() as transaction:  # type: ignore[attr-defined]
            return -int(transaction.execute("PRAGMA cache_size").fetchone()[0])

    before = kept_kib()
    with held_run(ledger, name) as run:
        assert kept_kib() <= before / 16
        run.finish(None)
    assert kept_kib() == before <= 16_384, "to register the next batch takes as much as ever"


def test_every_descriptor_is_given_back(ledger_factory: LedgerFactory) -> None:
    """A process that opens many a ledger, as a page does, must not run out of them."""

    def use() -> None:
        ledger = ledger_factory.open()
        name = register(ledger, columns(ledger, [1]), again=f"again {len(ledger.batches())}")
        digest = ledger.find(name).digest
        with ledger.lock(digest):
            with pytest.raises(BatchHeld), ledger.lock(digest):
                pass
            run = ledger.start(name, "ada")
            run.commit([payment.row for payment in run.claim(1)], [])
            run.spill([(1, ACCEPTED)])
            run.close()
            ledger.start(name, "ada").finish(None)
        ledger_factory.close()
        ledger_factory.witness.unlink()
        accept(ledger_factory.settings, "ada", "a new disk", rows_in_doubt=True)
        confirm(ledger_factory.settings, "ada", "nothing was lost")

    ledger_factory.create()
    ledger_factory.close()
    use()
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    use()
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
