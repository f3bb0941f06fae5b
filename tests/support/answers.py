"""Answers `batchpay map` on a terminal as a person does: reads each question, and types a number or a value."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.command import Home

_PROMPTS = ("Number (0 to leave it open): ", "Value (blank to leave it open): ", "to take back: ")
_CHOICE = re.compile(r"^ {2}([0-9]+) {2}(.*)$", re.MULTILINE)


@dataclass
class Answered:
    """What a call printed, and which questions it asked."""

    exit_code: int = -1
    output: str = ""
    """Standard output, with what was shown before the map was written."""
    asked: list[str] = field(default_factory=list)
    """What each question was about."""


def answer_map(home: Home, answers: Mapping[str, str], *arguments: str) -> Answered:
    """Run `batchpay map` on a terminal; an answer is how a choice begins, or a value, by what its question is about."""
    ours, theirs = pty.openpty()
    found, last = Answered(), ""
    with subprocess.Popen(
        home.command("map", *arguments), env=home.environment, cwd=home.path, stdin=theirs, stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        while True:
            try:
                read = os.read(ours, 65536).decode()
            except OSError:  # the other side is closed
                break
            last += read.replace("\r\n", "\n")
            if last.endswith(_PROMPTS):
                os.write(ours, f"{_typed(last, answers, found)}\n".encode())
                last = ""
        assert process.stdout is not None
        found.output = process.stdout.read().decode()
    os.close(ours)
    found.exit_code = process.returncode
    return found


def _typed(text: str, answers: Mapping[str, str], found: Answered) -> str:
    if text.endswith(_PROMPTS[-1]):
        return "0"
    (about,) = re.findall(r"^[0-9]+ of [0-9]+ {2}(\w+): ", text, re.MULTILINE)[-1:]
    found.asked.append(about)
    nth = f"{about}.{found.asked.count(about)}"
    answer = answers.get(nth, answers.get(about, ""))
    if text.endswith(_PROMPTS[1]):
        return answer
    numbers = [number for number, choice in _CHOICE.findall(text) if answer and choice.startswith(answer)]
    return numbers[0] if numbers else "0"
