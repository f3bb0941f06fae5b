"""What stands twice is told exactly and in row order, however many parts the digests are looked at in."""

from __future__ import annotations

import datetime
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest

from batchpay.intake.source import open_source
from batchpay.schemas.options import RuleOptions
from batchpay.validation import duplicates
from batchpay.validation.check import Check
from tests.support.command import small_file


@pytest.mark.parametrize("at_once", [2, 1000])
def test_rows_are_the_same_that_agree_in_both_digests(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Texts of which one digest is the same by chance, and that stand between each other, are different ones."""
    monkeypatch.setattr(duplicates, "_DIGESTS_AT_ONCE", at_once)
    firsts, seconds = [7, 7, 7, 8, 7, 9, 4, 4], [1, 2, 1, 2, 2, 1, 5, 6]
    with ExitStack() as storage:
        digests = duplicates.Digests(storage, "text")
        monkeypatch.setattr(pl.Expr, "hash", lambda expr, key: expr.struct.field("text").list.get(key))
        digests._keys = 0, 1
        rows = pl.DataFrame({"_row": range(1, 9), "text": [list(pair) for pair in zip(firsts, seconds, strict=True)]})
        digests.add(rows.head(3))
        digests.add(rows.tail(5))
        found = pl.concat(digests.repeated())
    assert sorted(found["_row"].to_list()) == [1, 2, 3, 5]


def test_bills_that_may_pass_twice_come_in_row_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found part by part, by keyed digests: their order was another one in each call."""
    monkeypatch.setattr(duplicates, "_DIGESTS_AT_ONCE", 2)
    path = small_file(tmp_path / "a.csv", 20)
    header, *lines = path.read_text("utf-8").splitlines()
    named = [",".join(("", *line.split(",")[1:])) for line in lines * 2]
    path.write_text("\n".join((header, *named, "")), "utf-8")
    options = RuleOptions(datetime.date(2026, 11, 21), allow_duplicates=True)
    with open_source(str(path)) as source, ExitStack() as storage:
        check = Check(source, options, storage, line_word="line")
        assert sum(result.passed.sum() for result in check.results()) == 40
        assert check.allowed["_row"].to_list() == list(range(21, 41))
        assert check.allowed["_place"].to_list() == [f"line {line}" for line in range(2, 22)]
        assert not len(check.duplicates)
