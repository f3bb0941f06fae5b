"""Every sentence that a user can see, with the place where it is written: `python -m tests.support.messages`.

Found in the source, not by running it: help and docstrings of commands, options, what is raised or printed, the rules'
messages, notes and log lines. For one person's edit of the whole, from the first sentence to the last.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

SPOKEN = {
    "UsageError", "BadParameter", "echo", "say", "detail", "confirm", "prompt", "secho", "log", "error", "warning",
    "choice", "required", "append", "option", "_option", "fail", "common", "Outcome", "event",
    "require_named",
}  # fmt: skip
"""Functions whose texts reach a user."""


class Message(NamedTuple):
    """One sentence; what is filled in at run time appears as `{}`."""

    path: str
    line: int
    text: str


def messages() -> Iterator[Message]:
    """Yield every sentence, file by file in the order of the tree."""
    for folder in ("batchpay", "schemas"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield from _of_file(path)
    for table, parts in (("schemas/tables/rules.csv", ("words", "message")), ("batchpay/settings.csv", ("help",))):
        with (ROOT / table).open(encoding="utf-8", newline="") as file:
            for number, line in enumerate(csv.DictReader(file), start=2):
                yield from (Message(table, number, line[part]) for part in parts)


def _of_file(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text("utf-8"))
    name = str(path.relative_to(ROOT))
    seen: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            texts = _texts(node.exc)
        elif isinstance(node, ast.Call) and _function_name(node) in SPOKEN:
            texts = _texts(node)
        elif isinstance(node, ast.FunctionDef) and any("ommand" in ast.unparse(one) for one in node.decorator_list):
            texts = [(node.lineno, ast.get_docstring(node) or "")]
        else:
            continue
        for line, text in texts:
            if " " in text.strip() and (line, text) not in seen:
                seen.add((line, text))
                yield Message(name, line, text)


def _function_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _texts(call: ast.Call) -> list[tuple[int, str]]:
    found = []
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        for node in ast.walk(argument):
            if isinstance(node, ast.JoinedStr):
                found.append((node.lineno, "".join(_piece(value) for value in node.values)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not _inside(node, argument):
                found.append((node.lineno, node.value))
    return found


def _piece(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "{}"


def _inside(constant: ast.Constant, argument: ast.expr) -> bool:
    """Return whether a constant is a piece of a formatted text, which is yielded whole."""
    return any(constant in node.values for node in ast.walk(argument) if isinstance(node, ast.JoinedStr))


if __name__ == "__main__":
    for message in messages():
        print(f"{message.path}:{message.line}: {' '.join(message.text.split())}")
