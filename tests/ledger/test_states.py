"""The table of legal moves: held equal to its page, and every move that is not in it is refused by the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise, product

import pytest

from batchpay.errors import BatchpayError, LedgerNotUsable, WrongUse
from batchpay.ledger.contract import Ledger, Run
from batchpay.ledger.event_chain import Replay
from batchpay.ledger.mover import Mover
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.ledger.postgres.moves import PostgresMover
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite.ledger import SqliteLedger
from batchpay.ledger.sqlite.moves import SqliteMover
from batchpay.ledger.sqlite.store import SqliteTransaction
from batchpay.ledger.states import MOVES, STATE_CODES, IllegalMove, Need
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from tests.ledger.batches import (
    ACCEPTED,
    DECLINED,
    IN_DOUBT,
    NOT_SENT,
    columns,
    held_run,
    register,
    rejected,
    release,
    states,
)
from tests.ledger.docs_states import PAGE, written_page
from tests.ledger.factories import LedgerFactory

ROW_IN = {state: row for row, state in enumerate(State, start=1)}
"""The row of the fixture's batch that stands in each state."""
LEGAL = {(move.event, move.before, move.after) for move in MOVES}
EVENTS = sorted({move.event for move in MOVES})
PROVES = {State.PENDING: NOT_SENT, State.ACCEPTED: ACCEPTED, State.DECLINED: DECLINED, State.IN_DOUBT: IN_DOUBT}


@pytest.fixture
def running(ledger_factory: LedgerFactory) -> tuple[Ledger, str, Run]:
    """A batch with one row in each state, and the run that holds it."""
    ledger = ledger_factory.create()
    others = [row for state, row in ROW_IN.items() if state is not State.REJECTED]
    name = register(ledger, columns(ledger, others), rejected([ROW_IN[State.REJECTED]]))
    ended = [(ROW_IN[state], PROVES[state]) for state in (State.ACCEPTED, State.DECLINED, State.IN_DOUBT)]
    with held_run(ledger, name) as run:
        run.commit([ROW_IN[State.SENDING], *(row for row, _ in ended)], [])
        run.commit([], ended)
    return ledger, name, run


def standing(ledger: Ledger, name: str) -> dict[int, State]:
    """The state of every row, rejected ones too."""
    return states(ledger, name) | {row.row: State.REJECTED for row in ledger.rejected(name)}


AS_REGISTERED = {row: state for state, row in ROW_IN.items()}


@contextmanager
def undone(ledger: Ledger, event: str, who: str = "ben", why: str | None = "tried", edit: str = "") -> Iterator[Mover]:
    """Move rows as an event does, in a transaction of which nothing stays, after a database tool's edit."""
    assert isinstance(ledger, SqliteLedger | PostgresLedger)
    transaction = ledger.store.begin()
    try:
        if edit:
            transaction.execute(edit)
        if isinstance(transaction, SqliteTransaction):
            yield SqliteMover(transaction, 1, event, who, why)
        else:
            yield PostgresMover(transaction, 1, event, who, why)
    finally:
        transaction.rollback()


def arrows(block: str) -> set[tuple[str, str]]:
    """The moves that the page's text shows: `a -> b -> c | d` are a to b, b to c and b to d."""
    found: set[tuple[str, str]] = set()
    for line in block.splitlines():
        steps = [step.split(" | ") for step in line.split(" -> ")]
        for before, after in pairwise(steps):
            found |= set(product((word.strip() for word in before), (word.strip() for word in after)))
    return found


def test_the_page_shows_exactly_the_moves_of_the_table() -> None:
    """What people read and what every write asserts are one list; the page's own table is written from it."""
    text = PAGE.read_text("utf-8")
    assert text == written_page()
    block = "\n".join(re.findall(r"^- `(.+?)`", text, re.MULTILINE))
    assert arrows(block) == {(move.before.value, move.after.value) for move in MOVES if move.before}


def test_moves_that_only_a_person_or_a_command_makes_have_one_event() -> None:
    """Release, resolve, cancel and acceptance of a witness are each the only way of their move, and name a person."""
    by_person = {(move.before, move.after): move.event for move in MOVES if move.need is Need.PERSON}
    assert by_person == {
        (State.REJECTED, State.PENDING): "released",
        (State.IN_DOUBT, State.ACCEPTED): "resolved",
        (State.IN_DOUBT, State.DECLINED): "resolved",
        (State.IN_DOUBT, State.PENDING): "resolved",
        (State.PENDING, State.REJECTED): "cancelled",
        (State.PENDING, State.IN_DOUBT): "doubted",
        (State.SENDING, State.IN_DOUBT): "doubted",
    }
    for move in MOVES:
        if (move.before, move.after) in by_person and move.before is not State.SENDING:
            # But for an answer that came too late: it is evidence, and never sends anything again.
            of_late_answer = move.event == "heard" and move.after is not State.PENDING
            of_no_account = move.event == "rejected" and move.need is Need.UNSENT
            assert move.event == by_person[move.before, move.after] or of_late_answer or of_no_account


def test_every_move_outside_the_table_is_refused(running: tuple[Ledger, str, Run]) -> None:
    """Each event, each state before, each state after: written only if the table has it, and otherwise not at all."""
    ledger, name, _ = running
    tried = 0
    for event, before, after in product(EVENTS, State, State):
        if (event, before, after) in LEGAL:
            continue
        with undone(ledger, event) as mover, pytest.raises(IllegalMove):
            mover.move([ROW_IN[before]], STATE_CODES[before], STATE_CODES[after])
        tried += 1
    assert tried == len(EVENTS) * 36 - len([move for move in MOVES if move.before])
    assert standing(ledger, name) == AS_REGISTERED


def test_a_legal_move_of_a_row_that_stands_elsewhere_changes_nothing(running: tuple[Ledger, str, Run]) -> None:
    """The state before is compared in the very statement that writes the state after."""
    ledger, _, _ = running
    for move, actual in product(MOVES, State):
        if move.before and actual is not move.before and State.SENDING is not move.after:
            with undone(ledger, move.event) as mover:
                if move.after is State.REJECTED:
                    with suppress(IllegalMove):
                        assert not mover.reject([ROW_IN[actual]], "gatewayId.unknown")
                else:
                    assert not mover.move([ROW_IN[actual]], STATE_CODES[move.before], STATE_CODES[move.after])


def test_only_a_pending_row_is_granted(running: tuple[Ledger, str, Run]) -> None:
    """Asked for all six rows a run is granted one."""
    ledger, name, run = running
    assert run.commit(list(ROW_IN.values()), []) == {ROW_IN[State.PENDING]}
    assert standing(ledger, name) == AS_REGISTERED | {ROW_IN[State.PENDING]: State.SENDING}
    assert ledger.check() == []


@pytest.mark.parametrize("before", [state for state in State if state is not State.SENDING])
@pytest.mark.parametrize("after", PROVES)
def test_only_a_row_in_sending_takes_an_outcome(running: tuple[Ledger, str, Run], before: State, after: State) -> None:
    """An outcome for any other row undoes its group."""
    ledger, name, run = running
    with pytest.raises(LedgerNotUsable):
        run.commit([], [(ROW_IN[before], PROVES[after])])
    assert standing(ledger, name) == AS_REGISTERED


@pytest.mark.parametrize("unproved", [
    Outcome(State.REJECTED, "x", Answer(200)), Outcome(State.SENDING, "x", Answer(200)),
    Outcome(State.ACCEPTED, "x", bytes_sent=900), Outcome(State.DECLINED, "x", bytes_sent=900),
    Outcome(State.PENDING, "reset after some bytes", bytes_sent=1),
], ids=lambda outcome: outcome.state.value)  # fmt: skip
def test_an_outcome_without_its_proof_is_not_written(running: tuple[Ledger, str, Run], unproved: Outcome) -> None:
    """Yes and no need an answer, pending an answer or no byte sent; spilled, it is doubt at the next start."""
    ledger, name, run = running
    with pytest.raises(LedgerNotUsable):
        run.commit([], [(ROW_IN[State.SENDING], unproved)])
    assert standing(ledger, name) == AS_REGISTERED
    run.spill([(ROW_IN[State.SENDING], unproved)])
    run.close()
    with ledger.lock(ledger.find(name).digest):
        assert ledger.start(name, "ben").recovered == 1
    assert standing(ledger, name) == AS_REGISTERED | {ROW_IN[State.SENDING]: State.IN_DOUBT}
    assert ledger.check() == []


def _reject(ledger: Ledger, name: str, run: Run, row: int) -> None:
    run.reject([row], "gatewayId.unknown")


def _release(ledger: Ledger, name: str, run: Run, row: int) -> None:
    if not release(ledger, name, [columns(ledger, [row])], "ben", "looked"):
        raise WrongUse("nothing was released")


def _resolve(ledger: Ledger, name: str, run: Run, row: int) -> None:
    ledger.resolve(name, [Decision(row, State.DECLINED)], "ben", "looked")


@pytest.mark.parametrize(
    ("act", "before"), [(_reject, State.PENDING), (_release, State.REJECTED), (_resolve, State.IN_DOUBT)]
)
def test_each_command_moves_rows_of_one_state_only(
    running: tuple[Ledger, str, Run], act: Callable[[Ledger, str, Run, int], None], before: State
) -> None:
    """Reject, release and resolve refuse a row in any other state, and leave all rows as they are."""
    ledger, name, run = running
    for state, row in ROW_IN.items():
        if state is not before:
            with pytest.raises(BatchpayError):
                act(ledger, name, run, row)
    assert standing(ledger, name) == AS_REGISTERED
    act(ledger, name, run, ROW_IN[before])
    assert standing(ledger, name) != AS_REGISTERED
    assert ledger.check() == []


@pytest.mark.parametrize("event", ["released", "resolved", "doubted"])
@pytest.mark.parametrize(("who", "why"), [("", "looked"), ("ben", " "), ("ben", None)])
def test_what_a_person_decides_names_the_person_and_a_reason(
    running: tuple[Ledger, str, Run], event: str, who: str, why: str | None
) -> None:
    """Without both nothing can be moved by such an event."""
    ledger, name, _ = running
    with pytest.raises(IllegalMove), undone(ledger, event, who, why):
        pass
    if event == "released":
        with pytest.raises(IllegalMove):
            release(ledger, name, [columns(ledger, [ROW_IN[State.REJECTED]])], who, why or "")


@pytest.mark.parametrize("event", sorted({move.event for move in MOVES if move.need is Need.PERSON}))
def test_no_event_that_a_person_decides_is_begun_for_nobody(running: tuple[Ledger, str, Run], event: str) -> None:
    """Each command asks for name and reason; the ledger asks once more, whoever calls it one day."""
    ledger, _, _ = running
    for who, why in (("", "x"), ("ada", " "), ("ada", None)):
        with pytest.raises(IllegalMove, match="a named person"), undone(ledger, event, who, why):
            pass


def test_a_row_whose_attempt_proved_nothing_is_not_rejected(running: tuple[Ledger, str, Run]) -> None:
    """A damaged state alone does not make a sent row one that was never sent."""
    ledger, _, _ = running
    sent = ROW_IN[State.ACCEPTED]
    edit = f"UPDATE row SET state = 3 WHERE id & 4294967295 = {sent}"
    if isinstance(ledger, PostgresLedger):
        edit = f"UPDATE batchpay.payment SET state = 3 WHERE row = {sent}"
    with pytest.raises(IllegalMove, match="may have been sent"), undone(ledger, "rejected", edit=edit) as mover:
        mover.reject([sent], "gatewayId.unknown")


def test_a_row_in_doubt_is_not_rejected(running: tuple[Ledger, str, Run]) -> None:
    """It is refused since it may have been sent, not only since it is not pending: its attempt is asked first."""
    ledger, name, run = running
    with pytest.raises(IllegalMove, match="may have been sent"):
        run.reject([ROW_IN[State.IN_DOUBT]], "gatewayId.unknown")
    assert standing(ledger, name)[ROW_IN[State.IN_DOUBT]] is State.IN_DOUBT


def test_a_run_that_was_replaced_rejects_nothing(running: tuple[Ledger, str, Run]) -> None:
    """The run's token is asked for with every write, not with the grants alone."""
    ledger, name, old = running
    with ledger.lock(ledger.find(name).digest):
        ledger.start(name, "ben")
        with pytest.raises(LedgerNotUsable, match="taken over the batch"):
            old.reject([ROW_IN[State.PENDING]], "gatewayId.unknown")
    assert standing(ledger, name)[ROW_IN[State.PENDING]] is State.PENDING


@pytest.mark.parametrize(
    ("event", "word"), [("progress", "accepted"), ("resolved", "accepted"), ("finished", "pending")]
)
def test_the_check_of_a_ledger_knows_no_other_moves(running: tuple[Ledger, str, Run], event: str, word: str) -> None:
    """A history that holds an impossible move, even one that was written with the key, is damage."""
    ledger, _, _ = running
    assert isinstance(ledger, SqliteLedger | PostgresLedger)
    with ledger.store.transaction() as transaction:
        detail = {word: str(ROW_IN[State.DECLINED])} | ({"run": 1, "at": 0} if event == "finished" else {})
        transaction.event(event, 1, "ada", None, detail)
    assert any(f"can't become {word} by '{event}'" in problem for problem in ledger.check())


def test_the_check_of_a_ledger_knows_no_row_that_was_never_registered() -> None:
    """The row behind the last one could be moved by any event, and no test saw it."""
    replay = Replay()
    about = ["file", "origin", "[]", "{}", 0, None, "test"]
    assert replay.apply(1, "registered", "ada", None, {"about": about, "pending": "1-3", "rejected": ""}) is None
    impossible = replay.apply(1, "progress", "ada", None, {"sending": "4"})
    assert impossible == "rows 4 to 4 can't become sending by 'progress'"
    assert replay.apply(1, "progress", "ada", None, {"sending": "3"}) is None
