"""A collection of odd CSV files, none of them payments: no crash, no silent loss."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from tests.support.payment_files import DATA, cells, read, write

FOLDER = DATA / "csv_torture"
FILES = sorted(FOLDER.glob("*.csv"))
NAUGHTY = DATA / "blns" / "blns.txt"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the collection of odd CSV files is not here")

REFUSED = {
    "blank_only": "no header", "only_blank_lines": "no header", "empty_file": "is empty", "sep_only": "no header",
    "encoding_nul_first8k": "NUL", "nul_in_8k": "NUL", "encoding_utf16le": "UTF-16", "utf16le_bom": "UTF-16",
    "encoding_utf32be": "UTF-32", "utf32be_bom": "UTF-32", "unterminated_quote": "line 2: a quotation mark",
}  # fmt: skip
"""Refused there and by us, with our words."""
SEPARATORS_UNKNOWN = ("caret_basic", "caret_delimiter", "caret_quoted", "control_byte_header", "delim_0x1f")
"""Separators that a payment file can only name by a `sep=` line: read as one column, which no required name is in."""
MALFORMED = ("backslash_escape", "invalid_quote")
"""One record with text behind a closing quotation mark (a backslash is a character like others): it is rejected by
itself, as RULES.md says, and what it holds is kept as it was written."""


def expected_outcomes() -> dict[str, str]:
    """The outcomes that the collection itself states."""
    table = (FOLDER / "README.md").read_text("utf-8") if FOLDER.is_dir() else ""
    return dict(re.findall(r"^\| `([\w.]+)\.csv` \| \w+ \| `?(\w+)`? \|", table, re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_stated_outcome(path: Path) -> None:
    """What the collection calls readable is read, or rejected row by row; the rest is refused with the reason."""
    outcome = expected_outcomes().get(path.stem)
    try:
        frame = read(str(path))
    except FileRefused as refusal:
        assert path.stem in REFUSED, f"{path.name}: {refusal}"
        assert re.search(REFUSED[path.stem], str(refusal))
        return
    assert path.stem not in REFUSED
    if path.stem in MALFORMED:
        assert frame["_quotation"].to_list() == ["there is text after a closing quotation mark"]
    elif path.stem not in SEPARATORS_UNKNOWN:
        assert "_quotation" not in frame.columns or frame["_quotation"].null_count() == frame.height
    if path.stem == "duplicate_headers":  # nothing needs these columns: told apart
        assert tuple(frame.columns[2:4]) == ("name", "name (2)")
    elif outcome == "E_HEADERS":
        assert frame["_ragged"].null_count() < frame.height


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cells_agree_with_pythons_reader(path: Path) -> None:
    """Every cell of every readable file is what Python's own csv module reads there, and no row is missing."""
    try:
        frame = read(str(path))
    except FileRefused:
        return
    if frame.is_empty() or path.stem in MALFORMED:
        return  # Python's reader makes cells of a malformed record, and nobody knows whether they are the right ones
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode()
    text = re.sub(r"\A(?:[ \t]*\r?\n)+", "", text)
    separator = ","
    named = re.match(r"sep=(.)\r?\n", text)
    if named:
        separator, text = named[1], text[named.end() :]
    else:
        head = text.split("\n")[0]
        separator = max(",;\t|", key=lambda mark: len(next(csv.reader([head], delimiter=mark))))
    rows = [row for row in csv.reader(text.splitlines(keepends=True), delimiter=separator) if any(row)]
    found = cells(str(path))
    width = len(rows[0])
    assert [row[:width] for row in found] == [tuple((row + [""] * width)[:width]) for row in rows[1:]]


@pytest.mark.skipif(not NAUGHTY.exists(), reason="the list of naughty strings is not here")
def test_naughty_strings(tmp_path: Path) -> None:
    """Naughty strings come through as they are."""
    strings = [text for text in NAUGHTY.read_text("utf-8").splitlines() if text and not text.startswith("#")]
    strings = [text for text in strings if "\0" not in text and "\r" not in text]
    quoted = "".join('"' + text.replace('"', '""') + '",x\n' for text in strings)
    assert [row[0] for row in cells(write(tmp_path, "aaa,bbb\n" + quoted))] == strings
