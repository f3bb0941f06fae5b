"""The parts of a report page, and the page made of them: one HTML file that needs no other file.

Everything shown goes through autoescaping, and characters that are invisible or reverse the direction of a text are
spelled out. The page's own policy allows no script, style or address except the two it contains.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from batchpay import __version__
from batchpay.payment import Totals
from batchpay.reports.timeline import Timeline
from batchpay.text import local_time, money, place_word, printable, row_count
from batchpay.writing.atomic import atomic_writer
from batchpay.writing.stream import Stream

_TEXT_CHARACTERS_MAX = 300
_KEPT_SPACES = "\u00a0\u202f"


@dataclass(frozen=True, slots=True)
class Share:
    """Rows and cents under one heading; `kind` chooses the color."""

    kind: str
    label: str
    totals: Totals
    percent: str
    share: str


@dataclass(frozen=True, slots=True)
class DirectionTotals:
    """Rows and cents of one direction."""

    label: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class Reason:
    """Why rows are what they are, and how many."""

    kind: str
    text: str
    rows: int
    percent: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the list; `numeric` ones are sorted as numbers."""

    label: str
    numeric: bool = False
    number: bool = False
    """Whether it is aligned right, as amounts are."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the list; `key` is what it is sorted by, if that is not its text."""

    label: str
    text: str
    key: str | int | None = None
    number: bool = False
    whole: bool = False
    """Whether it must not be broken into lines."""
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row of the list."""

    kind: str
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class ListedPart:
    """A few hundred rows of a long list, with their totals."""

    rows: Sequence[ListedRow]
    amount: str


@dataclass(frozen=True, slots=True)
class KindCount:
    """How many rows of the list are of a kind."""

    kind: str
    label: str
    rows: int


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """Who did what, when and why."""

    when: str
    what: str
    who: str
    why: str


def _made() -> str:
    return f"Created {local_time(datetime.now(UTC))} by batchpay {__version__}"


@dataclass(slots=True)
class Page:
    """What a page shows, ready to be rendered."""

    title: str
    file: str
    facts: Sequence[tuple[str, str]]
    mood: str
    """`fine`, `doubt`, `attention` or `waiting`: the color of the headline."""
    headlines: Sequence[str]
    total: Totals
    directions: Sequence[DirectionTotals]
    outcomes: Sequence[Share]
    sum_word: str
    """What a total of all rows is called."""
    currency: str = ""
    timeline: Timeline | None = None
    reasons: Sequence[Reason] = ()
    reasons_left: int = 0
    reasons_counted: str = "rows"
    columns: Sequence[Column] = ()
    attention: Sequence[ListedRow] = ()
    attention_title: str = "Rows that need attention"
    attention_left: int = 0
    attention_kinds: Sequence[KindCount] = ()
    more_at: str = ""
    settled: Sequence[HistoryLine] = ()
    """What people decided about rows in doubt."""
    accepted_columns: Sequence[Column] = ()
    accepted: Sequence[ListedPart] = ()
    accepted_left: int = 0
    history: Sequence[HistoryLine] = ()
    made: str = field(default_factory=_made)


def write(page: Page, path: str | Path | Stream) -> None:
    """Render the page and write it whole or not at all, mode 0600; raises NotUsable."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    package = files("batchpay.reports")
    style, script, template = (package.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js", "html"))
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters.update(shown=shown, money=money, count=counted, rows=row_count)
    html = environment.from_string(template).stream(
        page=page,
        # The two files are the program's own, so they go into the page as is.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    html.enable_buffering(500)
    with atomic_writer(path) as file:
        html.dump(file, encoding="utf-8")


def shown(text: object) -> str:
    """Return a text as a page shows it: bounded, and with invisible or direction-reversing characters spelled out."""
    return printable(str(text), keep=_KEPT_SPACES, characters_max=_TEXT_CHARACTERS_MAX)


def counted(count: int) -> str:
    """Return a number for people: 12,345."""
    return f"{count:,}"


def share_of(kind: str, label: str, totals: Totals, of_rows: int) -> Share:
    """Return rows under one heading with their share of all; what exists is visible and never rounded to 0 or 100."""
    percent = 100 * totals.rows / of_rows if of_rows else 0.0
    width = max(percent, 0.6) if totals.rows else 0.0
    if 0 < percent < 0.1:
        text = "under 0.1 %"
    elif 99.9 < percent < 100:
        text = "over 99.9 %"
    else:
        text = f"{percent:.1f} %"
    return Share(kind, label, totals, f"{width:.2f}", text)


def with_place(columns: Sequence[Column], file: str) -> tuple[Column, ...]:
    """Name the column of places as the file's users do: lines of a CSV, rows of a sheet."""
    return tuple(replace(column, label=place_word(file)) if column.label == "row" else column for column in columns)


def short_time(moment: datetime | None) -> str:
    """Return a time in a list whose heading has the year, in this machine's time zone, which it names."""
    return "" if moment is None else f"{moment.astimezone():%m-%d %H:%M:%S %Z}"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
