"""Forms: regular expressions for cells that certainly keep the rules of their column.

A form is narrower than its rules: what it matches is proven valid, what it does not match is checked by every rule. It
is declared with the rule it covers; a property test shows, rule by rule, that no matching cell breaks it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from batchpay.schemas.words import words

TEXT_BYTES_MAX = 255
"""A text of this many bytes has no more characters than any field takes."""
FORBIDDEN = r"\p{Cc}\x{FFFD}\x{202A}-\x{202E}\x{2066}-\x{2069}"
"""Control characters (Unicode Cc: NUL too), U+FFFD, and the characters that reorder text on a screen: the embeddings,
overrides and isolates of Unicode Standard Annex 9. For use within a character class."""

NO_BREAK_SPACES = r"\x{A0}\x{2007}\x{202F}"
ZERO_WIDTH = r"\x{200B}-\x{200D}\x{2060}\x{FEFF}"
UNSEEN = rf"\p{{Cf}}\p{{Default_Ignorable_Code_Point}}{NO_BREAK_SPACES}\x{{2011}}"
"""Format characters (Unicode Cf), default-ignorable ones (Unicode Standard Annex 44), and the no-break forms of space
and hyphen."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which the cells of a column may be written."""

    pattern: str
    """Matches the whole cell; without bounded repetition of a large character class, which makes matching slow."""
    bytes_max: int | None = None
    """The most bytes that a cell may have, where the pattern alone allows more than the rules do."""
    members: tuple[str, ...] = ()
    """All texts that the pattern matches, where they are few: comparing is cheaper than matching."""

    @property
    def whole(self) -> str:
        """The pattern, anchored."""
        return f"^(?:{self.pattern})$"


TEXT = Form(rf"[^\s{FORBIDDEN}](?:[^{FORBIDDEN}]*[^\s{FORBIDDEN}])?", TEXT_BYTES_MAX)


def _class_of(character: str) -> str:
    return f"[{re.escape(character.lower())}{re.escape(character.upper())}]"


def _no_placeholder(first: str, middle: str, last: str) -> str:
    """Return a pattern for texts of these classes of characters that are neither a null word nor a remnant.

    A cell that begins like one of these words, in any letter case, goes on with another visible character of ASCII, or
    with a blank, or ends earlier. All that begins with a sign as some of them do is left out, but not `#12`.
    """
    known = {word.lower() for of in ("null", "remnant") for word in words(of)}
    lettered = {word for word in known if word[0].isalnum()}
    begun = sorted({word[:end] for word in lettered for end in range(1, len(word) + 1)})
    after = {
        start: {word[len(start)] for word in lettered if word.startswith(start) and word != start} for start in begun
    }
    written = {start: "".join(map(_class_of, start)) for start in begun}
    other = "".join(map(_class_of, sorted({word[0] for word in known})))
    safe = [f"[{first}&&[^{other}]]", "#[0-9]"]
    safe += [f"{written[start]}[!-~&&[^{''.join(map(_class_of, sorted(after[start])))}\\s]]" for start in begun]
    short = "|".join(written[start] for start in begun if start not in lettered)
    return f"(?:{'|'.join(safe)})(?:{middle}*{last})?|(?:{'|'.join(written.values())}) {middle}*{last}|{short}"


IDENTIFIER = Form(_no_placeholder("[!-~]", "[ -~]", "[!-~]"), TEXT_BYTES_MAX)
"""Visible ASCII: the classes of everything else that can't be seen are slow to search for."""
_UNCOPIED = rf"{FORBIDDEN}{NO_BREAK_SPACES}{ZERO_WIDTH}ÂÃÄÅ€"
"""Excludes all that copying leaves, and the letters of which every text decoded twice has one."""
NAME = Form(_no_placeholder(rf"[^\s{_UNCOPIED}]", f"[^{_UNCOPIED}]", rf"[^\s{_UNCOPIED}]"), TEXT_BYTES_MAX)
MONEY = Form(r"[0-9]{1,8}\.[0-9]{2}")
AMOUNT = Form(r"[1-9][0-9]{0,7}\.[0-9]{2}|0\.(?:[1-9][0-9]|0[1-9])")
"""More than 0.00, and no more than an ACH entry can carry."""
GATEWAY_ID = Form(r"0{0,2}[1-9][0-9]{0,17}")
ACCOUNT = Form(r"[1-9][0-9]{3,16}|0[1-9][0-9]{2,15}|00[1-9][0-9]{1,14}|000[1-9][0-9]{0,13}")
"""Four to 17 digits that do not begin with four zeros."""
ROUTING = Form(r"(?:0(?:[1-9][0-9]|0[1-9])|(?:1[0-2]|2[1-9]|3[0-2]|6[1-9]|7[0-2]|80)[0-9])[0-9]{6}")
"""Nine digits with an assigned prefix that do not begin with three zeros."""
CHECK_NUMBER = Form(r"[0-9]{1,15}")
DATE = Form(r"[0-9]{2}/[0-9]{2}/[0-9]{4}")
NUMBER_OF_PAYMENTS = Form(r"[1-9][0-9]{0,4}")
PHONE = Form(
    r"1-[0-9]{3}-[0-9]{3}-[0-9]{4}|[0-9]{3}-[0-9]{3}-[0-9]{4}|[0-9]{3}\.[0-9]{3}\.[0-9]{4}"
    r"|[0-9]{3} [0-9]{3} [0-9]{4}|\([0-9]{3}\) [0-9]{3}-[0-9]{4}",
)

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_ADDRESS = rf"{_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+[A-Za-z]{{2,}}"
EMAILS = Form(rf"{_ADDRESS}(?:;{_ADDRESS})*", 64)
"""With so few bytes the part before the `@` can't be too long."""


def closed_list(values: Sequence[str]) -> Form:
    """Make the form of a closed list of letters and digits."""
    return Form("|".join(map(re.escape, values)), members=tuple(values))
