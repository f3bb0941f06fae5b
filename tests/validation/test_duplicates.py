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
from batchpay.validation.check import RowCheck
from tests.support.command import small_file
from tests.support.whole_check import check


@pytest.mark.parametrize("at_once", [2, 1000])
def test_rows_are_the_same_that_agree_in_both_digests(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Texts of which one digest is the same by chance, and that stand between each other, are different ones."""
    monkeypatch.setattr(duplicates, "_DIGESTS_AT_ONCE", at_once)
    firsts, seconds = [7, 7, 7, 8, 7, 9, 4, 4], [1, 2, 1, 2, 2, 1, 5, 6]
    keys = iter((0, 1))
    monkeypatch.setattr("secrets.randbits", lambda _: next(keys))
    monkeypatch.setattr(pl.Expr, "hash", lambda expr, key: expr.list.get(key))
    with ExitStack() as storage:
        digests = duplicates.Digests(storage, "text")
        rows = pl.DataFrame({"_row": range(1, 9), "text": [list(pair) for pair in zip(firsts, seconds, strict=True)]})
        digests.add(rows.head(3))
        digests.add(rows.tail(5))
        found = pl.concat(digests.repeated())
    assert sorted(found["_row"].to_list()) == [1, 2, 3, 5]


def test_rows_are_the_same_that_agree_column_by_column() -> None:
    """The digest of a row is made from those of its cells, and two cells that changed places are another row."""
    rows = pl.DataFrame({"_row": range(1, 7), "a": [*"xyxxyy"], "b": [*"yxyxyx"]})
    with ExitStack() as storage:
        digests = duplicates.Digests(storage, "a", "b")
        digests.add(rows)
        assert [frame["_row"].to_list() for frame in digests.repeated()] == [[1, 2, 3, 6]]


@pytest.mark.parametrize("rules", ["whitespace", "characters whitespace length"])
def test_identifiers_with_white_space_are_the_same_where_no_rule_asks_for_it(tmp_path: Path, rules: str) -> None:
    """An identifier that matches its form is compared as it is: others may have white space at their ends."""
    off = frozenset(f"{name}.{rule}" for name in ("paymentId", "invoiceNumber") for rule in rules.split())
    path = small_file(tmp_path / "a.csv", 1)
    header, line = path.read_text("utf-8").splitlines()
    cells = dict(zip(header.split(","), line.split(","), strict=True))
    identifiers = [("A", "7"), ("B", "7 "), ("A ", "8")]
    rows = [cells | {"paymentId": name, "invoiceNumber": number} for name, number in identifiers]
    path.write_text("\n".join((header, *(",".join(row.values()) for row in rows), "")), "utf-8")
    with open_source(str(path)) as source:
        verdict = check(source, RuleOptions(datetime.date(2026, 11, 21), rules_off=off))
    assert verdict.counts == {"paymentId.duplicate": 2}
    assert verdict.warning_counts == {"row.same_payment": 1}


def test_bills_that_may_pass_twice_come_in_row_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found part by part, by keyed digests: their order was another one in each call."""
    monkeypatch.setattr(duplicates, "_DIGESTS_AT_ONCE", 2)
    path = small_file(tmp_path / "a.csv", 20)
    header, *lines = path.read_text("utf-8").splitlines()
    named = [",".join(("", *line.split(",")[1:])) for line in lines * 2]
    path.write_text("\n".join((header, *named, "")), "utf-8")
    options = RuleOptions(datetime.date(2026, 11, 21), allow_duplicates=True)
    with open_source(str(path)) as source, ExitStack() as storage:
        asked = RowCheck(source, options, storage, line_word="line")
        assert sum(result.passed.sum() for result in asked.results()) == 40
        assert asked.allowed["_row"].to_list() == list(range(21, 41))
        assert asked.allowed["_place"].to_list() == [f"line {line}" for line in range(2, 22)]
        assert not len(asked.duplicates)
