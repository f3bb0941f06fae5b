"""What a column of a written table holds: a workbook formats it accordingly, CSV and Parquet have only the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """How the cells of a column look in a workbook; a text that is not of the kind stays text."""

    TEXT = auto()
    """Text, whatever it looks like: identifiers, accounts, names."""
    AMOUNT = auto()
    DIFFERENCE = auto()
    """An amount that may be negative."""
    INTEGER = auto()
    INSTANT = auto()
    """A time in UTC, given as ISO 8601."""
    STATE = auto()
    WRAP = auto()
    """A long text, wrapped."""
    INPUT = auto()
    """A cell that a person fills in."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `choices` are offered as a drop-down."""

    name: str
    kind: Kind = Kind.TEXT
    choices: Sequence[str] = ()


def columns(header: Iterable[str], kinds: Mapping[str, Kind]) -> list[Column]:
    """Return columns by name; those without a kind are text."""
    return [Column(name, kinds.get(name, Kind.TEXT)) for name in header]
