"""What was found of a gateway's limit is kept for the next run, and trusted by none."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.ledger.sqlite.known_limits import FILE_NAME, known_limit, remember_limit
from batchpay.outcome import Finding

pytestmark = pytest.mark.ledgers(
    "sqlite", why="the file beside a ledger in a file; a database has a table for it, see test_shared_pace.py"
)


def test_what_was_found_is_kept_for_each_gateway(tmp_path: Path) -> None:
    """Each environment and origin has its own; the latest finding stands; the file is its owner's alone."""
    remember_limit(tmp_path, "live https://a.example", Finding(97.1234))
    remember_limit(tmp_path, "test https://a.example", Finding(5.0, 60.0))
    remember_limit(tmp_path, "live https://a.example", Finding(48.5))
    assert known_limit(tmp_path, "live https://a.example") == Finding(48.5)
    assert known_limit(tmp_path, "test https://a.example") == Finding(5.0, 60.0)
    assert known_limit(tmp_path, "live https://b.example") is None
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("window", "window_s"),
    [("0.5", 0.5), ("2.6e6", 2.6e6), ("0", None), ("-60", None), ("Infinity", None), ("true", None), ("1e300", None)],
)
def test_a_window_that_makes_no_sense_is_left_out(tmp_path: Path, window: str, window_s: float | None) -> None:
    """The rate beside it is good: a window of 1e300 s was told in 300 digits."""
    (tmp_path / FILE_NAME).write_text(f'{{"g": {{"rate": 5, "window_s": {window}}}}}')
    assert known_limit(tmp_path, "g") == Finding(5.0, window_s)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "1", '{"g": 5}',
        '{"g": {}}', '{"g": {"rate": "5"}}', '{"g": {"rate": 0}}', '{"g": {"rate": -1}}',
        '{"g": {"rate": 1e9}}', '{"g": {"rate": NaN}}', '{"g": {"rate": true}}', '{"g": {"rate": null}}', "[" * 60_000,
        f'{{"g": {{"rate": {"9" * 400}}}}}',
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_as_if_it_were_not_there(tmp_path: Path, text: str) -> None:
    """Whatever stands there, a run begins; what it finds takes the file's place."""
    (tmp_path / FILE_NAME).write_text(text)
    assert known_limit(tmp_path, "g") is None
    remember_limit(tmp_path, "g", Finding(10.0))
    assert known_limit(tmp_path, "g") == Finding(10.0)


def test_a_folder_that_takes_no_file_stops_nothing(tmp_path: Path) -> None:
    """Where it can't be written, the next run finds the limit anew."""
    remember_limit(tmp_path / "not there", "g", Finding(10.0))
    assert known_limit(tmp_path / "not there", "g") is None
