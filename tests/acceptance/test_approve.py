"""`batchpay approve` and what waits for it, with the installed command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Home
from tests.support.ledger_factory import ledger_environment
from tests.support.oracle import Oracle
from tests.workflows.office import Office


@pytest.fixture
def office(tmp_path: Path, oracle: Oracle) -> Office:
    """The office where Ann prepares."""
    return Office(tmp_path, oracle)


@pytest.fixture
def shell(home: Home, office: Office, oracle: Oracle) -> Home:
    """The same ledger, from the command line of whoever runs the tests."""
    home.origin = oracle.origin
    home.extra |= {**ledger_environment(office.folder), "BATCHPAY_BASE_URL": oracle.origin, "BATCHPAY_APPROVALS": "1"}
    return home


def test_a_plan_is_viewed_approved_and_sent(shell: Home, office: Office) -> None:
    """8 until someone else has approved; the approver sees totals, accounts and seal; then 0, and only once."""
    path = office.file("10.00", "20.00")
    plan = office.plan(path)
    waiting = shell.run("submit", path, "--from-plan", plan)
    assert (waiting.returncode, office.received()) == (8, [])
    assert "pay.csv: 30.00 in all needs approval by another person; nothing was registered or sent" in waiting.stderr
    approved = shell.run("approve", plan, "--yes")
    assert approved.returncode == 0
    seal = office.read(plan).seal
    for words in ("PAYMENTS TO APPROVE", "prepared  by ann@desk", "30.00", "  1001", f"seal      {seal}", "ready:"):
        assert words in approved.stdout
    sent = shell.json("submit", path, "--from-plan", plan)
    assert (sent["exit_code"], sent["accepted"], sent["seal"]) == (0, 2, seal)
    assert shell.json("submit", path, "--from-plan", plan)["accepted"] == 2
    assert office.received() == ["I-1", "I-2"]


def test_a_spent_plan_is_not_ready(shell: Home, office: Office) -> None:
    """The same file was sent by another plan: exit code 4 and the batch; it used to be 0 and `ready`."""
    path = office.file("10.00")
    plan, other = office.plan(path), office.plan(path, name="other.json")
    shell.run("approve", other, "--yes")
    assert shell.json("submit", path, "--from-plan", other)["exit_code"] == 0
    late = shell.run("approve", plan, "--yes")
    assert (late.returncode, "ready:" in late.stdout) == (4, False)
    assert "this plan is spent: since it was prepared, its content was submitted in batch" in late.stderr


def test_no_terminal_no_question(shell: Home, office: Office) -> None:
    """Without a terminal nothing is approved by default: 2, and the plan stays as it was."""
    plan = office.plan(office.file("10.00"))
    before = Path(plan).read_bytes()
    done = shell.run("approve", plan)
    assert (done.returncode, Path(plan).read_bytes()) == (2, before)
    assert "needs --yes" in done.stderr


def test_yes_counts_only_on_the_command_line(shell: Home, office: Office) -> None:
    """Neither a variable nor a settings file approves."""
    plan = office.plan(office.file("10.00"))
    shell.extra["BATCHPAY_YES"] = "1"
    assert shell.run("approve", plan).returncode == 2
    (shell.path / "batchpay.toml").write_text("[approve]\nyes = true\n")
    assert shell.run("approve", plan).returncode == 5
    assert office.read(plan).approvals == ()


def test_the_person_who_prepares_does_not_approve(shell: Home, office: Office) -> None:
    """One account is one person, whatever name it is called with; --json says so as well."""
    path = office.file("10.00")
    plan = str(office.folder / "own.json")
    preview = shell.json("submit", path, "--dry-run", "--plan", plan)
    assert preview["seal"] == office.read(plan).seal
    done = shell.json("approve", plan, "--yes")
    assert done["exit_code"] == 8
    assert "another person must approve it" in done["error"]
    assert shell.run("submit", path, "--from-plan", plan).returncode == 8
    assert office.received() == []
