"""Rows of a new batch, written by a second thread, their digests in order; rows that are released or held back."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from batchpay.errors import BatchpayError
from batchpay.ledger import event_chain
from batchpay.ledger import new_batch as writing
from batchpay.ledger.columns import (
    BILL_BYTES,
    PAYMENT_ID_BYTES,
    GatheredLines,
    Lookup,
    bill_records,
    payment_id_records,
    record_values,
)
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.ledger.postgres import store as postgres_store
from batchpay.ledger.sqlite import store as sqlite_store
from batchpay.outcome import Outcome
from batchpay.payment import Environment, SamePayment, State, Totals
from tests.ledger.batches import ACCEPTED, NOT_SENT, columns, held_run, new_batch, register, rejected, release, states


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

    for module in (event_chain, sqlite_store, postgres_store):
        monkeypatch.setattr(module, "event_mac", counted)
    for batches in range(12):
        name = register(ledger, columns(ledger, [1], salt=f"{batches}"), rejected([2]), content=bytes([batches]))
        release(ledger, name, [columns(ledger, [2], salt=f"{batches}")], "ben", "looked at it")
    assert made[11] == made[1]
    assert ledger.check() == []


def test_digests_are_sorted_as_the_numbers_that_their_tables_compare() -> None:
    """Negative ones first, whatever all lines begin with; a line stays whole."""
    chance = random.Random(3)
    digests = [chance.randbytes(16) for _ in range(500)]
    for number in (-(2**63), -1, 0, 2**63 - 1):
        digests.append(struct.pack(">q8x", number))
    ids = list(range(len(digests)))
    bills = GatheredLines(BILL_BYTES)
    for some in (slice(200), slice(200, None)):
        bills.add(bill_records(digests[some], ids[some], [True] * len(ids[some])))
    assert len(bills) == len(ids)
    (values,) = record_values(bills.take(), len(ids))
    lines = list(zip(values[0::3], values[1::3], strict=True))
    assert lines == sorted((struct.unpack(">q", digests[row][:8])[0], row) for row in ids)

    with_head = GatheredLines(PAYMENT_ID_BYTES + 4, digest_at=4)
    with_head.add([b"head" + record for record in payment_id_records(digests, ids)])
    assert list(with_head.take()) == [b"head" + struct.pack(">qq", *line) for line in lines]


def test_lines_are_taken_once() -> None:
    """A batch may have more rows than are gathered at a time."""
    lines = GatheredLines(PAYMENT_ID_BYTES)
    for numbers in ([], [5, 3], [-5, -3], [2, -2]):
        lines.add([struct.pack(">qq", number, 1) for number in numbers])
        assert [struct.unpack(">qq", line)[0] for line in lines.take()] == sorted(numbers)
        assert not len(lines)


def test_a_release_counts_like_a_registration(ledger: Ledger) -> None:
    """One paymentId was paid twice: two commands looked, one registered it, the other released it in another batch.

    Whoever looked before rows were added must look again, whichever of the two comes first.
    """
    first = register(ledger, columns(ledger, [1]), rejected([2]))
    seen = ledger.registration_count()
    new = new_batch(ledger, 1, content=b"two")
    register(ledger, columns(ledger, [2], salt="c", named=[2]), content=b"three")
    payments = columns(ledger, [2], named=[2])
    with pytest.raises(RegisteredMeanwhile):
        ledger.release(first, [payments], "ben", "right now", registration_count_seen=seen)
    assert ledger.find(first).by_state[State.REJECTED].rows == 1
    assert release(ledger, first, [payments], "ben", "right now") == 1
    assert states(ledger, first) == {1: State.PENDING, 2: State.PENDING}
    assert ledger.check() == []
    with (
        pytest.raises(RegisteredMeanwhile),
        ledger.register(replace(new, registration_count_seen=seen + 1), "ada") as writing,
    ):
        writing.add_payments(columns(ledger, [2], salt="b", named=[2]))
        writing.finish()
    assert ledger.registration_count() == seen + 2


def test_only_a_row_that_was_rejected_with_this_amount_is_released(ledger: Ledger) -> None:
    """A row of another state, or one that reads as another amount by now, is another payment: nothing becomes of it."""
    first = register(ledger, columns(ledger, [1, 4], amount_cents=201), rejected([2, 3]))
    for row, cents in ((1, 201), (2, 202), (5, 201)):
        assert release(ledger, first, [columns(ledger, [row], amount_cents=cents)], "ben", "right now") == 0
    assert states(ledger, first) == {1: State.PENDING, 4: State.PENDING}
    assert release(ledger, first, [columns(ledger, [1, 2, 3])], "ben", "right now") == 2
    assert set(states(ledger, first).values()) == {State.PENDING}
    assert ledger.check() == []


def test_rows_whose_account_was_missing_for_a_while_leave_the_ledger_in_order(ledger: Ledger) -> None:
    """A ledger called itself damaged and sent nothing more: of a group of rows that a run had rejected all were
    released, which writes them anew elsewhere, so the group had none left.
    """  # noqa: D205
    name = register(ledger, columns(ledger, [1, 2], named=[1]))
    for reason in ("the account is there", "now it is"):
        with held_run(ledger, name) as run:
            run.reject([1, 2], "gatewayId.unknown")
            run.finish(None)
        assert release(ledger, name, [columns(ledger, [1, 2], named=[1])], "ben", reason) == 2
        assert ledger.check() == []
    register(ledger, columns(ledger, [1], salt="b"), content=b"two")
    with held_run(ledger, name) as run:
        assert run.commit([payment.row for payment in run.claim(10)], []) == {1, 2}
        run.commit([], [(1, ACCEPTED), (2, ACCEPTED)])
        run.finish(None)
    assert ledger.check() == []


def test_what_a_run_held_back_stands_beside_its_end(ledger: Ledger) -> None:
    """Rows that failed the rules of the last run are counted with the batch, until a run says otherwise."""
    name = register(ledger, columns(ledger, [1, 2, 3]))
    for held in (Totals(2, 205), Totals()):
        with ledger.lock(ledger.find(name).digest):
            run = ledger.start(name, "ada", "looked at it")
            run.finish(None, held)
        assert ledger.find(name).held_back == held
        assert ledger.check() == []
    assert [event.why for event in ledger.events(name) if event.kind == "started"] == ["looked at it"] * 2
    assert ledger.last_event_at(name) == [event.at for event in ledger.events(name)][-1]


def test_a_run_that_settled_nothing_is_no_progress(ledger: Ledger) -> None:
    """A batch that each half hour's run could not send had waited for half an hour, on the tenth day as well."""
    name = register(ledger, columns(ledger, [1, 2, 3]))

    def ran(outcome: Outcome | None = None) -> datetime:
        with held_run(ledger, name) as run:
            if outcome is not None:
                run.commit([1], [])
                run.commit([], [(1, outcome)])
            run.finish("no connection")
        return ledger.last_progress_at(name)

    (registered,) = [event.at for event in ledger.events(name) if event.kind == "registered"]
    assert [ran(), ran(NOT_SENT)] == [registered, registered]
    accepted = ran(ACCEPTED)
    assert accepted == next(ledger.rows(name, [State.ACCEPTED])).finished_at
    assert ran() == accepted
