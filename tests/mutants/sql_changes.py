"""Changes of SQL in a module's texts: a condition that always holds, another comparison, AND for OR, min for max."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from tests.mutants.changes import Change, places

_STATEMENT = re.compile(r"\b(SELECT|UPDATE|DELETE|INSERT|JOIN|WHERE|WHEN)\b")
_NEXT = r"(?=\s+(?:AND|OR|ORDER|GROUP|LIMIT|THEN|LEFT|CROSS|JOIN|WHERE|ON|RETURNING)\b|[\"\n)]|$)"
_CONDITION = re.compile(rf"\b(WHERE|AND|ON|WHEN) ((?:[^()\"'\n]|'[^'\"\n]*'|\([^()\"\n]*\))+?){_NEXT}")
_BEFORE = re.compile(r"\b(SELECT|SET|WHERE|AND|OR|ON|WHEN|BETWEEN|VALUES|NOT)\b")
_OTHERS = {
    "<=": "<", "<": "<=", ">=": ">", ">": ">=", "=": "<>", "<>": "=", "AND": "OR", "OR": "AND", "NOT EXISTS": "EXISTS",
    "EXISTS": "NOT EXISTS", "IS NULL": "IS NOT NULL", "IS NOT NULL": "IS NULL", "max(": "min(", "min(": "max(",
    " DESC": "", "IN (": "NOT IN (", "NOT IN (": "IN (",
}  # fmt: skip
_WORD = re.compile(
    r"(?<![<>=|!])(?:<=|>=|<>|<|>|=)(?![<>=|])|\b(?:AND|OR|NOT EXISTS|EXISTS|IS NOT NULL|IS NULL)\b"
    r"|\b(?:NOT IN|IN|max|min) ?\(| DESC\b"
)
_FOR_THE_INDEX = re.compile(r"kind <> 'progress'")
"""Beside `kind = …` it only says which index may be used."""


def sql_changes_of(source: str) -> list[Change]:
    """Every change of SQL that can be made in a module, in the order of its text."""
    found: set[Change] = set()
    tree = ast.parse(source)
    documents = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    parts = [part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values]
    left_out = {inner for node in [*documents, *parts] for inner in ast.walk(node)}
    for node, here, start, end in places(tree, source):
        for place, stop, other in _texts(source[start:end]) if node not in left_out and _is_sql(node) else ():
            line = source.count("\n", 0, start + place) + 1
            found.add(Change(line, here, "sql", start + place, start + stop, other))
    return sorted(found, key=lambda one: (one.start, one.end, one.text))


def names_changed(source: str, change: Change) -> set[str]:
    """The module's own names whose text a change makes another, those too that are put together from them."""
    assigned: dict[str, ast.stmt] = {}
    names: set[str] = set()
    for one in ast.parse(source).body:
        targets = one.targets if isinstance(one, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name):
                assigned[target.id] = one
                if one.lineno in change.lines:
                    names.add(target.id)
    while more := {name for name, one in assigned.items() if name not in names and _uses(one, names)}:
        names |= more
    return names


def _uses(statement: ast.stmt, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(statement))


def _is_sql(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_STATEMENT.search(node.value))
    return isinstance(node, ast.JoinedStr) and bool(_STATEMENT.search(ast.unparse(node)))


def _texts(text: str) -> Iterator[tuple[int, int, str]]:
    for make in _CHANGES:
        yield from make(text)


def _conditions(text: str) -> Iterator[tuple[int, int, str]]:
    """A condition that always holds; its parameters stay."""
    for found in _CONDITION.finditer(text):
        condition = found[2].strip()
        is_none = condition == "true" or _before(text, found.start()) == "BETWEEN"
        if not is_none and not _FOR_THE_INDEX.search(condition):
            yield found.start(), found.end(), f"{found[1]} ({condition} OR true)"


def _words(text: str) -> Iterator[tuple[int, int, str]]:
    for found in _WORD.finditer(text):
        before = _before(text, found.start())
        is_value = found[0] == "=" and before in ("SET", "SELECT", "")
        is_range = found[0] == "AND" and before == "BETWEEN"
        for_the_index = _FOR_THE_INDEX.search(text[max(0, found.start() - 6) : found.end() + 20])
        if not (is_value or is_range or for_the_index):
            yield found.start(), found.end(), _OTHERS[found[0]]


def _before(text: str, place: int) -> str:
    """The keyword that rules a place."""
    words = _BEFORE.findall(text, 0, place)
    return words[-1] if words else ""


_CHANGES: tuple[Callable[[str], Iterator[tuple[int, int, str]]], ...] = (_conditions, _words)
