"""Whether rejects on a disk hold rows of the file that was read; looking changes nothing that was found in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake.source import Source, open_source
from batchpay.validation.rejects import holds_only_rows_of, open_rejects
from tests.support.payment_files import HEADER, line, rejected, write

NAMES = ("Ada", "Grace", "Mary")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """Three rows and their total, a chunk each; an example was passed over before each."""
    rows = [line(billingFirstName=name) for name in NAMES]
    total = ",".join("37.50" if name == "amount" else "" for name in HEADER)
    with open_source(write(tmp_path, "".join([",".join(HEADER) + "\n", *rows, total + "\n"]))) as opened:

        def row_by_row() -> Iterator[pl.DataFrame]:
            for row in (row for chunk in opened._chunks() for row in chunk.iter_slices(1)):
                opened.examples.count += 1
                yield row

        yield replace(opened, _chunks=row_by_row)


def write_rejects(source: Source, path: Path, names: tuple[str, ...], after: int = 0) -> Path:
    """Write the rows of these people as rejects, their numbers moved on by some."""
    found = pl.concat(source.chunks()).filter(pl.col("billingFirstName").is_in(names))
    rejects = open_rejects(path, source)
    rejects.add(rejected(found.with_columns(pl.col("_row") + after)))
    rejects.commit()
    return path


@pytest.mark.parametrize("ending", [".csv", ".txt", ".parquet", ".xlsx"])
def test_rows_are_those_of_the_file_where_each_stands_in_its_place(source: Source, tmp_path: Path, ending: str) -> None:
    """Any of them may be there; none may be that stands elsewhere in the file, or after its end."""
    path = tmp_path / f"may.rejects{ending}"
    for names in (NAMES[:1], NAMES[1:], NAMES[::2], NAMES):
        assert holds_only_rows_of(source, write_rejects(source, path, names)), names
    for names, after in ((NAMES[:1], 1), (NAMES[2:], 1), (NAMES[2:], 9)):
        assert not holds_only_rows_of(source, write_rejects(source, path, names, after)), (names, after)
    path.write_bytes(path.read_bytes()[:-9] + b"\0\xff")
    assert not holds_only_rows_of(source, path)


def test_another_header_is_another_file(source: Source, tmp_path: Path) -> None:
    """A column that a person added, or one that was renamed, is theirs."""
    path = write_rejects(source, tmp_path / "may.rejects.csv", NAMES[:1])
    first, rest = path.read_text().split("\n", 1)
    for head in (first + ",note", first.replace("amount", "Amount"), first.removeprefix("_row,")):
        path.write_text(f"{head}\n{rest}")
        assert not holds_only_rows_of(source, path)


@pytest.mark.parametrize("names", [NAMES[:1], NAMES])
def test_what_was_found_in_the_file_stands(source: Source, tmp_path: Path, names: tuple[str, ...]) -> None:
    """The reading ends with the last row that is asked for: the total and the examples after it are still known."""
    path = write_rejects(source, tmp_path / "may.rejects.csv", names)
    list(source.chunks())
    holds_only_rows_of(source, path)
    assert (source.end.total_cents, source.examples.count) == (3750, 4)


def test_a_file_that_changed_meanwhile_is_refused(source: Source, tmp_path: Path) -> None:
    """It is no rejects file of another, which would be left as it is."""
    path = write_rejects(source, tmp_path / "may.rejects.csv", NAMES[:1])

    def changed() -> Iterator[pl.DataFrame]:
        raise FileRefused("it changed")
        yield

    with pytest.raises(FileRefused):
        holds_only_rows_of(replace(source, _chunks=changed), path)
