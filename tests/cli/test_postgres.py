"""The commands with a ledger in a PostgreSQL database: what a person calls on each of two machines, end to end."""

from __future__ import annotations

import csv
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from batchpay.cli import demo
from batchpay.ledger import records
from batchpay.ledger.open import create_ledger, open_ledger
from batchpay.settings import LedgerSettings
from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.postgres import Server, programs_found


@pytest.fixture
def database(call: Caller, postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the ledger's tables and no ledger yet, which the calls' settings name."""
    name = postgres_server.new_database()
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    call.settings(BATCHPAY_LEDGER=postgres_server.url(name))
    return name


def code(call: Caller, *arguments: str) -> int:
    """Give the exit code of a call, whether an error ends it or it ends by itself."""
    done = call._invoke(arguments)
    return int(getattr(done.exception, "exit_code", done.return_value))


def test_a_file_is_paid_and_settled_with_a_ledger_in_a_database(
    call: Caller, database: str, postgres_server: Server, tmp_path: Path
) -> None:
    """Made, submitted, submitted again, settled, reported, checked; another machine joins and sees the same."""
    made = call("ledger", "init", "--owner-url", postgres_server.owner_url(database))
    assert made["ledger"] == f"postgresql://127.0.0.1:{postgres_server.port}/{database}"
    small_file(tmp_path / "a.csv", 30)
    with (tmp_path / "a.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    account = lines[0].index("achAccountNumber")
    lines[5][account] = f"{lines[5][account][:-6]}990004"  # the payment is made, and no answer comes
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    call.settings(BATCHPAY_TIMEOUT="1")
    first = call("submit", "a.csv")
    assert (first["accepted"], first["in_doubt"], first["exit_code"]) == (29, 1, 7)
    again = call("submit", "a.csv")
    assert (again["accepted"], again["in_doubt"], again["pending"]) == (29, 1, 0)
    batch = first["batch"]
    assert call("resume", batch)["accepted"] == 29
    decision = ("--row", "5", "--decision", "accepted", "--reason", "stands in the portal", "--name", "Ada", "--yes")
    call("resolve", batch, *decision)
    assert call("status", batch)["accepted"] == 30
    assert call("results", batch)["accepted"] == 30
    assert "in order" in call.text("ledger", "check")
    assert call("health")["healthy"]
    assert "on the witness's disk" in call.text("health"), "the server's disk is not known here"
    assert "can't be seen from here: leave --backup-every out" in call.text("health", "--backup-every", "8d")
    assert code(call, "ledger", "backup", "copy.db") == 2
    assert code(call, "ledger", "purge", "--older-than", "400", "--dry-run") == 0
    (tmp_path / "retention.toml").write_text("[retention]\ndetails_days = 400\n")
    assert call("health", "--config", "retention.toml")["healthy"], "when a purge is due is known in a database as well"

    (other := tmp_path / "other").mkdir()
    (other / "ledger.key").write_bytes((tmp_path / "keys" / "ledger.key").read_bytes())
    (other / "ledger.key").chmod(0o600)
    call.settings(HOME=str(other), BATCHPAY_LEDGER_KEY_FILE=str(other / "ledger.key"))
    assert code(call, "submit", "a.csv") == 5
    assert code(call, "ledger", "join") == 2
    assert call("ledger", "join", "--reason", "a second host")["witness"].startswith(str(other))
    assert call("submit", "a.csv")["accepted"] == 30
    assert code(call, "ledger", "init") == 5
    runs = call("status", batch)["runs"]
    assert [(run["rows"], run["standing"]) for run in (runs[0], runs[-1])] == [(30, "ended"), (0, "ended")]
    assert "machine" in call.text("status", batch)
    assert code(call, "resolve", batch, "--host-is-gone") == 2
    postgres_server.drop(database)


def test_an_inbox_call_takes_over_what_a_dead_machine_left_behind(
    call: Caller, database: str, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody names the batch, and its file was on the dead machine: the docs said so, and no call did it."""
    call("ledger", "init", "--owner-url", postgres_server.owner_url(database))
    small_file(tmp_path / "a.csv", 9)
    first = call("submit", "a.csv", "--limit", "3")
    assert (first["accepted"], first["pending"]) == (3, 6)
    key = str(tmp_path / "keys" / "ledger.key")
    own = LedgerSettings(url=postgres_server.url(database), key_file=key)
    with closing(open_ledger(own)) as ledger, ledger.lock(ledger.find(first["batch"]).digest):
        ledger.start(first["batch"], "ada").commit([4, 5], [])

    (other := tmp_path / "other").mkdir()
    (other / "in").mkdir()
    shutil.copy(key, other / "ledger.key")
    call.settings(HOME=str(other), BATCHPAY_LEDGER_KEY_FILE=str(other / "ledger.key"))
    call("ledger", "join", "--reason", "a second host")
    inbox = ("submit", "--inbox", str(other / "in"))
    assert call(*inbox)["exit_code"] == 0, "its heartbeat is young"
    monkeypatch.setattr(records, "LEASE_S", 0.0)
    done = call(*inbox)
    assert (done["batch"], done["accepted"], done["in_doubt"], done["exit_code"]) == (first["batch"], 7, 2, 7)
    assert done["results"] == str(other / "in" / "a.results.csv")
    assert call(*inbox)["exit_code"] == 7
    postgres_server.drop(database)


def test_the_administrators_sql_makes_the_tables(call: Caller, postgres_server: Server) -> None:
    """What is printed can be run as it is, and batchpay then needs no more rights than batchpay_app has."""
    name = postgres_server.empty_database()
    call.settings(BATCHPAY_LEDGER=postgres_server.url(name))
    text = call.text("ledger", "init", "--print-sql")
    assert text.startswith("BEGIN;")
    postgres_server.run(text, name)
    assert code(call, "ledger", "init") == 5, "a member of batchpay_app makes no ledger"
    call("ledger", "init", "--owner-url", postgres_server.owner_url(name))
    assert call("ledger", "check")["problems"] == []
    postgres_server.drop(name)


def test_no_message_names_the_login(call: Caller, postgres_server: Server) -> None:
    """User and parameters of the address stay out of what is printed; a password in it is refused."""
    call.settings(BATCHPAY_LEDGER="postgresql://teller:hunter2@127.0.0.1:1/x")
    assert code(call, "status") == 5
    call.settings(BATCHPAY_LEDGER="postgresql://teller@127.0.0.1:1/x?application_name=hidden")
    assert code(call, "status") == 5
    for arguments in (("status",), ("health",)):
        assert "teller" not in call.text(*arguments)
        assert "hidden" not in call.text(*arguments)


def test_a_ledger_moves_to_a_database_and_is_paid_from_there(
    call: Caller, postgres_server: Server, tmp_path: Path
) -> None:
    """What was paid from the file is known, and the file sends nothing any more."""
    small_file(tmp_path / "a.csv", 5)
    assert call("submit", "a.csv", "--limit", "3")["accepted"] == 3
    name = postgres_server.new_database()
    to = ("ledger", "move", "--to", postgres_server.url(name), "--owner-url", postgres_server.owner_url(name))
    assert code(call, *to) == 2
    moved = call(*to, "--reason", "a second host")
    assert moved["ledger"] == f"postgresql://127.0.0.1:{postgres_server.port}/{name}"
    assert code(call, "status") == code(call, "submit", "a.csv") == 5
    call.settings(BATCHPAY_LEDGER=postgres_server.url(name))
    assert call("submit", "a.csv")["accepted"] == 5
    assert "in order" in call.text("ledger", "check")
    assert code(call, *to, "--reason", "once more") == 2
    postgres_server.drop(name)


def test_the_demos_server_keeps_a_ledger_and_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that nobody else can enter: it listens nowhere else."""
    if programs_found() is None:
        pytest.skip("no PostgreSQL: install it")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with demo.running_database() as database:
        folder = database._folder
        assert folder.stat().st_mode & 0o077 == 0
        settings = LedgerSettings(url=database.url(demo.PAYER), key_file=str(tmp_path / "keys" / "ledger.key"))
        create_ledger(settings, "ada", owner_url=database.url())
        database.let_in()
        ledger = open_ledger(settings)
        assert ledger.check() == []
        ledger.close()
    assert not folder.exists()


def test_a_demo_without_a_server_says_so(call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "_programs", lambda: None)
    assert code(call, "demo", "--postgres", "--out", str(tmp_path / "shown")) == 5
    assert not (tmp_path / "shown").exists()
