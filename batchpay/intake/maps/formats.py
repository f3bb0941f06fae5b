"""How another system writes numbers and dates, as a map states it: a cell that is written differently is an error.

Texts with columns in braces combine cells (`{Date}-{Vendor}`), or split one (`{City}, {State}`). Nothing is guessed
from a cell. A format turns it into the text that our own files have, for the rules to check.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import polars as pl

from batchpay.payment import Direction

REFUSED = "refused"
"""What a negative amount means unless the map says otherwise."""
MEANINGS = (Direction.CREDIT.value, Direction.DEBIT.value, REFUSED)
DECIMALS = (".", ",")
THOUSANDS = (".", ",", " ", "'")
UNITS = ("dollars", "cents", "thousands")
"""What amounts may be in: whole numbers of any of them are written alike."""
_ALIKE = {" ": " \u00a0\u202f\u2009", "'": "'\u2019"}
"""Characters that are used in place of a separator."""
_BLANKS = "[ \u00a0\u202f]*"
_NEGATIVE = ("-", "\u2212", "()")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_ADJOINING = re.compile("%d%m|%m%d")
_DIRECTIVES = {
    "d": "(?P<day>[0-9]{1,2})",
    "m": "(?P<month>[0-9]{1,2})",
    "b": "(?P<name>[A-Za-z]{3})",
    "B": "(?P<name>[A-Za-z]{3,9})",
    "y": "(?P<year>[0-9]{2})",
    "Y": "(?P<year>[0-9]{4})",
    "%": "%",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading cells by a format: our text, or a message about what is wrong; both null for a blank cell.

    Series, not expressions: a cell is parsed once, however its parts are used.
    """

    text: pl.Series
    wrong: pl.Series


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the amounts of a column are written.

    Digits may be grouped by `thousands`, in groups of three; a sign comes before or after them, or they are in
    parentheses; one or two decimals follow `decimal`, or none; `currency` may come before or after, with blanks around.
    """

    decimal: str = "."
    thousands: str = ""
    currency: str = ""
    negative: str = REFUSED
    """The direction of negative amounts (positive ones are the other), or that they are refused."""
    unit: str = ""
    """What the amounts are in, one of UNITS; if not stated, dollars, where any amount of the file has decimals."""

    @property
    def example(self) -> str:
        """An amount as it is written in this format."""
        return f"1{self.thousands}234" + (f"{self.decimal}56" if self.unit != "cents" else "")

    def read(self, cells: pl.Series, named: str) -> Reading:
        """Read a column of texts; `named` is what the person calls it."""
        parts = cells.str.extract_groups(self._pattern()).struct.unnest().with_columns(cell=cells)
        sign = pl.concat_str(pl.col("front", "inner", "back").fill_null(""))
        whole = pl.col("whole")
        for mark in _ALIKE.get(self.thousands, self.thousands):
            whole = whole.str.replace_all(mark, "", literal=True)
        fraction = pl.col("fraction").fill_null("")
        is_number = pl.col("whole").is_not_null() & sign.is_in(["", "+", *_NEGATIVE])
        is_number &= pl.lit(self.unit != "cents") | (fraction == "")
        is_refused = sign.is_in(_NEGATIVE) & pl.lit(self.negative == REFUSED)
        found = parts.select(
            text=pl.when(is_number & ~is_refused).then(_in_dollars(whole, fraction, self.unit)),
            is_wrong=pl.col("cell").is_not_null() & ~is_number,
            is_refused=is_number & is_refused,
        )
        wrong = _words(found["is_wrong"], f"{named} is not written as the map says, like {self.example}")
        refused = f"{named} is negative, and the map does not say what that means (negative in its format)"
        return Reading(found["text"], wrong.zip_with(~found["is_refused"], _words(found["is_refused"], refused)))

    def direction(self, cells: pl.Series) -> pl.Series:
        """Return the direction by the sign of each amount; that of a positive one where there is no amount."""
        other = Direction.DEBIT.value if self.negative == Direction.CREDIT.value else Direction.CREDIT.value
        is_negative = cells.str.contains(r"[-\x{2212}(]").fill_null(value=False)
        return pl.select(pl.when(is_negative).then(pl.lit(self.negative)).otherwise(pl.lit(other))).to_series()

    def _pattern(self) -> str:
        decimals_max = 5 if self.unit == "thousands" else 2
        currency = f"(?:{re.escape(self.currency)})?" if self.currency else ""
        whole = "[0-9]+"
        if self.thousands:  # in groups of one kind of blank: 1 234 567
            grouped = "|".join(
                f"[1-9][0-9]{{0,2}}(?:{re.escape(mark)}[0-9]{{3}})+"
                for mark in _ALIKE.get(self.thousands, self.thousands)
            )
            whole = f"{grouped}|{whole}"
        parts = (
            "(?P<front>[-+(\u2212])?", currency, "(?P<inner>[-(\u2212])?",
            f"(?P<whole>{whole})(?:{re.escape(self.decimal)}(?P<fraction>[0-9]{{1,{decimals_max}}}))?",
            currency, "(?P<back>[-)\u2212])?", currency,
        )  # fmt: skip
        return f"^{_BLANKS}{_BLANKS.join(part for part in parts if part)}{_BLANKS}$"


def _in_dollars(whole: pl.Expr, fraction: pl.Expr, unit: str) -> pl.Expr:
    """Return digits before and after the point, in a unit, as dollars and cents."""
    if unit not in ("cents", "thousands"):
        return pl.concat_str(whole, pl.lit("."), (fraction + "00").str.slice(0, 2))
    cents = whole if unit == "cents" else whole + fraction.str.pad_end(5, "0")
    cents = cents.str.strip_chars_start("0").str.zfill(3)
    return pl.concat_str(cents.str.head(-2), pl.lit("."), cents.str.tail(2))


@dataclass(frozen=True, slots=True)
class StatedUnit(NumberFormat):
    """Amounts of our own form, except for those in a unit that a person states: every other cell is left to the rules.

    Those in dollars or cents have no decimals; a number that begins with a zero is no amount.
    """

    def read(self, cells: pl.Series, named: str) -> Reading:
        """Read a column of texts."""
        parts = cells.str.extract_groups(r"^(0|[1-9][0-9]*)(?:\.([0-9]{1,5}))?$").struct.unnest()
        parts = parts.rename(dict(zip(parts.columns, ("whole", "fraction"), strict=True)))
        has_decimals = pl.col("fraction").is_not_null()
        is_read = pl.col("whole").is_not_null() & (pl.lit(self.unit == "thousands") | ~has_decimals)
        text = _in_dollars(pl.col("whole"), pl.col("fraction").fill_null(""), self.unit)
        found = parts.select(text=pl.when(is_read).then(text), is_wrong=has_decimals & pl.lit(self.unit == "cents"))
        return Reading(found["text"], _words(found["is_wrong"], f"{named} has decimals, and amounts are in cents"))


@dataclass(frozen=True, slots=True)
class DateFormat:
    """How the dates of a column are written: strptime's `%d %m %Y %y %b %B`, each part once, and the text between.

    A two-digit year is in this century; names of months are English, in any case.
    """

    pattern: str

    @property
    def problem(self) -> str | None:
        """What is wrong with the format, or None."""
        codes = [code for code in self._pieces()[1::2] if code != "%"]
        unknown = [code for code in codes if code not in _DIRECTIVES]
        if unknown or self._pieces()[-1].endswith("%"):
            return f"%{unknown[0] if unknown else ''} is none of %d %m %b %B %y %Y"
        kinds = sorted({"b": "m", "B": "m", "y": "Y"}.get(code, code) for code in codes)
        return None if kinds == ["Y", "d", "m"] else "a date needs a day, a month and a year, each once"

    def read(self, cells: pl.Series, named: str) -> Reading:
        """Read a column of texts; `named` is what the person calls it."""
        pieces = self._pieces()
        pattern = "".join(_DIRECTIVES[piece] if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
        if _ADJOINING.search(self.pattern):  # which digit belongs to which number would be a guess
            pattern = pattern.replace("{1,2}", "{2}")
        parts = cells.str.extract_groups(f"^{_BLANKS}{pattern}{_BLANKS}$").struct.unnest()
        year = pl.lit("20") + pl.col("year") if "y" in pieces[1::2] else pl.col("year")
        if "month" in parts.columns:
            month = pl.col("month")
        else:
            names = {name if "B" in pieces[1::2] else name[:3]: f"{at}" for at, name in enumerate(_MONTHS, 1)}
            month = pl.col("name").str.to_lowercase().replace_strict(names, default=None, return_dtype=pl.String)
        # Whether the day exists is for the rules: they check it for every file.
        day = pl.concat_str(month.str.zfill(2), pl.lit("/"), pl.col("day").str.zfill(2), pl.lit("/"), year)
        text = parts.select(day).to_series()
        words = f"{named} is not written as the map says, like {self.example}"
        return Reading(text, _words(cells.is_not_null() & text.is_null(), words))

    def _pieces(self) -> list[str]:
        """Return texts and, at the odd indexes, directives."""
        return re.split("%(.)", self.pattern)

    @property
    def example(self) -> str:
        """A date as it is written in this format."""
        return date(2027, 3, 31).strftime(self.pattern)


def _words(where: pl.Series, words: str) -> pl.Series:
    """Return the same words for some rows, null for the others."""
    return pl.select(pl.when(where).then(pl.lit(words))).to_series()


_PART = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with names of columns in braces."""

    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self._pieces[1::2])

    @property
    def problem(self) -> str | None:
        """What is wrong with the text, or None."""
        if any(brace in piece for piece in self._pieces[::2] for brace in "{}"):
            return "has a brace without its partner"
        if not self.names or not all(name.strip() for name in self.names):
            return "names no column, write one in braces, like {Vendor}"
        return None

    @property
    def adjoining(self) -> bool:
        """Whether two parts have nothing between them, so that the end of the first one can't be known."""
        return not all(self._pieces[2:-1:2])

    @property
    def _pieces(self) -> list[str]:
        """Texts and, at the odd indexes, names."""
        return _PART.split(self.text)

    def combined(self, cells: pl.DataFrame) -> pl.Series:
        """Combine the cells of the named columns into one text, null where one is blank."""
        pieces = [pl.lit(cells[piece] if at % 2 else piece) for at, piece in enumerate(self._pieces)]
        return cells.select(pl.concat_str(pieces)).to_series()

    def split_cells(self, cells: pl.Series) -> pl.DataFrame:
        """Split cells into each column's part, all null where a cell does not fit or fits in more than one way.

        From the front the parts are matched as short as possible, and as long as possible: where both agree there is
        only one way.
        """
        short, long = (cells.str.extract_groups(self._expression(lazy)).struct.unnest() for lazy in ("?", ""))
        is_certain = pl.all_horizontal(pl.col(name) == long[name] for name in short.columns)
        parts = short.select(pl.when(is_certain).then(pl.col(name)) for name in short.columns)
        return parts.rename(dict(zip(short.columns, self.names, strict=True)))

    def _expression(self, lazy: str) -> str:
        parts = (f"(?P<p{at}>(?s:.)+{lazy})" if at % 2 else re.escape(piece) for at, piece in enumerate(self._pieces))
        return f"^{''.join(parts)}$"


def first_that_fits(patterns: Sequence[Pattern], cells: pl.Series) -> pl.DataFrame:
    """Split cells by the first of several patterns, all with the same columns, that fits in exactly one way."""
    names = patterns[0].names
    parts = patterns[0].split_cells(cells)
    for pattern in patterns[1:]:
        is_open = parts[names[0]].is_null() & cells.is_not_null()
        if is_open.any():
            more = pattern.split_cells(cells.set(~is_open, None))
            parts = parts.select(pl.coalesce(pl.col(name), more[name]).alias(name) for name in names)
    return parts
