"""A copy of the tree in which changes are made: its server of loaded tests, what each test executes, one try a change.

What tests execute is kept in the system's temporary folder, by the text of the program and the tests.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tests.mutants.changes import Change
from tests.mutants.lines import CURRENT
from tests.mutants.rooms import ROOT, Stages
from tests.mutants.sql_changes import names_changed

_COPIED = ("batchpay", "schemas", "samples", "tests", "docs", "pyproject.toml", "README.md", "Makefile",
           "CONTRIBUTING.md", "CHANGELOG.md")  # fmt: skip
_PATIENCE = 5.0
"""How many times as long as without a change a test may take: a change may make a loop endless."""
_LEAST_S = 60.0
_START_S = 180.0
_LOADED = 631152000.0
"""A time of change for the first of the changed files: each gets one of its own, so that no stale bytecode is used."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a test executes."""

    seconds: float
    lines: dict[str, set[int]]
    """By module."""


class Tree:
    """A copy of the tree, whose own interpreter finds the copy's package, also from any process a test starts."""

    def __init__(self, folder: Path, stages: Stages) -> None:
        self._stages = stages
        self.root, self._lines = folder / "tree", folder / "lines"
        self.root.mkdir()
        self._lines.mkdir()
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy2(source, self.root / name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        self._python = folder / "venv" / "bin" / "python"
        site = next((folder / "venv").glob("lib/python*/site-packages"))
        record = (
            f"import os; os.path.exists({str(self._lines / CURRENT)!r}) and "
            f"__import__('tests.mutants.lines').mutants.lines.begin({str(self._lines)!r})"
        )
        (site / "copy.pth").write_text(f"{self.root}\n{sysconfig.get_paths()['purelib']}\n{record}\n", "utf-8")
        subprocess.run([str(self._python), "-m", "compileall", "-q", "batchpay", "schemas", "tests"], cwd=self.root)
        self._changes = 0
        self._start()
        self.traces: dict[str, Trace] = {}
        self._traced = 0

    def _start(self) -> None:
        requests_out, self._requests = os.pipe()
        self._answers, answers_in = os.pipe()
        numbers = (requests_out, answers_in)
        command = [
            *map(str, (self._python, "-m", "tests.mutants.server", *numbers, self._lines)),
            *chain(*self._stages),
        ]
        self._server = subprocess.Popen(
            command, cwd=self.root, pass_fds=numbers, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(self.root.parent)},
        )  # fmt: skip
        os.close(requests_out)
        os.close(answers_in)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._left = b""
        loaded = self._answer(_START_S)
        if loaded is None:
            raise RuntimeError("the tests can't be loaded")
        if not loaded["can_fork"]:
            raise RuntimeError("a test uses polars while it is loaded: make its frames when it runs")
        self._tests: list[str] = loaded["tests"]

    def close(self) -> None:
        """End the server."""
        os.close(self._requests)
        self._server.wait()

    def _answer(self, timeout_s: float) -> dict[str, Any] | None:
        """The server's next answer; None where it takes too long."""
        while b"\n" not in self._left:
            if not self._selector.select(timeout_s):
                return None
            read = os.read(self._answers, 65536)
            if not read:
                raise RuntimeError("the server of the tests ended")
            self._left += read
        line, self._left = self._left.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Answers to a request until its end; one that is late is `failed`, and its processes are ended."""
        os.write(self._requests, f"{json.dumps(request)}\n".encode())
        limit_s, process = _LEAST_S, 0
        while True:
            answer = self._answer(limit_s)
            if answer is None:
                answer = {"failed": "takes too long"}
                os.killpg(process, signal.SIGKILL)
            process = answer.get("process", process)
            if "test" in answer and not request["record"]:
                limit_s = max(_LEAST_S, _PATIENCE * self.traces[answer["test"]].seconds)
            elif request["record"]:
                limit_s = _START_S
            yield answer
            if "end" in answer:
                return

    def _trace(self, stage: int) -> None:
        """Learn what each test of a stage executes, file by file: from the last time, where no text has changed."""
        if stage < self._traced:
            return
        self._traced = stage + 1
        files: dict[str, list[str]] = defaultdict(list)
        for name in self._tests:
            if name.startswith(self._stages[stage]):
                files[name.split("::", 1)[0]].append(name)
        kept = Path(tempfile.gettempdir()) / "batchpay-mutants"
        kept.mkdir(mode=0o700, exist_ok=True)
        base = self._digest()
        for file, names in files.items():
            place = kept / f"{hashlib.sha256(base + (self.root / file).read_bytes()).hexdigest()}.json"
            if not place.exists():
                place.write_text(json.dumps(self._recorded(names)), "utf-8")
            for name, (seconds, lines) in json.loads(place.read_text("utf-8")).items():
                self.traces[name] = Trace(seconds, {module: set(numbers) for module, numbers in lines.items()})

    def _digest(self) -> bytes:
        """Of all that tests execute beside their own file."""
        found = hashlib.sha256()
        for path in sorted(self.root.rglob("*.py")):
            if not path.name.startswith("test_") and path.parent.name != "mutants":
                found.update(f"{path.relative_to(self.root)}\0".encode() + path.read_bytes())
        return found.digest()

    def _recorded(self, names: list[str]) -> dict[str, tuple[float, dict[str, list[int]]]]:
        """Seconds and lines of tests; those that fail without a change are told, and left out."""
        seconds: dict[str, float] = {}
        failed: set[str] = set()
        began, last = time.monotonic(), ""
        for answer in self._ask({"tests": names, "record": True}):
            if "test" in answer or "end" in answer:
                seconds[last] = time.monotonic() - began
                began, last = time.monotonic(), answer.get("test", "")
            if "failed" in answer:
                failed.add(last)
                print(f"left out, since it fails without any change: {last} ({answer['failed']})", flush=True)
        found: dict[str, tuple[float, dict[str, list[int]]]] = {}
        for number, name in enumerate(names):
            file = self._lines / str(number)
            lines: dict[str, list[int]] = defaultdict(list)
            for line in sorted(set(file.read_text("ascii").split())) if file.exists() else []:
                module, place = line.split(":")
                lines[module].append(int(place))
            file.unlink(missing_ok=True)
            if name in seconds and name not in failed:
                found[name] = (round(seconds[name], 3), lines)
        (self._lines / CURRENT).unlink(missing_ok=True)
        return found

    def tests_of(self, module: Path, change: Change, stage: int) -> list[str]:
        """Tests of a stage that execute what is changed, the most telling of the module first."""
        self._trace(stage)
        users = self._users(module, change)
        met = {module: change.lines, **users}
        here = [name for name in self._of(stage) if any(not met[one].isdisjoint(self._at(name, one)) for one in met)]
        return self._fastest(here, users) if users else self._sorted(here, module)

    def _fastest(self, names: list[str], users: dict[Path, frozenset[int]]) -> list[str]:
        """Put first what comes to many lines that use a text, in little time."""

        def met_per_s(name: str) -> float:
            met = sum(len(lines & self._at(name, one)) for one, lines in users.items())
            return met / (0.05 + self.traces[name].seconds)

        return sorted(names, key=met_per_s, reverse=True)

    def _users(self, module: Path, change: Change) -> dict[Path, frozenset[int]]:
        """Lines that use a module's text, which is made only once."""
        found: dict[Path, frozenset[int]] = {}
        if change.kind == "sql":
            names = names_changed((self.root / "batchpay" / module).read_text("utf-8"), change)
            word = re.compile(rf"\b({'|'.join(names)})\b") if names else None
            for path in sorted((self.root / "batchpay" / module).parent.glob("*.py")) if word else ():
                lines = path.read_text("utf-8").splitlines()
                if used := frozenset(number for number, line in enumerate(lines, 1) if word and word.search(line)):
                    found[path.relative_to(self.root / "batchpay")] = used
        return found

    def _sorted(self, names: list[str], module: Path) -> list[str]:
        """Put first, in turns, what comes to lines of the module that few others do, and what does little else."""
        often = Counter(line for name in self.traces for line in self._at(name, module))

        def rarity(name: str) -> float:
            return sum(1 / often[line] for line in self._at(name, module)) / (0.05 + self.traces[name].seconds)

        def focus(name: str) -> float:
            trace = self.traces[name]
            return len(self._at(name, module)) / (1 + sum(map(len, trace.lines.values()))) / (0.05 + trace.seconds)

        rare, focused = (sorted(names, key=key, reverse=True) for key in (rarity, focus))
        return list(dict.fromkeys(chain.from_iterable(zip(rare, focused, strict=True))))

    def _of(self, stage: int) -> list[str]:
        return [name for name in self.traces if name.startswith(self._stages[stage])]

    def _at(self, name: str, module: Path) -> set[int]:
        return self.traces[name].lines.get(str(module), set())

    def noticed_by(self, module: Path, source: str, change: Change, stage: int, most_s: float) -> str:
        """Make a change and run its tests of a stage, for about so long; gives what noticed it, or nothing."""
        tests = self._within(self.tests_of(module, change, stage), most_s)
        place = self.root / "batchpay" / module
        usual = place.stat().st_mtime
        changed = change.applied_to(source)
        place.write_text(changed, "utf-8")
        self._changes += 1
        os.utime(place, (_LOADED + 2 * self._changes,) * 2)
        try:
            told: dict[str, Any] = {"not_exchanged": True}
            if tests:
                request = {"tests": tests, "record": False, "file": str(place), "before": source, "after": changed}
                request["texts"] = change.kind == "sql"
                told = {key: value for answer in self._ask(request) for key, value in answer.items()}
            if "not_exchanged" in told:
                return self._noticed_anew(module, stage, most_s)
            return str(told.get("failed", ""))
        finally:
            place.write_text(source, "utf-8")
            os.utime(place, (usual, usual))

    def _noticed_anew(self, module: Path, stage: int, most_s: float) -> str:
        """The same for what runs when a module is loaded: a new process, its namesakes and what comes to it."""
        own = f"tests/{module.parts[0]}/"
        named = [name for name in self._of(stage) if f"/test_{module.stem}.py::" in name]
        tests = [name for name in self._of(stage) if self._at(name, module) and name not in named]
        tests = tests or [name for name in self._of(stage) if name.startswith(own) and name not in named]
        tests = self._within(named + self._sorted(tests, module), most_s)
        if not tests:
            return ""
        usual_s = sum(self.traces[name].seconds for name in tests)
        process = subprocess.Popen(
            [str(self._python), "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests],
            cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            start_new_session=True, env={**os.environ, "TMPDIR": str(self.root.parent)},
        )  # fmt: skip
        try:
            told, _ = process.communicate(timeout=_LEAST_S + _PATIENCE * usual_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "takes too long"
        return "" if process.returncode == 0 else told[-200:]

    def _within(self, tests: list[str], most_s: float) -> list[str]:
        """The first tests, as many as take about so long."""
        chosen: list[str] = []
        for name in tests:
            most_s -= self.traces[name].seconds
            if most_s < 0 and chosen:
                break
            chosen.append(name)
        return chosen
