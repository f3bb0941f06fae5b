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
