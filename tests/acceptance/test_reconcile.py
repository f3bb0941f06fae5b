"""`batchpay reconcile` and `batchpay report` with the installed command: counts, the file each writes, and settling."""

from __future__ import annotations

import csv
import datetime
import stat
from pathlib import Path

import pytest

from batchpay.payment import State
from batchpay.schemas.columns import REQUIRED
from tests.support.command import Home
from tests.support.ledger_factory import Planned, add_batch, ledger_environment, ledger_in

SIGNED = ("--settle", "--name", "Ann Clerk", "--reason", "month's end", "--yes")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, extra=ledger_environment(tmp_path))


HEADER = "Transaction ID,Invoice,Amount,Date,Account,Status"


def write(home: Home, lines: list[str], header: str = HEADER, **instead: str) -> None:
    """Write an export; `TODAY` stands for the day on which the batch was sent."""
    text = "\n".join([header, *lines]) + "\n"
    for word, value in instead.items():
        text = text.replace(word, value)
    text = text.replace("TODAY", datetime.datetime.now(datetime.UTC).date().isoformat())
    (home.path / "export.csv").write_text(text, "utf-8")


def test_references_prove_nothing_where_a_gateway_repeats_them(home: Home) -> None:
    """It answers with the id of a batch: lines are matched by invoice number, if a person says so."""
    with ledger_in(home.path) as ledger:
        rows = [Planned(1, reference="B1"), Planned(2, State.IN_DOUBT, reference="B1")]
        batch = add_batch(ledger, rows)
    write(home, ["B1,INV-1,$12.50,TODAY,x6789,Settled", "B1,INV-2,$12.50,TODAY,x6789,Settled"])
    assert home.json("reconcile", batch, "--against", "export.csv", *SIGNED)["reconciliation"]["settled"] == []
    (home.path / "batchpay.toml").write_text("[gateway]\nreference_is_unique = false\n", "utf-8")
    assert home.json("reconcile", batch, "--against", "export.csv", *SIGNED)["reconciliation"]["settled"] == [2]


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


PAYMENT_FILE = ",".join(REQUIRED)
OWN = {
    "a payment file with a status": (f"{PAYMENT_FILE},invoiceNumber,date,status", {"status": "approved"}),
    "a payment file without one": (f"{PAYMENT_FILE},invoiceNumber,extra", {}),
    "rejects": ("_row,_line,_errors,invoiceNumber,amount,date,status", {"status": "approved"}),
    "results with columns dropped": ("invoiceNumber,amount,state,finished_at", {"state": "accepted"}),
    "results that name the batch": ("Invoice,amount,Date,Status,batch", {"Status": "accepted", "batch": "BATCH"}),
    "results with new headers": ("Invoice,Amount,Date,Status", {"Status": "in_doubt"}),
    "a sheet of rows in doubt": ("row,invoiceNumber,amount,why_in_doubt", {}),
    "a reconciliation with columns dropped": ("invoiceNumber,amount,state,date_there,status_there", {}),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kind", OWN)
def test_a_file_of_ours_settles_nothing(home: Home, kind: str, *, mapped: bool) -> None:
    """Each agrees with the ledger in any case, also with columns of its own or with most of them dropped.

    A map makes no difference, but for a file with the columns of a payment file and others: that may be an export.
    """
    with ledger_in(home.path) as ledger:
        rows = [Planned(1), Planned(2, State.IN_DOUBT)]
        batch = add_batch(ledger, rows, carried=["date", "status"])
    header, given = OWN[kind]
    columns = header.split(",")
    invoice = next(name for name in columns if name.lower().startswith("invoice"))
    cells = (
        dict.fromkeys(columns, "x") | {"date": "TODAY", "Date": "TODAY", "amount": "12.50", "Amount": "12.50"} | given
    )
    lines = [",".join(str((cells | {invoice: f"INV-{row}"})[name]) for name in columns) for row in (1, 2)]
    write(home, lines, header, BATCH=batch)
    (home.path / "map.toml").write_text(f'[columns]\ninvoice = "{invoice}"\n', "utf-8")
    told = ["--map", "map.toml"] if mapped else []
    done = home.run("reconcile", batch, "--against", "export.csv", *told, *SIGNED)
    if kind == "a payment file without one" and mapped:
        assert done.returncode == 7 and "warning: this may be a file of your own" in done.stdout, done.stderr
    else:
        assert done.returncode == 4 and "not an export" in done.stderr, done.stderr
    with ledger_in(home.path) as ledger:
        assert [row.state for row in ledger.rows(batch)] == [State.ACCEPTED, State.IN_DOUBT]


@pytest.mark.parametrize("header", [
    "Invoice No.,Amount,Date,Status", f"{PAYMENT_FILE},invoiceNumber,posted,Status", "invoiceNumber,amount,date,state",
])  # fmt: skip
def test_what_may_be_a_file_of_ours_is_said_before_anybody_agrees(home: Home, header: str) -> None:
    """All that it says of a payment the payment file said as well: an export may have the same headers."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1), Planned(2, State.IN_DOUBT)], carried=["Date", "Status", "date"])
    values = {"status": "Approved", "state": "accepted", "date": "TODAY", "posted": "TODAY", "amount": "12.50"}

    def line(row: int) -> str:
        names = header.lower().split(",")
        return ",".join(f"INV-{row}" if name.startswith("invoice") else values.get(name, "x") for name in names)

    write(home, [line(1), line(2)], header)
    (home.path / "map.toml").write_text('[columns]\ndate = "posted"\n', "utf-8")
    told = ["--against", "export.csv", *(["--map", "map.toml"] if "posted" in header else [])]
    found = home.json("reconcile", batch, *told)
    assert "make sure that the gateway or the bank wrote it" in found["reconciliation"]["caution"]
    done = home.run("reconcile", batch, *told, *SIGNED)
    assert " there; this may be a file of your own, not an export" in done.stderr
    assert "  warning: this may be a file of your own" in done.stdout


def test_an_export_has_no_caution(home: Home) -> None:
    """A bank's column may be called like one of the payment file, as long as another tells what became of it."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1, reference="R1")], carried=["Date", "Status"])
    write(home, ["R1,INV-1,12.50,TODAY,x6789,Settled"])
    assert home.json("reconcile", batch, "--against", "export.csv")["reconciliation"]["caution"] is None


def test_dates_that_can_not_be_read_are_said(home: Home) -> None:
    """Last month's line of the same bill, dated `46319`, matched this month's payment, with exit code 0 and no word."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1, reference="R1"), Planned(2)])
    write(home, ["R1,INV-1,12.50,TODAY,x6789,Settled", ",INV-2,12.50,46319,x6789,Settled"])
    done = home.run("reconcile", batch, "--against", "export.csv")
    assert (
        "warning: the date of 1 line can't be read, in line 3 it is 46319: a payment of last month is not told from"
        " this one; format the column as a date, or say in a map how dates are written ([format], date)"
    ) in " ".join(done.stdout.split())
    write(home, ["R1,INV-1,12.50,TODAY,x6789,Settled", ",INV-2,12.50,,x6789,Settled"])
    assert home.json("reconcile", batch, "--against", "export.csv")["reconciliation"]["caution"] is None


def test_an_export_that_can_not_be_read_is_refused(home: Home) -> None:
    """A file without usable headers, and a missing one, are exit code 4."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1)])
    (home.path / "export.csv").write_text("a,b\n1,2\n", "utf-8")
    done = home.run("reconcile", batch, "--against", "export.csv")
    assert done.returncode == 4
    assert "--map" in done.stderr
    assert home.run("reconcile", batch, "--against", "missing.csv").returncode == 4


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
