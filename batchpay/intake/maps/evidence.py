"""What the cells of another system's column show: formats that can read them, our columns that it can be."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from batchpay.intake.header import letters_of
from batchpay.intake.maps.formats import DateFormat, NumberFormat
from batchpay.schemas import checks, tables, words
from batchpay.schemas.amount_text import currencies_of
from batchpay.schemas.columns import COLUMNS, DATES, MONEY, ROUTING
from batchpay.schemas.tables import COUNTRY_NAMES, STATE_NAMES, STATES

_LISTS = (
    "transactionType",
    "achAccountType",
    "achDepositType",
    "currencyCode",
    "billingCountry",
    "achSecCode",
    "recurringBillingCycle",
)
CHOICES = {name: tables.CHOICES[name] for name in _LISTS} | {"billingState": (*STATES["US"], *STATES["CA"])}
"""Closed lists of ours that files of others have words for."""

_LOOKED_AT = 1000
_FUZZY = 0.86
"""How similar two names are that differ by a slip: difflib's ratio."""
COMBINED = "achAccountType"
"""What a column with `Personal Checking` and `Business Checking` also says, besides achDepositType."""


_HEADERS = {means: names for means, names in words.headers("payment").items() if means in COLUMNS}
_BY_NAME = {words.header_key(name): target for target, names in _HEADERS.items() for name in names}
_BY_NAME |= {words.header_key(name): name for name in COLUMNS}
NAMES = tuple(dict.fromkeys(letters_of(name) for names in _HEADERS.values() for name in names))
"""All known column names: by them a header is found below title rows."""
_OURS_BY_WORD: dict[str, dict[str, str]] = {
    "billingState": {words.folded(name): code for code, name in STATE_NAMES.items()},
    "billingCountry": {words.folded(name): code for code, name in COUNTRY_NAMES.items()},
}


def column_called(name: str) -> tuple[str, bool] | None:
    """Return our column that a name means, and whether exactly; None for a name that resembles none.

    A unit or a currency beside the name does not count: `amount_cents`, `Amount (GBP)`.
    """
    key = words.header_key(name)
    for one in (key, words.header_key(beside(name)[0])):
        if one in _BY_NAME:
            return _BY_NAME[one], True
    close = difflib.get_close_matches(key, _BY_NAME, n=1, cutoff=_FUZZY) if len(key) > 3 else []
    return (_BY_NAME[close[0]], False) if close else None


def beside(name: str) -> tuple[str, str | None, str | None]:
    """Return a name without the unit and the currency that it ends or begins with, and these two."""
    parts = words.parts_of(name)
    unit = currency = None
    for at in range(1, len(parts)):
        said = words.meaning("unit", " ".join(parts[at:]))
        if said is not None:
            parts, unit = parts[:at], said
            break
    for at in (-1, 0):
        if len(parts) > 1 and len(parts[at]) > 2 and currencies_of(parts[at]):
            currency = parts.pop(at).upper()
    return " ".join(parts), unit, currency


def evidence_of(name: str, cells: pl.Series) -> str | None:
    """Return what a column says about payments, by its name or by what it holds: `date`, `status`; None for nothing."""
    some = cells.head(_LOOKED_AT).unique()
    kind = words.evidence(name, some.to_list())
    if kind is None and len(cells):
        ways = dates(cells)
        kind = "date" if ways.best and ways.best[0].count == len(cells) else "amounts" if has_decimals(cells) else None
    return kind


def ours_for(target: str, word: str) -> str | None:
    """Return the member of a closed list that a word certainly means; None where it might be anything."""
    if word in CHOICES[target]:
        return word
    capitals = word.strip().upper()
    if capitals in CHOICES[target]:
        return capitals
    known = words.meaning(target, word) or _OURS_BY_WORD.get(target, {}).get(words.folded(word))
    return known if known in CHOICES[target] else None


_NUMBERS = ((".", ""), (",", ""), (".", ","), (",", "."), (",", " "), (".", "'"), (".", " "))
"""Decimal and thousands, the simplest first."""
_DATES = (
    "%m/%d/%Y", "%d/%m/%Y", "%Y-%m-%d", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y",
    "%Y%m%d", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%b %d, %Y", "%B %d, %Y", "%d %B %Y",
)  # fmt: skip
_SYMBOL = r"([^0-9\s.,'()+\-\x{2212}]{1,4})"


@dataclass(frozen=True)
class Written:
    """One way of reading a column: the format, the texts that it yields, and how many cells it reads."""

    form: NumberFormat | DateFormat
    texts: pl.Series
    count: int


@dataclass(frozen=True)
class Ways:
    """How a column may be written: more than one way where they read the cells differently."""

    best: tuple[Written, ...] = ()
    """Those that read the most cells, each differently for some cell; the most common way first."""
    is_mixed: bool = False
    """Whether another way reads a cell that the best does not."""

    @property
    def is_certain(self) -> bool:
        """Whether there is only one way."""
        return len(self.best) == 1 and not self.is_mixed


def amounts(cells: pl.Series) -> Ways:
    """Find how amounts are written; `cells` has no blank ones."""
    symbols = cells.str.extract(_SYMBOL).drop_nulls()
    symbols = symbols.filter(symbols.str.to_lowercase().is_in(list(tables.CURRENCIES_OF))).mode().sort()
    found = []
    for decimal, thousands in _NUMBERS:
        form = NumberFormat(decimal, thousands, symbols[0] if len(symbols) else "", "CREDIT")
        texts = form.read(cells, "").text
        found.append(Written(form, texts, len(texts) - texts.null_count()))
    return _ways(found)


def dates(cells: pl.Series) -> Ways:
    """Find how dates are written; a day that does not exist is not a date."""
    found = []
    for pattern in _DATES:
        form = DateFormat(pattern)
        texts = form.read(cells, "").text
        days = texts.str.to_date("%m/%d/%Y", strict=False)
        texts = texts.set(days.is_null(), None)
        found.append(Written(form, texts, len(texts) - texts.null_count()))
    return _ways(found)


def _ways(found: Sequence[Written]) -> Ways:
    most = max(one.count for one in found)
    if not most:
        return Ways()
    best: list[Written] = []
    for one in found:
        if one.count == most and not any(one.texts.equals(other.texts) for other in best):
            best.append(one)
    unread = best[0].texts.is_null()
    rivals = (one for one in found if one.count < most)
    return Ways(tuple(best), any((one.texts.is_not_null() & unread).any() for one in rivals))


def ours(target: str, cells: pl.Series) -> int:
    """Count the amounts, dates or words that are written like ours."""
    if target in CHOICES:
        return int(cells.is_in(CHOICES[target]).sum())
    return int(cells.str.contains(r"^[0-9]+\.[0-9]{2}$" if target in MONEY else "^[0-9]{2}/[0-9]{2}/[0-9]{4}$").sum())


def has_decimals(cells: pl.Series) -> bool:
    """Whether most cells end in two decimals: an amount rather than a number of something."""
    return bool(cells.str.contains(r"[0-9][.,][0-9]{2}\)?-?$").sum() * 10 >= len(cells) * 9)


def negatives(written: Written, cells: pl.Series) -> int:
    """Count the amounts with a sign."""
    assert isinstance(written.form, NumberFormat)
    is_credit = written.form.direction(cells) == written.form.negative
    return int((is_credit & written.texts.is_not_null()).sum())


def _routing(cells: pl.Series) -> pl.Series:
    """Flag cells with nine digits whose check digit is right, or eight that have lost their zero."""
    cell = pl.col("cell")
    whole = cell.str.contains("^[0-9]{9}$") & ~checks.has_wrong_check_digit(cell) & ~checks.has_unassigned_prefix(cell)
    return cells.to_frame("cell").select(whole | checks.with_leading_zero(cell).is_not_null()).to_series()


_TESTS: dict[str, tuple[Callable[[pl.Series], pl.Series] | str, str]] = {
    ROUTING: (_routing, "routing numbers, by their check digit"),
    "achAccountNumber": ("^[0-9A-Za-z-]{0,13}[0-9]{4}$", "what can be account numbers"),
    "billingEmail": (
        lambda cells: cells.to_frame("cell").select(~checks.is_not_email(pl.col("cell"))).to_series(),
        "e-mail addresses",
    ),
    "billingPhone": (lambda cells: cells.str.count_matches("[0-9]").is_between(10, 11), "telephone numbers"),
    "billingZip": (r"^[0-9]{5}(-?[0-9]{4})?$|^[A-Z][0-9][A-Z] ?[0-9][A-Z][0-9]$", "zip codes"),
    "achCheckNumber": ("^[0-9]{1,15}$", "numbers"),
    "gatewayId": ("^[1-9][0-9]*$", "numbers"),
}
_TEXTS = ("achNameOnCheck", "billingFirstName", "billingLastName", "billingCompany", "billingCity", "achBankName")


def agreeing(target: str, cells: pl.Series) -> tuple[int, str]:
    """Count the cells that can be what our column holds, and name what that is; all and nothing where any can be."""
    if target in MONEY:
        ways = amounts(cells)
        return (ways.best[0].count if ways.best else 0), "amounts"
    if target in DATES:
        ways = dates(cells)
        return (ways.best[0].count if ways.best else 0), "dates"
    if target in CHOICES:
        known = [word for word in cells.unique() if ours_for(target, word) or words.meaning(target, word)]
        return int(cells.is_in(known).sum()), "words that are known"
    if target in _TEXTS:
        return int(cells.str.contains(r"\p{L}").sum()), "letters"
    if target in _TESTS:
        check, told = _TESTS[target]
        return int((cells.str.contains(check) if isinstance(check, str) else check(cells)).sum()), told
    return len(cells), ""


def grouping(names: pl.Series, routing: pl.Series) -> str:
    """Say that payees stand on lines of their own, and none beside a payment; blank if not. Blank cells are null."""
    is_named, has_bank = names.is_not_null(), routing.is_not_null()
    if not is_named.any() or not has_bank.any() or (is_named & has_bank).any():
        return ""
    return (
        "the file is a report grouped by payee, with names and totals on lines of their own: export it as a list (a "
        "detail or transaction list without subtotals), with the payee in each row"
    )
