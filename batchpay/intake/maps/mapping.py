"""A map (`--map FILE`, TOML) from another system's columns and words to ours. All mapped values go through the rules.

`[columns]` renames (`"Routing #" = "achRoutingNumber"`; a list for several of ours; `""` leaves a column out).
`[split]` splits a cell (`"Payee" = "{billingFirstName} {billingLastName}"`), `[templates]` combines cells
(`paymentId = "{Date}-{Vendor}-{Line}"`). `[values.COLUMN]` translates exact values (`"Checking" = "CHECKING"`).
`[formats.COLUMN]` states how amounts and dates are written. `[defaults]` fills blank cells and missing columns;
`shipping = "billing"` there copies the billing names where the shipping names are blank. `[fixed]` sets a value in
every row, whatever the file says.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from batchpay.errors import FileRefused, did_you_mean
from batchpay.intake.header import OWN, UNNAMED, CellForm, Header, canonical_name
from batchpay.intake.maps.formats import DECIMALS, MEANINGS, REFUSED, THOUSANDS, DateFormat, NumberFormat, Pattern
from batchpay.intake.small_tables import read_toml
from batchpay.schemas.columns import (
    ACCOUNT,
    COLUMNS,
    DATES,
    DIGITS_MATTER,
    DIRECTION,
    FLAGS,
    MONEY,
    PAYMENT_ID,
    ROUTING,
)
from batchpay.text import column_name

SHIPPING_FROM_BILLING = {"shippingFirstName": "billingFirstName", "shippingLastName": "billingLastName"}
_DIGITS_FIRST = (ROUTING, ACCOUNT, *DIGITS_MATTER)
"""The columns whose rules a number follows if it maps to several columns."""
_ISO = "%Y-%m-%d"


@dataclass(frozen=True)
class Mapping:
    """A loaded map; columns are ours unless said otherwise."""

    name: str
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By the file's name; empty where it is left out."""
    defaults: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    shipping_from_billing: bool = False
    split: dict[str, tuple[Pattern, ...]] = field(default_factory=dict)
    """By the file's name; all patterns of a column name the same columns of ours."""
    templates: dict[str, Pattern] = field(default_factory=dict)
    """Their patterns name the file's columns."""
    numbers: dict[str, NumberFormat] = field(default_factory=dict)
    dates: dict[str, DateFormat] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of what the map does, whatever its file is called and however it is laid out."""
        content = asdict(self)
        del content["name"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def sources(self) -> tuple[str, ...]:
        """The file's columns that the map names."""
        in_templates = (name for pattern in self.templates.values() for name in pattern.names)
        return tuple(dict.fromkeys((*self.columns, *self.split, *in_templates)))

    @property
    def header_names(self) -> tuple[str, ...]:
        """The names, besides ours, by which the header of a sheet is recognized."""
        return self.sources

    @property
    def signed(self) -> NumberFormat | None:
        """The format of amounts whose sign determines the direction, if there is one."""
        found = self.numbers.get("amount")
        return None if found is None or found.negative == REFUSED else found

    def own_header(self, names: Sequence[str], place: str) -> Header:
        """Return the file's own columns; raises FileRefused if one that the map names is missing, or one is twice."""
        twice = sorted({name for name in names if name.strip() and names.count(name) > 1})
        if twice:
            raise FileRefused(f"{place}the header has the same column twice: {', '.join(map(column_name, twice))}")
        absent = [name for name in self.sources if name not in names]
        if absent:
            told = ", ".join(column_name(name) + did_you_mean(name, names) for name in absent)
            in_id = self.templates[PAYMENT_ID].names if PAYMENT_ID in self.templates else ()
            if set(absent) & set(in_id):
                told += (
                    ". A paymentId can be made of the file's cells alone: the position of a row changes when another "
                    "is inserted before it, and the same payment would be sent again under another paymentId"
                )
            raise FileRefused(f"{place}{self.name} maps columns that the file does not have: {told}")
        internal = tuple(_own_name(name, at) for at, name in enumerate(names))
        note_at = names.index("_note") if "_note" in names else None
        return Header(tuple(names), internal, (), (), note_at)

    def mapped_names(self, own: Header) -> list[str]:
        """Return the header as the rules see it: renamed, and with the columns that the map itself adds."""
        names: list[str] = []
        for name in own.names:
            names += self.columns.get(name, (name,)) or (f"_{name}",)
        names += [target for patterns in self.split.values() for target in patterns[0].names]
        names += self.templates
        names += [DIRECTION] if self.signed else []
        added = [*self.defaults, *self.fixed, *(SHIPPING_FROM_BILLING if self.shipping_from_billing else ())]
        return [*names, *(name for name in dict.fromkeys(added) if name not in map(canonical_name, names))]

    def targets_of(self, name: str) -> tuple[str, ...]:
        """Return the columns that one of the file's maps to directly: its own name where the map does not name it."""
        return self.columns[name] if name in self.columns else (canonical_name(name),)

    def own_of(self, own: Header) -> dict[str, str]:
        """Return which own column, by its name in a chunk, each mapped column comes from: the first of several."""
        inner = {name: inner for name, inner in zip(own.names, own.internal, strict=True) if inner is not None}
        found = {target: inner[pattern.names[0]] for target, pattern in self.templates.items()}
        found |= {target: inner[name] for name, patterns in self.split.items() for target in patterns[0].names}
        found |= {target: place for name, place in inner.items() for target in self.targets_of(name)}
        return found

    def reported_for(self, name: str) -> tuple[str, ...]:
        """Return the columns for which a fault of one of the file's cells is reported; if it is split, the first."""
        split = tuple(patterns[0].names[0] for source, patterns in self.split.items() if source == name)
        made = tuple(target for target, pattern in self.templates.items() if name in pattern.names)
        return tuple(target for target in (*self.targets_of(name), *split, *made) if target not in self.fixed)

    def cell_forms(self, names: Sequence[str]) -> dict[str, CellForm]:
        """Return what the typed cells of the file's columns are to become, by the file's names."""
        return {name: self._cell_form(name) for name in names}

    def _cell_form(self, name: str) -> CellForm:
        targets = self.targets_of(name) if self.columns.get(name, name) else ()
        targets += tuple(target for pattern in self.split.get(name, ())[:1] for target in pattern.names)
        known = [target for target in targets if target in COLUMNS]
        if not known and any(name in pattern.names for pattern in self.templates.values()):
            return CellForm(PAYMENT_ID, date=_ISO)
        target = next((target for target in _DIGITS_FIRST if target in known), [*known, *targets, name][0])
        number, day = self.numbers.get(target), self.dates.get(target)
        return CellForm(target, number.decimal if number else ".", day.pattern if day else None)

    def own_amounts(self, own: Header) -> frozenset[str]:
        """Return the own columns, by their names in a chunk, that have amounts in our form.

        Elsewhere a text that looks like one of ours, written as a number, would be read back as another amount.
        """
        own_of = self.own_of(own)
        return frozenset(own_of[name] for name in MONEY if name in own_of and name not in self.numbers)


def _own_name(name: str, at: int) -> str | None:
    if not name.strip():
        return f"{UNNAMED}{at + 1}"
    return None if name.startswith("_") else OWN + name


_TABLES = ("columns", "split", "templates", "values", "formats", "defaults", "fixed")
_NUMBER_KEYS = ("decimal", "thousands", "currency", "negative")
_CURRENCY = re.compile(r"[^0-9\s.,'()+\-\u2212]{1,4}")


def load_mapping(path: str) -> Mapping:
    """Read a map; raises FileRefused naming whatever in it is unknown or contradictory."""
    return mapping_of(read_toml(path, "column map"), path)


def mapping_of(tables: dict[str, Any], path: str) -> Mapping:
    """Make a map from the tables that its file at `path` has, or would have; raises FileRefused as `load_mapping`."""
    found = _Tables(tables)
    mapping = found.mapping(path)
    problems = [*found.problems, *_contradictions(mapping)]
    if problems:
        raise FileRefused(f"map {path}: {'; '.join(problems)}")
    return mapping


class _Tables:
    """The tables of a map, and what is wrong with them."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self._tables = tables
        self.problems = [
            f"[{column_name(name)}] is unknown{did_you_mean(name, _TABLES)}" for name in tables if name not in _TABLES
        ]

    def mapping(self, path: str) -> Mapping:
        """Make the map from everything that could be read."""
        defaults = self._texts("defaults", self._table("defaults"))
        copies = defaults.pop("shipping", None)
        if copies not in (None, "billing"):
            self.problems.append('[defaults] shipping can only be "billing"')
        columns = {name: self._columns(name, given) for name, given in self._table("columns").items()}
        split = {name: self._patterns(name, given) for name, given in self._table("split").items()}
        templates = {
            name: pattern
            for name, given in self._texts("templates", self._table("templates")).items()
            if (pattern := self._pattern("templates", name, given)) is not None
        }
        values = {
            name: self._texts(f"values.{name}", table)
            for name, table in self._tables_in("values", 'write [values.COLUMN], then "theirs" = "ours"').items()
        }
        numbers, dates = self._formats()
        fixed = self._texts("fixed", self._table("fixed"))
        self._known("columns", [target for targets in columns.values() for target in targets])
        self._known("split", [name for patterns in split.values() for name in (patterns[0].names if patterns else ())])
        for table, names in (("templates", templates), ("values", values), ("defaults", defaults), ("fixed", fixed)):
            self._known(table, names)
        self.problems += [
            f'[values.{column_name(name)}]: "" is not a cell value; [defaults] fills blank cells'
            for name, given in values.items()
            if "" in given
        ]
        return Mapping(
            path,
            columns,
            defaults,
            fixed,
            values,
            copies == "billing",
            {name: patterns for name, patterns in split.items() if patterns},
            templates,
            numbers,
            dates,
        )

    def _table(self, name: str) -> dict[str, Any]:
        table = self._tables.get(name, {})
        if isinstance(table, dict):
            return table
        self.problems.append(f"{name} must be a table: [{name}]")
        return {}

    def _tables_in(self, name: str, form: str) -> dict[str, dict[str, Any]]:
        found = self._table(name)
        wrong = [column_name(one) for one, table in found.items() if not isinstance(table, dict)]
        self.problems += [f"[{name}]: {one} is not a table, {form}" for one in wrong]
        return {one: table for one, table in found.items() if isinstance(table, dict)}

    def _texts(self, table: str, values: dict[str, Any]) -> dict[str, str]:
        wrong = [column_name(name) for name, value in values.items() if not isinstance(value, str)]
        if wrong:
            self.problems.append(f"[{column_name(table)}]: write {', '.join(wrong)} as text in quotation marks")
        return {name: value for name, value in values.items() if isinstance(value, str)}

    def _columns(self, name: str, given: Any) -> tuple[str, ...]:
        targets = given if isinstance(given, list) else [given]
        if not targets or not all(isinstance(target, str) for target in targets):
            self.problems.append(
                f"[columns]: write which batchpay column {column_name(name)} is, in quotation marks, several in "
                "brackets"
            )
            return ()
        if targets == [""]:
            return ()
        return tuple(targets)

    def _patterns(self, name: str, given: Any) -> tuple[Pattern, ...]:
        texts = given if isinstance(given, list) else [given]
        if not texts or not all(isinstance(text, str) for text in texts):
            self.problems.append(
                f'[split]: write how {column_name(name)} is written, like "{{billingFirstName}} {{billingLastName}}"'
            )
            return ()
        found = [self._pattern("split", name, text) for text in texts]
        patterns = tuple(pattern for pattern in found if pattern is not None)
        for pattern in patterns:
            if pattern.adjoining or len(pattern.names) < 2 or len(set(pattern.names)) < len(pattern.names):
                self.problems.append(
                    f"[split]: {column_name(name)} needs two or more batchpay columns, each once, with text between "
                    "them"
                )
                return ()
        if len({frozenset(pattern.names) for pattern in patterns}) > 1:
            self.problems.append(f"[split]: every pattern of {column_name(name)} must have the same columns")
            return ()
        return patterns if len(patterns) == len(found) else ()

    def _pattern(self, table: str, name: str, text: str) -> Pattern | None:
        pattern = Pattern(text)
        if pattern.problem is None:
            return pattern
        self.problems.append(f"[{table}]: the text of {column_name(name)} {pattern.problem}")
        return None

    def _formats(self) -> tuple[dict[str, NumberFormat], dict[str, DateFormat]]:
        numbers: dict[str, NumberFormat] = {}
        dates: dict[str, DateFormat] = {}
        for name, table in self._tables_in("formats", "write [formats.COLUMN]").items():
            if not table:
                continue  # nothing is stated in it yet
            if name not in (*MONEY, *DATES):
                close = did_you_mean(name, (*MONEY, *DATES))
                self.problems.append(f"[formats]: {column_name(name)} contains no amounts and no dates{close}")
                continue
            place = f"[formats.{name}]"
            allowed = ("date",) if name in DATES else _NUMBER_KEYS if name == "amount" else _NUMBER_KEYS[:3]
            given = self._texts(f"formats.{name}", table)
            before = len(self.problems)
            for key in given:
                if key not in allowed:
                    close = did_you_mean(key, allowed)
                    self.problems.append(f"{place}: {column_name(key)} is not one of {', '.join(allowed)}{close}")
            if name in DATES:
                day = DateFormat(given.get("date", ""))
                self.problems += [f"{place}: {day.problem}"] if day.problem else []
                dates |= {name: day} if len(self.problems) == before else {}
                continue
            self.problems += [f"{place}: {problem}" for problem in _number_problems(given)]
            if len(self.problems) == before:
                numbers[name] = NumberFormat(**given)
        return numbers, dates

    def _known(self, table: str, names: Iterable[str]) -> None:
        self.problems += [
            f"[{table}]: {column_name(name)} is not a column{did_you_mean(name, COLUMNS)}"
            for name in names
            if name not in COLUMNS
        ]


def _number_problems(given: dict[str, str]) -> list[str]:
    problems = []
    for key, choices in (("decimal", DECIMALS), ("thousands", ("", *THOUSANDS)), ("negative", MEANINGS)):
        if given.get(key, choices[0]) not in choices:
            told = ", ".join(f'"{choice}"' for choice in choices if choice)
            problems.append(f"{key} can only be {told}{did_you_mean(given[key], choices)}")
    if given.get("decimal", ".") == given.get("thousands"):
        problems.append("decimal and thousands must differ")
    if given.get("currency") and not _CURRENCY.fullmatch(given["currency"]):
        problems.append("currency is one to four characters that no number has, like $ or USD")
    return problems


def _contradictions(mapping: Mapping) -> list[str]:
    """Return statements that can't all be true."""
    problems = []
    ours = [column_name(name) for name in mapping.sources if name.startswith("_")]
    if ours:
        problems.append(f"columns that begin with _ are never read: {', '.join(ours)}")
    problems += [f"{name} is in both [defaults] and [fixed]" for name in mapping.defaults if name in mapping.fixed]
    made = Counter(target for targets in mapping.columns.values() for target in targets)
    made.update(target for patterns in mapping.split.values() for target in patterns[0].names)
    made.update(mapping.templates.keys())
    problems += [f"{name} is made in {count} ways" for name, count in made.items() if count > 1]
    problems += [f"{name} is made of the file's cells and is in [fixed]" for name in made if name in mapping.fixed]
    written = (*mapping.numbers, *mapping.dates)
    problems += [
        f"{name} is in [fixed], so [formats.{name}] reads nothing" for name in written if name in mapping.fixed
    ]
    if mapping.signed is not None:
        elsewhere = [DIRECTION in table for table in (made, mapping.fixed, mapping.defaults, mapping.values)]
        if any(elsewhere):
            problems.append(
                f"{DIRECTION} comes from the sign of the amount ([formats.amount] negative): set it in one place"
            )
    for name, targets in mapping.columns.items():
        if len({_kind(mapping, target) for target in targets}) > 1:
            problems.append(
                f"{column_name(name)} can't be {' and '.join(targets)}: a number, a date and a text are written in "
                "different ways"
            )
    return problems


def _kind(mapping: Mapping, target: str) -> object:
    """Return how a column's cells are written; those of one source must be written the same way."""
    if target in MONEY:
        return mapping.numbers.get(target, NumberFormat()).decimal
    if target in DATES:
        return "date", mapping.dates.get(target)
    return "flag" if target in FLAGS else "text"
