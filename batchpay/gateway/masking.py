"""What an answer must not bring into the ledger: the payment's account and routing number, and our key.

A gateway may repeat an account number in its text in any form: truncated, spaced, hyphenated, in full-width digits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

DIGITS_LEAST = 5
"""This many consecutive digits of an account are masked, wherever they appear."""
_VISIBLE_CHARACTERS = 4
_BETWEEN = re.compile(r"[\W_]+")
"""What may appear between the characters of a secret."""
_MANY_DIGITS = re.compile(rf"\d(?:[\W_]*\d){{{DIGITS_LEAST - 1},}}")
_DIGIT = re.compile(r"\d")


@dataclass(slots=True)
class Secrets:
    """What one answer must not repeat."""

    account: str = field(default="", repr=False)
    """Masked wherever five or more of its digits appear in sequence."""
    others: Sequence[str] = field(default=(), repr=False)
    """Masked wherever they appear whole."""


def masked(text: str, secrets: Secrets) -> str:
    """Replace secrets with asterisks, leaving at most their last four characters.

    Digits of other scripts and widths become plain ones (NFKC), so that no form hides them.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if _MANY_DIGITS.search(text):
        digits = _BETWEEN.sub("", secrets.account)
        text = _MANY_DIGITS.sub(lambda found: _without_digits_of(digits, found[0]), text)
    bare = _bare(text)
    for secret in (secrets.account, *secrets.others):
        if len(secret) > _VISIBLE_CHARACTERS and _bare(secret) in bare:
            text = _without(secret, text)
            bare = _bare(text)
    return text


def _without_digits_of(account: str, text: str) -> str:
    """Mask the longest pieces of an account in a text of digits and separators."""
    places = [found.start() for found in _DIGIT.finditer(text)]
    digits = "".join(str(unicodedata.decimal(text[place])) for place in places)
    parts, written, at = [], 0, 0
    while at + DIGITS_LEAST <= len(digits):
        length = 0
        while at + length < len(digits) and digits[at : at + length + 1] in account:
            length += 1
        if length < DIGITS_LEAST:
            at += 1
            continue
        ends_it = digits[at : at + length].endswith(account[-_VISIBLE_CHARACTERS:])
        parts += [text[written : places[at]], "****", account[-_VISIBLE_CHARACTERS:] if ends_it else ""]
        at += length
        written = places[at - 1] + 1
    return "".join([*parts, text[written:]])


def _bare(text: str) -> str:
    return (text if text.isalnum() else _BETWEEN.sub("", text)).casefold()


def _without(secret: str, text: str) -> str:
    """Mask a whole secret, even if there are separators between its characters."""
    pattern = rf"(?:{_BETWEEN.pattern})?".join(map(re.escape, _bare(secret)))
    return re.sub(pattern, "****" + secret[-_VISIBLE_CHARACTERS:], text, flags=re.IGNORECASE)
