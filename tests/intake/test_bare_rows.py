"""Rows whose cells need no escape, as their bytes tell, whatever was written how."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from random import Random

import polars as pl
import pytest

from batchpay.intake.csv.reader import Octets
from batchpay.intake.source import open_source
from batchpay.schemas.columns import BARE_ROW
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
