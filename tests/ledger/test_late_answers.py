"""Answers that were kept aside while persons decided about their rows; and answers with another row's reference."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from batchpay.errors import WaitingForPerson, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept
from batchpay.ledger.records import Decision
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Environment, State
from tests.ledger.batches import ACCEPTED, DECLINED, IN_DOUBT, NOT_SENT, columns, held_run, register, states
from tests.ledger.factories import LedgerFactory


class Trial:
    """A batch of two rows, both put in doubt by a person, with an answer to the first that was kept aside."""

    def __init__(self, factory: LedgerFactory, outcome: Outcome) -> None:
        ledger = factory.create()
        self.factory, self.name = factory, register(ledger, columns(ledger, [1, 2]))
        self.digest = ledger.find(self.name).digest
        with ledger.lock(self.digest):
            run = ledger.start(self.name, "ada")
            run.commit([1, 2], [])
            run.spill([(1, outcome)])
        factory.close()
        (self.spilled,) = factory.witness.parent.glob("witness.spill.*")
        accept(factory.settings, "ben", "the disk died", rows_in_doubt=True)

    def settle(self, state: State) -> None:
        """Decide about the first row; raises what the ledger does."""
        self.factory.open().resolve(self.name, [Decision(1, state, None)], "ben", "looked it up")

    def settle_unknowing(self, state: State, sent_again: Outcome | None = None) -> None:
        """Decide while the answer is out of sight, and perhaps send the row again; then it comes back."""
        aside = self.spilled.with_name("aside")
        self.spilled.rename(aside)
        self.settle(state)
        if sent_again is not None:
            ledger = self.factory.open()
            with ledger.lock(self.digest):
                run = ledger.start(self.name, "ada")
                run.commit([1], [])
                run.commit([], [(1, sent_again)])
                run.finish(None)
        aside.rename(self.spilled)

    def start(self) -> tuple[Ledger, list[str]]:
        """Run to the end without sending; gives what the run told at its start."""
        ledger = self.factory.open()
        with ledger.lock(self.digest):
            run = ledger.start(self.name, "ada")
            run.finish(None)
        return ledger, list(run.late)


@pytest.fixture
def trial(ledger_factory: LedgerFactory) -> Trial:
    """With an answer that says accepted."""
    return Trial(ledger_factory, ACCEPTED)


@pytest.mark.parametrize("state", [State.PENDING, State.DECLINED])
def test_nobody_decides_against_an_answer_that_nobody_has_seen(trial: Trial, state: State) -> None:
    """It was dropped without a word at the next start: a paid row was sent again."""
    with pytest.raises(
        WrongUse, match=r"row 1: an answer to it was kept aside, and says accepted.*nothing was changed"
    ):
        trial.settle(state)
    assert set(states(trial.factory.open(), trial.name).values()) == {State.IN_DOUBT}
    trial.settle(State.ACCEPTED)


def test_a_row_in_doubt_is_told_what_its_answer_says(trial: Trial) -> None:
    """In a file a person still decides, and is shown the answer; in a database it was heard late, and counts."""
    ledger, told = trial.start()
    row = next(iter(ledger.rows(trial.name)))
    if row.state is State.ACCEPTED:
        assert (told, trial.factory.settings.url.startswith("postgresql")) == ([], True)
    else:
        (words,) = told
        assert words.startswith("row 1: an answer to attempt 1 that was kept aside says accepted, and the ledger")
        assert (row.state, row.reason) == (State.IN_DOUBT, "an answer found later says accepted")
        merged = [json.loads(event.detail) for event in ledger.events(trial.name) if event.kind == "merged"]
        assert merged == [{"unused": [1], "answers": {"1": "accepted"}}]
        trial.settle(State.PENDING)  # whoever has seen it may decide
    assert ledger.check() == []


def test_a_paid_row_is_not_sent_again(trial: Trial) -> None:
    """Decided before the answer came to light: nothing of the batch is sent until a person has looked."""
    trial.settle_unknowing(State.PENDING)
    for _ in range(2):
        with pytest.raises(WaitingForPerson, match="says accepted, and somebody put the row back") as refused:
            trial.start()
        assert str(trial.spilled) in str(refused.value)
    trial.spilled.unlink()
    ledger, told = trial.start()
    assert (told, states(ledger, trial.name)) == ([], {1: State.PENDING, 2: State.IN_DOUBT})


def test_a_paid_row_that_was_put_back_can_be_settled_as_paid(trial: Trial) -> None:
    """The way out that the words name."""
    trial.settle_unknowing(State.PENDING)
    trial.factory.close()
    accept(trial.factory.settings, "ben", "row 1 was made", rows_in_doubt=True)
    trial.settle(State.ACCEPTED)
    ledger, told = trial.start()
    assert (told, ledger.find(trial.name).by_state[State.ACCEPTED].rows, ledger.check()) == ([], 1, [])


@pytest.mark.parametrize(("outcome", "settled", "said"), [
    (ACCEPTED, State.DECLINED, "accepted, and the ledger declined"),
    (DECLINED, State.ACCEPTED, "declined, and the ledger accepted"),
    (DECLINED, State.PENDING, "declined, and the ledger pending"),
    (NOT_SENT, State.ACCEPTED, "not applied, and the ledger accepted"),
])  # fmt: skip
def test_what_a_person_has_settled_stays_and_is_told(
    ledger_factory: LedgerFactory, outcome: Outcome, settled: State, said: str
) -> None:
    """An answer changes nothing that a person has decided, and does not vanish either."""
    trial = Trial(ledger_factory, outcome)
    trial.settle_unknowing(settled)
    ledger, (words,) = trial.start()
    assert said in words
    assert states(ledger, trial.name)[1] is settled
    told = [json.loads(event.detail).get("answers") for event in ledger.events(trial.name)]
    assert {"1": outcome.state.value} in told
    assert ledger.check() == []


@pytest.mark.parametrize(("first", "second", "said"), [
    (ACCEPTED, ACCEPTED, ["accepted, and the ledger accepted"]),
    (ACCEPTED, IN_DOUBT, ["accepted, and the ledger in_doubt"]),
    (DECLINED, ACCEPTED, ["declined, and the ledger accepted"]), (DECLINED, DECLINED, []), (NOT_SENT, ACCEPTED, []),
    (NOT_SENT, IN_DOUBT, []),
])  # fmt: skip
def test_an_answer_to_an_attempt_before_the_last_is_told_where_a_row_may_be_paid_twice(
    ledger_factory: LedgerFactory, first: Outcome, second: Outcome, said: list[str]
) -> None:
    """Both attempts accepted is two payments, and nothing of it may be held for news of the last attempt."""
    trial = Trial(ledger_factory, first)
    trial.settle_unknowing(State.PENDING, second)
    ledger, told = trial.start()
    assert [words.partition("kept aside says ")[2].partition(":")[0] for words in told] == said
    row = next(iter(ledger.rows(trial.name)))
    assert (row.state, row.attempts, row.reason) == (second.state, 2, second.reason)
    assert ledger.check() == []


@pytest.mark.parametrize("state", [State.IN_DOUBT, State.ACCEPTED])
def test_what_proves_nothing_holds_no_decision_up(ledger_factory: LedgerFactory, state: State) -> None:
    """That the connection broke was kept aside as well, and nothing is accepted without an answer."""
    trial = Trial(ledger_factory, Outcome(state, "connection closed", bytes_sent=900))
    trial.settle(State.DECLINED)
    ledger, told = trial.start()
    assert (told, states(ledger, trial.name)[1]) == ([], State.DECLINED)


def test_what_is_known_already_is_not_told(ledger_factory: LedgerFactory, tmp_path: Path) -> None:
    """A file that a power cut brings back says what the ledger says."""
    trial = Trial(ledger_factory, ACCEPTED)
    shutil.copy(trial.spilled, tmp_path / "copy")
    trial.settle(State.ACCEPTED)
    for _ in range(2):
        assert trial.start()[1] == []
        shutil.copy(tmp_path / "copy", trial.spilled)


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
