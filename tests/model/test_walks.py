"""Walks over what people do, compared with a gateway that counts: the chosen ones, and a state machine.

They run in processes of their own: the program changes its process (descriptors, signals, limits). They are forked
from a loaded one. A walk that fails prints its seed, the fewest steps that show it, and the command that runs those
again.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.campaign.sabotages import SABOTAGES
from tests.model.__main__ import chosen, walk_aside
from tests.model.catalogue import ACTIONS
from tests.model.command import Forks
from tests.model.sabotages import DEFECTS
from tests.model.stories import NUMBERS
from tests.model.walk import Failure, Runner, Step, steps_from, steps_of
from tests.support.broken_program import ROOT

PROCESSES = 2
"""How many at the same time: the walks take a core each."""
_NUMBER = st.integers(0, 59)


def test_chosen_walks(tmp_path: Path) -> None:
    """Nothing twice without a decision that names it, nothing lost, and every statement about it true.

    Each story is told once; the steps that showed a defect find nothing any more. `make walks` takes random ones.
    """
    forks, started = Forks(), []
    for part in range(1, PROCESSES + 1):
        arguments, told = ["--chosen", f"{part}/{PROCESSES}", "--most", "3"], tmp_path / str(part)
        started.append((forks.start_caller(walk_aside, arguments, told), told))
    for process, told in started:
        process.join()
        assert process.exitcode == 0, told.read_text("utf-8")
    counts = [int(told.read_text("utf-8").partition(" walks")[0]) for _, told in started]
    assert sum(counts) == len(chosen())


def test_the_same_as_a_state_machine() -> None:
    """Hypothesis chooses the steps, and cuts a failure down."""
    runner = Runner()

    class People(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.world = runner.world()

        @rule(name=st.sampled_from(sorted(ACTIONS)), a=_NUMBER, b=_NUMBER, c=_NUMBER)
        def act(self, name: str, a: int, b: int, c: int) -> None:
            ACTIONS[name].act(self.world, a, b, c)

        @rule(a=_NUMBER, b=_NUMBER, c=_NUMBER)
        def make_and_submit(self, a: int, b: int, c: int) -> None:
            ACTIONS["make"].act(self.world, a, b, c)
            ACTIONS["submit"].act(self.world, 0, b, c)

    try:
        run_state_machine_as_test(
            People,
            settings=settings(
                max_examples=2,
                stateful_step_count=6,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        runner.close()


def test_every_story_can_be_told() -> None:
    """A walk begins with a story: one that names a missing action would end it."""
    steps = [step for seed in range(1000) for step in steps_of(seed)]
    assert {step.action for step in steps} == ACTIONS.keys()
    assert all(0 <= number < NUMBERS for step in steps for number in (step.a, step.b, step.c))


def test_a_failure_tells_how_to_see_it_again() -> None:
    """The story, and one command that runs its steps."""
    steps = [Step("make", 1, 2, 3), Step("submit", 0, 0, 0)]
    assert Failure(7, steps, "E1 arrived twice", ["submit f1.csv -> 0"]).lines() == [
        "seed 7: E1 arrived twice",
        "    submit f1.csv -> 0",
        "  again: python -m tests.model --steps 'make:1:2:3 submit:0:0:0'",
    ]
    assert steps_from(" ".join(map(str, steps))) == steps


def test_every_defect_can_still_be_put_back() -> None:
    """A sabotage whose text is gone no longer shows anything."""
    for one in (*DEFECTS, *SABOTAGES):
        for file, text, _ in one.changes:
            assert (ROOT / "batchpay" / file).read_text("utf-8").count(text) == 1, (one.name, file)
