"""What a spreadsheet shows of a number under a number format: `0000000000` shows 42 as 0000000042, `0 "CAD"` 42 CAD.

Only what may differ from the number's own digits matters: leading zeros, digits that are part of the format, text that
is not of dollars, and formats where it can't be known which digits a person saw. The grammar: ECMA-376, 18.8.31.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

from batchpay.schemas.tables import CURRENCIES_OF

_TOKEN = re.compile(
    r"""
    (?P<literal> "(?P<quoted>[^"]*)" | \\(?P<escaped>.) | (?P<plain>[-+$€£¥\ ():!^&'~{}<>=]) )
    | (?P<decoration> [_*]. | General | \[(?:black|blue|cyan|green|magenta|red|white|yellow|color\ ?[0-9]+)\] )
    | (?P<currency> \[\$(?P<symbol>[^-\]]*)[^\]]*\] )
    | \[(?P<condition> (?:<=|>=|<>|<|>|=)-?[0-9]+(?:\.[0-9]+)? )\]
    | (?P<place> [0#?] ) | (?P<mark> [.,] ) | (?P<other> . )
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_CONDITION = re.compile(r"([<>=]+)(.+)")
_COMPARES = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne}
_SEPARATOR = re.compile(r'("[^"]*"|\\.|[_*].|\[[^\]]*\])|;', re.DOTALL)
_SIGNS = str.maketrans("", "", "0123456789 \u00a0()+-\u2212.,:'/")
_BESIDE_DIGITS = set("0123456789-()./ ")
"""Characters that may appear among the digits of a number that is read as shown."""


class _Section(NamedTuple):
    """One of the sections of a format, for whole numbers."""

    parts: tuple[str, ...]
    """`0`, `#` and `?` for places of the whole part, anything else as `=text`."""
    condition: str | None
    is_readable: bool
    is_scaled: bool
    """Whether it shows the number multiplied or divided."""
    has_decimals: bool = False

    @property
    def text(self) -> str:
        """What it shows beside the number, without signs and blanks."""
        return "".join(part[1:] for part in self.parts if part[0] == "=").translate(_SIGNS)

    @property
    def changes_digits(self) -> bool:
        """Whether it may show leading zeros, or digits of its own."""
        places = [part for part in self.parts if part[0] != "="]
        literal = "".join(part[1:] for part in self.parts if part[0] == "=")
        return "0" in places[:-1] or any(map(str.isdigit, literal))


def matters(code: str) -> bool:
    """Return whether a format may show a number with other digits than its own or a text, or can't be read."""
    return hides_digits(code) or bool(other_text(code))


def other_text(code: str) -> str:
    """Return what a format shows beside a number, unless that is a mark of US dollars: `CAD`, `€`, `hrs`."""
    sections = _numeric_sections(code)
    shown = sections if any(section.condition for section in sections) else sections[:1]
    texts = (section.text for section in shown if section.is_readable)
    return next((text for text in texts if text and "USD" not in CURRENCIES_OF.get(text.lower(), ())), "")


def shows_unit(code: str) -> bool:
    """Return whether a format shows decimals or a mark of dollars: a whole number is one of dollars then."""
    section = _numeric_sections(code)[0]
    return section.is_readable and (section.has_decimals or bool(section.text))


def hides_digits(code: str) -> bool:
    """Return whether a format may show a whole number with other digits than its own, or can't be read."""
    return any(
        section.changes_digits or section.is_scaled or not section.is_readable for section in _numeric_sections(code)
    )


def is_scaled(code: str) -> bool:
    """Return whether a format shows numbers as percent or in thousands: a person sees another amount than is there."""
    return any(section.is_scaled for section in _numeric_sections(code))


def shown(code: str, number: int) -> str | None:
    """Return a non-negative whole number as it is shown, without mere decoration; None if unknown."""
    section = _chosen(_numeric_sections(code), number)
    if section is None or not section.is_readable or section.is_scaled:
        return None
    if not section.changes_digits:
        return str(number)
    digits = str(number) if number else ""
    text: list[str] = []
    places = sum(part[0] != "=" for part in section.parts)
    for part in reversed(section.parts):
        if part[0] == "=":
            text.append(part[1:])
            continue
        places -= 1
        taken = digits if not places else digits[-1:]  # the first place takes all remaining digits
        digits = digits[: len(digits) - len(taken)]
        text.append(taken or ("0" if part == "0" else ""))
    whole = "".join(reversed(text)).strip()
    return whole if set(whole) <= _BESIDE_DIGITS else None


@lru_cache(maxsize=1000)
def _numeric_sections(code: str) -> tuple[_Section, ...]:
    """Read the sections that are for numbers; the fourth is for text."""
    cut = [match.start() for match in _SEPARATOR.finditer(code) if match[1] is None]
    begins, ends = [0, *(at + 1 for at in cut)], [*cut, len(code)]
    return tuple(_section(code[begin:end]) for begin, end in zip(begins[:3], ends[:3], strict=True))


def _section(text: str) -> _Section:
    if text.strip() == "@":  # a number in a text cell shows all its digits
        return _Section((), None, is_readable=True, is_scaled=False)
    parts: list[str] = []
    condition, is_scaled, is_readable = None, False, True
    is_whole, has_decimals, commas = True, False, 0
    for token in _TOKEN.finditer(text):
        kind, value = token.lastgroup, token[token.lastgroup] if token.lastgroup else ""
        if kind == "place":
            commas = 0
            has_decimals = has_decimals or not is_whole
            if is_whole:
                parts.append(value)
        elif kind == "mark" and value == ",":
            commas += 1
        elif kind == "mark":
            is_scaled, is_whole = is_scaled or (commas > 0 and _has_places(parts)), False
        elif kind == "literal":
            parts.append(f"={token['quoted'] or token['escaped'] or token['plain'] or ''}")
        elif kind == "currency":
            parts.append(f"={token['symbol']}")
        elif kind == "condition":
            condition = value
        elif value == "%":
            is_scaled = True
        elif kind == "other":
            is_readable = False  # a date, a power of ten, a fraction, a letter that stands for something else
    is_scaled = is_scaled or (commas > 0 and _has_places(parts))
    return _Section(tuple(parts), condition, is_readable, is_scaled, has_decimals)


def _has_places(parts: list[str]) -> bool:
    return any(part[0] != "=" for part in parts)


def _chosen(sections: tuple[_Section, ...], number: int) -> _Section | None:
    """Return the section by which a non-negative number is shown."""
    if all(section.condition is None for section in sections):
        return sections[2] if number == 0 and len(sections) == 3 else sections[0]
    for at, section in enumerate(sections):
        if section.condition is None:
            # Between two sections with a condition, or before one, its meaning is unknown.
            return section if at == len(sections) - 1 else None
        match = _CONDITION.fullmatch(section.condition)
        assert match is not None, "a condition was read as one"
        if _COMPARES[match[1]](number, float(match[2])):
            return section
    return None
