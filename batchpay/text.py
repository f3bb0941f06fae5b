"""Values as people, spreadsheets and JSON show them: printable text, amounts, times, totals, guarded cells.

A leaf of plain Python. Wherever batchpay shows a value it goes through here, so that a control character, a formula or
a rounded amount can't slip in somewhere.
"""

from __future__ import annotations

import codecs
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from batchpay.payment import Totals, format_cents

PAGE_WIDTH = 80
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes as the beginning of a formula."""
NEGATIVE_AMOUNT = r"-[0-9]+\.[0-9]{2}"
"""What is a number to a spreadsheet, though it begins like a formula: with an apostrophe no sum would count it."""


def printable(text: str, *, keep: str = "", characters_max: int | None = None) -> str:
    """Escape characters that could control a terminal, forge a line or reverse the reading direction; cut a long text.

    Characters in `keep` stay as they are. The cut text ends with an ellipsis and has `characters_max` characters.
    """
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() or character in keep else repr(character)[1:-1] for character in text
        )
    if characters_max is not None and len(text) > characters_max:
        text = text[: characters_max - 1] + "…"
    return text


def wrapped(text: str, *, first: str = "", rest: str = "", width: int = PAGE_WIDTH) -> list[str]:
    """Wrap a printable text at words; only a word longer than a line is cut.

    `first` precedes the first line, `rest` the others; there is always one line.
    """
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [
        first.rstrip()
    ]


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return `1 batch`, `1,204 batches`: a number of things; `many` is given where it is not `one` plus an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def row_count(count: int) -> str:
    """Return `1 row`, `1,204 rows`."""
    return counted(count, "row")


_SHEETS = (".xlsx", ".xlsm", ".ods", ".fods", ".parquet")


def place_word(file: str) -> str:
    """Return what a row's position is called in a file of this name: a CSV has lines, a sheet has rows."""
    return "row" if file.lower().endswith(_SHEETS) else "line"


def place_of(word: str, row: int, line: int | None) -> str:
    """Return where a person finds a row in its file: `line 5`, `row 5`. `word` is the file's own (`place_word`)."""
    return f"row {row}" if line is None else f"{word} {line}"


def amounts_apart(amounts: Iterable[tuple[str, int]]) -> str:
    """Return what payments of these directions and cents total: debits and credits apart where there are both."""
    sides: dict[str, int] = {}
    for direction, cents in amounts:
        sides[direction] = sides.get(direction, 0) + cents
    if len(sides) > 1:
        return ", ".join(f"{name} {money(cents)}" for name, cents in sorted(sides.items(), reverse=True))
    return money(sum(sides.values()))


def totals_apart(parts: Iterable[Mapping[str, Totals]]) -> str:
    """Return the totals of rows counted by direction: debits and credits apart where there are both."""
    return amounts_apart((name, totals.cents) for part in parts for name, totals in part.items() if totals.rows)


_SIDES = (("CREDIT", "Send", "credit"), ("DEBIT", "Collect", "debit"))


def moved(sides: Mapping[str, Totals], currencies: Mapping[str, Totals] | None = None) -> str:
    """Return what payments move: `Send 2 credits, USD 30.50 · Collect 1 debit, USD 30.25 · net -0.25`.

    Money in and money out are never one figure. `currencies` are totals by currency; none means US dollars. Where
    there are several, each stands by itself, named a control total if both directions are in it.
    """
    currencies = currencies or {}
    shown = [(verb, word, sides[side]) for side, verb, word in _SIDES if side in sides and sides[side].rows]
    if len(currencies) > 1:
        each = ", ".join(f"{code} {money(one.cents)}" for code, one in sorted(currencies.items()))
        told = [f"{verb} {counted(one.rows, word)}" for verb, word, one in shown]
        return " · ".join([*told, f"control totals {each}" if len(shown) > 1 else each])
    code = next(iter(currencies), "USD")
    told = [f"{verb} {counted(one.rows, word)}, {code} {money(one.cents)}" for verb, word, one in shown]
    if len(shown) > 1:
        net = shown[1][2].cents - shown[0][2].cents
        told.append(f"net {'+' if net > 0 else ''}{money(net)}")
    return " · ".join(told) or "Send nothing"


def sum_word(word: str, *parts: Mapping[str, Totals]) -> str:
    """Return `control total` where there are both directions: their sum is not money moved; otherwise `word`.

    The parts may be by currency as well.
    """
    return "control total" if len({name for part in parts for name, one in part.items() if one.rows}) > 1 else word


def currencies_note(by_currency: Mapping[str, Totals]) -> str | None:
    """Return the note with the totals of each currency, None where there is but one: no sum of several is money."""
    told = [f"{code} {row_count(one.rows)}, {money(one.cents)}" for code, one in sorted(by_currency.items())]
    return f"payments in several currencies, each added up by itself: {'; '.join(told)}" if len(told) > 1 else None


def column_name(text: str) -> str:
    """Return a name from a file, fit for one line of a message: where a file has no header it is a payment's cell."""
    return printable(masked(text), characters_max=40)


_LONG_NUMBER = re.compile(r"(?<!\d)(?!\d{4}-\d\d-\d\d\b|\d\d-\d\d-\d{4}\b)\d(?:[ -]?\d){6,}")


def masked(text: str) -> str:
    """Return a text in which numbers long enough to be an account's show their last four digits only; dates stay."""
    return _LONG_NUMBER.sub(lambda found: f"****{re.sub('[ -]', '', found[0])[-4:]}", text)


def guarded(cell: str | None) -> str | None:
    """Return a cell that no spreadsheet runs as a formula: one that it would run gets a leading apostrophe."""
    runs = cell is not None and cell.startswith(FORMULA_STARTS) and not re.fullmatch(NEGATIVE_AMOUNT, cell)
    return f"'{cell}" if runs else cell


def money(cents: int) -> str:
    """Return an amount for people: 1,234.56."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"


def amount(plain: str | None) -> str:
    """Return an amount from our own JSON, `1234.56`, for people: 1,234.56; nothing for none."""
    return f"{Decimal(plain):,}" if plain else ""


def totals_json(totals: Totals) -> dict[str, Any]:
    """Return rows and cents as JSON shows them."""
    return {"rows": totals.rows, "amount": format_cents(totals.cents)}


def left_out_json(left_out: Mapping[str, Totals]) -> dict[str, Any]:
    """Return what a map leaves out of a file, by word, as JSON shows it."""
    by_word = [{"word": word, **totals_json(totals)} for word, totals in left_out.items()]
    return {**totals_json(sum(left_out.values(), Totals())), "by_word": by_word}


def left_out_note(left_out: Mapping[str, Totals]) -> str:
    """Return the note on what a map leaves out of a file."""
    total = sum(left_out.values(), Totals())
    told = (f"{word or 'blank'}: {row_count(one.rows)}, {money(one.cents)}" for word, one in left_out.items())
    return f"the map leaves out {row_count(total.rows)}, {money(total.cents)}, as no payments ({'; '.join(told)})"


def instant(moment: datetime | None) -> str | None:
    """Return a time as files and JSON show it: UTC, ISO 8601, to the millisecond."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(moment: datetime | None) -> str:
    """Return a time for people, in this machine's zone, which is named; `never` for None."""
    return "never" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def compatible(text: str) -> str:
    """Return a text without what case, width and composed accents make different."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def folded(text: str) -> str:
    """Return what two spellings of a text share: case, width, composed accents and what nobody sees don't matter."""
    if text.isascii():
        return " ".join(text.lower().split())
    text = compatible(text)
    return " ".join("".join(character for character in text if unicodedata.category(character) != "Cf").split())


_NO_FILES = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "unicode_escape", "raw_unicode_escape")


def is_text_encoding(name: str) -> bool:
    """Return whether a file of text may be in an encoding: not in one of bytes (zip), names (idna) or source code."""
    try:
        " ".encode(name)
        return codecs.lookup(name).name not in _NO_FILES and bool(codecs.getincrementaldecoder(name))
    except (LookupError, ValueError):
        return False


def write_ranges(rows: Iterable[int]) -> str:
    """Write row numbers compactly: 1, 2, 3, 7 -> `1-3,7`."""
    numbers = sorted(rows)
    if numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers))):  # the usual case
        return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    ends = [at for at, (row, following) in enumerate(pairwise(numbers), 1) if following != row + 1]
    parts = (numbers[first:end] for first, end in pairwise((0, *ends, len(numbers))))
    return ",".join(str(part[0]) if part[0] == part[-1] else f"{part[0]}-{part[-1]}" for part in parts if part)


def read_ranges(text: str) -> Iterator[tuple[int, int]]:
    """Read what `write_ranges` wrote, as pairs of a first and a last row; raises ValueError."""
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        yield int(first), int(last or first)
