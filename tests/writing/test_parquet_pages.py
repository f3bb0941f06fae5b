"""The look at a Parquet file's own words before polars believes them."""

from __future__ import annotations

import os
import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.intake.own_output import first_row
from batchpay.writing.parquet_pages import BrokenPages, check_pages
from tests.support.damaged_parquet import count_below_zero


def written(folder: Path, rows: int = 50, **options: Any) -> Path:
    """A file of every kind of column, with nulls."""
    path = folder / "a.parquet"
    pl.DataFrame(
        {
            "text": [f"{at} of many" for at in range(rows)],
            "few": pl.Series([("a", "b", None)[at % 3] for at in range(rows)], dtype=pl.Categorical),
            "long": ["x" * 3000] * rows,
            "number": range(rows),
            "money": pl.Series([Decimal("12.50")] * rows),
            "float": pl.Series([0.5, None] * rows, dtype=pl.Float64).head(rows),
            "flag": pl.Series([True, None] * rows, dtype=pl.Boolean).head(rows),
            "day": pl.Series([date(2026, 12, 1)] * rows, dtype=pl.Date),
            "nested": pl.Series([[{"a": 1}, {"a": 2}]] * rows, dtype=pl.List(pl.Struct({"a": pl.Int64}))),
        }
    ).write_parquet(path, **options)
    return path


def check(path: Path) -> None:
    with path.open("rb") as file:
        check_pages(file.fileno())


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "zstd", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("options", [{}, {"row_group_size": 7}, {"data_page_size": 100}, {"statistics": "full"}])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_a_good_file_passes(tmp_path: Path, compression: str, options: dict[str, Any], rows: int) -> None:
    """However it is written, also with header texts of thousands of characters and with no row."""
    check(written(tmp_path, rows, compression=compression, **options))


def test_a_count_below_zero(tmp_path: Path) -> None:
    """A page with fewer values than none made polars ask for 2^61 bytes, and the process was gone."""
    for page in range(5):
        path = written(tmp_path, compression="uncompressed")
        count_below_zero(path, page)
        with pytest.raises(BrokenPages):
            check(path)


def test_an_output_that_was_damaged_is_none_of_ours(tmp_path: Path) -> None:
    """Results and rejects that lie in the way are looked into as well."""
    path = written(tmp_path, compression="uncompressed")
    assert first_row(path) is not None
    count_below_zero(path)
    assert first_row(path) is None


def test_cut_off_anywhere(tmp_path: Path) -> None:
    """The end of a file that has none is looked for in vain."""
    path = written(tmp_path)
    for size in range(0, path.stat().st_size, 97)[::-1]:
        os.truncate(path, size)
        with pytest.raises(BrokenPages):
            check(path)


def test_whatever_the_bytes_are_it_ends_in_one_way(tmp_path: Path) -> None:
    """Damage passes, where no page says what can't be, or is told as damage."""
    whole, chance, found = written(tmp_path, compression="uncompressed").read_bytes(), random.Random(7), 0
    path = tmp_path / "damaged.parquet"
    for _ in range(300):
        content = bytearray(whole)
        for at in chance.sample(range(len(content) - 3000, len(content)), 3):
            content[at] = chance.randrange(256)
        path.write_bytes(content)
        try:
            check(path)
        except BrokenPages:
            found += 1
    assert found > 100
