"""Amounts, dates and account endings as gateways, banks and spreadsheets write them, read without guessing amounts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+", re.ASCII)
_GROUPED = re.compile(r"[0-9]{1,3}(?:([,.' ])[0-9]{3})(?:\1[0-9]{3})*", re.ASCII)
_CURRENCY = re.compile(r"[A-Z]{3}|[$€£¥]|US\$", re.ASCII | re.IGNORECASE)
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2212": "-", "\u2019": "'"})
_SLASHED = re.compile(r"([0-9]{1,2})[/.\-]([0-9]{1,2})[/.\-]([0-9]{2}|[0-9]{4})\b.*", re.ASCII)
_FROM_THE_YEAR = re.compile(r"([0-9]{4})(?:([-/.])([0-9]{1,2})\2([0-9]{1,2})|([0-9]{2})([0-9]{2}))(?![0-9])", re.ASCII)
_NAMED_MONTH = ("%d-%b-%Y", "%d %b %Y", "%d-%b-%y", "%b %d, %Y", "%B %d, %Y", "%d %B %Y", "%b %d %Y")
_DAYS_NAME = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? +", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r",? +[0-9]{1,2}:[0-9]{2}.*", re.ASCII)
_NOTHING = re.compile(r"[$€£¥]? ?[-\u2013\u2014]?")
"""What a spreadsheet shows for zero, or leaves blank."""
_DIGITS_MAX = 18


def foreign_cents(text: str) -> int | None:
    """Return the cents of an amount as others write it, None where it is not one or has fractions of a cent.

    Reads a currency's sign or code, separators of thousands (`,` `.` `'` or a blank), a decimal comma, and a negative
    amount as `-5.00`, `5.00-`, `(5.00)`, `5.00 DR`. Before three digits a single comma separates thousands and a single
    point separates decimals, so `1.234` has fractions of a cent and is not read.
    """
    number = text.translate(_SPACES).strip()
    negative = False
    if number.startswith("(") and number.endswith(")"):
        number, negative = number[1:-1].strip(), True
    if number[-2:].upper() in ("DR", "CR"):
        negative ^= number[-2:].upper() == "DR"
        number = number[:-2].strip()
    number = _without_currency(number)
    for sign in ("-", "+"):
        if number.startswith(sign) or number.endswith(sign):
            negative ^= sign == "-"
            number = number.removeprefix(sign) if number.startswith(sign) else number.removesuffix(sign)
            break
    plain = _plain_number(_without_currency(number.strip()))
    if plain is None or len(plain) > _DIGITS_MAX:
        return None
    cents = Decimal(plain) * 100
    if cents != cents.to_integral_value():
        return None
    return -int(cents) if negative else int(cents)


def side_cents(text: str) -> int | None:
    """Return the cents in a column for one direction, 0 where it is blank or has the dash that spreadsheets show."""
    return 0 if _NOTHING.fullmatch(text.translate(_SPACES).strip()) else foreign_cents(text)


def _without_currency(number: str) -> str:
    found = _CURRENCY.match(number)
    if found:
        return number[found.end() :].strip()
    for length in (3, 1):
        if _CURRENCY.fullmatch(number[-length:]):
            return number[:-length].strip()
    return number


def _plain_number(number: str) -> str | None:
    """Return digits with a point before the decimals, or None."""
    whole, decimals = number, ""
    at = max(number.rfind("."), number.rfind(","))
    mark = number[at] if at >= 0 else ""
    if mark and number.count(mark) == 1 and (mark == "." or len(number) - at - 1 != 3):
        whole, decimals = number[:at], number[at + 1 :]
    grouped = _GROUPED.fullmatch(whole)
    if grouped:
        whole = whole.replace(grouped[1], "")
    plain = f"{whole}.{decimals}" if decimals else whole
    return plain if _NUMBER.fullmatch(plain) else None


def last_four_of(text: str) -> str:
    """Return the last four characters of an account as others show it (`xxxx-1234`), blank where it shows fewer.

    A spreadsheet that took the four digits for a number has dropped leading zeros: they are restored.
    """
    shown = "".join(character for character in text if character.isalnum())
    tail = shown[-4:]
    return tail.zfill(4) if tail.isdecimal() else ""


def day_comes_first(texts: Iterable[str]) -> bool:
    """Whether a column has 31/12/2026 rather than 12/31/2026: some first part can't be a month, every second can."""
    found = [match for match in map(_SLASHED.fullmatch, texts) if match]
    if any("." in match[0][:6] for match in found):
        return True
    return any(int(match[1]) > 12 for match in found) and not any(int(match[2]) > 12 for match in found)


def foreign_date(text: str, *, day_first: bool = False, pattern: str | None = None) -> date | None:
    """Read a date as others write it, None where it is not one. If given, only `pattern` (strptime's) is tried."""
    text = text.strip()
    patterns = (pattern,) if pattern else _NAMED_MONTH
    if not pattern:
        found = _FROM_THE_YEAR.match(text)
        if found:
            return _date(int(found[1]), int(found[3] or found[5]), int(found[4] or found[6]))
        match = _SLASHED.fullmatch(text)
        if match:
            year = int(match[3]) + (2000 if len(match[3]) == 2 else 0)
            first, second = int(match[1]), int(match[2])
            return _date(year, second, first) if day_first else _date(year, first, second)
        text = _TIME.sub("", text[day.end() :] if (day := _DAYS_NAME.match(text)) else text)
    for one in patterns:
        try:
            return datetime.strptime(text, one).date()  # noqa: DTZ007 - a day has no zone
        except ValueError:
            continue
    return None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
