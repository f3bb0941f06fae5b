"""The parts of a report page, and the page made of them: one HTML file that needs no other file.

Everything shown goes through autoescaping, and characters that are invisible or reverse the direction of a text are
spelled out. The page's own policy allows no script, style or address except the two it contains. Who did what to a
batch is read from the ledger's history.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import PLAN_USED, BatchSummary, Event, LedgerRow
from batchpay.payment import State, Totals
from batchpay.schemas.words import called
from batchpay.text import currencies_note, local_time, money, place_word, printable, row_count
from batchpay.version import __version__
from batchpay.writing.atomic import FileOrPath, atomic_writer

BARS_MAX = 60
_TICKS = 5
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Timeline:
    """The chart: bars one wide, 100 high."""

    width: int
    most: int
    """Rows of the highest bar."""
    step: str
    zone: str
    ticks: Sequence[str]
    bars: Sequence[tuple[int, str, Sequence[tuple[str, str, str]]]]
    """For each step of time its place, its title, and its pieces: state, upper end and height of each."""
    keys: Sequence[tuple[str, str]]
    """States, which are colors, and what they are called."""


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
    bars = []
    for x, column in sorted(columns.items()):
        parts = ", ".join(f"{column[kind]:,} {label}" for kind, label in labels.items() if column[kind])
        bars.append((x, f"{_local(begin + x * step):{pattern}}: {parts}", _pieces(column, labels, most)))
    return Timeline(
        width=width,
        most=most,
        step=_step_text(step),
        zone=f"{_local(first):%Z}",
        ticks=[f"{_local(begin + step * width * tick // (_TICKS - 1)):{pattern}}" for tick in range(_TICKS)],
        bars=bars,
        keys=[(kind, label) for kind, label in labels.items() if kind in used],
    )


def _step(first: int, last: int) -> int:
    """Return the smallest round step that needs no more than BARS_MAX bars."""
    span = last - first + 1
    for step in _STEPS_S:
        if span <= step * (BARS_MAX - 1):
            return step
    return _DAY_S * -(-span // (_DAY_S * (BARS_MAX - 1)))


def _pieces(column: Counter[str], labels: Mapping[str, str], most: int) -> list[tuple[str, str, str]]:
    pieces = []
    top = 100.0
    for kind in labels:
        if column[kind]:
            height = max(100 * column[kind] / most, 0.8)  # a single row among thousands is visible, too
            top = max(top - height, 0.0)
            pieces.append((kind, f"{top:.2f}", f"{height:.2f}"))
    return pieces


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


_TEXT_CHARACTERS_MAX = 300
_KEPT_SPACES = "\u00a0\u202f"


@dataclass(frozen=True, slots=True)
class PageColumn:
    """A column of a list; `numeric` ones are sorted as numbers."""

    label: str
    numeric: bool = False
    number: bool = False
    """Whether it is aligned right, as amounts are."""
    whole: bool = False
    """Whether its cells must not be broken into lines."""


ListedRow = tuple[str, Sequence[tuple[str, int | None]]]
"""A row of the list: its kind, and its cells, each a text and what it is sorted by if that is not its text."""


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
    directions: Sequence[tuple[str, Totals]]
    outcomes: Sequence[tuple[str, str, Totals, str, str]]
    """Kind, which is a color, name, rows and cents, and the share of all rows: a bar's width, and words."""
    sum_word: str
    """What a total of all rows is called."""
    currency: str = ""
    timeline: Timeline | None = None
    reasons: Sequence[tuple[str, str, int, str]] = ()
    """Kind and text, how many rows, and the width of the bar."""
    reasons_left: int = 0
    reasons_counted: str = "rows"
    columns: Sequence[PageColumn] = ()
    attention: Sequence[ListedRow] = ()
    attention_title: str = "Rows that need attention"
    attention_left: int = 0
    attention_kinds: Sequence[tuple[str, str, int]] = ()
    """Kinds of these rows, what they are called, and how many are listed."""
    more_at: str = ""
    warned: Sequence[tuple[str, str, LedgerRow]] = ()
    """State and place of rows with warnings."""
    warned_left: int = 0
    settled: Sequence[Act] = ()
    """What people decided about rows in doubt."""
    accepted_columns: Sequence[PageColumn] = ()
    accepted: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()
    """A few hundred rows at a time, with their totals."""
    accepted_left: int = 0
    history: Sequence[Event] = ()
    made: str = field(default_factory=lambda: made_now())


def made_now() -> str:
    """Say when a page is created, and by what."""
    return f"Created {local_time(datetime.now(UTC))} by batchpay {__version__}"


def write(page: Page | Mapping[str, object], path: FileOrPath, template_name: str = "page.html") -> None:
    """Render a page and write it whole or not at all, mode 0600; raises NotUsable."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    package = files("batchpay.reports")
    names = ("page.css", "page.js", template_name)
    style, script, template = (package.joinpath(name).read_text("utf-8") for name in names)
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters.update(shown=shown, money=money, count=counted, rows=row_count, when=local_time)
    html = environment.from_string(template).stream(
        page=page,
        acts=called("event"),
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


def share_of(rows: int, of_rows: int) -> tuple[str, str]:
    """Return a share as a bar's width and in words; what exists is visible and never rounded to 0 or 100."""
    percent = 100 * rows / of_rows if of_rows else 0.0
    width = max(percent, 0.6) if rows else 0.0
    if 0 < percent < 0.1:
        return f"{width:.2f}", "under 0.1 %"
    return f"{width:.2f}", "over 99.9 %" if 99.9 < percent < 100 else f"{percent:.1f} %"


def with_place(columns: Sequence[PageColumn], file: str) -> tuple[PageColumn, ...]:
    """Name the column of places as the file's users do: lines of a CSV, rows of a sheet."""
    return tuple(replace(column, label=place_word(file)) if column.label == "row" else column for column in columns)


def short_time(moment: datetime | None) -> str:
    """Return a time in a list whose heading has the year, in this machine's time zone, which it names."""
    return "" if moment is None else f"{moment.astimezone():%m-%d %H:%M:%S %Z}"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_NAMES_SHOWN = 8
_BECAME = {"accepted": "accepted", "declined": "declined", "pending": "to be sent again"}


@dataclass(frozen=True, slots=True)
class Act:
    """One person's act."""

    who: str
    at: datetime
    why: str | None = None
    rows: str = ""
    """For a decision about rows in doubt which rows became what, `accepted 3, 7-9; declined 12`; else nothing."""


@dataclass(slots=True)
class Story:
    """The acts that a controller asks for, each list the oldest first."""

    submitted: list[Act] = field(default_factory=list)
    """Registrations and releases."""
    prepared_by: list[str] = field(default_factory=list)
    approved: list[Act] = field(default_factory=list)
    seals: list[str] = field(default_factory=list)
    sent: list[Act] = field(default_factory=list)
    """Runs; `why` is what stopped one early."""
    settled: list[Act] = field(default_factory=list)
    """Decisions about rows in doubt."""


_KINDS = {"registered": "submitted", "released": "submitted", "started": "sent", "resolved": "settled"}


def story_of(ledger: Ledger, batch: str) -> Story:
    """Read a batch's history."""
    story = Story()
    for event in ledger.events(batch):
        if event.kind in _KINDS:
            moved = json.loads(event.detail) if event.kind == "resolved" else {}
            rows = "; ".join(f"{_BECAME[state]}: {rows}" for state, rows in moved.items() if state in _BECAME)
            getattr(story, _KINDS[event.kind]).append(Act(event.who, event.at, event.why, rows))
        elif event.kind == PLAN_USED:
            used = json.loads(event.detail)
            story.prepared_by.append(used["prepared by"])
            story.seals.append(used["seal"])
            story.approved += [Act(one["who"], datetime.fromisoformat(one["at"])) for one in used["approvals"]]
    return story


def facts_to_sign(story: Story, batch: BatchSummary) -> list[tuple[str, str]]:
    """Describe which content it is and who was involved: label and text."""
    sheet, accepted = batch.options.get("sheet"), batch.options.get("accepted_suggestions") or {}
    unreadable = batch.options.get("unreadable_amounts") or 0
    in_doubt = batch.by_state[State.IN_DOUBT].rows
    return [
        ("batch", f"{batch.batch}, {batch.environment}"),
        ("content", batch.digest.hex()),
        *([("sheet", str(sheet))] if sheet else []),
        ("gateway", batch.origin),
        ("seal", ", ".join(story.seals) or "none: sent without a plan"),
        ("prepared by", ", ".join(dict.fromkeys(story.prepared_by)) or _acts(story.submitted)),
        ("approved by", _acts(story.approved) or "nobody: no approval was asked for"),
        ("submitted by", _acts(story.submitted)),
        ("sent by", _acts(story.sent) or "not sent yet"),
        ("settled by", _acts(story.settled) or ("nothing yet" if in_doubt else "nothing had to be settled")),
        *([("currencies", several)] if (several := currencies_note(batch.currencies)) else []),
        *([("amounts that can't be read", f"{unreadable:,}; they are in no sum")] if unreadable else []),
        *([("corrected as suggested", ", ".join(f"{name} {n:,}" for name, n in accepted.items()))] if accepted else []),
    ]


def _acts(acts: Sequence[Act]) -> str:
    more = f" and {len(acts) - _NAMES_SHOWN} more" if len(acts) > _NAMES_SHOWN else ""
    return "; ".join(f"{act.who}, {local_time(act.at)}" for act in acts[-_NAMES_SHOWN:]) + more
