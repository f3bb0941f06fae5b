"""`batchpay status` as a table."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from batchpay.cli.context import Context
from batchpay.cli.main import cli
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
        assert f"the limit of 1 row was reached; to continue: batchpay resume {batch}\n" in call.text(command, batch)
    assert "; run the same command again to continue\n" in call.text("submit", "a.csv", "--limit", "1")
    assert call("resume", batch)["exit_code"] == 0


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
