"""Which lines of the program a test executes, in its own process and in those that it starts.

A folder holds a file for each test, by number, and `current`: the number of the test that runs. Every process of the
copied tree looks for that file when it starts (see tree.py), and adds each line it comes to, once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

CURRENT = "current"
_PROGRAM = f"{Path(__file__).resolve().parents[2] / 'batchpay'}/"
_QUIET_CALLS = 100
"""A function that brought nothing new in so many calls of a test is not followed any more: simulations call often."""
_seen: set[tuple[str, int]] = set()
_quiet: Counter[CodeType] = Counter()
_target = ""


def begin(folder: str) -> None:
    """Record this process and its forks from now on."""
    _turn(folder)
    os.register_at_fork(after_in_child=lambda: _turn(folder))
    threading.settrace(_call)
    sys.settrace(_call)


def next_test(folder: str, number: int) -> None:
    """What is executed from now on belongs to another test."""
    (Path(folder) / CURRENT).write_text(str(number), "ascii")
    _turn(folder)


def _turn(folder: str) -> None:
    global _target
    _seen.clear()
    _quiet.clear()
    try:
        _target = str(Path(folder) / (Path(folder) / CURRENT).read_text("ascii"))
    except OSError:
        _target = ""


def _call(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
    code = frame.f_code
    if _quiet[code] >= _QUIET_CALLS or not code.co_filename.startswith(_PROGRAM):
        return None
    _quiet[code] += 1
    return _line


def _line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
    place = (frame.f_code.co_filename, frame.f_lineno)
    if event == "line" and place not in _seen:
        _seen.add(place)
        _quiet[frame.f_code] = 0
        _write(f"{place[0].removeprefix(_PROGRAM)}:{place[1]}\n")
    return _line


def _write(line: str) -> None:
    """Add a line to the test's file, which is not kept open: a test may count or close descriptors."""
    try:
        file = os.open(_target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:  # no test runs, or one that lets no file be opened
        return
    try:
        os.write(file, line.encode())
    except OSError:  # a disk that a test made full
        pass
    finally:
        os.close(file)
