"""Reading a map (`--map FILE`, TOML), written `ours = "theirs"` throughout.

`[columns]` renames (`achRoutingNumber = "Routing #"`); `left_out = ["Internal"]` there names columns that are left out,
of the results too; `debit = "Debit"` and `credit = "Credit"` are amounts in two columns. `[rows]` says which rows are
payments (`column = "Status"`, `payments = ["Open"]`, `left_out = ["Voided"]`). `[split]` splits a cell
(`"{billingFirstName} {billingLastName}" = "Payee"`), `[templates]` combines cells
(`paymentId = "{Date}-{Vendor}-{Line}"`). `[values.COLUMN]` translates exact values (`CHECKING = ["Checking"]`).
`[formats.COLUMN]` states how amounts and dates are written. `[defaults]` fills blank cells and missing columns;
`shipping = "billing"` there copies the billing names where the shipping names are blank. `[fixed]` sets a value in
every row, whatever the file says. Older maps have `[columns]`, `[split]` and `[values]` the other way round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from batchpay.errors import FileRefused, WaitingForPerson, did_you_mean
from batchpay.intake.maps.formats import DECIMALS, MEANINGS, THOUSANDS, UNITS, DateFormat, NumberFormat, Pattern
from batchpay.intake.maps.mapping import Mapping, RowWords
from batchpay.intake.small_tables import read_toml
from batchpay.schemas.amount_text import currencies_of
from batchpay.schemas.columns import COLUMNS, DATES, DIRECTION, FLAGS, MONEY
from batchpay.schemas.tables import CHOICES
from batchpay.text import column_name, printable

LEFT_OUT = "left_out"
"""The entry of [columns] that names the file's columns that are left out."""
SIDES = {"debit": "DEBIT", "credit": "CREDIT"}
"""The entries of [columns] for amounts in two columns, by the direction of what is in them."""
_TABLES = ("columns", "rows", "split", "templates", "values", "formats", "defaults", "fixed")
_NUMBER_KEYS = ("decimal", "thousands", "currency", "unit", "negative")
_VALUES_FORM = 'write [values.COLUMN], then ours = "theirs"'
_WRITTEN = {"ours = theirs": True, "theirs = ours": False}
"""What `written` at the top of a map can be, for the rare one that could be read both ways."""


def load_mapping(path: str) -> Mapping:
    """Read a map; raises FileRefused naming whatever in it is unknown or contradictory.

    Raises WaitingForPerson while it has open questions.
    """
    tables = read_toml(path, "column map")
    if questions := tables.pop("open", None):
        first = questions[0] if isinstance(questions, list) else questions
        raise WaitingForPerson(
            f"the map {path} has open questions, the first: {printable(str(first))} Answer them in the map, and delete "
            "the lines of its list `open`, or propose another map on a terminal (batchpay map)"
        )
    return mapping_of(tables, path)


def mapping_of(tables: dict[str, Any], path: str) -> Mapping:
    """Make a map from the tables that its file at `path` has, or would have; raises FileRefused as `load_mapping`."""
    written = tables.get("written")
    if written is not None and written not in _WRITTEN:
        raise FileRefused(f"map {path}: written can only be {' or '.join(map(repr, _WRITTEN))}")
    tables = {name: table for name, table in tables.items() if name != "written"}
    if written is not None:
        return _read(tables, path, ours_first=_WRITTEN[written])
    if fits := [fit for fit in _fits(tables) if fit[0] != fit[1]]:
        return _read(tables, path, ours_first=sum(ours for ours, _ in fits) * 2 >= len(fits))
    new = _read(tables, path, ours_first=True)
    if new.digest != _read(tables, path, ours_first=False).digest:
        told = 'put `written = "ours = theirs"` first in it, or `written = "theirs = ours"`'
        raise FileRefused(f"map {path} can be read in two ways, since all its names are batchpay's: {told}")
    return new


def _read(tables: dict[str, Any], path: str, *, ours_first: bool) -> Mapping:
    found = _Tables(tables, ours_first=ours_first)
    mapping = replace(found.mapping(path), is_turned=not ours_first)
    problems = [*found.problems, *_contradictions(mapping)]
    if problems:
        raise FileRefused(f"map {path}: {'; '.join(problems)}")
    return mapping


def _fits(tables: dict[str, Any]) -> Iterable[tuple[bool, bool]]:
    """Say of each entry whether it can be `ours = theirs`, and whether it can be `theirs = ours`."""

    def entries(table: Any) -> Iterable[tuple[str, list[Any]]]:
        given = table.items() if isinstance(table, dict) else ()
        return ((key, value if isinstance(value, list) else [value]) for key, value in given)

    for key, values in entries(tables.get("columns")):
        yield key in (*COLUMNS, *SIDES, LEFT_OUT), all(value in (*COLUMNS, "") for value in values)
    for key, values in entries(tables.get("split")):
        yield "{" in key, any("{" in str(value) for value in values)
    of_lists = tables.get("values")
    for name, table in of_lists.items() if isinstance(of_lists, dict) else ():
        for key, values in entries(table) if name in CHOICES else ():
            yield key in (*CHOICES[name], ""), all(value in (*CHOICES[name], "") for value in values)


class _Tables:
    """The tables of a map, and what is wrong with them."""

    def __init__(self, tables: dict[str, Any], *, ours_first: bool) -> None:
        self._tables = tables
        self._sides: dict[str, str] = {}
        self.problems = [
            f"[{column_name(name)}] is unknown{did_you_mean(name, _TABLES)}" for name in tables if name not in _TABLES
        ]
        if ours_first:
            left_out = self._table("columns").get(LEFT_OUT, [])
            given = {ours: theirs for ours, theirs in self._table("columns").items() if ours != LEFT_OUT}
            sides = self._texts("columns", {side: given.pop(side) for side in SIDES if side in given})
            self._sides = {SIDES[side]: theirs for side, theirs in sides.items()}
            columns, gone = self._by_theirs("columns", given, several=False), self._by_theirs(LEFT_OUT, {"": left_out})
            self.problems += [
                f"[columns]: {column_name(name)} is left out and is {' and '.join(columns[name])}"
                for name in gone
                if name in columns
            ]
            split = self._by_theirs("split", self._table("split"), several=False)
            values = {
                name: {word: ours[0] for word, ours in self._by_theirs(f"values.{name}", table, once=True).items()}
                for name, table in self._tables_in("values", _VALUES_FORM).items()
            }
            self._tables = {**tables, "columns": columns | gone, "split": split, "values": values}

    def _by_theirs(
        self, table: str, given: dict[str, Any], *, several: bool = True, once: bool = False
    ) -> dict[str, list[str]]:
        """Return whose of ours each of theirs is; `several` allows a list of theirs, `once` one of ours for each."""
        found: dict[str, list[str]] = {}
        for ours, theirs in given.items():
            texts = theirs if isinstance(theirs, list) and several else [theirs]
            if not all(isinstance(text, str) for text in texts):
                form = "as text in quotation marks" + (", several in brackets" if several else "")
                self.problems.append(f"[{table}]: write what {column_name(ours)} is in the file {form}")
                continue
            for text in texts:
                found.setdefault(text, []).append(ours)
        twice = [text for text, ours in found.items() if once and len(ours) > 1]
        self.problems += [f"[{table}]: {column_name(text)} is {' and '.join(found[text])}" for text in twice]
        return found

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
            for name, table in self._tables_in("values", _VALUES_FORM).items()
        }
        numbers, dates = self._formats()
        fixed = self._texts("fixed", self._table("fixed"))
        self._known("[columns]", [target for targets in columns.values() for target in targets])
        split = {name: patterns for name, patterns in split.items() if patterns}
        self._known("[split]", [name for patterns in split.values() for name in patterns[0].names])
        for table, names in (("templates", templates), ("values", values), ("defaults", defaults), ("fixed", fixed)):
            self._known(f"[{table}]", names)
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
            split,
            templates,
            numbers,
            dates,
            self._rows(),
            self._sides,
        )

    def _rows(self) -> RowWords | None:
        """Read which rows are payments: words of a column, each in one of two lists."""
        given, keys = self._table("rows"), ("column", "payments", "left_out")
        self._known("[rows]", given, keys, f"is not one of {', '.join(keys)}")
        lists = [tuple(words) if isinstance(words := given.get(key, []), list) else (words,) for key in keys]
        if not given:
            return None
        if not all(isinstance(word, str) for words in lists for word in words) or len(lists[0]) != 1:
            self.problems.append('[rows]: write column = "Status", payments = ["Open"], left_out = ["Voided"]')
            return None
        both = [column_name(word) for word in lists[1] if word in lists[2]]
        self.problems += [f"[rows]: {', '.join(both)} can't be payments and left out"] if both else []
        return RowWords(lists[0][0], lists[1], lists[2])

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
        return () if targets == [""] else tuple(targets)

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
                self._known("[formats]", [name], (*MONEY, *DATES), "contains no amounts and no dates")
                continue
            place = f"[formats.{name}]"
            allowed = ("date",) if name in DATES else _NUMBER_KEYS if name == "amount" else _NUMBER_KEYS[:-1]
            given = self._texts(f"formats.{name}", table)
            before = len(self.problems)
            self._known(place, given, allowed, f"is not one of {', '.join(allowed)}")
            if name in DATES:
                day = DateFormat(given.get("date", ""))
                self.problems += [f"{place}: {day.problem}"] if day.problem else []
                dates |= {name: day} if len(self.problems) == before else {}
                continue
            self.problems += [f"{place}: {problem}" for problem in _number_problems(given)]
            if len(self.problems) == before:
                numbers[name] = NumberFormat(**given)
        return numbers, dates

    def _known(
        self, place: str, names: Iterable[str], known: Sequence[str] = COLUMNS, told: str = "is not a column"
    ) -> None:
        self.problems += [
            f"{place}: {column_name(name)} {told}{did_you_mean(name, known)}" for name in names if name not in known
        ]


def _number_problems(given: dict[str, str]) -> list[str]:
    problems = []
    choices_of = {"decimal": DECIMALS, "thousands": ("", *THOUSANDS), "unit": ("", *UNITS), "negative": MEANINGS}
    for key, choices in choices_of.items():
        if given.get(key, choices[0]) not in choices:
            told = ", ".join(f'"{choice}"' for choice in choices if choice)
            problems.append(f"{key} can only be {told}{did_you_mean(given[key], choices)}")
    if given.get("decimal", ".") == given.get("thousands"):
        problems.append("decimal and thousands must differ")
    if given.get("currency") and not currencies_of(given["currency"]):
        problems.append("currency is the symbol or the code of a currency, like $ or USD")
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
    made.update(("amount", DIRECTION) if mapping.sides else ())
    if len({*mapping.sides.values()}) < len(mapping.sides):
        problems.append("[columns]: debit and credit are two columns")
    problems += [f"{name} is made in {count} ways" for name, count in made.items() if count > 1]
    problems += [f"{name} is made of the file's cells and is in [fixed]" for name in made if name in mapping.fixed]
    written = (*mapping.numbers, *mapping.dates)
    problems += [
        f"{name} is in [fixed], so [formats.{name}] reads nothing" for name in written if name in mapping.fixed
    ]
    if mapping.signed is not None:
        elsewhere = [DIRECTION in table for table in (mapping.fixed, mapping.defaults)]
        if any(elsewhere) or mapping.sides:
            problems.append(
                f"{DIRECTION} comes from the sign of the amount ([formats.amount] negative): set it in one place (a "
                "column may say it too, and must agree)"
            )
    # How a column's cells are written; those of one source must be written the same way.
    kinds: dict[str, object] = {target: mapping.numbers.get(target, NumberFormat()).decimal for target in MONEY}
    kinds |= {target: ("date", mapping.dates.get(target)) for target in DATES} | dict.fromkeys(FLAGS, "flag")
    for name, targets in mapping.columns.items():
        if len({kinds.get(target, "text") for target in targets}) > 1:
            problems.append(
                f"{column_name(name)} can't be {' and '.join(targets)}: a number, a date and a text are written in "
                "different ways"
            )
    return problems
