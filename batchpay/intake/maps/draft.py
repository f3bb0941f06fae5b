"""A draft of a map: what is certain, what is open, and its text as a file for a person to review."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from batchpay.intake.maps.formats import Pattern
from batchpay.intake.maps.loading import LEFT_OUT
from batchpay.text import printable

Value = str | list[str]
_ORDER = ("columns", "rows", "split", "templates", "formats", "values", "defaults", "fixed")


@dataclass(frozen=True)
class Entry:
    """One line of a map: `key = value` in a table such as `values.achDepositType`, and why.

    A list adds to the list that the line has.
    """

    table: str
    key: str
    value: Value
    why: str = ""

    @property
    def line(self) -> str:
        """The line as written in the file."""
        values = [_text(one) for one in self.value] if isinstance(self.value, list) else [_text(self.value)]
        key = self.key if self.key.isascii() and self.key.isalnum() else _text(self.key)
        return f"{key} = [{', '.join(values)}]" if isinstance(self.value, list) else f"{key} = {values[0]}"


@dataclass(frozen=True)
class Choice:
    """One answer to a question: what it adds to the map, and which questions follow."""

    text: str
    entries: tuple[Entry, ...] = ()
    then: tuple[Question, ...] = ()


@dataclass(frozen=True)
class Question:
    """What the file does not say for certain."""

    about: str
    """Our column that it decides."""
    text: str
    choices: tuple[Choice, ...] = ()
    """Empty where the answer is a text, or where nothing in the file can answer it."""
    typed: str | None = None
    """The table into which a typed answer goes, `fixed`."""
    is_needed: bool = True
    """Whether no row can be sent without an answer."""

    @property
    def key(self) -> str:
        """What an answer is kept under: the same question has the same key each time a map is proposed."""
        return f"{self.about}: {self.text}"

    @property
    def is_open(self) -> bool:
        """Whether an answer can close it; otherwise the file lacks something."""
        return bool(self.choices) or self.typed is not None


@dataclass
class Draft:
    """The lines of a map that are decided, and the questions that are open."""

    entries: list[Entry] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Add a line; it replaces one with the same key, or adds to its list."""
        for at, one in enumerate(self.entries):
            if (one.table, one.key) == (entry.table, entry.key):
                if isinstance(one.value, list) and isinstance(entry.value, list):
                    value = list(dict.fromkeys([*one.value, *entry.value]))
                    self.entries[at] = replace(one, value=value, why=one.why or entry.why)
                    return
                del self.entries[at]
                break
        self.entries.append(entry)

    def take(self, question: Question, answer: str) -> bool:
        """Apply an answer, a choice's text or what was typed; return whether it is one.

        The questions that follow from it come first among the open ones.
        """
        at = self.questions.index(question)
        if question.typed is not None and answer:
            self.questions[at : at + 1] = []
            self.add(Entry(question.typed, question.about, answer, "answered"))
            return True
        choice = next((choice for choice in question.choices if choice.text == answer), None)
        if choice is None:
            return False
        self.questions[at : at + 1] = choice.then
        for entry in choice.entries:
            self.add(replace(entry, why=f"answered: {entry.why}" if entry.why else "answered"))
        return True

    @property
    def needed(self) -> list[Question]:
        """The open questions that must be answered before any row can be sent."""
        return [question for question in self.questions if question.is_needed]

    @property
    def targets(self) -> dict[str, list[str]]:
        """The columns that each of the file's becomes; none for one that is left out."""
        found: dict[str, list[str]] = {}
        for entry in self.entries:
            if entry.table == "columns":
                for name in entry.value if isinstance(entry.value, list) else [entry.value]:
                    found.setdefault(name, []).extend([entry.key] if entry.key != LEFT_OUT else [])
            elif entry.table == "split":
                found.setdefault(str(entry.value), []).extend(Pattern(entry.key).names)
        return found

    @property
    def tables(self) -> dict[str, Any]:
        """The map as TOML reads it."""
        tables: dict[str, Any] = {}
        for entry in self.entries:
            table, _, inner = entry.table.partition(".")
            place = tables.setdefault(table, {})
            (place.setdefault(inner, {}) if inner else place)[entry.key] = entry.value
        return tables

    def toml(self, headline: Sequence[str]) -> str:
        """Return the file: lines with their reasons, and below each table the lines that an open question could add."""
        lines = [f"# {printable(line)}" for line in headline]
        if self.needed:
            lines += [
                "",
                "# Nothing is sent while a question is listed here: answer it below, and delete its line.",
                "open = [",
            ]
            lines += [*(f"  {_text(question.key)}," for question in self.needed), "]"]
        offered = {(one.table, one.key, str(one.value)): (question, one) for question, one in _offered(self.questions)}
        opened = list(offered.values())
        names = dict.fromkeys([entry.table for entry in self.entries] + [entry.table for _, entry in opened])
        for table in sorted(names, key=lambda name: (_ORDER.index(name.partition(".")[0]), name)):
            lines += ["", f"[{table}]"]
            for entry in (entry for entry in self.entries if entry.table == table):
                lines.append(f"{entry.line}  # {printable(entry.why)}" if entry.why else entry.line)
            if table.startswith("values."):
                lines += _words_to_place(table, self.entries, opened)
                continue
            told = None
            for question, entry in opened:
                if entry.table == table:
                    lines += [f"# open: {printable(question.text)}"] if question is not told else []
                    is_there = any((one.table, one.key) == (table, entry.key) for one in self.entries)
                    why = f"{printable(entry.why)}{' (in place of the line above)' if is_there else ''}"
                    lines.append(f"#   {entry.line}  # {why}" if why else f"#   {entry.line}")
                    told = question
        hopeless = [question for question in self.questions if not question.is_open]
        lines += ["", *(f"# open: {printable(question.text)}" for question in hopeless)] if hopeless else []
        return "\n".join(lines) + "\n"


def _offered(questions: Iterable[Question]) -> Iterator[tuple[Question, Entry]]:
    """Yield the lines that an answer would add, including those of later questions."""
    for question in questions:
        if question.typed is not None:
            yield question, Entry(question.typed, question.about, "")
        for choice in question.choices:
            yield from ((question, entry) for entry in choice.entries)
            yield from _offered(choice.then)


def _words_to_place(table: str, entries: Sequence[Entry], opened: Sequence[tuple[Question, Entry]]) -> list[str]:
    """Return the lists that words of open questions could be added to, and these questions."""
    there = {entry.key for entry in entries if entry.table == table}
    found = [(question, entry) for question, entry in opened if entry.table == table]
    lists = dict.fromkeys(entry.key for _, entry in found if entry.key not in there)
    asked = dict.fromkeys((printable(question.text), _text(entry.value[0])) for question, entry in found)
    return [
        *(f"{Entry(table, key, []).line}" for key in lists),
        *(f"# open: {text} Add {word} to its list." for text, word in asked),
    ]


def _text(text: str) -> str:
    """Return a text in quotation marks, as TOML requires."""
    marks = {'"': '\\"', "\\": "\\\\"}
    marks |= {one: f"\\U{ord(one):08x}" for one in text if not one.isprintable()}
    return '"' + "".join(marks.get(one, one) for one in text) + '"'
