"""What headers and words of other programs mean, in English, German, French and Spanish.

A line of tables/headers.csv or tables/words.csv is a header or a word, what it belongs to (`of`), and what it means
there. A meaning with `?` is a guess: the word may mean something else, so a person is asked. Both are read when
something is first looked up.

Headers are `of` a payment file (our columns; `debit` and `credit` amounts; `status`) or of an export of payments made.
Words are `of` one of our closed lists, or
- status: what a status says of a payment that is to be made: `no` or `yes`
- outcome: what an export says became of one: `accepted`, `declined`, `returned`, `under way`
- total: begins a row of totals
- unit: of an amount: `cents`, `dollars`, `thousands`
- account: stands in for an account number
- truth: what programs in those languages write for TRUE and FALSE
- null, remnant: what databases, programs and spreadsheets write for nothing, or for an error: exactly as they write it
- field, code, event: what people call one of our columns, a rule's code, and a kind of the ledger's events
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType

from batchpay.schemas.tables import CURRENCIES, rows_of

_KIND = MappingProxyType({
    "status": "status", "transactionType": "direction", "debit": "direction", "credit": "direction", "payOn": "date",
    "recurringStartDate": "schedule", "recurringBillingCycle": "schedule", "recurringNumOfPayments": "schedule",
    "currencyCode": "currency",
})  # fmt: skip
"""What a header of each meaning, or a column with nothing but words of each list, is evidence of."""
_AFTER_WORDS = re.compile(
    r"\s*[-–—:;,(\[/#0-9]|\s(?:on|at|by|per|since|until|am|von|seit|le|par|el|por)\s", re.IGNORECASE
)
_BETWEEN = re.compile(r"[\s_()\[\]{}/:;,.*-]+|(?<=[a-z])(?=[A-Z])")
_STATUS = re.compile(r"statu[st]|estatus|estado", re.IGNORECASE)
"""A word that makes any header one of a status: `Marital Status`."""


def folded(text: str) -> str:
    """Return letters and digits alone, without case, accents, blanks and punctuation, after NFKC; `#` is `no`."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold().replace("#", " no "))
    return "".join(character for character in plain if character.isalnum())


def parts_of(header: str) -> list[str]:
    """Return the words of a header, as it writes them: `Amount (GBP)*`, `amount_cents`, `amountCents` have two each."""
    return [part for part in _BETWEEN.split(header) if part]


def header_key(text: str) -> str:
    """Return what a header is looked up by: folded, a number at its end, however written, is `no`."""
    return re.sub("(?:number|num|nbr|nr)$", "no", folded(text))


@cache
def headers(of: str) -> Mapping[str, tuple[str, ...]]:
    """Return the headers by what they mean, as the table writes them and in its order."""
    found: dict[str, list[str]] = {}
    for means, name in _table("headers.csv").get(of, ()):
        found.setdefault(means, []).append(name)
    return MappingProxyType({means: tuple(names) for means, names in found.items()})


@cache
def words(of: str) -> Mapping[str, str]:
    """Return what each word means, by the word as the table writes it."""
    return MappingProxyType({word: means for means, word in _table("words.csv").get(of, ())})


@cache
def called(of: str) -> Mapping[str, str]:
    """Return what people call each of our names: one word, in place of several that mean it."""
    return MappingProxyType(dict(_table("words.csv")[of]))


@cache
def _table(name: str) -> dict[str, list[tuple[str, str]]]:
    """Read a table once: by what they belong to, meanings and texts."""
    found: dict[str, list[tuple[str, str]]] = {}
    for of, means, text in map(dict.values, rows_of(name)):
        found.setdefault(of, []).append((means, text))
    return found


@cache
def _by_key(of: str) -> Mapping[str, str]:
    return {header_key(name): means for means, names in headers(of).items() for name in names}


@cache
def _by_word(of: str) -> Mapping[str, str]:
    return {folded(word): means for word, means in words(of).items()}


def header_means(header: str, of: str = "payment") -> str | None:
    """Return what a header means, None where the table does not have it."""
    return _by_key(of).get(header_key(header))


def meaning(of: str, cell: str) -> str | None:
    """Return what a cell's word means, None where the table does not have it."""
    return _by_word(of).get(folded(cell))


def says_no(cell: str) -> str | None:
    """Return the words by which a status says that something is not to be paid, None where it does not.

    What follows them does not matter: `Paid 01/05/2027`, `Void - reissued`.
    """
    for said in (cell, _AFTER_WORDS.split(cell, maxsplit=1)[0]):
        if (means := meaning("status", said)) is not None:
            return said.strip() if means == "no" else None
    return None


def evidence(header: str, cells: Collection[str] = ()) -> str | None:
    """Return what a column is evidence of, by its header or else by its different cells; None where it is of nothing.

    It is one of `status`, `direction`, `date`, `schedule`, `currency`.
    """
    by_name = _KIND.get((header_means(header) or "").removesuffix("?"))
    if by_name or not cells:
        return by_name or ("status" if _STATUS.search(header) else None)
    found = {of: {meaning(of, cell) for cell in cells} for of in ("status", "transactionType", "recurringBillingCycle")}
    # `yes` is an answer to anything, and `1` a number of anything.
    certain = {of: [one for one in means if one and one != "yes" and "?" not in one] for of, means in found.items()}
    said = [of for of, means in found.items() if None not in means and certain[of]]
    if set(cells) <= set(CURRENCIES):
        said.append("currencyCode")
    return _KIND[said[0]] if said else ("status" if _STATUS.search(header) else None)
