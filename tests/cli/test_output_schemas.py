"""docs/schemas/: one JSON Schema file for the object of each command and one for the log, held against real output.

Acceptance tests hold every object that they read against its schema as well (tests/support/command.py).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from batchpay.cli.commands import COMMANDS, load_command
from batchpay.operations.logs import FIELDS
from batchpay.payment import Actor
from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.output_schemas import SCHEMAS, log_problems, require_schema, validator
from tests.support.sandbox_requests import control

ACCOUNT = ("--gateway-name=processorC_cc", "--mode=test", "--accept-amex=0", "--active-level2=0", "--active-level3=1")


def commands_with_object() -> set[str]:
    """Every command that prints an object with --json, under the name of its schema."""
    names: set[str] = set()
    for name in COMMANDS:
        command = load_command(name)
        names |= {f"{name}-{one}" for one in getattr(command, "commands", ())}
        if not isinstance(command, click.Group) or command.invoke_without_command:
            names.add(name)
    return names


def test_every_command_has_a_schema_and_keeps_to_it(
    call: Caller, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day with every command: sent, declined, in doubt, settled, reported, checked, backed up."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 3)
    (tmp_path / "wrong.csv").write_text("nonsense\n")
    call("validate", "a.csv")
    call("template", "empty.csv")
    call("completion", "bash")
    assert [set(one) & {"error", "batch"} for one in call("validate", "a.csv", "wrong.csv")["files"]] == [
        {"batch"}, {"error"},
    ]  # fmt: skip
    assert call("submit", "a.csv", "--dry-run", "--plan", "plan.json", "--show-requests", "1")["dry_run"]
    with monkeypatch.context() as patched:
        patched.setattr("batchpay.cli.approve.actor", lambda: Actor("ann", "desk"))
        call("approve", "plan.json", "--yes")
    control(url, "POST", "faults", [{"fault": "silent", "at": 2}])
    log = ("--log-json", "--log-file", "run.log")
    batch = call("submit", "a.csv", *log)["batch"]
    call("submit", "a.csv", "wrong.csv", *log)
    call("health", "--inbox", ".", "--expect-every", "26h", "--backup-every", "8d")
    call("status")
    call("status", batch)
    doubts = call("resolve", batch)["rows_in_doubt"]
    assert doubts
    call("results", batch, "--results", "again.csv")
    call("report", batch)
    call("report", "--monitoring", "--since", "2026-01-01")
    (tmp_path / "export.csv").write_text("Transaction ID,Invoice,Amount,Date,Account,Status\nR9,INV-9,9.99,,,Settled\n")
    call("reconcile", batch, "--against", "export.csv")
    (tmp_path / "returns.csv").write_text("Return Date,Return Code,Invoice Number\n01/31/2027,R02,INV-9\n")
    assert call("returns", "returns.csv")["exit_code"] == 3
    call("recall", batch, "--rows", "1", "--reason", "amount", "--out", "recall.csv")
    signed = ("--name", "Ann Clerk", "--reason", "the portal", "--yes")
    for doubt in doubts:
        call("resolve", batch, "--row", str(doubt["row"]), "--decision", "send again", *signed)
    assert call("cancel", batch, "--rows", str(doubts[0]["row"]), *signed)["cancelled"]["rows"] == 1
    call("submit", "a.csv", "--release", "--reason", "it is owed", *log)
    call("resume", batch, *log)
    call("ledger", "backup", "copy.db")
    call("ledger", "check")
    call("ledger", "policy", "set", "--zone", "UTC", "--reason", "the company is there")
    assert call("ledger", "policy", "show")["zone"] == "UTC"
    call("ledger", "purge", "--older-than", "400", "--dry-run")
    call("ledger", "purge", "--older-than", "400", "--reason", "retention rule 7")
    call("ledger", "move-gateway", url, url.replace("127.0.0.1", "localhost"), "--reason", "renamed")
    made = call("web", "user", "add", "daniel", "--role", "approve", "--limit", "5000.00", "--home", "web")
    assert "enroll#" in made["link"]
    call("web", "user", "list", "--home", "web")
    with monkeypatch.context() as patched:
        patched.setattr("batchpay.web.server.serve", lambda *_, ready, on_stop: ready("http://127.0.0.1:8790"))
        assert call("web", "--home", "web") == {"url": "http://127.0.0.1:8790"}
    call("web", "user", "off", "daniel", "--home", "web")
    call("web", "user", "set", "daniel", "--limit", "6000.00", "--home", "web")
    assert call("web", "user", "reset", "daniel", "--on", "--home", "web")["link"] != made["link"]
    call("rules")
    assert call("sandbox", "--list-magic")["endings"] and call("sandbox", "--list-dialects")["dialects"]
    (tmp_path / "theirs.csv").write_text("Vendor,ABA #,Acct #,Amt\nAcme,021000021,0012345,7.00\n")
    call("map", "theirs.csv", "--write", "theirs.toml")
    call("test-connection")
    call("gateway", "list")
    call("gateway", "create", *ACCOUNT, "--dry-run")
    number = str(call("gateway", "create", *ACCOUNT)["gateway_id"])
    call("gateway", "get", number)
    call("gateway", "update", number, *ACCOUNT)
    call("gateway", "default", number, "--yes")
    call("gateway", "delete", number, "--yes")
    assert call("ledger", "accept", "--rows-in-doubt", "--reason", "a whole machine was brought back")["lost"]
    assert call("ledger", "check")["exit_code"] == 8
    call("ledger", "accept", "--confirm")
    elsewhere = {"ledger-join", "ledger-move", "demo"}  # tests/cli/test_postgres.py, test_unattended.py
    assert call.seen == commands_with_object() - elsewhere
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert {"row in doubt", "refused", "registered"} <= {json.loads(line)["event"] for line in lines}
    assert [problem for line in lines for problem in log_problems(line)] == []


def test_each_schema_is_one_of_a_command() -> None:
    """No schema is missing, and none is left of a command that is gone; each is a schema itself."""
    names = {path.stem for path in SCHEMAS.glob("*.json")}
    assert names == commands_with_object() | {"log", "parts"}
    for name in names:
        validator(name).check_schema(validator(name).schema)
    log = json.loads((SCHEMAS / "log.json").read_text("utf-8"))
    assert set(log["properties"]) == {"time", "level", "event", *FIELDS}


def test_no_errors_asked_for(call: Caller, tmp_path: Path) -> None:
    """`--max-errors 0` lists none and counts all; with an error in the file it was an internal error."""
    small_file(tmp_path / "a.csv", 3)
    (tmp_path / "a.csv").write_text(
        (tmp_path / "a.csv").read_text().replace("CREDIT", "credit").replace("DEBIT", "debit")
    )
    told = call("validate", "a.csv", "--max-errors", "0")
    assert (told["errors"], told["counts"]) == ([], {"transactionType.choice": 3})


def test_more_than_any_file_has_is_all_of_it(call: Caller, tmp_path: Path) -> None:
    """Twenty nines, where a person means all of them, were an internal error."""
    small_file(tmp_path / "a.csv", 3)
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").write_text(text.replace("CREDIT", "credit").replace("DEBIT", "debit"))
    assert len(call("validate", "b.csv", "--max-errors", "9" * 20)["errors"]) == 3
    assert len(call("submit", "a.csv", "--dry-run", "--show-requests", "9" * 20)["requests"]) == 3


def test_a_schema_notices_what_is_not_said(call: Caller, tmp_path: Path) -> None:
    """A key more, a key less and a number for an amount are noticed: the schemas do not let everything through."""
    small_file(tmp_path / "a.csv", 1)
    right = call("validate", "a.csv")
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda value: value.update(more=1),
        lambda value: value.pop("rows"),
        lambda value: value["amount"].update(total=1.25),
        lambda value: value["debit"].pop("rows"),
        lambda value: value.update(exit_code=10),
    ]
    for change in changes:
        wrong = copy.deepcopy(right)
        change(wrong)
        with pytest.raises(AssertionError):
            require_schema(["validate"], wrong)
    origin = '"call": "0123abcd", "pid": 7, "host": "a"'
    line = '{"time": "2026-11-21T03:00:00.000Z", "level": "info", "event": "registered", "batch": "0123456789ab", '
    line += origin + "}"
    assert log_problems(line)
    assert log_problems(line.replace("registered", "account 12")) == []
