"""What an amount-like text says besides its number: a currency, a direction, or anything else.

The marks are the closed list of tables/amount_marks.csv and the codes of ISO 4217, in any letter case, before or after
the number, with blanks, signs and points around them. Everything else beside a number is a rest, and no currency. The
same patterns serve one text (`amount_text`) and whole columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import polars as pl

from batchpay.schemas.tables import AMOUNT_MARKS, CURRENCIES, CURRENCIES_OF

_APART = r"[\s\u00a0\u202f()+.:'’\u2212\u2013-]+"
_AROUND = f"{_APART[:-1]}*"
"""Signs and blanks between the parts: whether an amount is negative is a question apart from its marks."""
_NUMBER = r"[0-9](?:[0-9.,'’ \u00a0\u202f]*[0-9])?"


def _any_of(marks: Iterable[str]) -> str:
    return "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))


_CURRENCY, _DIRECTION = _any_of(CURRENCIES_OF), _any_of(AMOUNT_MARKS["direction"])
_PARTS = (
    f"(?i)^{_AROUND}(?:(?P<before>{_CURRENCY})(?:{_APART}(?P<then>{_DIRECTION}))?|(?P<from>{_DIRECTION}))?{_AROUND}"
    f"(?P<number>{_NUMBER}){_AROUND}(?:(?P<after>{_CURRENCY})(?:{_APART}|$))?(?P<to>{_DIRECTION})?{_AROUND}$"
)
_CURRENCY_GROUPS = (1, 5)
_MARKED, _FIRST_NUMBER = re.compile(_PARTS), re.compile(_NUMBER)
_NEGATIVE = "^[^0-9]*[(\u2212\u2013-]|[0-9][^0-9]*[\u2212\u2013-][^0-9]*$"


class AmountText(NamedTuple):
    """The parts of an amount-like text."""

    number: str
    """From the first digit to the last, with separators and without a sign; empty where there is no digit."""
    is_negative: bool
    """Whether there is a minus sign, before or after the number, or a parenthesis."""
    currencies: tuple[str, ...]
    """The codes that its mark may stand for: one for `CAD`, several for `$`, none without a mark."""
    direction: str
    """The mark of a direction in capitals (`DR`, `CR`, `D`, `C`, `S`, `H`, ...), else empty."""
    rest: str
    """What is neither number nor a listed mark, such as `K` or `VOID`; nothing is known of the text then."""


@lru_cache(maxsize=10_000)
def amount_text(text: str) -> AmountText:
    """Take an amount-like text apart; where anything in it is on no list, only `number` and `rest` say something."""
    is_negative = re.search(_NEGATIVE, text) is not None
    parts = _MARKED.match(text)
    if parts is None:
        number = _FIRST_NUMBER.search(text)
        return AmountText(number[0] if number else "", is_negative, (), "", _FIRST_NUMBER.sub("", text, 1).strip())
    first, second = (currencies_of(mark or "") for mark in (parts["before"], parts["after"]))
    both = tuple(code for code in first if code in second)  # `$12.00 CAD` is in Canadian dollars
    direction = (parts["then"] or parts["from"] or parts["to"] or "").upper()
    return AmountText(parts["number"], is_negative, both or first + second, direction, "")


def currencies_of(mark: str) -> tuple[str, ...]:
    """Return the codes that a symbol or a code may stand for, in any letter case; none for a text that is neither."""
    return CURRENCIES_OF.get(mark.strip().rstrip(".").lower(), ())


# Expressions over a column

OTHER_CURRENCY = (
    "names {} as its currency, and currencyCode (USD where blank) another, write the code there, or the amount in US "
    "dollars here"
)
"""The message for a currency that contradicts currencyCode."""
UNIT_UNKNOWN = "format: may be in "
"""How the fault of an amount begins whose unit nobody knows: it is in no sum."""
CODES = {mark: " ".join(codes) for mark, codes in CURRENCIES_OF.items()}
"""The codes that a mark may stand for, with blanks between them, by the mark in small letters."""


def has_currency(cell: pl.Expr) -> pl.Expr:
    """Return whether a number has the mark of a currency."""
    return pl.any_horizontal(cell.str.extract(_PARTS, group).is_not_null() for group in _CURRENCY_GROUPS)


def contradicts(codes: pl.Expr, code: pl.Expr) -> pl.Expr:
    """Return whether the codes of a mark, as in CODES, lack currencyCode (null: USD).

    Null for no codes; false for a currencyCode that is none of ISO 4217: that is an error of its own.
    """
    code = code.fill_null("USD")
    return ~codes.str.contains(code, literal=True) & code.is_in(list(CURRENCIES))


def other_currency(cell: pl.Expr, code: pl.Expr) -> pl.Expr:
    """Return the mark of a cell, in capitals, where it is of another currency than its code, else null."""
    marks = [cell.str.extract(_PARTS, group).str.to_lowercase() for group in _CURRENCY_GROUPS]
    codes = [mark.replace_strict(CODES, default=None, return_dtype=pl.String) for mark in marks]
    return pl.coalesce(
        pl.when(contradicts(one, code)).then(mark.str.to_uppercase()) for mark, one in zip(marks, codes, strict=True)
    )


_MARK_PROBLEMS = {
    "direction": "has the mark of a direction, like DR or CR, write DEBIT or CREDIT in transactionType, and the amount "
    "alone here",
    "scale": "is written in thousands or more, like 1.2K, write all digits, like 1250.00",
    "cents": "is marked as cents, write dollars and cents, like 1250.00",
    "percent": "is a percentage and no amount, write the amount itself, like 1250.00",
}
_PROBLEM_OF_MARK = {mark.lower(): _MARK_PROBLEMS[kind] for kind in AMOUNT_MARKS for mark in AMOUNT_MARKS[kind]}
_MARK = _any_of(_PROBLEM_OF_MARK)
_BESIDE = (
    f"(?i)^{_AROUND}(?:(?:{_CURRENCY}){_APART})?({_MARK}){_AROUND}{_NUMBER}{_AROUND}(?:{_CURRENCY})?{_AROUND}$"
    f"|^{_AROUND}(?:{_CURRENCY})?{_AROUND}{_NUMBER}{_AROUND}(?:(?:{_CURRENCY}){_APART})?({_MARK})"
    f"(?:{_APART}(?:{_CURRENCY}))?{_AROUND}$"
)
"""A number with one of these marks, and nothing else but signs and a currency."""
_TEXT_PROBLEMS = {
    r"[\p{Nd}&&[^0-9]]": "has digits of another script, like １２３, write the digits 0 to 9",
    "^['’‘`´]": "begins with an apostrophe, as text does in a spreadsheet, write the number alone, like 1250.00",
    "^[-+]?[0-9.,]+[Ee][-+]?[0-9]+$": "is written as a power of ten and may have lost digits, write it like 1250.00",
}
OTHER_TEXT = "has text beside the number that is no currency, write the amount alone, like 1250.00"
_NUMBER_PROBLEMS = {
    _NEGATIVE: "is negative, write it without a sign or parentheses, and its direction in transactionType",
    "^[^0-9]*0[0-9]": "begins with a zero, like a routing number or a ZIP code, write the amount without it",
    "(?:^|[^0-9])[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?:[^0-9,]|$)": "has its digits in lakhs and crores, like "
    "1,25,000.00, write them without commas",
    "[0-9],[0-9]{1,2}[^0-9]*$": "has a comma before its decimals, write a point there and no other separator",
    "^[^0-9]*[0-9]{1,3}[,.'’ ][0-9]{3}[^0-9]*$": "may have thousands or three decimals, like 1,000, write it like "
    "1000.00",
}


def problem(cell: pl.Expr) -> pl.Expr:
    """Return why a cell is no amount, as a message without its text; null where nothing more is known."""
    by_text = [pl.when(cell.str.contains(pattern)).then(pl.lit(told)) for pattern, told in _TEXT_PROBLEMS.items()]
    mark = pl.coalesce(cell.str.extract(_BESIDE, group) for group in (1, 2)).str.to_lowercase()
    by_mark = mark.replace_strict(_PROBLEM_OF_MARK, default=None, return_dtype=pl.String)
    other = pl.when(cell.str.contains("[0-9]") & ~cell.str.contains(_PARTS)).then(pl.lit(OTHER_TEXT))
    by_number = [pl.when(cell.str.contains(pattern)).then(pl.lit(told)) for pattern, told in _NUMBER_PROBLEMS.items()]
    return pl.coalesce(*by_text, by_mark, other, *by_number)
