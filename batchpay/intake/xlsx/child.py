"""Reading a workbook through a child process that holds the library (worker.py)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from batchpay.errors import FileRefused

ANSWER_S_MAX = 300.0
"""The child must send its next piece within this many seconds."""
_ROOT = Path(__file__).parents[3]
# -I keeps PYTHON* variables and the working directory out; the path of this package is the only one added.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from batchpay.intake.xlsx.worker import main; main()"

Row = tuple[int, list[str | int | float | bool | None]]
"""A row's number in its sheet, and its cells from column A on: dates as ISO 8601, None for a blank one."""


def visible_sheets(name: str, descriptor: int) -> list[str]:
    """Name the visible worksheets of an open workbook; raises FileRefused with its own `name`."""
    with closing(Child(name, descriptor, {"of": []})) as child:
        return list(child.first["sheets"])


def sheet_rows(name: str, descriptor: int, sheets: Sequence[str | None]) -> Generator[Row, None, None]:
    """Read the first of these sheets that an open workbook has, None for its first visible one; raises FileRefused.

    For what is no payment file: hidden rows are read, and formulas are what they gave.
    """
    with closing(Child(name, descriptor, {"of": list(sheets)})) as child:
        for head, text in child.parts():
            yield from enumerate(json.loads(text), head["first_row"])


class Child:
    """A running child process; `first` is the first line that it sends."""

    def __init__(self, name: str, descriptor: int, job: Mapping[str, Any]) -> None:
        """Begin to read the workbook that is open as `descriptor`; raises FileRefused, with its name."""
        self._name = name
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-I", "-c", _BOOT, str(_ROOT), json.dumps(job)],
            stdin=descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "")},
            close_fds=True,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self.close = weakref.finalize(self, _end, self._process)
        """Ends the child."""
        self.first = self._answer(self._until_newline())

    def parts(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield what the child sends: the line of JSON, and what follows it."""
        while length := self._exactly(8, end_allowed=True):
            line, _, text = self._exactly(int.from_bytes(length, "big")).partition(b"\n")
            yield self._answer(line), text
        if self._process.wait() != 0:
            raise self._broken()

    def _answer(self, line: bytes) -> dict[str, Any]:
        """Parse a line of JSON; raises FileRefused where it is a refusal."""
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            self.close()
            raise FileRefused(f"{self._name}: {answer['refused']}")
        return answer

    def _until_newline(self) -> bytes:
        found = b""
        while not found.endswith(b"\n"):
            piece = self._read(1)
            if not piece:
                raise self._broken()
            found += piece
        return found

    def _exactly(self, count: int, *, end_allowed: bool = False) -> bytes:
        pieces, missing = [], count
        while missing:
            piece = self._read(min(missing, 1 << 20))
            if not piece:
                if end_allowed and missing == count:
                    return b""
                raise self._broken()
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _read(self, most: int) -> bytes:
        ready, _, _ = select.select([self._out], [], [], ANSWER_S_MAX)
        if not ready:
            self.close()
            raise FileRefused(f"{self._name}: takes longer to read than a file of this kind may")
        return os.read(self._out, most)

    def _broken(self) -> FileRefused:
        self.close()
        return FileRefused(f"{self._name}: could not be read within the limits of memory and time, or is broken")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
