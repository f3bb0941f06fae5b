"""A map for another system's file: proposed from names and cells, completed by a person, shown on the first rows."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from batchpay.errors import WrongUse
from batchpay.intake.maps.draft import Draft, Question
from batchpay.intake.maps.evidence import evidence_of
from batchpay.intake.maps.formats import Pattern
from batchpay.intake.maps.loading import mapping_of
from batchpay.intake.maps.mapping import Mapping as ColumnMap
from batchpay.intake.maps.proposal import Unmapped, finished, propose
from batchpay.intake.source import Source, open_source
from batchpay.payment import Totals
from batchpay.schemas import checks
from batchpay.schemas.columns import ACCOUNT, COLUMNS, DATES, DIRECTION, MONEY, ROUTING
from batchpay.text import column_name, masked, row_count, totals_json
from batchpay.writing.atomic import PendingFile

ROWS_MAX = 100_000
"""How many rows are examined."""
_STARS = "****"
VALUES_MAX = 12
"""How many values of a column are totaled apart."""
LEFT_OUT_BY_MAP = "left out"
SHOWN = 3
"""How many rows are shown as they would be sent."""
_PLAIN = {ROUTING: "[0-9]{9}", **dict.fromkeys(MONEY, r"[0-9]{1,8}\.[0-9]{2}")}
"""Cells that are certainly what their column says."""


class Asker(Protocol):
    """Answers questions, or leaves them open."""

    def answer(self, question: Question, number: int, open_count: int) -> str:
        """Return a choice's text, or another text if the question asks for one; blank leaves it open.

        It is the question with this number, and so many are open with it.
        """

    def take_back(self, proposed: Proposed) -> str | None:
        """Return the key of an answer that is taken back, and asked again; None if the result is right."""


@dataclass(frozen=True, slots=True)
class FileToMap:
    """Which file a map is for, and how it is read."""

    path: str
    format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    include_hidden: bool = False


@dataclass(frozen=True, slots=True)
class MapColumn:
    """What a column of the file becomes."""

    name: str
    targets: tuple[str, ...]
    """Empty if it is carried into the results as is, or left out."""
    why: str
    evidence: str | None = None
    """What one that is not used says about the payments: `date`, `status`; None where it says nothing."""


@dataclass(frozen=True, slots=True)
class MapTotal:
    """The examined rows with one value of a column, or of the words that leave rows out."""

    by: str
    value: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class Proposed:
    """A map for a file, with what is open and what it makes of the first rows."""

    file: str
    sheet: str | None
    rows: int
    """How many rows were examined."""
    is_whole: bool
    """Whether these are all rows of the file."""
    columns: tuple[MapColumn, ...]
    draft: Draft
    answers: dict[str, str]
    """What was answered, by the questions' keys, in their order."""
    preview: tuple[dict[str, str], ...]
    """The first rows by column, account numbers masked; a fault is in brackets."""
    totals: tuple[MapTotal, ...]
    """What the examined rows total by direction, currency, word of the status, and day."""
    written: Path | None = None
    encoding: str | None = None
    asked_sheet: str | None = None
    """How a person said that the file is read, which a check must be told as well."""

    @property
    def exit_code(self) -> int:
        """Return 8 while something must be answered before a row can be sent, else 0."""
        return 8 if self.draft.needed else 0

    @property
    def next_command(self) -> str:
        """Return the command to run with the map."""
        asked = (("--map", str(self.written or "FILE")), ("--encoding", self.encoding), ("--sheet", self.asked_sheet))
        options = (f"{option} {shlex.quote(value)}" for option, value in asked if value)
        return f"batchpay validate {shlex.quote(self.file)} {' '.join(options)}"

    def as_json(self) -> dict[str, Any]:
        """Return the map with what is open and its first rows, as CONTRACT.md says."""
        return {
            "file": self.file,
            "sheet": self.sheet,
            "rows": self.rows,
            "whole_file": self.is_whole,
            "columns": [
                {
                    "column": masked(one.name),
                    "targets": list(one.targets),
                    "why": one.why or None,
                    "evidence": one.evidence,
                }
                for one in self.columns
            ],
            "map": self.draft.tables,
            "entries": [
                {"table": one.table, "entry": one.line, "why": one.why or None}
                for one in self.draft.entries
                if one.table not in ("columns", "split")
            ],
            "questions": [
                {
                    "about": one.about,
                    "question": one.text,
                    "choices": [choice.text for choice in one.choices],
                    "typed": one.typed is not None,
                    "needed": one.is_needed,
                }
                for one in self.draft.questions
            ],
            "answers": self.answers,
            "first_rows": list(self.preview),
            "totals": [{"by": one.by, "value": one.value, **totals_json(one.totals)} for one in self.totals],
            "written": str(self.written) if self.written else None,
            "exit_code": self.exit_code,
        }


def propose_map(
    file: FileToMap, asker: Asker | None, write: Path | None, answers: Mapping[str, str] | None = None
) -> Proposed:
    """Propose a map, ask what is open if there is somebody to ask, and write it unless a file is there already.

    `answers` are earlier ones, by the questions' keys. Raises FileRefused if the file can't be read, WrongUse if the
    map would replace a file.
    """
    if write is not None and os.path.lexists(write):
        raise _taken(write)
    cells, rows, is_whole, name, sheet = _read(file)
    given, back = dict(answers or {}), None
    while True:
        draft = propose(cells)
        answered = _ask(draft, asker, given)
        finished(draft, list(cells))
        columns, (preview, totals) = _columns(draft, cells), _result(file, draft)
        proposed = Proposed(
            name, sheet, rows, is_whole, columns, draft, answered, preview, totals, write, file.encoding, file.sheet
        )
        back = asker.take_back(proposed) if asker is not None else None
        if back is None:
            break
        del given[back]
    if write is not None:
        _write(write, proposed)
    return proposed


def _read(file: FileToMap) -> tuple[dict[str, pl.Series], int, bool, str, str | None]:
    """Return the cells of the file's columns by their names, as far as they are examined."""
    frames: list[pl.DataFrame] = []
    rows, is_whole = 0, True
    with _open(file, Unmapped("a map in the making")) as source:
        names = dict(zip(source.own_columns, source.own_header, strict=True))
        for chunk in source.chunks():
            frames.append(chunk.select(*names))
            rows += chunk.height
            if rows >= ROWS_MAX:
                is_whole = False
                break
        named = [(place, name) for place, name in names.items() if name.strip()]
        whole = pl.concat(frames) if frames else pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        return {name: whole[place] for place, name in named}, rows, is_whole, source.name, source.sheet


def _open(file: FileToMap, mapping: ColumnMap) -> Source:
    return open_source(**asdict(file), mapping=mapping, required=())


def _ask(draft: Draft, asker: Asker | None, given: dict[str, str]) -> dict[str, str]:
    """Answer the questions, and those that an answer raises; return the answers that were used.

    What is not given is asked if there is somebody to ask; what is left open is not asked again.
    """
    left: list[Question] = []
    used: dict[str, str] = {}
    while asked := [question for question in draft.questions if question not in left and question.is_open]:
        question = asked[0]
        if asker is not None and question.key not in given:
            given[question.key] = asker.answer(question, len(used) + len(left) + 1, len(asked))
        if draft.take(question, given.get(question.key, "")):
            used[question.key] = given[question.key]
        else:
            left.append(question)
    return used


def _columns(draft: Draft, cells: Mapping[str, pl.Series]) -> tuple[MapColumn, ...]:
    targets = draft.targets
    found = {name: (targets.get(name, []), "") for name in cells}
    for entry in draft.entries:
        if entry.table == "columns" or (entry.table, entry.key) == ("rows", "column"):
            for name in entry.value if isinstance(entry.value, list) else [entry.value]:
                found[name] = (found[name][0], entry.why)
        elif entry.table == "templates":
            for name in Pattern(str(entry.value)).names:
                found[name] = (found[name][0], found[name][1] or f"part of {entry.key}")
    for name in cells:
        if name in COLUMNS and not found[name][0] and not found[name][1]:
            found[name] = ([name], "it has the column's own name")
    return tuple(
        MapColumn(name, tuple(targets), why, None if targets or why else evidence_of(name, cells[name].drop_nulls()))
        for name, (targets, why) in found.items()
    )


def _result(file: FileToMap, draft: Draft) -> tuple[tuple[dict[str, str], ...], tuple[MapTotal, ...]]:
    """Return the first rows as the map renders them, without what an outsider may not see, and what all rows total."""
    mapping = mapping_of(draft.tables, "the map")
    shown: list[dict[str, str]] = []
    groups: dict[tuple[str, str], Totals] = {}
    rows = 0
    with _open(file, mapping) as source:
        inner = dict(zip(source.own_header, source.own_columns, strict=True))
        words = (
            {} if mapping.rows is None else {f"column {column_name(mapping.rows.column)}": inner[mapping.rows.column]}
        )
        by = {name: pl.col(name) for name in (DIRECTION, *DATES) if name in source.columns}
        by |= {told: pl.col(name) for told, name in words.items()}
        has_currency = "currencyCode" in source.columns
        by["currencyCode"] = pl.col("currencyCode").fill_null("USD") if has_currency else pl.lit("USD")
        for chunk in source.chunks():
            for row in chunk.head(max(0, SHOWN - rows)).rows(named=True):
                texts = {name: text for name in COLUMNS if name in source.columns if (text := _shown(name, row))}
                shown.append(texts)
            rows += chunk.height
            for told, place in by.items() if "amount" in source.columns else ():
                cents = checks.cents(pl.col("amount")).cast(pl.Int128)
                counted = chunk.group_by(place.fill_null("").alias("value")).agg(pl.len(), cents.sum().alias("cents"))
                for value, count, sum_cents in counted.iter_rows():
                    groups[told, value] = groups.get((told, value), Totals()) + Totals(count, int(sum_cents))
            if rows >= ROWS_MAX:
                break
        left_out = {(LEFT_OUT_BY_MAP, word): totals for word, totals in source.left_out.items()}
    found = [MapTotal(by, masked(value), totals) for (by, value), totals in sorted({**groups, **left_out}.items())]
    return tuple(shown), tuple(_without_many(found))


def _without_many(found: list[MapTotal]) -> Iterator[MapTotal]:
    """Yield the totals; those of a column with many values, such as days, in one line."""
    for by, some in groupby(found, lambda one: one.by):
        values = list(some)
        if len(values) > VALUES_MAX:
            total = sum((one.totals for one in values), Totals())
            values = [MapTotal(by, f"{len(values):,} values, {values[0].value} to {values[-1].value}", total)]
        yield from values


def _shown(name: str, row: dict[str, Any]) -> str | None:
    text, fault = row[name], row.get(f"_fault.{name}")
    if name == ACCOUNT and text is not None:
        text = f"{_STARS}{text[-4:]}" if len(text) > 4 else _STARS
    elif text is not None and not re.fullmatch(_PLAIN.get(name, "(?!)"), text):
        # Anything else with that many digits may be an account number in the wrong column.
        text = masked(text)
    if fault is not None:
        text = f"[{fault.partition(': ')[2] or fault}]"
    return None if text is None else str(text)


def _write(path: Path, proposed: Proposed) -> None:
    """Write the map only if no file is there, not even one that appeared meanwhile."""
    looked_at = f"{row_count(proposed.rows)} examined"
    headline = [
        f"A map for {Path(proposed.file).name} ({looked_at}), proposed by batchpay map. Check it before use.",
        "Answers to open questions are commented out under their table: remove the # from the correct line.",
        "To take an answer back, correct its line here, or propose another map with batchpay map.",
    ]
    pending = PendingFile(path)
    with pending.abandoned_on_error():
        pending.file.write(proposed.draft.toml(headline).encode())
    if not pending.commit_new():
        pending.abandon()
        raise _taken(path)


def _taken(path: Path) -> WrongUse:
    return WrongUse(f"{path} already exists: a map is never overwritten, name another file")
