"""The changes: found in a module's syntax tree, made in its text, so that a diff shows a person one line.

Each takes a node and gives other texts for its place, or none.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SUMS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_STATES = ("REJECTED", "PENDING", "SENDING", "ACCEPTED", "DECLINED", "IN_DOUBT")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a module's text."""

    line: int
    lines: frozenset[int]
    """From the start of its statement to its end: a test that executes one of them meets the change."""
    kind: str
    start: int
    """Place in the text, in characters."""
    end: int
    text: str

    def applied_to(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def told(self, source: str) -> str:
        """The change in one line that stays the same when lines move: its own text, and what is there instead."""
        return f"{source.splitlines()[self.line - 1].strip()} => {self.text}"


def changes_of(source: str) -> list[Change]:
    """Every change that can be made in a module, in the order of its text."""
    found: set[Change] = set()
    tree = ast.parse(source)
    left_out = _unseen(tree)
    for node, here, start, end in places(tree, source):
        for kind, text in () if node in left_out else _texts(node):
            if source[start:end] != text:
                found.add(Change(node.lineno, here, kind, start, end, text))
    return sorted(found, key=lambda one: (one.start, one.end, one.kind, one.text))


def places(tree: ast.AST, source: str) -> Iterator[tuple[ast.expr | ast.stmt, frozenset[int], int, int]]:
    """Every expression and statement: the lines of its statement up to its end, its place in the text."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node, begin in _with_statements(tree):
        last = node.end_lineno or 0
        yield (
            node,
            frozenset(range(begin, last + 1)),
            place(node.lineno, node.col_offset),
            place(last, node.end_col_offset or 0),
        )


def _with_statements(node: ast.AST, begin: int = 1) -> Iterator[tuple[ast.expr | ast.stmt, int]]:
    """Every expression and statement, with the line where its statement begins."""
    for inner in ast.iter_child_nodes(node):
        inner_begin = inner.lineno if isinstance(inner, ast.stmt) else begin
        if isinstance(inner, ast.expr | ast.stmt):
            yield inner, inner_begin
        yield from _with_statements(inner, inner_begin)


def _unseen(tree: ast.AST) -> set[ast.AST]:
    """Nodes that change nothing at run time, or only a message's words: that it is raised at all is for `_guard`."""
    return {inner for node in ast.walk(tree) for outer in _outside(node) if outer for inner in ast.walk(outer)}


def _outside(node: ast.AST) -> Iterator[ast.AST | None]:
    """What of a node is left alone: docstrings, annotations, decorators, what only the type checker reads, messages."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.FunctionDef):
        yield node.returns
        yield from (
            argument.annotation for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        )
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation
    elif isinstance(node, ast.Call):  # zip(strict=True) states what the programmer knows, as `assert` does
        yield from (keyword.value for keyword in node.keywords if keyword.arg == "strict")
    says = isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert)
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    is_for_types |= isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases)
    if says or documents or is_for_types:
        yield node


def _texts(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    for kind, change in _CHANGES:
        for other in change(node):
            yield kind, ast.unparse(other)


def _comparison(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[number] = _COMPARISONS[type(operator)]()
            yield other


def _boolean(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BoolOp):
        other = copy.deepcopy(node)
        other.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield other
        for number in range(len(node.values)):
            fewer = copy.deepcopy(node)
            del fewer.values[number]
            yield fewer if len(fewer.values) > 1 else fewer.values[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def _number(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.BinOp) and type(node.op) in _SUMS and not isinstance(node.left, ast.JoinedStr):
        other = copy.deepcopy(node)
        other.op = _SUMS[type(node.op)]()
        yield other


def _condition(node: ast.AST) -> Iterator[ast.AST]:
    """A condition that always holds, or never."""
    if isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse


def _without(node: ast.AST) -> Iterator[ast.AST]:
    """A statement that is left out, a loop that ends otherwise, an `if` that never holds."""
    if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.YieldFrom)) or isinstance(
        node, ast.AugAssign
    ):
        yield ast.Pass()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Return) and node.value is not None and not _is_nothing(node.value):
        yield ast.Return(ast.Constant(None))


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _arguments(node: ast.AST) -> Iterator[ast.AST]:
    """Two arguments that change places, as who and why might."""
    if isinstance(node, ast.Call):
        for number in range(len(node.args) - 1):
            first, second = node.args[number : number + 2]
            if isinstance(first, ast.Name | ast.Attribute) and isinstance(second, ast.Name | ast.Attribute):
                other = copy.deepcopy(node)
                other.args[number], other.args[number + 1] = other.args[number + 1], other.args[number]
                yield other


def _state(node: ast.AST) -> Iterator[ast.AST]:
    """Another state of a row."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id != "State":
        return
    if node.attr in _STATES:
        other = copy.deepcopy(node)
        other.attr = _STATES[(_STATES.index(node.attr) + 1) % len(_STATES)]
        yield other


def _guard(node: ast.AST) -> Iterator[ast.AST]:
    """A guard that refuses nothing: `if …: raise` and `if …: return` without their condition ever being true."""
    if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise | ast.Return):
        yield ast.Pass()


_CHANGES: tuple[tuple[str, Callable[[ast.AST], Iterator[ast.AST]]], ...] = (
    ("comparison", _comparison),
    ("boolean", _boolean),
    ("number", _number),
    ("condition", _condition),
    ("left out", _without),
    ("arguments", _arguments),
    ("state", _state),
    ("guard", _guard),
)
