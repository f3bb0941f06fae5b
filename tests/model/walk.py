"""A walk: a list of steps made from a seed, run, and cut down to what matters if it fails."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.model import clock
from tests.model.actions import Action
from tests.model.catalogue import ACTIONS
from tests.model.command import Forks
from tests.model.gateway import Gateway
from tests.model.stories import NUMBERS, told
from tests.model.world import Violation, World
from tests.support.postgres import Server

STEPS_MAX = 6
_MEMORY = Path("/dev/shm")  # noqa: S108
"""Where a commit need not wait for a disk: a walk never cuts the power."""
_SHRINK_S = 40.0


@dataclass(frozen=True, slots=True)
class Step:
    """An action by name and its three numbers."""

    action: str
    a: int
    b: int
    c: int

    def __str__(self) -> str:
        return f"{self.action}:{self.a}:{self.b}:{self.c}"

    @classmethod
    def parse(cls, text: str) -> Step:
        action, *numbers = text.split(":")
        return cls(action, *map(int, numbers))


@dataclass(slots=True)
class Failure:
    """A walk that found something."""

    seed: int
    steps: list[Step]
    what: str
    story: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        steps = " ".join(map(str, self.steps))
        return [
            f"seed {self.seed}: {self.what}",
            *(f"    {line}" for line in self.story),
            f"  again: python -m tests.model --steps '{steps}'",
        ]


def story_of(seed: int) -> list[Step]:
    """Return the story alone with which a walk begins."""
    return [Step(*one) for one in told(seed, random.Random(seed))]


def steps_of(seed: int, most: int = STEPS_MAX) -> list[Step]:
    """Return the steps of a walk, at most about `most`: one of the stories of stories.py, and random ones after it."""
    dice = random.Random(seed)
    steps = [Step(*one) for one in told(seed, dice)]
    names, weights = list(ACTIONS), [one.weight for one in ACTIONS.values()]
    more = max(0, dice.randrange(2, most - 1) + 1 - len(steps))
    for name in dice.choices(names, weights, k=more):
        steps.append(Step(name, *(dice.randrange(NUMBERS) for _ in range(3))))
    return steps


def steps_from(text: str) -> list[Step]:
    """Read the steps that a failure or a defect names."""
    return [Step.parse(one) for one in text.split()]


class Runner:
    """Runs walks, one after the other, in a folder of its own."""

    def __init__(self, server: Server | None = None) -> None:
        clock.load_program()
        self._server = server
        self.gateway = Gateway().start()
        self.forks = Forks()
        self.folder = Path(tempfile.mkdtemp(prefix="walks-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self.count = 0

    def close(self) -> None:
        self.gateway.close()
        clock.restore()
        shutil.rmtree(self.folder, ignore_errors=True)

    def world(self) -> World:
        """Return a new world, whose clock is at the present time."""
        self.count += 1
        clock.offset_s = clock.wrong_s = 0.0
        return World(self.folder / str(self.count), self.gateway, self.forks, self._server)

    def failure(self, steps: Sequence[Step]) -> tuple[str, list[str]] | None:
        """Run steps; return what was found wrong, with the story, or None."""
        world = self.world()
        try:
            for step in steps:
                action: Action = ACTIONS[step.action].act
                action(world, step.a, step.b, step.c)
        except Violation as found:
            return str(found), world.story
        finally:
            world.close()
        return None

    def walk(self, seed: int, steps: list[Step], *, shrink: bool = True) -> Failure | None:
        """Walk; if it fails, cut the steps down to those that matter."""
        found = self.failure(steps)
        if found is None:
            return None
        if shrink:
            steps, found = self._shrunk(steps, found)
        return Failure(seed, steps, *found)

    def _shrunk(self, steps: list[Step], found: tuple[str, list[str]]) -> tuple[list[Step], tuple[str, list[str]]]:
        """Leave out steps, one at a time and from the end, as long as something is still found."""
        deadline = time.monotonic() + _SHRINK_S
        again = True
        while again and time.monotonic() < deadline:
            again = False
            for place in reversed(range(len(steps))):
                fewer = steps[:place] + steps[place + 1 :]
                other = self.failure(fewer)
                if other is not None:
                    steps, found, again = fewer, other, True
        return steps, found
