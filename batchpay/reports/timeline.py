"""Rows over time as bars: how many rows of each state were answered in each step of time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

BARS_MAX = 60
_TICKS = 5
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a bar, of one state, measured from the top of a chart 100 high."""

    kind: str
    y: str
    height: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One step of time."""

    x: int
    title: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Key:
    """A color and what it means."""

    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The chart: bars one wide, 100 high."""

    width: int
    most: int
    """Rows of the highest bar."""
    step: str
    zone: str
    ticks: Sequence[str]
    bars: Sequence[Bar]
    keys: Sequence[Key]


def timeline_of(seconds: Mapping[tuple[int, str], int], labels: Mapping[str, str]) -> Timeline | None:
    """Make the chart from rows by (second since 1970, kind); `labels` names the kinds from the bottom of a bar up."""
    if not seconds:
        return None
    first, last = (edge(second for second, _ in seconds) for edge in (min, max))
    step = _step(first, last)
    begin = first - first % step
    width = max((last - begin) // step + 1, 8)
    columns: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for (second, kind), rows in seconds.items():
        columns[(second - begin) // step][kind] += rows
    most = max(column.total() for column in columns.values())
    used = {kind for _, kind in seconds}
    pattern = _pattern(step, begin, begin + width * step)
    bars = [
        Bar(x, _title(begin + x * step, column, labels, pattern), _pieces(column, labels, most))
        for x, column in sorted(columns.items())
    ]
    return Timeline(
        width=width,
        most=most,
        step=_step_text(step),
        zone=f"{_local(first):%Z}",
        ticks=[f"{_local(begin + step * width * tick // (_TICKS - 1)):{pattern}}" for tick in range(_TICKS)],
        bars=bars,
        keys=[Key(kind, label) for kind, label in labels.items() if kind in used],
    )


def _step(first: int, last: int) -> int:
    """Return the smallest round step that needs no more than BARS_MAX bars."""
    span = last - first + 1
    for step in _STEPS_S:
        if span <= step * (BARS_MAX - 1):
            return step
    return _DAY_S * -(-span // (_DAY_S * (BARS_MAX - 1)))


def _pieces(column: Counter[str], labels: Mapping[str, str], most: int) -> list[Piece]:
    pieces = []
    top = 100.0
    for kind in labels:
        if column[kind]:
            height = max(100 * column[kind] / most, 0.8)  # a single row among thousands is visible, too
            top = max(top - height, 0.0)
            pieces.append(Piece(kind, f"{top:.2f}", f"{height:.2f}"))
    return pieces


def _title(second: int, column: Counter[str], labels: Mapping[str, str], pattern: str) -> str:
    parts = [f"{column[kind]:,} {label}" for kind, label in labels.items() if column[kind]]
    return f"{_local(second):{pattern}}: {', '.join(parts)}"


def _pattern(step: int, begin: int, end: int) -> str:
    if step >= _DAY_S:
        return "%Y-%m-%d"
    clock = "%H:%M:%S" if step < 60 else "%H:%M"
    return clock if _local(begin).date() == _local(end).date() else f"%m-%d {clock}"


def _step_text(step: int) -> str:
    for unit, name in ((_DAY_S, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if step % unit == 0:
            count = step // unit
            return f"one {name}" if count == 1 else f"{count} {name}s"
    raise AssertionError("every step is whole seconds")


def _local(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC).astimezone()
