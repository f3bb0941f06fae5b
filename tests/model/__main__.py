"""Walk: `python -m tests.model [--walks N] [--seed N] [--steps 'make:1:2:3 submit:0:0:0']`.

Prints what was found, with the seed and the fewest steps that show it; ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.model.sabotages import DEFECTS
from tests.model.stories import one_of_each
from tests.model.walk import STEPS_MAX, Runner, Step, steps_from, steps_of, story_of
from tests.support.postgres import running_server


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk as requested; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="the first walk's; each has the next number")
    parser.add_argument("--steps", default="", help="run these steps and tell their story")
    parser.add_argument("--most", type=int, default=5, help="end after so many failures")
    parser.add_argument("--length", type=int, default=STEPS_MAX, help="longer walks meet more, and take longer")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--chosen", metavar="PART/PARTS", help="take a part of the chosen walks instead")
    parser.add_argument("--postgres", action="store_true", help="with ledgers in a PostgreSQL server of our own")
    options = parser.parse_args(arguments)
    with running_server() if options.postgres else nullcontext() as server:
        return _found(Runner(server), options)


def walk_aside(arguments: Sequence[str], told: Path) -> None:
    """Walk as a process forked for it does, which ends with the exit code and writes into a file."""
    file = os.open(told, os.O_WRONLY | os.O_CREAT, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(file, stream.fileno())
    sys.exit(main(arguments))


def _found(runner: Runner, options: argparse.Namespace) -> int:
    try:
        if options.steps:
            found = runner.failure(steps_from(options.steps))
            print("\n".join([found[0], *found[1]] if found else ["nothing was found"]))
            return int(found is not None)
        if options.chosen:
            part, parts = map(int, options.chosen.split("/"))
            return _walks(runner, options, chosen()[part - 1 :: parts])
        seeds = range(options.seed, options.seed + options.walks)
        return _walks(runner, options, ((seed, steps_of(seed, options.length)) for seed in seeds))
    finally:
        runner.close()


def chosen() -> list[tuple[int, list[Step]]]:
    """Return the walks of `make test`: one of each story, and the fewest steps that show each defect once found.

    They come with their seeds; those of defects have none, and so 0. What may follow a story is for random walks.
    """
    of_defects = dict.fromkeys(one.steps for one in DEFECTS if not one.on_postgres)
    return [(seed, story_of(seed)) for seed in one_of_each()] + [(0, steps_from(steps)) for steps in of_defects]


def _walks(runner: Runner, options: argparse.Namespace, walks: Iterable[tuple[int, list[Step]]]) -> int:
    began, cpu, failures = time.monotonic(), time.process_time(), 0
    done = Counter[str]()
    walked = 0
    for seed, steps in walks:
        failure = runner.walk(seed, steps, shrink=not options.no_shrink)
        walked += 1
        done.update(step.action for step in steps)
        if failure is not None:
            failures += 1
            print("\n".join(failure.lines()), flush=True)
            if failures >= options.most:
                break
    seconds, spent = time.monotonic() - began, time.process_time() - cpu
    print(f"{walked} walks, {sum(done.values())} steps, {failures} failed; {seconds:.0f} s, {spent:.0f} s of CPU")
    print(", ".join(f"{name} {count}" for name, count in done.most_common()))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
