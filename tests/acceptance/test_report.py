"""`batchpay report` with the installed command."""

from __future__ import annotations

import stat
from pathlib import Path

from batchpay.payment import State
from tests.support.command import Home
from tests.support.ledger_factory import Planned, add_batch, ledger_environment, ledger_in


def test_a_page_is_written_next_to_the_file_or_where_requested(tmp_path: Path) -> None:
    """The latest batch by default, under its own name; only its owner can read the page."""
    home = Home(tmp_path, extra=ledger_environment(tmp_path))
    with ledger_in(tmp_path) as ledger:
        first = add_batch(ledger, [Planned(1, State.IN_DOUBT)], file="first.csv")
        last = add_batch(ledger, [Planned(1)], file="last.csv")
    done = home.run("report")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{last}.report.html\n"
    page = tmp_path / f"{last}.report.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "last.csv" in page.read_text("utf-8")
    found = home.json("report", first, "--out", "looked-at.html")
    assert (found["report"], found["in_doubt"], found["exit_code"]) == ("looked-at.html", 1, 0)
    assert "first.csv" in (tmp_path / "looked-at.html").read_text("utf-8")


def test_a_place_that_can_not_be_written_is_reported(tmp_path: Path) -> None:
    """A missing folder is exit code 5 with one line."""
    home = Home(tmp_path, extra=ledger_environment(tmp_path))
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1)])
    done = home.run("report", "--out", "nowhere/page.html")
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1
