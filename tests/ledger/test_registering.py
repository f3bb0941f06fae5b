"""Rows of a new batch are written by a second thread: here by one that is as late as it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from batchpay.errors import BatchpayError
from batchpay.ledger import event_chain
from batchpay.ledger import new_batch as writing
from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger
from batchpay.ledger.postgres import store as postgres_store
from batchpay.ledger.sqlite import audit
from batchpay.ledger.sqlite import store as sqlite_store
from batchpay.payment import Environment, SamePayment, State
from tests.ledger.batches import columns, new_batch, register, rejected, release, states


class Late:
    """An executor that does nothing before somebody asks for the result."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, write: Callable[[], None]) -> SimpleNamespace:
        return SimpleNamespace(result=write)

    def shutdown(self, **_: object) -> None:
        pass


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the second thread late."""
    monkeypatch.setattr(writing, "ThreadPoolExecutor", Late)


@pytest.mark.usefixtures("late")
def test_what_is_still_being_written_belongs_to_the_batch(ledger: Ledger) -> None:
    """A batch is finished when all of its rows are written, and not when all were handed over."""
    name = register(ledger, columns(ledger, [1, 2, 3]))
    assert states(ledger, name) == dict.fromkeys((1, 2, 3), State.PENDING)
    assert ledger.check() == []


@pytest.mark.usefixtures("late")
def test_rejected_rows_are_written_after_those_that_were_handed_over(ledger: Ledger) -> None:
    """One connection is used by one thread at a time: what went wrong in the other is known before more is written."""
    with ledger.register(new_batch(ledger, 4), "ada") as registering:
        registering.add_payments(columns(ledger, [1, 2]))
        registering.add_payments(columns(ledger, [2, 3]))
        with pytest.raises(BatchpayError):
            registering.add_rejected(rejected([4]))
    assert ledger.batches() == []


@pytest.mark.parametrize("rows", [2, 4])
def test_a_batch_of_other_rows_than_were_counted_is_not_registered(ledger: Ledger, rows: int) -> None:
    """A file that was read twice and gave three rows the second time: what was checked is not what would be paid."""
    with (
        pytest.raises(BatchpayError, match="was to have"),
        ledger.register(new_batch(ledger, rows), "ada") as registering,
    ):
        registering.add_payments(columns(ledger, [1, 2]))
        registering.add_rejected(rejected([3]))
        registering.finish()
    assert ledger.batches() == []
    assert ledger.registration_count() == 0


def test_a_released_row_is_an_earlier_payment_to_others(ledger: Ledger) -> None:
    """A row that was rejected and is then released holds back the same bill and the same paymentId in later files."""
    first = register(ledger, columns(ledger, [1]), rejected([2, 3]))
    release(ledger, first, [columns(ledger, [2, 3], named=[2])], "ben", "looked at them")
    later = columns(ledger, [2, 3], named=[2])
    lookup = Lookup(later.rows, later.fingerprints, later.payment_ids)
    found = ledger.earlier(lookup, Environment.TEST, days=5, now=datetime.now(UTC))
    assert [(one.row, one.same, one.earlier_batch, one.earlier_row) for one in found] == [
        (2, SamePayment.PAYMENT_ID, first, 2),
        (3, SamePayment.BILL, first, 3),
    ]


def test_registering_authenticates_no_earlier_registration_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new batch took longer than the one before: with 1,000 earlier ones, 14 ms for the events of them all."""
    made = Counter[int]()
    authenticate = event_chain.event_mac

    def counted(*parts: Any) -> bytes:
        made[batches] += 1
        return authenticate(*parts)

    for module in (event_chain, audit, sqlite_store, postgres_store):
        monkeypatch.setattr(module, "event_mac", counted)
    for batches in range(12):
        name = register(ledger, columns(ledger, [1], salt=f"{batches}"), rejected([2]), content=bytes([batches]))
        release(ledger, name, [columns(ledger, [2], salt=f"{batches}")], "ben", "looked at it")
    assert made[11] == made[1]
    assert ledger.check() == []
