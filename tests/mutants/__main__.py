"""Mutants: `python -m tests.mutants [MODULE_OR_ROOM...] [--each 25] [--seed N]`, such as `sending ledger/states.py`.

Each change is made in a copy of the tree with an environment of its own, and the tests that execute it are run there,
the most telling first, until one fails. What survives is printed with its diff; the score stands at the end.
"""

from __future__ import annotations

import argparse
import difflib
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants.changes import Change, changes_of
from tests.mutants.rooms import ROOT, STAGES, Stages, equal, modules
from tests.mutants.sql_changes import sql_changes_of
from tests.mutants.tree import Tree


def main() -> int:
    """Change, run, tell; gives 1 where something survived that nobody has looked at."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--each", type=int, default=25, help="changes a module; fewer are the first of more")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--most-s", type=float, default=60.0, help="tests of one change, in seconds they usually take")
    parser.add_argument("--stages", type=int, default=len(STAGES), help="1: without those that run processes")
    parser.add_argument("--tests", nargs="+", help="files and folders whose tests may notice: instead of the stages")
    parser.add_argument("--sql", action="store_true", help="changes of SQL, instead of Python")
    parser.add_argument("--list", action="store_true", help="only show the changes")
    options = parser.parse_args()
    chosen = {}
    for module in modules(options.names):
        source = (ROOT / "batchpay" / module).read_text("utf-8")
        possible = sql_changes_of(source) if options.sql else changes_of(source)
        chosen[module] = _chosen(possible, options.each, f"{options.seed} {module}")
        if options.list:
            print(f"{module}: {len(possible)} changes", *map(_headline, chosen[module]), sep="\n  ")
    stages = (tuple(options.tests),) if options.tests else STAGES[: options.stages]
    return 0 if options.list else _tried(chosen, stages, options.most_s)


def _tried(chosen: dict[Path, list[Change]], stages: Stages, most_s: float) -> int:
    score, known = Counter[str](), equal()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(Path(folder), stages)
        for module, changes in chosen.items():
            source = (tree.root / "batchpay" / module).read_text("utf-8")
            here = Counter[str]()
            for change in changes:
                if change.told(source) in known[str(module)]:
                    here["equal"] += 1
                elif any(tree.noticed_by(module, source, change, stage, most_s) for stage in range(len(stages))):
                    here["noticed"] += 1
                else:
                    here["survived"] += 1
                    met = sum(len(tree.tests_of(module, change, stage)) for stage in range(len(stages)))
                    print(f"SURVIVED {module}:{change.line} ({change.kind}, {met} tests come here)")
                    print(_diff(module, source, change), flush=True)
            print(f"{module}: {_score(here)}", flush=True)
            score += here
        tree.close()
    print(_score(score))
    return int(score["survived"] > 0)


def _score(counts: Counter[str]) -> str:
    tried = counts["noticed"] + counts["survived"]
    return f"{counts['noticed']} of {tried} changes noticed; {counts['equal']} make no difference (equal.toml)"


def _chosen(found: list[Change], each: int, seed: str) -> list[Change]:
    random.Random(seed).shuffle(found)
    return sorted(found[:each], key=lambda one: one.start)


def _headline(change: Change) -> str:
    first, *_ = change.text.splitlines() or ["nothing"]
    return f"{change.line}: {change.kind}: {first[:100]}"


def _diff(module: Path, source: str, change: Change) -> str:
    lines = difflib.unified_diff(
        source.splitlines(), change.applied_to(source).splitlines(), str(module), "changed", lineterm="", n=1
    )
    return "\n".join(f"    {line}" for line in list(lines)[2:])


if __name__ == "__main__":
    sys.exit(main())
