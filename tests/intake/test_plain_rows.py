"""Rows that are told to be plain by their bytes: every cell of theirs has the form PLAIN, whatever was written how."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import polars as pl
import pytest

from batchpay.intake.csv import plain_rows as told
from batchpay.intake.csv.byte_proof import Octets
from batchpay.intake.source import open_source
from batchpay.schemas.columns import BARE_ROW, PLAIN_ROW
from batchpay.schemas.forms import PLAIN
from tests.support.payment_files import HEADER, csv_text, line, write

WAYS = [(separator, end, quoted) for separator in ",;|" for end in ("\n", "\r\n") for quoted in (False, True)]
PIECES = ("a", "Bc", "é", "ễ", "’", " ", "  ", '"', '""', ",", ", ", ";", "; ", " |", "Ä", "Ã©", "\u202e", "\u00a0",
          "\u2028", "\u2011", "\x7f", "\x85", "\t", "\x01", "李", "\U0001f3e6", "x" * 120, "é" * 130)  # fmt: skip


def _written(rows: Sequence[Sequence[str]], separator: str, end: str, quoted: bool) -> Octets:
    text = io.StringIO()
    csv.writer(
        text, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    ).writerows(rows)
    return Octets(text.getvalue().encode(), separator)


def _told_and_right(
    rows: Sequence[Sequence[str]], separator: str, end: str, quoted: bool
) -> tuple[pl.Series, pl.Series]:
    """Which rows are told to be plain, and which are."""
    frame = pl.DataFrame(rows, orient="row", schema=[f"c{at}" for at in range(len(rows[0]))])
    lengths = frame.select(pl.all().str.len_bytes())
    right = frame.select(
        pl.all_horizontal(
            (pl.all() == "") | (pl.all().str.contains(PLAIN.whole) & (pl.all().str.len_bytes() <= PLAIN.bytes_max))
        )
    ).to_series()
    return told.plain_rows(_written(rows, separator, end, quoted), lengths), right


def _hostile(seed: int) -> Iterable[tuple[list[list[str]], tuple[str, str, bool]]]:
    random = Random(seed)
    for _ in range(5):
        for way in WAYS:
            rows = [["".join(random.choices(PIECES, k=random.randrange(4))) for _ in range(3)] for _ in range(4)]
            rows += [["".join(random.choices(PIECES[:12], k=random.randrange(4))) for _ in range(3)] for _ in range(12)]
            yield [*rows, ["x" * 255, "", "a"], ["x" * 254 + "é", "", "a"]], way


def test_every_cell_of_a_plain_row_has_the_form() -> None:
    """Cells put together of blanks, marks, separators and odd characters, in every dialect; most rows are told."""
    told_rows = right_rows = 0
    for rows, way in _hostile(7):
        plain, right = _told_and_right(rows, *way)
        assert not (plain & ~right).any(), (rows, way)
        told_rows, right_rows = told_rows + int(plain.sum()), right_rows + int(right.sum())
    assert told_rows > 0.5 * right_rows


@pytest.mark.parametrize("quoted", [False, True])
def test_each_character(quoted: bool) -> None:
    """Of every character, in front, within and behind, exactly the plain ones make a plain row."""
    codes = [*range(1, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE1000)]
    rows = [[f"{chr(code)}a", f"a{chr(code)}b", f"a{chr(code)}"] for code in codes if chr(code) not in '\r\n"']
    plain, right = _told_and_right(rows, ",", "\n", quoted)
    assert (plain == right).all()
    assert plain.sum() == 93 + 60 + 128 + 128 + 23, "of ASCII all that can be seen but the mark"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_with_blanks_at_borders", lambda *_: pl.Series([], dtype=pl.UInt32)),
        ("_with_other_characters", lambda *_: []),
        ("_are_not_plain", lambda octets: octets == 0x7F),
        ("TEXT_BYTES_MAX", 256),
        ("BLANK", 0x1F),
    ],
)
def test_a_proof_with_a_hole_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    """Without any one of its parts rows are told to be plain that are not."""
    monkeypatch.setattr(told, name, value)
    pairs = (_told_and_right(rows, *way) for rows, way in _hostile(7))
    assert any((plain & ~right).any() for plain, right in pairs)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_a_file_tells(tmp_path: Path, end: str) -> None:
    """A file's rows are told where each is a line; one with tabs tells nothing, since a tab is no plain character."""
    lines = csv_text(3, ",", end).splitlines()
    odd = lines[2].replace("Payer", "Payer\u202e") if "Payer" in lines[2] else lines[2] + "\u202e"
    text = end.join([lines[0], lines[1], odd, lines[3], ""])
    with open_source(write(tmp_path, text)) as source:
        assert [flag for chunk in source.chunks() for flag in chunk[PLAIN_ROW]] == [True, False, True]
    with open_source(write(tmp_path, csv_text(3, "\t", end))) as source:
        assert all(PLAIN_ROW not in chunk.columns for chunk in source.chunks())


def test_a_block_is_told_bare_if_no_cell_needs_an_escape() -> None:
    """Cells of any characters, one or a few rows at a time, in every dialect: exactly those without are told."""
    random, pieces = Random(11), (*PIECES, "\\", '","', "\x1f")
    told_blocks = 0
    for _ in range(150):
        for way in WAYS:
            some = pieces if random.random() < 0.3 else PIECES[:7]
            rows = [["".join(random.choices(some, k=random.randrange(4))) for _ in range(3)] for _ in range(2)]
            is_bare = not any(
                character in '"\\' or character < " " for row in rows for cell in row for character in cell
            )
            # An empty cell in marks is two marks side by side: it may be told so, and is not.
            is_doubled = way[2] and any(not cell for row in rows for cell in row)
            assert _written(rows, *way).cells_are_bare() == (is_bare and not is_doubled), (rows, way)
            told_blocks += is_bare
    assert told_blocks > 500


ODD_NAMES = ('"say ""no"""', "a\\b", '"a\nb"', "a\x01b", 'a"b', '"a"b', "a\x1fb")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("odd", [None, *ODD_NAMES])
def test_a_second_reading_tells_what_needs_no_escape(tmp_path: Path, odd: str | None, end: str) -> None:
    """Cells in quotation marks, blank ones and accents do not; one odd cell, and nothing is told of its block."""
    names = ["Ada", '"Byron, Ada"', "", "Zoë", *([] if odd is None else [odd])]
    rows = [line(billingFirstName=name, end="") for name in names]
    with open_source(write(tmp_path, end.join([",".join(HEADER), *rows, ""]))) as source:
        first, again = (pl.concat(source.chunks(), how="diagonal") for _ in range(2))
    assert BARE_ROW not in first.columns
    assert (BARE_ROW in again.columns) == (odd is None)
    assert odd is not None or again[BARE_ROW].to_list() == [True] * 4


def test_with_tabs_nothing_is_told_to_need_no_escape(tmp_path: Path) -> None:
    """A tab that separates looks like one in a cell."""
    with open_source(write(tmp_path, csv_text(3, "\t"))) as source:
        assert all(BARE_ROW not in chunk.columns for _ in range(2) for chunk in source.chunks())
