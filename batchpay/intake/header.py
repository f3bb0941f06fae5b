"""The header of a payment file: which columns are known, which are carried, and which names look mistyped.

Plain Python: the child process that parses workbooks starts without polars.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from batchpay.errors import FileRefused
from batchpay.schemas.columns import COLUMNS, REQUIRED
from batchpay.text import column_name, masked, printable

NOTE_COLUMN = "_note"
"""Our own column: a row that says `example` there (the template's) is not a payment."""
EXAMPLE_MARK = "example"
HELPER_SHEET = "lists"
"""The hidden sheet of the template with the choices of its drop-downs."""
HEADER_ROWS_MAX = 31
"""A header is searched for in this many rows: there may be up to thirty above it."""
HEADER_NAMES_ENOUGH = 3
"""A row with this many known names is a header."""
UNKNOWN_MAX = 500
"""A header with more unknown columns is no payment file's, and each would be carried into results and rejects."""
_TITLES_MAX = 5
_TITLE_CHARACTERS_MAX = 120
_TITLE_CELLS_MAX = 8
_ROUTING = re.compile(r"[0-9]{8,9}")
UNNAMED = "_unnamed."
"""Internal name of columns without a name; all their cells must be blank."""
OWN = "_own."
"""Before the file's own name of a column in a chunk, so that it can't be taken for a mapped one."""
_PREFIXES = ("billing", "shipping", "ach", "recurring")
_OURS = {name.lower(): name for name in COLUMNS}
_OTHER_WORDS = frozenset({"payor", "payno", "payin"})
"""Names that are one letter from one of ours, and words of their own."""


@dataclass
class Examples:
    """Rows marked as examples: they are not payments, and the user is told how many were skipped."""

    count: int = 0
    with_account: int = 0
    """Of these, rows with an account number: the template's example has only zeros, so somebody typed over it."""

    def restart(self) -> None:
        """Begin the count of another reading."""
        self.count = self.with_account = 0

    def notes(self) -> list[str]:
        """Note how many were skipped, and that a payment may be among them."""
        notes = [f"rows marked as an example, which are not payments: {self.count}"] if self.count else []
        if self.with_account:
            notes.append(
                f"rows marked as an example that have an account number: {self.with_account}; a payment typed over "
                f"the example is not sent: clear its cell in {NOTE_COLUMN}"
            )
        return notes


@dataclass(frozen=True)
class Header:
    """The columns of a file by position: `internal` has their internal names, None where one is ours and ignored."""

    names: tuple[str, ...]
    internal: tuple[str | None, ...]
    columns: tuple[str, ...]
    carried: tuple[str, ...]
    note_at: int | None
    renamed: dict[str, str] = field(default_factory=dict)
    """Ours by the name that the file gives them, where that differs in case, blanks or line breaks."""
    examples: Examples = field(default_factory=Examples)

    @property
    def own(self) -> tuple[str, ...]:
        """Internal names of the user's own columns, in file order."""
        return tuple(name for name in self.internal if name is not None)

    @property
    def own_header(self) -> tuple[str, ...]:
        """What the file itself calls them."""
        return tuple(name for name, inner in zip(self.names, self.internal, strict=True) if inner is not None)


def read_header(names: Sequence[str], *, required: Iterable[str] = REQUIRED, place: str = "") -> Header:
    """Sort a header's names; raises FileRefused naming every column that is twice, mistyped or missing.

    Names that differ from ours only in case, blanks or line breaks are taken for ours.
    """
    given, names = names, [canonical_name(name) for name in names]
    internal = tuple(internal_name(name, at) for at, name in enumerate(names))
    counts = Counter(names)
    twice = sorted(name for name, times in counts.items() if times > 1 and name.strip() and not name.startswith("_"))
    if twice:
        raise FileRefused(f"{place}the header has the same column twice: {_listed(twice)}")
    unknown = [name for name in internal if name and name not in COLUMNS and not name.startswith(UNNAMED)]
    slips = {name: close for name in unknown if (close := near_miss(name))}
    if slips:
        slips_named = ", ".join(f"{column_name(name)} (did you mean {close}?)" for name, close in slips.items())
        raise FileRefused(f"{place}the header has unknown columns that look mistyped: {slips_named}")
    if patterns := [name for name in unknown if is_pattern(name)]:
        told = _listed(patterns)
        raise FileRefused(f"{place}the header has columns whose names can't be used, give them others: {told}")
    missing = [name for name in required if name not in names]
    if missing:
        raise FileRefused(f"{place}the header lacks required columns: {_listed(missing)}")
    return Header(
        names=tuple(given),
        internal=internal,
        columns=tuple(name for name in internal if name in COLUMNS and name is not None),
        carried=tuple(unknown),
        note_at=names.index(NOTE_COLUMN) if NOTE_COLUMN in names else None,
        renamed={name: ours for name, ours in zip(given, names, strict=True) if name != ours},
    )


def told_apart(names: tuple[str, ...], needed: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name columns that nothing needs, and whose name another has, apart: `Memo (2)`; return the names, and notes.

    Ours, those that a map names (`needed`), and those whose name says something about the payment stay: refused.
    """
    counts = Counter(name for name in names if name.strip() and not name.startswith("_"))
    repeated = [name for name, times in counts.items() if times > 1 and not _is_needed(name, needed)]
    if not repeated:
        return names, ()
    told: list[str] = []
    for name in names:
        free = (f"{name} ({number})" for number in count(2))
        one = next(one for one in free if one not in names and one not in told) if name in told else name
        told.append(one if name in repeated else name)
    return tuple(told), (f"columns that are in the header twice, and that nothing needs: {_listed(repeated)}",)


def _is_needed(name: str, needed: Sequence[str]) -> bool:
    from batchpay.schemas.words import evidence  # few headers have a name twice

    of_map = any(one == name or one.startswith(f"{name} (") for one in needed)
    return of_map or canonical_name(name) in COLUMNS or evidence(name) is not None


def canonical_name(name: str) -> str:
    """Return the known column whose name differs only in case, blanks or line breaks; else the name unchanged."""
    return _OURS.get("".join(name.split()).lower(), name)


def is_pattern(name: str) -> bool:
    """Return whether polars takes a column's name for a pattern, and so for the names of other columns."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def ours_as_meant(names: Iterable[str]) -> set[str]:
    """Return the known columns that a header has, and those of which it has a mistyped name.

    Names that differ only in punctuation are not counted: another system's columns, which a map takes, have such names.
    """
    meant = {canonical_name(name) for name in names}
    folded = {letters_of(name) for name in COLUMNS}
    slips = (near_miss(name) for name in names if letters_of(name) not in folded)
    return meant | {close for close in slips if close}


def refuse_no_header(names: Sequence[str], place: str) -> None:
    """Raise FileRefused where what was taken for the header is a payment, or has more columns than any payment file."""
    unknown = sum(bool(name.strip()) and name[0] != "_" and canonical_name(name) not in COLUMNS for name in names)
    if unknown > UNKNOWN_MAX:
        raise FileRefused(f"{place}the header has {unknown:,} unknown columns; more than {UNKNOWN_MAX} are not read")
    if any(_ROUTING.fullmatch(name.strip()) for name in names) and not known_names(names, COLUMNS):
        raise FileRefused(
            f"{place}the file has no header, its first row is a payment: add the columns' names above it, "
            f"for instance {', '.join(_names_for(names))}"
        )


_CELLS = {
    "Amount": r"[-+(\u2212]?[^0-9\s]{0,3} ?[0-9][0-9.,' ]*[.,][0-9]{2}[-)\u2212]?",
    "Account Type": "[0-9]{1,2}|(?i:checking|savings|[cs])",
    "Date": "[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}",
    "Account Number": "[0-9]{4,17}",
    "Email": r"[^@\s]+@[^@\s]+",
    "Name": r".*[^\W\d_].*",
}
"""Names for columns, by what a cell of a payment looks like."""


_CHECKED = "Routing Number"


def has_check_digit(cell: str) -> bool:
    """Return whether the check digit of a routing number is right (ABA: weights 3, 7, 1), with a zero lost or not."""
    digits = [int(digit) for digit in cell.zfill(9)]
    return sum(digit * weight for digit, weight in zip(digits, (3, 7, 1) * 3, strict=True)) % 10 == 0


def _names_for(cells: Sequence[str]) -> list[str]:
    """Propose a header for a row of cells: each name once, the others count."""
    names: list[str] = []
    for at, cell in enumerate(map(str.strip, cells), 1):
        if _ROUTING.fullmatch(cell) and _CHECKED not in names and has_check_digit(cell):
            names.append(_CHECKED)
            continue
        fitting = (name for name, form in _CELLS.items() if re.fullmatch(form, cell) and name not in names)
        names.append(next(fitting, f"Column {at}"))
    return names


def known_names(names: Iterable[str], known: Sequence[str]) -> int:
    """Count the names that are known, exactly or except for case, blanks and punctuation."""
    return sum(name in known or canonical_name(name) in known or letters_of(name) in known for name in names)


def title_notes(
    place: str, word: str, number: int, above: Sequence[tuple[int, Sequence[str]]], names: Sequence[str]
) -> tuple[str, ...]:
    """Note where a header was found, and the titles above it; raises FileRefused where one looks like a payment.

    `above` has the numbers of the rows above, as `word` calls them, with the cells of each that are not blank: sorting
    a sheet together with its header puts payments there. A title may name a currency, a unit, or say `DRAFT`.
    """
    most = max(2, min(len(names) // 2, _TITLE_CELLS_MAX))
    for row, cells in above:
        if len(cells) > most:
            raise FileRefused(
                f"{place}: {word} {row} is above the header, which is in {word} {number}, and has {len(cells)} cells: "
                "payments must be below it"
            )
    titles = [printable(masked(" ".join(cells)), characters_max=_TITLE_CHARACTERS_MAX) for _, cells in above if cells]
    if not titles:
        return ()
    more = [f"and {len(titles) - _TITLES_MAX:,} more"] if len(titles) > _TITLES_MAX else []
    return (f"the header was found in {word} {number}; not read: {' / '.join([*titles[:_TITLES_MAX], *more])}",)


@lru_cache(maxsize=2 * UNKNOWN_MAX)
def near_miss(name: str) -> str | None:
    """Return the known column that `name` was probably meant to be, or None where it is another word.

    A difference only in case, spaces and punctuation is always a slip. Otherwise one wrong, missing or doubled
    character is, two in a long name; compared without the node's prefix, so that `billingStatus` is not taken for
    `billingState`. A name that differs only in its digits (`billingAddressLine3`) is another column, not a slip.
    """
    folded = letters_of(name)
    if not folded or folded in _OTHER_WORDS:
        return None
    for candidate in COLUMNS:
        if folded == letters_of(candidate):
            return candidate
    prefix = next((word for word in _PREFIXES if folded.startswith(word)), "")
    for candidate in COLUMNS:
        other = letters_of(candidate)
        if prefix and other.startswith(prefix):
            left, right = folded.removeprefix(prefix), other.removeprefix(prefix)
        else:
            left, right = folded, other
        if re.sub(r"\d", "", left) == re.sub(r"\d", "", right):
            continue
        shorter = min(len(left), len(right))
        if _distance(left, right) <= (0 if shorter <= 3 else 1 if shorter < 8 else 2):
            return candidate
    return None


def internal_name(name: str, at: int, prefix: str = "") -> str | None:
    """Return what a column is called in chunks; None for one that is left out."""
    if not name.strip():
        return f"{UNNAMED}{at + 1}"
    return None if name.startswith("_") else prefix + name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(column_name(name) for name in names)


def letters_of(name: str) -> str:
    """Return the letters and digits of a name, case folded."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _distance(left: str, right: str) -> int:
    """Count the edits between two short words; two swapped neighbors count as one (optimal string alignment)."""
    if abs(len(left) - len(right)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row = row, [i]
        for j, b in enumerate(right, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before = above
    return row[-1]


@dataclass(frozen=True, slots=True)
class CellForm:
    """The form of a column's typed cells.

    A number or a date has no form of its own. It is written like the texts of its column, so that the map reads both
    the same way, and a rejects file that was written as text reads as the workbook did.
    """

    target: str
    """The known column that it becomes, or the file's own name of one that is carried."""
    decimal: str = "."
    """The character before the decimals of an amount."""
    date: str | None = None
    """How dates are written (strftime); None where only the column's own rules determine it."""
    is_whole: bool = False
    """Whether a whole amount stays without decimals: the column shows none, so it may be in cents."""
