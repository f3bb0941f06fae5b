"""What a column of a written table holds: a workbook shows it so, CSV and Parquet have the text alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """How the cells of a column look in a workbook; a text that is not of the kind stays a text."""

    TEXT = auto()
    """Text, whatever it looks like: identifiers, accounts, names."""
    AMOUNT = auto()
    DIFFERENCE = auto()
    """An amount that may be less than nothing."""
    INTEGER = auto()
    INSTANT = auto()
    """A time in UTC, given as ISO 8601."""
    STATE = auto()
    WRAP = auto()
    """A long text, in lines."""
    INPUT = auto()
    """A cell that a person fills in."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `choices` are offered as a drop-down."""

    name: str
    kind: Kind = Kind.TEXT
    choices: Sequence[str] = ()


def columns(header: Iterable[str], kinds: Mapping[str, Kind]) -> list[Column]:
    """Columns by name; those without a kind are text."""
    return [Column(name, kinds.get(name, Kind.TEXT)) for name in header]
