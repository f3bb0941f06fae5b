"""How the SQLite ledger writes: what is undone, what is synced, what a second thread may do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from batchpay.ledger.contract import Ledger, Run
from batchpay.ledger.records import PaymentColumns
from batchpay.ledger.sqlite.batch_writer import ChunkWriter
from batchpay.ledger.sqlite.store import Transaction
from tests.ledger.batches import columns, new_batch, register
from tests.ledger.conftest import LedgerFactory


def test_a_registration_that_is_left_ends_its_writing_first(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are written when the transaction is undone would stand by themselves, and no batch would know them."""
    released, writing_at_rollback = threading.Event(), list[bool]()
    add, join, rollback = ChunkWriter.add, threading.Thread.join, Transaction.rollback

    def slow_add(writer: ChunkWriter, ids: Sequence[int], payments: PaymentColumns) -> list[int]:
        released.wait()
        return add(writer, ids, payments)

    def releasing_join(thread: threading.Thread, timeout: float | None = None) -> None:
        released.set()
        join(thread, timeout)

    def watched_rollback(transaction: Transaction) -> None:
        writing_at_rollback.append(any(one.name.startswith("register") for one in threading.enumerate()))
        rollback(transaction)

    monkeypatch.setattr(ChunkWriter, "add", slow_add)
    monkeypatch.setattr(threading.Thread, "join", releasing_join)
    monkeypatch.setattr(Transaction, "rollback", watched_rollback)
    payments = columns(ledger, [1])
    with pytest.raises(KeyError), ledger.register(new_batch(ledger, 1), "ada") as registering:
        registering.add_payments(payments)
        raise KeyError
    released.set()
    assert writing_at_rollback == [False]
    assert ledger.batches() == []


@pytest.mark.parametrize("ends", [lambda run: run.finish(None), lambda run: run.close()], ids=["finished", "given up"])
def test_a_run_gives_back_the_space_that_it_reserved(
    ledger_factory: LedgerFactory, ends: Callable[[Run], None]
) -> None:
    """A quarter of a megabyte beside the witness, each night, would fill the disk of the keys."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1]))
    folder = ledger_factory.witness.parent
    before = sorted(folder.iterdir())
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada")
        (reserved,) = set(folder.iterdir()) - set(before)
        assert reserved.stat().st_blocks * 512 >= 262_144
        ends(run)
    assert sorted(folder.iterdir()) == before
