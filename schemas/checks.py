"""Polars expressions behind the rules, each with its source.

Regexes name digits and letters as ranges ([0-9], since a shorthand class also matches other scripts' digits) and are
anchored at both ends. An expression is null where the cell is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, and_, or_

import polars as pl

from batchpay.schemas import calendar
from batchpay.schemas.columns import COLUMNS, FAULT, MONEY
from batchpay.schemas.forms import EMAILS, FORBIDDEN, NO_BREAK_SPACES, PHONE, UNSEEN, ZERO_WIDTH
from batchpay.schemas.tables import CHOICES, STATES
from batchpay.schemas.words import folded, words

TEXT_CHARACTERS_MAX = 255
AMOUNT_WHOLE_DIGITS_MAX = 8
"""The ACH entry's amount field has ten digits, two of them cents (Nacha Operating Rules, Appendix Three)."""
COUNTED_WHOLE_DIGITS_MAX = 13
"""Amounts with more digits, all rejected, count as 0 in the totals: a row's cents are far within 64 bits."""
NAME_CHARACTERS_MAX = 22
"""Length of the ACH entry's field for the receiver's name."""
CHECK_NUMBER_DIGITS_MAX = 15
"""Length of the ACH entry's check serial number field."""

_CONTINUED = r"\x{A0}-\x{BF}€‚ƒ„…†‡ˆ‰Š‹ŒŽ•˜™š›œžŸ"
_DECODED_TWICE = rf"(?:[ÂÃ][{_CONTINUED}‘’“”–—]|[ÄÅ][{_CONTINUED}]|â€)"
"""Two bytes of UTF-8 read as two Windows-1252 characters; after `Ä` and `Å`, which end words, no quotation marks."""
_MONEY = r"^[0-9]+\.[0-9]{2}$"
_DOLLARS = r"(?:\$|US\$|USD)"
_LOCAL_CHARACTERS_MAX = 64
_WEIGHED = pl.Series(
    [3 * (three // 100) + 7 * (three // 10 % 10) + three % 10 for three in range(1000)], dtype=pl.UInt16
)
"""Three digits times the weights 3, 7, 1 of the ABA check digit."""
_ZIP = {"US": r"^[0-9]{5}(?:-[0-9]{4})?$", "CA": r"^[A-Z][0-9][A-Z] ?[0-9][A-Z][0-9]$"}


def not_matching(cell: pl.Expr, pattern: str) -> pl.Expr:
    """Return whether the cell does not match the anchored pattern."""
    return ~cell.str.contains(pattern)


# Every text


def has_forbidden_characters(cell: pl.Expr) -> pl.Expr:
    """Return whether the cell has control characters (Unicode Cc: NUL too), U+FFFD, or bidirectional controls.

    The last reorder text on a screen: the embeddings, overrides and isolates of Unicode Standard Annex 9.
    """
    return cell.str.contains(f"[{FORBIDDEN}]")


def has_outer_whitespace(cell: pl.Expr) -> pl.Expr:
    """Return whether there is white space (Unicode White_Space) at either end."""
    return cell.str.contains(r"^\s|\s$")


def has_unseen_characters(cell: pl.Expr) -> pl.Expr:
    """Return whether the cell has what no identifier may hold: forbidden characters, or any that can't be seen.

    Two identifiers that look the same may differ in these: format characters (Unicode Cf), default-ignorable ones
    (Unicode Standard Annex 44), and the no-break forms of space and hyphen.
    """
    return cell.str.contains(f"[{FORBIDDEN}{UNSEEN}]")


def has_copied_characters(cell: pl.Expr) -> pl.Expr:
    """Return whether a name has traces of copying from a web page or decoding twice.

    These are no-break spaces, zero-width characters, `Ã©`.
    """
    return cell.str.contains(f"[{NO_BREAK_SPACES}{ZERO_WIDTH}]|{_DECODED_TWICE}")


def is_remnant(cell: pl.Expr) -> pl.Expr:
    """Return whether a cell has what a program writes in place of a value that it could not find: `#N/A`, `<null>`."""
    return _is_word_of(cell, "remnant")


def is_null_word(cell: pl.Expr) -> pl.Expr:
    """Return whether a cell has a word that programs write for nothing: `NULL`, `nan`; people are called Null, too."""
    return _is_word_of(cell, "null")


def _is_word_of(cell: pl.Expr, of: str) -> pl.Expr:
    return cell.str.to_lowercase().is_in(sorted({word.lower() for word in words(of)}))


def is_too_long(cell: pl.Expr) -> pl.Expr:
    """Return whether the cell has more characters than any field takes."""
    return cell.str.len_chars() > TEXT_CHARACTERS_MAX


def trimmed(cell: pl.Expr) -> pl.Expr:
    """Return the cell without white space at its ends, null where nothing is left."""
    text = cell.str.strip_chars()
    return pl.when(text != "").then(text)


# Closed lists


def not_one_of(cell: pl.Expr, values: Sequence[str]) -> pl.Expr:
    """Return whether the cell is not a member of a closed list, letter for letter."""
    if len(values) <= 4:  # comparing short texts is cheaper than looking them up
        return reduce(and_, [cell != value for value in values])
    return ~cell.is_in(list(values))


def one_of(cell: pl.Expr, values: Sequence[str]) -> pl.Expr:
    """Return whether the cell is a member of a closed list."""
    return ~not_one_of(cell, values)


def is_truth_word(cell: pl.Expr, *, but: Sequence[str] = ()) -> pl.Expr:
    """Return whether the cell is a word for true or false in any language of the table, except those in `but`."""
    kept = {word.lower() for word in but}
    found = [word for word in words("truth") if word not in kept]
    return cell.str.strip_chars().str.to_lowercase().is_in(found)


def member_in_capitals(cell: pl.Expr, values: Sequence[str]) -> pl.Expr:
    """Return the member that the cell equals except for letter case, else null."""
    capitals = _in_capitals(cell)
    return pl.when(capitals.is_in(list(values))).then(capitals)


def _in_capitals(cell: pl.Expr) -> pl.Expr:
    """Return an ASCII text in capitals, null for any other: `ß` in capitals is SS, which is South Sudan."""
    return pl.when(cell.str.contains(r"^[\x20-\x7E]*$")).then(cell.str.to_uppercase())


# Money


def is_not_money(cell: pl.Expr) -> pl.Expr:
    """Return whether the cell is anything but digits, a point and two decimals."""
    return not_matching(cell, _MONEY)


def is_zero(cell: pl.Expr) -> pl.Expr:
    """Return whether a well-formed amount is 0.00."""
    return _significant(cell) == ".00"


def has_too_many_digits(cell: pl.Expr) -> pl.Expr:
    """Return whether a well-formed amount is more than the ACH amount field holds: above 99999999.99."""
    return _significant(cell).str.len_bytes() > AMOUNT_WHOLE_DIGITS_MAX + 3


def is_above(cell: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Return whether a well-formed amount is more than another, of any length; null where either is not an amount."""
    left, right = _significant(cell), _significant(other)
    longer = left.str.len_bytes() > right.str.len_bytes()
    as_long = left.str.len_bytes() == right.str.len_bytes()
    both = cell.str.contains(_MONEY) & other.str.contains(_MONEY)
    return both & (longer | (as_long & (left > right)))


def cents(cell: pl.Expr) -> pl.Expr:
    """Return the cents of an amount as Int64, null where it can't be read or has too many digits to count.

    What --normalize would repair, or a suggestion would correct, counts as if it were: a file has the same control
    totals with and without.
    """
    cell = trimmed(cell)
    return cents_of_money(pl.coalesce(with_decimals(cell), as_money(cell), cell))


def cents_of_money(cell: pl.Expr) -> pl.Expr:
    """Return the cents of a well-formed amount, null for any other cell."""
    text = _significant(cell)
    counted = cell.str.contains(_MONEY) & (text.str.len_bytes() <= COUNTED_WHOLE_DIGITS_MAX + 3)
    return pl.when(counted).then(text.str.replace(".", "", literal=True)).cast(pl.Int64, strict=False)


def cents_of_plain(cell: pl.Expr) -> pl.Expr:
    """Return the cents of an amount that keeps every rule, in a cheaper way; undefined for other cells."""
    return cell.str.replace(".", "", literal=True).cast(pl.Int64, strict=False)


def with_decimals(cell: pl.Expr) -> pl.Expr:
    """Return the amount with its missing decimals added: 12 and 12.5 as 12.00 and 12.50, else null."""
    return (
        pl.when(cell.str.contains(r"^(?:0|[1-9][0-9]*)$"))
        .then(cell + ".00")
        .when(cell.str.contains(r"^(?:0|[1-9][0-9]*)\.[0-9]$"))
        .then(cell + "0")
    )


def as_money(cell: pl.Expr) -> pl.Expr:
    """Return the amount that a cell certainly means, else null: without decimals, marked as dollars, with commas.

    `1,000` remains uncertain: it may be one with three decimals.
    """
    grouped = cell.str.extract(
        rf"(?i)^{_DOLLARS}? ?([0-9]{{1,3}}(?:,[0-9]{{3}})+\.[0-9]{{2}}|[0-9]+\.[0-9]{{2}}) ?{_DOLLARS}?$"
    )
    meant = pl.coalesce(with_decimals(cell), grouped.str.replace_all(",", "", literal=True))
    # A number too long for an amount may belong to another column: it is not repeated.
    return pl.when(_significant(meant).str.len_bytes() <= AMOUNT_WHOLE_DIGITS_MAX + 3).then(meant)


def _significant(cell: pl.Expr) -> pl.Expr:
    return cell.str.strip_chars_start("0")


# Bank


def has_wrong_check_digit(cell: pl.Expr) -> pl.Expr:
    """Return whether the ABA check digit is wrong; null for a cell that is not a number.

    3(d1+d4+d7) + 7(d2+d5+d8) + (d3+d6+d9) must be divisible by 10.
    """
    number = cell.cast(pl.UInt32, strict=False)
    # The weights repeat every three digits: a table of weighted sums of three digits saves most divisions.
    weighed = [pl.lit(_WEIGHED).gather(number // power % 1000) for power in (1_000_000, 1000, 1)]
    total: pl.Expr = reduce(add, weighed)
    return total % 10 != 0


def has_unassigned_prefix(cell: pl.Expr) -> pl.Expr:
    """Return whether the first two digits are not assigned by the ABA (00-12, 21-32, 61-72, 80), or all are zeros."""
    return not_matching(cell, r"^(?:0[0-9]|1[0-2]|2[1-9]|3[0-2]|6[1-9]|7[0-2]|80)[0-9]{7}$") | (cell == "000000000")


def with_leading_zero(cell: pl.Expr) -> pl.Expr:
    """Return the routing number of a cell that lost its leading zero, if its check digit is then right, else null."""
    number = "0" + cell
    lost = cell.str.contains(r"^[0-9]{8}$") & ~has_unassigned_prefix(number) & ~has_wrong_check_digit(number)
    return pl.when(lost).then(number)


def is_not_account(cell: pl.Expr, *, hyphens: bool) -> pl.Expr:
    """Return whether the cell is not 1 to 17 letters or digits (the ACH entry's account field), or is all zeros.

    With `hyphens`, inner hyphens are allowed.
    """
    written = not_matching(cell, r"^[A-Za-z0-9]{1,17}$")
    if hyphens:
        written &= not_matching(cell, r"^[A-Za-z0-9](?:[A-Za-z0-9-]{0,15}[A-Za-z0-9])?$")
    return written | cell.str.contains(r"^[0-]+$")


def is_masked(cell: pl.Expr) -> pl.Expr:
    """Return whether a cell has a part of an account number (`XXXX1234`), a word (`ON FILE`), or a doubted number."""
    stand_ins = {text for word in words("account") for text in (folded(word), word.lower().replace(" ", ""))}
    letters = cell.str.to_lowercase().str.replace_all(r"[^\p{L}\p{N}]", "")
    parts = cell.str.contains(r"[*#•●…?]|\.\.|^(?i)(?:[0-9]{1,6}[ -]?)?(?:x{2,}[ -]?)+[0-9]{0,6}$")
    return parts | letters.is_in(sorted(stand_ins))


def is_scientific(cell: pl.Expr) -> pl.Expr:
    """Return whether a spreadsheet saved a long number as 1.23457E+11 or 1,23457E+11: most of its digits are lost."""
    return cell.str.contains(r"^[0-9](?:[.,][0-9]+)?[Ee]\+[0-9]{1,3}$").fill_null(value=False)


def is_unusual_account(cell: pl.Expr) -> pl.Expr:
    """Return whether an account has letters, or under four characters: allowed, but rarely meant.

    Hyphens count for nothing: where they are not let through, the cell has failed already.
    """
    return not_matching(cell, r"^(?:[0-9]-*){4,}$")


def masked(cell: pl.Expr) -> pl.Expr:
    """Return four stars and the last four characters; nothing of a text of four or fewer is shown."""
    return pl.when(cell.str.len_chars() > 4).then(pl.lit("****") + cell.str.tail(4)).otherwise(pl.lit("****"))


# Addresses


def is_not_phone(cell: pl.Expr) -> pl.Expr:
    """Return whether the cell has none of the five forms in which the gateway takes a phone number."""
    return not_matching(cell, PHONE.whole)


def as_phone(cell: pl.Expr) -> pl.Expr:
    """Return ten digits, however they are separated, as NNN-NNN-NNNN, else null; +44 and the like is no such number."""
    elsewhere = cell.str.contains(r"\+") & ~cell.str.contains(r"^ *\(?\+ *1[^0-9]*(?:[0-9][^0-9]*){10}$")
    digits = cell.str.replace_all(r"[ ().+-]", "").str.replace(r"^1([0-9]{10})$", "${1}")
    grouped = digits.str.replace(r"^([0-9]{3})([0-9]{3})([0-9]{4})$", "${1}-${2}-${3}")
    return pl.when(digits.str.contains(r"^[0-9]{10}$") & ~elsewhere).then(grouped)


def is_not_email(cell: pl.Expr) -> pl.Expr:
    """Return whether any address of the list is not valid.

    An address is a dot-atom of at most 64 characters (RFC 5322 3.2.3, RFC 5321 4.5.3.1.1), `@`, two or more labels.
    """
    too_long = cell.str.contains(rf"(?:^|;)[^@;]{{{_LOCAL_CHARACTERS_MAX + 1},}}@")
    return not_matching(cell, EMAILS.whole) | too_long


def as_emails(cell: pl.Expr) -> pl.Expr:
    """Return the list of addresses without blanks and empty entries between them, if it is then valid, else null."""
    tidy = cell.str.replace_all(r"[ ]*;[ ;]*", ";").str.strip_chars(";")
    return pl.when(~is_not_email(tidy)).then(tidy)


def is_not_state(state: pl.Expr, country: pl.Expr, states: dict[str, tuple[str, ...]]) -> pl.Expr:
    """Return whether the state is not one of its country's, for the two countries with a list.

    Without a country, it must be a state of either.
    """
    of_country = {name: state.is_in(list(codes)) for name, codes in states.items()}
    wrong = [country.eq_missing(pl.lit(name)) & ~is_one for name, is_one in of_country.items()]
    return reduce(or_, wrong, country.is_null() & ~reduce(or_, of_country.values()))


def state_in_capitals(state: pl.Expr, country: pl.Expr, states: dict[str, tuple[str, ...]]) -> pl.Expr:
    """Return the state's abbreviation where only its letter case is wrong, else null."""
    capitals = _in_capitals(state)
    listed = country.is_null() | one_of(country, list(states))
    return pl.when(listed & ~is_not_state(capitals, country, states)).then(capitals)


def is_not_zip(zip_code: pl.Expr, country: pl.Expr) -> pl.Expr:
    """Return whether a code is not written as in its country (USPS, Canada Post)."""
    wrong = [country.eq_missing(pl.lit(name)) & not_matching(zip_code, pattern) for name, pattern in _ZIP.items()]
    return reduce(or_, wrong)


# Dates


def is_not_date_format(cell: pl.Expr) -> pl.Expr:
    """Return whether the cell is anything but MM/DD/YYYY."""
    return not_matching(cell, r"^[0-9]{2}/[0-9]{2}/[0-9]{4}$")


def as_date(cell: pl.Expr) -> pl.Expr:
    """Return the date of MM/DD/YYYY, null where the calendar has no such date; there is no year 0."""
    parsed = cell.str.to_date("%m/%d/%Y", strict=False)
    return pl.when(parsed.dt.year() > 0).then(parsed)


def is_not_date(cell: pl.Expr) -> pl.Expr:
    """Return whether a well-formed date does not exist in the calendar."""
    return cell.is_not_null() & as_date(cell).is_null()


def date_from_iso(cell: pl.Expr) -> pl.Expr:
    """Return an ISO 8601 date as MM/DD/YYYY, else null."""
    parsed = (
        pl.when(cell.str.contains(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")).then(cell).str.to_date("%Y-%m-%d", strict=False)
    )
    return parsed.dt.strftime("%m/%d/%Y")


def is_not_banking_day(cell: pl.Expr) -> pl.Expr:
    """Return whether the date is a Saturday, a Sunday, or a holiday of the Federal Reserve Banks."""
    day = as_date(cell)
    return (day.dt.weekday() >= 6) | day.is_in(list(calendar.HOLIDAYS))


_STATES = {"billingState": "billingCountry", "shippingState": "shippingCountry"}


def normalize(frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Repair the known columns that the frame has; also return how many cells of each column were changed."""
    present = [column for column in COLUMNS if column in frame.columns]
    repaired = frame.with_columns(trimmed(pl.col(column)) for column in present)
    repaired = repaired.with_columns(
        [_choice_in_capitals(column) for column in present if column in CHOICES]
        + [_with_decimals(column, repaired) for column in present if column in MONEY]
    )
    repaired = repaired.with_columns(
        [_state_in_capitals(column, _STATES[column], repaired) for column in present if column in _STATES]
    )
    changed = {column: int(frame[column].ne_missing(repaired[column]).sum()) for column in present}
    return repaired, {column: count for column, count in changed.items() if count}


def _choice_in_capitals(column: str) -> pl.Expr:
    cell = pl.col(column)
    return pl.coalesce(member_in_capitals(cell, CHOICES[column]), cell)


def _with_decimals(column: str, frame: pl.DataFrame) -> pl.Expr:
    """Return an amount with its decimals, as it is where the reader has found a fault: it may not be dollars."""
    cell, fault = pl.col(column), FAULT + column
    is_sound = pl.col(fault).is_null() if fault in frame.columns else pl.lit(value=True)
    return pl.when(is_sound).then(pl.coalesce(with_decimals(cell), cell)).otherwise(cell)


def _state_in_capitals(state: str, country: str, frame: pl.DataFrame) -> pl.Expr:
    cell = pl.col(state)
    of = pl.col(country) if country in frame.columns else pl.lit(None, pl.String)
    return pl.coalesce(state_in_capitals(cell, of, STATES), cell)
