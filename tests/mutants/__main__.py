"""Mutants: `python -m tests.mutants [MODULE_OR_ROOM...] [--each 25] [--seed N]`, such as `sending ledger/states.py`.

Each change is made in a copy of the tree with an environment of its own, and the tests that cover the module are run
there, the nearest first, until one fails. What survives is printed with its diff; the score stands at the end.
"""

from __future__ import annotations

import argparse
import difflib
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from tests.mutants.changes import Change, changes_of
from tests.mutants.rooms import ROOT, equal, modules, stages

_COPIED = (
    "batchpay",
    "schemas",
    "samples",
    "tests",
    "docs",
    "pyproject.toml",
    "README.md",
    "Makefile",
    "CONTRIBUTING.md",
)
_PATIENCE = 3.0
"""How many times as long as without a change a run may take: a change may make a loop endless."""
_LEAST_S = 30.0


class Copy:
    """A copy of the tree, whose own interpreter finds the copy's package, also from any process a test starts."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self.root.mkdir()
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copyfile(source, self.root / name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        self.python = folder / "venv" / "bin" / "python"
        site = next((folder / "venv").glob("lib/python*/site-packages"))
        (site / "copy.pth").write_text(f"{self.root}\n{sysconfig.get_paths()['purelib']}\n", "utf-8")
        self.usual_s: dict[str, float] = {}
        self.broken: set[str] = set()
        """Runs that fail without a change: they show nothing."""

    def notices(self, arguments: list[str]) -> bool:
        """Whether a run of tests fails, or takes far longer than it did without a change."""
        key = " ".join(arguments)
        usual_s = self.usual_s.get(key)
        began = time.monotonic()
        limit_s = None if usual_s is None else max(_LEAST_S, _PATIENCE * usual_s)
        process = subprocess.Popen(
            [str(self.python), "-B", *arguments],
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True
        if usual_s is None:
            self.usual_s[key] = time.monotonic() - began
            if code not in (0, 5):
                self.broken.add(key)
                print(f"left out, since it fails ({code}) without any change: {key}", flush=True)
        return code not in (0, 5)  # 5: no test was collected


def main() -> int:
    """Change, run, tell; gives 1 where something survived that nobody has looked at."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--each", type=int, default=25, help="changes a module")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--stages", type=int, default=9, help="at most so many runs of tests for a change")
    parser.add_argument("--list", action="store_true", help="only show the changes")
    options = parser.parse_args()
    killed, equals, survived = 0, 0, list[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        for module in modules(options.names):
            source = (ROOT / "batchpay" / module).read_text("utf-8")
            chosen = _chosen(source, options.each, f"{options.seed} {module}")
            if options.list:
                print(f"{module}: {len(changes_of(source))} changes", *map(_headline, chosen), sep="\n  ")
                continue
            here = [0, 0]
            for change in chosen:
                known = _told(source, change) in equal(module)
                noticed = not known and _noticed(copy, module, change.applied_to(source), source, options.stages)
                equals, killed = equals + known, killed + noticed
                here[0 if noticed else 1] += not known
                if not known and not noticed:
                    survived.append(str(module))
                    print(
                        f"SURVIVED {module}:{change.line} ({change.kind})\n{_diff(module, source, change)}", flush=True
                    )
            print(f"{module}: {here[0]} of {sum(here)} noticed", flush=True)
    total = killed + len(survived)
    if total:
        print(f"{killed} of {total} changes noticed ({killed / total:.0%}); {equals} make no difference (equal.toml)")
    return int(bool(survived))


def _chosen(source: str, each: int, seed: str) -> list[Change]:
    found = changes_of(source)
    return sorted(random.Random(seed).sample(found, min(each, len(found))), key=lambda one: one.start)


def _noticed(copy: Copy, module: Path, changed: str, source: str, most: int) -> bool:
    """Make a change in the copy and run its tests, stage by stage; each stage ran once without a change before."""
    place = copy.root / "batchpay" / module
    for arguments in stages(module)[:most]:
        if " ".join(arguments) not in copy.usual_s:
            place.write_text(source, "utf-8")
            copy.notices(arguments)
        if " ".join(arguments) in copy.broken:
            continue
        place.write_text(changed, "utf-8")
        try:
            if copy.notices(arguments):
                return True
        finally:
            place.write_text(source, "utf-8")
    return False


def _headline(change: Change) -> str:
    return f"{change.line}: {change.kind}: {change.text.splitlines()[0][:100]}"


def _told(source: str, change: Change) -> str:
    """A change in one line that stays the same when lines move: the line's own text, and what stands there instead."""
    line = source.splitlines()[change.line - 1].strip()
    return f"{line} => {change.text}"


def _diff(module: Path, source: str, change: Change) -> str:
    lines = difflib.unified_diff(
        source.splitlines(), change.applied_to(source).splitlines(), str(module), "changed", lineterm="", n=1
    )
    return "\n".join(f"    {line}" for line in list(lines)[2:])


if __name__ == "__main__":
    sys.exit(main())
