"""Released rows and rows held back, by the ledger's contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.outcome import Outcome
from batchpay.payment import State, Totals
from tests.ledger.batches import ACCEPTED, NOT_SENT, columns, held_run, new_batch, register, rejected, release, states


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
