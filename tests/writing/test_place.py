"""Outputs of one batch never take the place of another's: the name gets a number."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from batchpay.errors import NotUsable
from batchpay.intake import own_output
from batchpay.intake.own_output import first_row
from batchpay.reports.results import is_results_of
from batchpay.writing.atomic import PendingFile, is_output_name, place
from batchpay.writing.table import TABLE_ENDINGS, write_table


def pending(target: Path, text: str) -> PendingFile:
    file = PendingFile(target)
    file.file.write(text.encode())
    return file


def put(target: Path, text: str, replaceable: str = "") -> str | None:
    """Place a file that may replace those that hold a text; gives the name it got."""
    placed = place(pending(target, text), lambda there, _: bool(replaceable) and replaceable in there.read_text())
    return placed.name if placed else None


def test_a_taken_name_gets_a_number(tmp_path: Path) -> None:
    """Each keeps its own; the same bytes again are the same file, and an empty one is nobody's."""
    target = tmp_path / "pay.results.csv"
    target.touch()
    assert [put(target, text) for text in ("a", "b", "c", "b")] == [
        "pay.results.csv", "pay.results-2.csv", "pay.results-3.csv", "pay.results-2.csv",
    ]  # fmt: skip
    assert put(target, "c2", replaceable="c") == "pay.results-3.csv"
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [
        ("pay.results-2.csv", "b"), ("pay.results-3.csv", "c2"), ("pay.results.csv", "a"),
    ]  # fmt: skip


def test_what_may_be_replaced_is_found_beyond_a_gap(tmp_path: Path) -> None:
    """The first was moved away: an own one must not grow old under a number while a new one stands at the name."""
    target = tmp_path / "pay.rejects.csv"
    others = (
        "pay.rejects-10.csv",
        "pay.rejects-1.csv",
        "pay.rejects-02.csv",
        "my pay.rejects-3.csv",
        "pay.rejects-3.xlsx",
    )
    for name in others:
        (tmp_path / name).write_text("ours, or of another name")
    assert put(target, "new", replaceable="ours") == "pay.rejects-10.csv"
    assert put(target, "newer", replaceable="ours") == "pay.rejects.csv"
    assert {(tmp_path / name).read_text() for name in others[1:]} == {"ours, or of another name"}


def test_two_at_the_same_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A free name that another command takes in between is not written over."""
    target = tmp_path / "pay.results.csv"
    exists = Path.exists

    def taken_then(path: Path) -> bool:
        was_there = exists(path)
        if path == target and not was_there:
            path.write_text("theirs")
        return was_there

    monkeypatch.setattr(Path, "exists", taken_then)
    assert put(target, "ours") == "pay.results-2.csv"
    assert target.read_text() == "theirs"


def test_a_disk_that_loses_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so once: the second question, asked as where there are no hard links, was answered with yes."""
    answers = [OSError(errno.EIO, "Input/output error")]

    def fsync(_: int) -> None:
        if answers:
            raise answers.pop()

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(NotUsable, match=r"pay\.results\.csv can't be written: Input/output error"):
        put(tmp_path / "pay.results.csv", "a")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_where_there_is_nothing_to_replace(tmp_path: Path) -> None:
    """A file without rows blanks an older one of its batch, passes over others', and is not made anew."""
    target = tmp_path / "pay.rejects.csv"
    for found, left in ((["ours"], ["header"]), (["theirs", "ours"], ["theirs", "header"]), (["theirs"], ["theirs"])):
        for number, text in enumerate(found, start=1):
            (tmp_path / ("pay.rejects.csv" if number == 1 else f"pay.rejects-{number}.csv")).write_text(text)
        place(pending(target, "header"), lambda there, _: there.read_text() == "ours", only_over=True)
        assert [
            path.read_text() for path in sorted(tmp_path.iterdir(), key=lambda path: (len(path.name), path))
        ] == left
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize("ending", TABLE_ENDINGS)
def test_results_name_their_batch(tmp_path: Path, ending: str) -> None:
    """In every format; a header alone belongs to nobody, and another table is no results file."""
    path = tmp_path / f"pay.results{ending}"
    assert not is_results_of(path, "b1")
    write_table(path, ["row", "batch"], [["1", "b1"], ["2", "b1"]])
    assert first_row(path) == {"row": "1", "batch": "b1"}
    assert (is_results_of(path, "b1"), is_results_of(path, "b2")) == (True, False)
    write_table(path, ["row", "batch"], [])
    assert is_results_of(path, "b2")
    write_table(path, ["name", "sum"], [["rent", "12"]])
    assert not is_results_of(path, "b1")
    path.write_bytes(b"\x00\xff\n\x00")
    assert not is_results_of(path, "b1")


@pytest.mark.parametrize("name", ["a.results.csv", "a.rejects-2.xlsx", "A.RESULTS-10.PARQUET"])
def test_names_of_ours(name: str) -> None:
    """With a number or without."""
    assert is_output_name(name)
    assert not is_output_name(name.replace(".re", "_re").replace(".RE", "_RE"))


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".xlsx"])
def test_nothing_is_loaded_to_read_a_file_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Every check over rejects of an earlier one looked for results beside them, and began to read them."""
    for reader in ("_csv_rows", "_parquet_rows", "_xlsx_rows"):
        monkeypatch.setattr(own_output, reader, lambda path: pytest.fail(f"{path} is not there"))
    assert first_row(tmp_path / f"payments.results{ending}") is None
