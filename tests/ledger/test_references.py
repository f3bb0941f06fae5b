"""An accepted row with the reference of another row: one payment proves one row, whoever was answered first.

A gateway answered eight payments with one reference. All were accepted, and one was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import pytest

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import Decision
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Environment, State
from tests.ledger.batches import columns, held_run, register, states
from tests.ledger.factories import LedgerFactory


def accepted(reference: str | None) -> Outcome:
    """What an answer with a reference proves."""
    return Outcome(State.ACCEPTED, "success", Answer(200, "1", "Approved", reference), bytes_sent=900)


def send(ledger: Ledger, name: str, *groups: dict[int, str | None], is_unique: bool = True) -> int:
    """Send rows, and record their references group by group; gives how many were repeated."""
    with (
        ledger.lock(ledger.find(name).digest),
        closing(ledger.start(name, "ada", reference_is_unique=is_unique)) as run,
    ):
        run.commit([row for group in groups for row in group], [])
        for group in groups:
            run.commit([], [(row, accepted(reference)) for row, reference in group.items()])
        run.finish(None)
        return run.repeated


def in_doubt(ledger: Ledger, name: str) -> list[int]:
    """The rows in doubt."""
    return [row for row, state in states(ledger, name).items() if state is State.IN_DOUBT]


def batch(ledger: Ledger, rows: Iterable[int], salt: str = "", environment: Environment = Environment.TEST) -> str:
    """A batch that pays nothing again."""
    return register(ledger, columns(ledger, rows, salt=salt), content=salt.encode(), environment=environment)


def test_the_first_that_is_recorded_has_a_reference(ledger: Ledger) -> None:
    """Two workers are answered at the same time, and others later: only the first row is accepted."""
    name = batch(ledger, range(1, 6))
    assert send(ledger, name, {2: "TX-1", 1: "TX-1", 3: "TX-2"}, {4: "TX-2", 5: "TX-3"}) == 2
    assert in_doubt(ledger, name) == [1, 4]
    found = {row.row: (row.reason, row.answer.gateway_reference) for row in ledger.rows(name, [State.IN_DOUBT])}
    said = "accepted, with the reference of row {} of this batch (gateway.reference_is_unique)"
    assert found == {1: (said.format(2), "TX-1"), 4: (said.format(3), "TX-2")}
    assert ledger.check() == []


def test_a_reference_is_of_one_batch(ledger: Ledger) -> None:
    """A batch's id is repeated from file to file; a rehearsal's references are of another world."""
    earlier, live = batch(ledger, [1]), batch(ledger, [1], "live", Environment.LIVE)
    later = batch(ledger, [1, 2], "later")
    assert [send(ledger, name, {1: "TX-1"}) for name in (earlier, live, later)] == [0, 0, 1]
    (row,) = ledger.rows(later, [State.IN_DOUBT])
    assert (row.row, row.reason) == (
        1,
        "accepted, with the reference of row 1 of another batch (gateway.reference_is_unique)",
    )


@pytest.mark.parametrize("reference", [None, "TX****89", "TX-" + 60 * "1" + "…"])
def test_what_is_no_whole_reference_is_of_many(ledger: Ledger, reference: str | None) -> None:
    """Not given, masked or cut: different payments look the same."""
    name = batch(ledger, [1, 2, 3])
    assert send(ledger, name, {1: reference, 2: reference}, {3: reference}) == 0
    assert in_doubt(ledger, name) == []


def test_a_person_says_that_a_gateway_repeats_references(ledger: Ledger) -> None:
    """It answers with a batch's id, or a constant."""
    name = batch(ledger, [1, 2, 3])
    assert send(ledger, name, {1: "TX-1", 2: "TX-1"}, {3: "TX-1"}, is_unique=False) == 0
    assert ledger.find(name).by_state[State.ACCEPTED].rows == 3


def test_a_row_keeps_its_reference(ledger: Ledger) -> None:
    """A person sends a row again, and the gateway, which had made it, says so once more."""
    name = batch(ledger, [1, 2])
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada", reference_is_unique=True)
        run.commit([1], [])
        run.commit([], [(1, accepted("TX-1")._replace(state=State.IN_DOUBT))])
        run.finish(None)
    ledger.resolve(name, [Decision(1, State.PENDING)], "ben", "not listed")
    assert send(ledger, name, {1: "TX-1"}, {2: "TX-2"}) == 0
    assert in_doubt(ledger, name) == []


def test_an_answer_that_was_kept_aside_is_judged_too(ledger_factory: LedgerFactory) -> None:
    """What the ledger could not take at its time is merged by the next start."""
    ledger = ledger_factory.create()
    name = batch(ledger, [1, 2])
    with held_run(ledger, name) as run:
        run.commit([1, 2], [])
        run.commit([], [(1, accepted("TX-1"))])
        run.spill([(2, accepted("TX-1"))])
        run.close()
    ledger_factory.close()
    ledger = ledger_factory.open()
    assert send(ledger, name) == 0
    assert in_doubt(ledger, name) == [2]
    assert ledger.check() == []
