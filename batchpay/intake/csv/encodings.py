"""In which encoding a file of text is that is not UTF-8: proposed by the names that each makes of it.

Nobody knows for certain, and a wrong encoding pays `RenŽ`: so a person sees how the names would read, and names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from batchpay.text import column_name

ENCODINGS = {
    "cp1252": "Windows, Western Europe and America (cp1252)",
    "cp850": "DOS and older programs, Western Europe (cp850)",
    "mac-roman": "Macintosh (mac-roman)",
    "cp1250": "Windows, Central Europe (cp1250)",
    "cp1251": "Windows, Cyrillic (cp1251)",
    "iso-8859-15": "Latin 9 (iso-8859-15)",
    "utf-16": "Unicode, two bytes (utf-16)",
}
"""What a person may choose, the most common first; equal evidence is for the first."""
_GUESSED = tuple(name for name in ENCODINGS if name != "utf-16")  # its own zero bytes show it
_CELL = re.compile(rb'[^,;|\t"\r\n]*[\x80-\xff][^,;|\t"\r\n]*')
_CELLS_MAX = 2_000
_SHOWN_MAX = 3
_COMMON = frozenset("àáâãäåçèéêëìíîïñòóôõöøßùúûüý")
"""Letters of names in the languages that are written most; any other letter is weaker evidence."""
_LATIN_END = "\u0250"
_MARKS = frozenset("‘’“”–—´\xa0")
"""What stands in names, and is no evidence."""


def proposed(plain: Iterable[bytes]) -> str:
    """Describe how names of a file that is not UTF-8 read in the encodings it may be in, for the end of a refusal.

    A digit of a cell is never shown.
    """
    cells = _odd_cells(plain)
    if any(_plausible(_decoded(cell, "utf-8") or "") > 0 for cell in cells):
        return ": other lines are, so it is in two encodings at once; export it anew, as UTF-8"
    readings: dict[str, tuple[float, str]] = {}
    for encoding in _GUESSED:
        texts = [_decoded(cell, encoding) for cell in cells]
        plausible = sum(map(_plausible, filter(None, texts)))
        sample = _sample([text for text in texts if text])
        if None not in texts and plausible > 0 and sample not in readings:
            readings[sample] = plausible, encoding
    best = sorted(readings.items(), key=lambda one: -one[1][0])[:_SHOWN_MAX]
    best = [one for one in best if 2 * one[1][0] > best[0][1][0]]
    if not best:
        return ": no encoding that is known here makes names of it; export it anew, as UTF-8"
    told = "; ".join(f"in {encoding} its names read {sample}" for sample, (_, encoding) in best)
    return f"; {told} (use --encoding {best[0][1][1]}, or another)"


def _odd_cells(plain: Iterable[bytes]) -> list[bytes]:
    """Return distinct cells with a byte that is not ASCII, in file order."""
    found: dict[bytes, None] = {}
    for block in plain:
        if not block.isascii():
            found |= dict.fromkeys(_CELL.findall(block))
        if len(found) >= _CELLS_MAX:
            break
    return [cell.strip() for cell in list(found)[:_CELLS_MAX]]


def _decoded(cell: bytes, encoding: str) -> str | None:
    try:
        return cell.decode(encoding)
    except UnicodeDecodeError:
        return None


def _sample(texts: list[str]) -> str:
    """Return the first names, whole ones before parts of them, without digits, fit for one line."""
    names = sorted(texts, key=lambda text: any(text in other for other in texts[:50] if other != text))
    shown = dict.fromkeys(column_name(re.sub(r"\d", "*", text)) for text in names)
    return ", ".join(list(shown)[:_SHOWN_MAX])


def _plausible(text: str) -> float:
    """Return how much the letters beyond ASCII look like those of names: by what they are, their case, their number."""
    found = 0.0
    for before, letter, after in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        if letter.isascii() or letter in _MARKS:
            continue
        beside = [other for other in (before, after) if other.isalpha()]
        is_out_of_place = (letter.isupper() and before.islower()) or (
            letter.islower() and before.isupper() and after.isupper()
        )
        is_of_two_scripts = letter > _LATIN_END and any(other < _LATIN_END for other in beside)
        if not letter.isalpha() or is_out_of_place or is_of_two_scripts:
            found -= 2
        else:
            found += 2 if letter.lower() in _COMMON else 0.7
    for word in re.findall(r"[^\W\d_]{4,}", text):
        latin = sum("\x80" < letter < _LATIN_END for letter in word)
        found -= 3 * latin if 2 * latin > len(word) else 0
    return found
