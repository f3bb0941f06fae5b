"""`batchpay resolve` as a person uses it: list, export, fill in, settle, with a terminal and without."""

from __future__ import annotations

import csv
import json
import os
import pty
from contextlib import suppress
from pathlib import Path

import pytest

from batchpay.payment import State
from tests.support.command import Home
from tests.support.ledger_factory import Planned, add_batch, ledger_environment, ledger_in

ROWS = [
    Planned(1),
    Planned(2, State.IN_DOUBT, amount_cents=999),
    Planned(3, State.IN_DOUBT, amount_cents=5000, direction="CREDIT", name="Grace Mbeki"),
    Planned(4, State.DECLINED),
]
SIGNED = ("--name", "Ann Clerk", "--reason", "seen in the portal", "--yes")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, extra=ledger_environment(tmp_path))


@pytest.fixture
def batch(tmp_path: Path) -> str:
    with ledger_in(tmp_path) as ledger:
        return add_batch(ledger, ROWS)


def states(folder: Path, batch: str) -> dict[int, str]:
    with ledger_in(folder) as ledger:
        return {row.row: str(row.state) for row in ledger.rows(batch)}


def on_terminal(home: Home, arguments: tuple[str, ...], answers: str) -> tuple[int, str]:
    """Run a command on a terminal, type the answers, return exit code and what the terminal showed."""
    controller, terminal = pty.openpty()
    with home.start(*arguments, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        os.write(controller, answers.encode())
        shown = b""
        with suppress(OSError):  # the kernel's way of saying that the other end is closed
            while block := os.read(controller, 4096):
                shown += block
        code = process.wait(timeout=60)
    os.close(controller)
    return code, shown.decode()


def test_without_options_it_lists(home: Home, batch: str) -> None:
    """Each row in doubt is listed with what to look for, credits first; exit code 7."""
    done = home.run("resolve", batch)
    assert done.returncode == 7, done.stderr
    assert done.stdout.index(
        "line 4 (--row 3)   CREDIT 50.00 USD   Grace Mbeki   account ****6789"
    ) < done.stdout.index("line 3 (--row 2) ")
    assert "look for     INV-3" in done.stdout
    found = home.json("resolve", batch)
    assert (found["in_doubt"], found["exit_code"]) == (2, 7)
    assert [(row["row"], row["amount"], row["invoiceNumber"]) for row in found["rows_in_doubt"]] == [
        (3, "50.00", "INV-3"),
        (2, "9.99", "INV-2"),
    ]


def test_a_sheet_is_exported_and_read_back(home: Home, batch: str) -> None:
    """Exported, filled in and read back, the sheet settles its rows; blank ones stay; the event names the person."""
    assert home.run("resolve", batch, "--export", "doubts.csv").returncode == 7
    sheet = home.path / "doubts.csv"
    with sheet.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert [line[1] for line in lines[1:]] == ["3", "2"]
    lines[1][-3:] = ["send again", "", "support says it never came"]
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    done = home.run("resolve", batch, "--from", "doubts.csv", *SIGNED)
    assert done.returncode == 7, done.stderr
    assert "1 row, 50.00: WILL BE SENT AGAIN" in done.stderr
    assert states(home.path, batch) == {1: "accepted", 2: "in_doubt", 3: "pending", 4: "declined"}
    with ledger_in(home.path) as ledger:
        event = next(event for event in ledger.events(batch) if event.kind == "resolved")
    assert event.who.startswith("Ann Clerk (")
    assert event.why == "seen in the portal; row 3: support says it never came"

    again = home.run("resolve", batch, "--from", "doubts.csv", *SIGNED)
    assert again.returncode == 4
    assert "line 2: row 3 is not in doubt" in again.stderr


def test_a_workbook_is_exported_too(home: Home, batch: str) -> None:
    """The sheet may be a workbook; one that already exists is left alone."""
    assert home.run("resolve", batch, "--export", "doubts.xlsx").returncode == 7
    unfilled = home.run("resolve", batch, "--from", "doubts.xlsx", *SIGNED)
    assert unfilled.returncode == 7
    assert "the sheet has no decision for 2 rows: nothing changes there" in unfilled.stderr
    refused = home.run("resolve", batch, "--export", "doubts.xlsx")
    assert refused.returncode == 2
    assert "already exists" in refused.stderr


def test_one_bad_line_changes_nothing(home: Home, batch: str) -> None:
    """A sheet is accepted whole or not at all."""
    home.run("resolve", batch, "--export", "doubts.csv")
    sheet = home.path / "doubts.csv"
    text = sheet.read_text("utf-8").replace("9.99", "9.98")
    sheet.write_text("\n".join(line[:-2] + "accepted,," if line.startswith("batch ") else line
                               for line in text.splitlines()) + "\n", "utf-8")  # fmt: skip
    done = home.run("resolve", batch, "--from", "doubts.csv", *SIGNED)
    assert done.returncode == 4
    assert "line 3: the amount of row 2 is 9.99 in the ledger; nothing was changed" in done.stderr
    assert states(home.path, batch)[3] == "in_doubt"


def test_rows_are_settled_one_by_one_until_none_is_in_doubt(home: Home, batch: str) -> None:
    """Exit code 7 while a row is in doubt, 0 after the last; the reference is in the results."""
    first = home.run("resolve", batch, "--row", "2", "--decision", "accepted", "--reference", "G-77", *SIGNED)
    assert first.returncode == 7, first.stderr
    last = home.json("resolve", batch, "--row", "3", "--decision", "Declined", *SIGNED)
    assert last["exit_code"] == 0
    assert last["settled"]["declined"] == {"rows": 1, "amount": "50.00"}
    assert last["rows_in_doubt"] == []
    assert home.run("resolve", batch).returncode == 0
    with ledger_in(home.path) as ledger:
        assert [row.answer.gateway_reference for row in ledger.rows(batch, [State.ACCEPTED])] == [None, "G-77"]


@pytest.mark.parametrize(("arguments", "told"), [
    (("--row", "1", "--decision", "declined", *SIGNED), "row 1 is not in doubt"),
    (("--row", "2", "--decision", "accepted"), "needs --reason, --name, --yes"),
    (("--row", "2", "--decision", "accepted", "--name", " ", "--reason", "x", "--yes"), "needs --name"),
    (("--row", "2"), "--row and --decision go together"), (("--reference", "G"), "--reference goes with"),
    (("--export", "a.csv", "--from", "b.csv"), "be combined"),
])  # fmt: skip
def test_wrong_use_changes_nothing(home: Home, batch: str, arguments: tuple[str, ...], told: str) -> None:
    """Incomplete decisions, or decisions about another row, are refused with exit code 2."""
    done = home.run("resolve", batch, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert states(home.path, batch)[2] == "in_doubt"


def test_on_a_terminal_it_asks(home: Home, batch: str) -> None:
    """Reason and name are requested after the effect was shown; sending again must be typed out."""
    arguments = ("resolve", batch, "--row", "3", "--decision", "send again")
    code, shown = on_terminal(home, arguments, "the portal\nAnn Clerk\ny\n")
    assert code == 2
    assert "nothing was done" in shown
    assert states(home.path, batch)[3] == "in_doubt"
    code, shown = on_terminal(home, arguments, "the portal\nAnn Clerk\nsend again\n")
    assert code == 7
    assert shown.index("paid TWICE") < shown.index("Reason") < shown.index("Your name") < shown.index("to continue")
    assert states(home.path, batch)[3] == "pending"


def test_a_batch_that_a_run_holds_is_left_alone(home: Home, batch: str) -> None:
    """Settling doesn't race a run: exit code 9 while another process holds the batch."""
    with ledger_in(home.path) as ledger, ledger.lock(ledger.find(batch).digest):
        done = home.run("resolve", batch, "--row", "2", "--decision", "accepted", *SIGNED)
    assert done.returncode == 9, done.stderr
    assert states(home.path, batch)[2] == "in_doubt"


def test_rows_that_a_killed_run_left_are_listed(home: Home) -> None:
    """Rows that were sending when a run was killed are in doubt; while the run lives they are not touched."""
    with ledger_in(home.path) as ledger:
        batch = add_batch(ledger, [Planned(1), Planned(2, State.SENDING), Planned(3, State.PENDING)])
        with ledger.lock(ledger.find(batch).digest):
            held = home.run("resolve", batch)
    assert held.returncode == 0
    assert "a run is under way" in held.stderr
    assert states(home.path, batch)[2] == "sending"
    done = home.run("resolve", batch, "--json")
    assert done.returncode == 7
    assert [row["row"] for row in json.loads(done.stdout)["rows_in_doubt"]] == [2]
    assert states(home.path, batch) == {1: "accepted", 2: "in_doubt", 3: "pending"}


@pytest.mark.parametrize("option", ["--reason", "--name", "--reference"])
def test_no_option_brings_an_account_number_into_the_ledger(home: Home, batch: str, option: str) -> None:
    """What looks like the row's account is refused wherever it is written, and nothing is settled."""
    words = {"--name": "Ann", "--reason": "portal", "--reference": "TX-1"} | {option: "account 9876506789"}
    told = [word for pair in words.items() for word in pair]
    done = home.run("resolve", batch, "--row", "2", "--decision", "accepted", *told, "--yes")
    assert done.returncode == 2
    assert "seems to contain the account number of row" in done.stderr
    assert states(home.path, batch)[2] == "in_doubt"
