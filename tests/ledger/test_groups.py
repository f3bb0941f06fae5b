"""Groups of rows that a run lets go and ends in few statements: whatever their numbers, answers and order."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress

import pytest

from batchpay.errors import LedgerDamaged
from batchpay.ledger.contract import Ledger
from batchpay.ledger.event_chain import id_range
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite import run as run_module
from batchpay.ledger.states import IllegalMove
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.text import write_ranges
from tests.ledger.batches import ACCEPTED, DECLINED, IN_DOUBT, NOT_SENT, columns, held_run, register, states
from tests.ledger.factories import LedgerFactory

UNNAMED = Outcome(State.ACCEPTED, "success", Answer(200, "1", "Approved", None), bytes_sent=900)
ODD = Outcome(State.ACCEPTED, 'it said "it\'s done" \\ ☃', Answer(299, "0'0", '"quoted", (1, 2)', "Ω'\\"), bytes_sent=1)
ONE_DIFFERENCE = [
    UNNAMED,
    UNNAMED._replace(reason="other"),
    UNNAMED._replace(state=State.DECLINED),
    *(UNNAMED._replace(answer=UNNAMED.answer._replace(**part)) for part in (
        {"http_status": 201}, {"response_code": "2"}, {"message": "Fine"}, {"gateway_reference": "TX-1"},
    )),
]  # fmt: skip
"""The first, and others with one thing changed."""


def accepted(reference: str) -> Outcome:
    """An answer of its own."""
    return Outcome(State.ACCEPTED, "success", Answer(200, "1", "Approved", reference), bytes_sent=900)


@pytest.mark.parametrize(
    ("intents", "outcomes"),
    [
        (range(1, 9), [(row, UNNAMED) for row in range(1, 9)]),
        (range(1, 9), [(row, UNNAMED) for row in (5, 3, 8, 1, 2, 4, 7, 6)]),
        (range(1, 9), [(row, ACCEPTED) for row in range(2, 7)]),
        (range(1, 9), [(row, UNNAMED) for row in (7, 2, 4)]),
        ((6, 2, 5, 4, 3), [(row, accepted(f"TX-{row}")) for row in (4, 3, 6, 2)]),
        ((3, 1), [(1, UNNAMED), (3, UNNAMED)]),
        ((1, 4), [(4, ACCEPTED), (1, ACCEPTED)]),
        ((8, 1, 4), [(1, ODD), (8, ODD), (4, UNNAMED)]),
        (range(1, 9), [(1, ACCEPTED), (2, UNNAMED), (3, DECLINED), (5, IN_DOUBT), (6, NOT_SENT), (8, ODD)]),
        (range(1, 8), list(enumerate(ONE_DIFFERENCE, 1))),
        (range(1, 301), [(row, accepted(str(row)) if row % 5 else UNNAMED) for row in range(300, 0, -1)]),
        (range(1, 301), [(row, UNNAMED) for row in range(1, 301) if row != 150]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("claims", [True, False])
def test_a_group_is_recorded_row_by_row_as_it_was_answered(
    ledger: Ledger, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]], claims: bool
) -> None:
    """Ranges and lists, alike and not, with references and without: and every seal is what the check makes of it."""
    name = register(ledger, columns(ledger, range(1, max(intents) + 1)))
    with held_run(ledger, name) as run:
        if claims:
            run.claim(1000)
        assert run.commit(intents, []) == set(intents)
        assert run.commit([], outcomes) == set()
        told = {row.row: row for row in ledger.rows(name)}
        run.finish(None)
    proved = dict(outcomes)
    for row, known in told.items():
        outcome = proved.get(row)
        state = outcome.state if outcome else State.SENDING if row in intents else State.PENDING
        assert (known.state, known.attempts) == (state, int(row in intents))
        if outcome:
            assert known.sent_at is not None
            assert known.finished_at is not None
            assert (known.answer, known.reason) == (outcome.answer, outcome.reason)
    assert ledger.check() == []
    by_state = ledger.find(name).by_state
    assert sum(totals.rows for totals in by_state.values()) == max(intents)


@pytest.mark.parametrize("sent", [(0, 9), (9, 0)])
def test_no_row_comes_back_on_the_proof_of_another(ledger: Ledger, sent: tuple[int, int]) -> None:
    """Of two rows that failed in the same words, bytes of one had left."""
    name = register(ledger, columns(ledger, [1, 2]))
    with held_run(ledger, name) as run:
        run.claim(10)
        run.commit([1, 2], [])
        with pytest.raises(IllegalMove, match="from sending to pending"):
            run.commit([], [(row, Outcome(State.PENDING, "reset", bytes_sent=of)) for row, of in enumerate(sent, 1)])
        run.close()


def test_what_came_back_is_sent_once_more(ledger: Ledger) -> None:
    """Also in the very commit that brings it back; the number of its attempt goes on."""
    name = register(ledger, columns(ledger, range(1, 5)))
    with held_run(ledger, name) as run:
        assert [payment.attempts for payment in run.claim(10)] == [0, 0, 0, 0]
        assert run.commit([1, 2, 3], []) == {1, 2, 3}
        assert run.commit([2, 4], [(2, NOT_SENT), (3, NOT_SENT)]) == {2, 4}
        assert run.commit([3], [(1, ACCEPTED), (2, NOT_SENT)]) == {3}
        assert run.commit([2], []) == {2}
        run.commit([], [(row, UNNAMED) for row in (2, 3, 4)])
        run.finish(None)
    assert {row.row: row.attempts for row in ledger.rows(name)} == {1: 1, 2: 3, 3: 2, 4: 1}
    assert ledger.check() == []


def test_a_row_that_is_no_longer_as_it_was_claimed_is_left_out(ledger: Ledger) -> None:
    """The others are let go, and what was answered meanwhile is recorded once."""
    name = register(ledger, columns(ledger, range(1, 6)))
    with held_run(ledger, name) as run:
        assert len(run.claim(10)) == 5
        assert run.commit([1], []) == {1}
        run.reject([3], "gatewayId.unknown")
        assert run.commit([2, 3, 4, 5], [(1, ACCEPTED)]) == {2, 4, 5}
        run.commit([], [(row, UNNAMED) for row in (5, 2, 4)])
        run.finish(None)
    assert {row.row: (row.state, row.attempts) for row in ledger.rows(name)} == dict.fromkeys(
        (1, 2, 4, 5), (State.ACCEPTED, 1)
    )
    assert ledger.check() == []


@pytest.mark.ledgers("sqlite", why="a database keeps the facts of claimed rows itself")
def test_facts_of_rows_that_are_never_sent_do_not_pile_up(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are held back are claimed, and nothing more; what is not known any more is looked up."""
    monkeypatch.setattr(run_module, "_CLAIMED_MAX", 4)
    name = register(ledger, columns(ledger, range(1, 31)))
    with held_run(ledger, name) as run:
        assert isinstance(run, run_module.SqliteRun)
        for _ in range(10):
            assert len(run.claim(3)) == 3
            assert len(run._claimed) <= 7
        assert run.commit(range(1, 31), []) == set(range(1, 31))
        assert len(run._claimed) <= 7
        run.commit([], [(row, UNNAMED) for row in range(1, 31)])
        assert not run._sent
        run.finish(None)
    assert ledger.check() == []


@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("state", [5, 6, 7])
def test_a_pending_row_whose_attempt_says_otherwise_stops_the_run(
    ledger_factory: LedgerFactory, claims: bool, state: int
) -> None:
    """Whether the contradiction was there when it was claimed or came later: neither it nor its group is let go."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 5)))
    with held_run(ledger, name) as run:
        if claims:
            assert len(run.claim(10)) == 4
        ledger_factory.edit(
            sqlite=f"INSERT INTO attempt (id, state) VALUES ({id_range(1)[0] + 2}, {state})",
            postgres="INSERT INTO batchpay.attempt (batch, row, attempt, state, seal)"
            f" VALUES (1, 2, 1, {state}, decode(repeat('00', 16), 'hex'))",
        )
        with pytest.raises(LedgerDamaged, match="row 2 is pending, and its attempt is not"):
            run.commit([1, 2, 3], [])
        assert {row.state for row in ledger.rows(name)} == {State.PENDING}
        run.close()


@pytest.mark.parametrize(("sqlite", "postgres"), [
    ("DELETE FROM attempt WHERE id & 4294967295 = 3", "UPDATE batchpay.payment SET run = 99 WHERE row = 3"),
    ("UPDATE attempt SET state = 5 WHERE id & 4294967295 = 3", "UPDATE batchpay.payment SET state = 7 WHERE row = 3"),
    ("UPDATE row SET state = 5 WHERE id & 4294967295 = 3", "UPDATE batchpay.payment SET state = 5 WHERE row = 3"),
    ("UPDATE row SET state = 3 WHERE id & 4294967295 = 3", "UPDATE batchpay.payment SET state = 3 WHERE row = 3"),
])  # fmt: skip
@pytest.mark.parametrize("outcomes", [
    [(3, UNNAMED)], [(3, ACCEPTED)], [(2, UNNAMED), (3, UNNAMED), (4, UNNAMED)],
    [(2, accepted("a")), (3, accepted("b")), (4, accepted("c"))], [(1, UNNAMED), (3, UNNAMED)],
    [(3, ACCEPTED), (1, accepted("d"))],
])  # fmt: skip
def test_a_row_that_is_not_being_sent_any_more_takes_no_outcome(
    ledger_factory: LedgerFactory, sqlite: str, postgres: str, outcomes: Sequence[tuple[int, Outcome]]
) -> None:
    """Somebody's hand between intent and answer: nothing of the group stands, and the run does no more."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 6)))
    with held_run(ledger, name) as run:
        run.claim(10)
        run.commit([1, 2, 3, 4], [])
        ledger_factory.edit(sqlite=sqlite, postgres=postgres)
        before = list(ledger.rows(name))
        with pytest.raises(LedgerDamaged, match="being sent"):
            run.commit([5], outcomes)
        assert list(ledger.rows(name)) == before
        run.close()


def test_an_outcome_of_a_row_that_was_not_let_go_ends_the_run(ledger_factory: LedgerFactory) -> None:
    """Nor is it held against the row's later attempt."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    with held_run(ledger, name) as run:
        run.claim(10)
        run.commit([1], [])
        with pytest.raises(LedgerDamaged, match="row 2 has an outcome, but the ledger does not show it as being sent"):
            run.commit([], [(1, ACCEPTED), (2, ACCEPTED)])
        run.spill([(1, ACCEPTED), (2, ACCEPTED)])
        run.close()
        assert ledger.start(name, "ada").recovered == 0
    states = {state: totals.rows for state, totals in ledger.find(name).by_state.items() if totals.rows}
    assert states == {State.ACCEPTED: 1, State.PENDING: 1}


def test_a_spilled_outcome_is_merged_once(ledger_factory: LedgerFactory) -> None:
    """A crash may leave the file after it was merged: the row is not being sent any more, and stays as it is."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    digest = ledger.find(name).digest
    with ledger.lock(digest):
        run = ledger.start(name, "ada")
        run.claim(10)
        run.commit([1], [])
        run.spill([(1, ACCEPTED)])
    ledger_factory.close()
    (spilled,) = ledger_factory.witness.parent.glob("witness.spill.*")
    content = spilled.read_bytes()
    for merged in ([{"accepted": "1"}], [{"accepted": "1"}, {"unused": [1]}]):
        spilled.write_bytes(content)
        ledger = ledger_factory.open()
        with ledger.lock(digest):
            run = ledger.start(name, "ada")
            assert run.recovered == 0
            assert [payment.row for payment in run.claim(10)] == [2]
            run.finish(None)
        assert [json.loads(event.detail) for event in ledger.events(name) if event.kind == "merged"] == merged
        assert ledger.check() == []
        ledger_factory.close()


@pytest.mark.parametrize(
    ("rows", "written"),
    [([], ""), ([4], "4"), ([2, 1, 3], "1-3"), ([1, 1, 3], "1,1,3"), ([1, 2, 4], "1-2,4"), ([1, 3, 4], "1,3-4")],
)
def test_ranges(rows: list[int], written: str) -> None:
    """A row is named where it was named, no more and no less."""
    assert write_ranges(rows) == written


def test_each_batch_has_runs_of_its_own(ledger_factory: LedgerFactory) -> None:
    """Two files are sent from one machine at once: neither run shuts the other out, or speaks for its rows."""
    ledger = ledger_factory.create()
    one, two = (register(ledger, columns(ledger, [1, 2], salt=salt), content=salt.encode()) for salt in "ab")
    with ledger.lock(ledger.find(one).digest), ledger.lock(ledger.find(two).digest):
        run = ledger.start(one, "ada")
        run.commit([1], [])
        other = ledger.start(two, "ada")
        assert other.recovered == 0
        assert [payment.row for payment in run.claim(9)] == [2]
        assert run.commit([2], [(1, ACCEPTED)]) == {2}
        run.close()  # as if it was killed
        other.finish(None)
        ledger.start(two, "ada").finish(None)
        assert states(ledger, one) == {1: State.ACCEPTED, 2: State.SENDING}
        again = ledger.start(one, "ada")
        assert again.recovered == 1
        again.finish(None)
    assert states(ledger, two) == {1: State.PENDING, 2: State.PENDING}
    assert ledger.check() == []


def test_rows_and_cents_add_up_at_every_moment(ledger_factory: LedgerFactory) -> None:
    """Whoever reads all the while sees states that add up: in runs, after a crash, when rows are settled."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 201)))
    total, ended, looks = ledger.find(name).total, threading.Event(), list[int]()
    reading = ledger_factory.open(read_only=True)
    problems: list[object] = []

    def look() -> None:
        with suppress(Exception):
            while not ended.is_set():
                if reading.find(name).total != total:
                    problems.append("totals")
                looks.append(1)
            return
        problems.append("an error")

    looking = threading.Thread(target=look)
    looking.start()
    outcomes = [ACCEPTED, IN_DOUBT, Outcome(State.PENDING, "429", Answer(429))]
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada")
        for start in range(1, 91, 10):
            rows = list(range(start, start + 10))
            run.commit(rows, [])
            run.commit([], [(row, outcomes[row % 3]) for row in rows])
        run.commit([100], [])
    ledger.close()
    again = ledger_factory.open()  # as after a crash: what was being sent is in doubt
    with again.lock(again.find(name).digest):
        run = again.start(name, "ada")
        for start in range(101, 200, 10):
            rows = list(range(start, start + 10))
            run.commit(rows, [(row - 10, ACCEPTED) for row in rows if start > 101])
        run.commit([], [(row, ACCEPTED) for row in rows])
        run.finish("stopped")
    doubted = [row for row, state in states(again, name).items() if state is State.IN_DOUBT]
    assert len(doubted) > 30
    again.resolve(name, [Decision(row, State.ACCEPTED) for row in doubted], "ada", "seen in the portal")
    ended.set()
    looking.join()
    assert (problems, len(looks) > 0) == ([], True)
    assert again.check() == []
