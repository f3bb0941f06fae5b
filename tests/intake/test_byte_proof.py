"""What a block's bytes tell: whether its text is plain, and where quotation marks may stand."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from random import Random

import polars as pl
import pytest

from batchpay.intake.csv.byte_proof import Octets, has_doubled_marks, marks_at_borders
from batchpay.intake.source import Source, open_source
from batchpay.schemas import checks
from batchpay.schemas.columns import COLUMNS, PLAIN
from batchpay.schemas.options import RuleOptions
from batchpay.validation.verdict import check
from tests.support.payment_files import csv_text, line, write
from tests.support.row_factory import mutated_rows

OPTIONS = RuleOptions(as_of=date(2026, 11, 21))


def test_no_character_that_a_rule_forbids_is_plain() -> None:
    """Of all of Unicode, whatever is odd or white space at a cell's end makes a block not plain, but for the blank."""
    every = pl.Series([chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF])
    odd = every.filter(pl.select(checks.has_unclean_characters(pl.lit(every))).to_series()).to_list()
    assert len(odd) > 90 and " " in odd
    for character in odd:
        if character != " ":
            assert not Octets(f"a,b{character}c,d\n".encode()).is_plain(1), hex(ord(character))


def test_no_garbled_name_is_plain() -> None:
    """What the warning of names looks for makes a block not plain: letters decoded twice, and zero-width characters."""
    every = pl.Series([chr(code) for code in range(0x10000) if not 0xD800 <= code <= 0xDFFF])
    odd = every.filter(pl.select(checks.has_copied_characters(pl.lit(every))).to_series()).to_list()
    assert len(odd) == 8
    twice = [letter.encode().decode("cp1252", "ignore") for letter in "éüñß°łäÖ’–"]
    assert pl.Series(twice).to_frame("name").select(checks.has_copied_characters(pl.col("name"))).to_series().all()
    for text in odd + twice:
        assert not Octets(f"a,b{text}c,d\n".encode()).is_plain(1), text.encode("unicode_escape")


def test_plain_text() -> None:
    """Letters of all alphabets, signs and blanks are plain, and the line ends that were announced."""
    assert Octets("José,Nguyễn Łukasz,Ω,中文,½,🙂 \n".encode()).is_plain(1)
    assert not Octets("O’Brien\n".encode()).is_plain(1), "allowed, but it begins as white space does"
    assert Octets(b"a,b\r\n").is_plain(2) and not Octets(b"a,b\r\n").is_plain(1)
    assert Octets(b"a\tb\n").is_plain(2), "a tab between cells is announced"


@pytest.mark.parametrize(
    ("block", "fine", "doubled"),
    [
        (b'"a",b\n', True, False),
        (b'a,"b,c"\r\n', True, False),
        (b'a,"b\nc"\n', True, False),
        (b'a,"",c\n', True, True),
        (b'a,"x""y",c\n', True, True),
        (b'a,"x"y",c\n', False, False),
        (b'a,"x"y"z",c\n', False, False),
        (b'a,x"y"z,c\n', False, False),
        (b'a,"x,"y",z"\n', False, False),
        (b'a,x"\n', False, False),
    ],
)
def test_marks_stand_at_borders(block: bytes, fine: bool, doubled: bool) -> None:
    """A mark is doubled, or opens a cell right after a border, or closes it right before one."""
    before, after = Octets(block).around_marks()
    assert len(before) == len(after) == block.count(b'"')
    assert marks_at_borders(before, after, ",") is fine
    assert has_doubled_marks(after) is doubled


def _plain_chunks(source: Source) -> list[bool]:
    return [PLAIN in chunk.columns and bool(chunk[PLAIN].all()) for chunk in source.chunks()]


@pytest.mark.parametrize("separator", [",", "\t"])
def test_only_a_plain_file_says_so(tmp_path: Path, separator: str) -> None:
    """A chunk says that it is plain where it is; a break, a tab or a no-break space in a cell takes that away."""
    text = csv_text(separator=separator)
    for odd, plain in [("José", True), ("a b ", True), ("a\u00a0b", False), ('"a\nb"', False), ('"a\tb"', False)]:
        path = write(tmp_path, text + line(separator, billingFirstName=odd))
        with open_source(path) as source:
            assert _plain_chunks(source) == [plain], odd


class _Unknown:
    """A source of which it is not known whether it is plain."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def chunks(self) -> Iterator[pl.DataFrame]:
        return (chunk.drop(PLAIN) for chunk in self._source.chunks())


@pytest.mark.parametrize("seed", range(3))
def test_plain_or_not_makes_no_difference(tmp_path: Path, seed: int) -> None:
    """The rules find the same in a file that is known to be plain as if nothing were known of it."""
    random, ends = Random(seed), ["", "", "", " ", "x"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in mutated_rows(seed, count=300):
        cells = [random.choice(ends) + cell + random.choice(ends) if (cell := row[name]) else "" for name in COLUMNS]
        writer.writerow(
            [
                "".join(each for each in cell if each.isprintable() and each < "ɐ" and each not in "ÂÃÄÅ")
                for cell in cells
            ]
        )
    with open_source(write(tmp_path, text.getvalue()), required=()) as source:
        assert all(_plain_chunks(source))
        plain, unknown = (check(each, OPTIONS, max_failures=10**6) for each in (source, _Unknown(source)))
    assert (plain.failures, plain.warning_failures) == (unknown.failures, unknown.warning_failures)
    assert sum(plain.counts.values()) > 300
