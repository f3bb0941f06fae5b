"""`batchpay status` as a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from batchpay.cli.context import Context
from batchpay.cli.main import cli
from batchpay.cli.output import print_in_doubt_elsewhere, print_table
from batchpay.payment import Totals
from tests.support.command import small_file
from tests.support.in_process import Caller


def test_the_table_names_its_time_zone(call: Caller, tmp_path: Path) -> None:
    """The time of the last run is UTC and the header says so: once it stood there without a zone."""
    small_file(tmp_path / "a.csv", 1)
    finished = call("submit", "a.csv")["finished_at"]
    header, line = CliRunner().invoke(cli, ["status"], standalone_mode=False, obj=Context()).stdout.splitlines()
    assert "last run (UTC)" in header
    assert finished[:16].replace("T", " ") in line


def test_what_stopped_is_continued_by_another_command_than_this_one(call: Caller, tmp_path: Path) -> None:
    """`status BATCH` and `results BATCH` said to run the same command again, which changes nothing."""
    small_file(tmp_path / "a.csv", 3)
    batch = call("submit", "a.csv", "--limit", "1")["batch"]
    for command in ("status", "results"):
        told = " ".join(call.text(command, batch).split())
        assert f"the limit of 1 row was reached; to continue: batchpay resume {batch}" in told
    told = call.text("submit", "a.csv", "--limit", "1")
    assert "; run the same command again to continue" in " ".join(told.split())
    assert max(map(len, told.splitlines())) <= 80
    assert call("resume", batch)["exit_code"] == 0
    assert "batchpay resume" not in call.text("status", batch)


def test_rehearsals_are_told_from_payments(call: Caller, tmp_path: Path) -> None:
    """In a ledger of both environments, rows accepted by the test gateway stood there like paid ones."""
    small_file(tmp_path / "a.csv", 1)
    call("submit", "a.csv")
    assert "environment" not in call.text("status")
    small_file(tmp_path / "b.csv", 1, first=2)
    call.settings(BATCHPAY_ENVIRONMENT="live")
    call("submit", "b.csv", "--paid-elsewhere-checked", "--reason", "the gateway is in use now")
    header, live, test = call.text("status").splitlines()
    assert (header.split()[-1], live.split()[-2:], test.split()[-2:]) == (
        "environment", ["b.csv", "live"], ["a.csv", "test"],
    )  # fmt: skip


def test_a_narrow_terminal_has_a_row_in_aligned_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal broke the list of batches wherever it ended: no number stood below its heading."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["batch", "accepted", "file"], [["one", "12", "a name of two dozen chars"]], frozenset({"accepted"}))
    assert capsys.readouterr().out.splitlines() == [
        "batch  accepted",
        "       file",
        "one          12",
        "       a name of two dozen chars",
    ]


def test_an_empty_ledger_says_so(call: Caller) -> None:
    """It was a header with nothing below it."""
    call("ledger", "init")
    assert call.text("status") == "no batch yet\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("BATCHPAY_NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A terminal that knows no colors showed their codes."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Context().color
    monkeypatch.setenv(name, value)
    assert not Context().color


def test_an_earlier_doubt_is_told_in_lines_that_leave_its_command_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The line was longer than a terminal, which cut it in the middle of the batch's name."""
    print_in_doubt_elsewhere({"97f4b41592e7": {"DEBIT": Totals(1, 212281)}})
    command, rest = capsys.readouterr().out.splitlines()
    assert command.startswith("  a person must look: batchpay resolve 97f4b41592e7 (1 row,")
    assert len(command) <= 80 and rest.endswith("earlier call")
