"""`batchpay reconcile` with the installed command: counts, the file it writes, and settling."""

from __future__ import annotations

import csv
import datetime
import stat
from pathlib import Path

import pytest

from batchpay.payment import State
from tests.support.command import Home
from tests.support.ledger_factory import Planned, add_batch, ledger_environment, ledger_in

SIGNED = ("--settle", "--name", "Ann Clerk", "--reason", "month's end", "--yes")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, extra=ledger_environment(tmp_path))


def write(home: Home, lines: list[str]) -> None:
    """Write an export; `TODAY` stands for the day on which the batch was sent."""
    text = "\n".join(["Transaction ID,Invoice,Amount,Date,Account,Status", *lines]) + "\n"
    text = text.replace("TODAY", datetime.datetime.now(datetime.UTC).date().isoformat())
    (home.path / "export.csv").write_text(text, "utf-8")


def test_rows_in_doubt_are_settled_only_when_asked(home: Home) -> None:
    """Without --settle nothing changes; with it what the export has is settled, what it lacks is not."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1, reference="R1"), Planned(2, State.IN_DOUBT), Planned(3, State.IN_DOUBT)])
    write(home, ["R1,INV-1,$12.50,TODAY,x6789,Settled", "R2,INV-2,$12.50,TODAY,x6789,Settled"])
    found = home.json("reconcile", batch, "--against", "export.csv")
    assert found["exit_code"] == 7
    verdicts = found["reconciliation"]["verdicts"]
    assert verdicts["in doubt, found"]["here"] == {"rows": 1, "amount": "12.50"}
    assert verdicts["in doubt, not found"]["here"] == {"rows": 1, "amount": "12.50"}
    assert found["reconciliation"]["here"] == {"rows": 3, "amount": "37.50"}
    assert found["reconciliation"]["there"] == {"rows": 2, "amount": "25.00"}
    assert found["in_doubt"] == 2

    done = home.run("reconcile", batch, "--against", "export.csv", *SIGNED)
    assert done.returncode == 7, done.stderr
    assert "line 3   DEBIT" in done.stderr
    assert "will be accepted" in done.stderr
    with ledger_in(home.path) as ledger:
        rows = {row.row: row for row in ledger.rows(batch)}
        event = next(event for event in ledger.events(batch) if event.kind == "resolved")
    assert (rows[2].state, rows[2].answer.gateway_reference) == (State.ACCEPTED, "R2")
    assert rows[3].state is State.IN_DOUBT
    assert event.why == "month's end; found in export.csv"
    with (home.path / f"{batch}.reconciled.csv").open(encoding="utf-8", newline="") as file:
        assert [line["verdict"] for line in csv.DictReader(file)] == ["matched", "matched", "in doubt, not found"]
    assert stat.S_IMODE((home.path / f"{batch}.reconciled.csv").stat().st_mode) == 0o600


def test_differences_are_exit_3_and_agreement_is_0(home: Home) -> None:
    """The exit code tells a script whether a person must look."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1, reference="R1"), Planned(2, State.DECLINED)])
    write(home, ["R1,INV-1,12.50,TODAY,x6789,Settled"])
    done = home.run("reconcile", batch, "--against", "export.csv", "--out", "all.xlsx")
    assert done.returncode == 0, done.stderr
    assert "total" in done.stdout
    assert (home.path / "all.xlsx").exists()
    write(home, ["R1,INV-1,12.51,TODAY,x6789,Settled"])
    assert home.run("reconcile", batch, "--against", "export.csv").returncode == 3


def test_settling_is_refused_if_nobody_signs(home: Home) -> None:
    """Without a terminal, a name, a reason and --yes are needed; while a run holds the batch nothing is settled."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1, State.IN_DOUBT)])
        write(home, ["R1,INV-1,12.50,TODAY,x6789,Settled"])
        done = home.run("reconcile", batch, "--against", "export.csv", "--settle", "--name", "Ann")
        assert done.returncode == 2
        assert "needs --reason, --yes" in done.stderr
        told = ("--settle", "--name", "Ann", "--reason", "account 1234506789 at the bank", "--yes")
        done = home.run("reconcile", batch, "--against", "export.csv", *told)
        assert done.returncode == 2
        assert "account number of row 1" in done.stderr
        with ledger.lock(ledger.find(batch).digest):
            assert home.run("reconcile", batch, "--against", "export.csv", *SIGNED).returncode == 9
        assert [row.state for row in ledger.rows(batch)] == [State.IN_DOUBT]


def test_an_export_that_can_not_be_read_is_refused(home: Home) -> None:
    """A file without usable headers, and a missing one, are exit code 4."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1)])
    (home.path / "export.csv").write_text("a,b\n1,2\n", "utf-8")
    done = home.run("reconcile", batch, "--against", "export.csv")
    assert done.returncode == 4
    assert "--map" in done.stderr
    assert home.run("reconcile", batch, "--against", "missing.csv").returncode == 4
