"""The main job with the installed command: check, send once, write files that add up, report the limit it found."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import socket
import stat
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from tests.support.command import SAMPLES, Home, small_file
from tests.support.oracle import Oracle, running_oracle
from tests.support.strace import STRACE, strace
from tests.support.warm import WARM


def read(path: Path | str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_of_the_sample_is_accounted_for(sandbox_home: Home) -> None:
    """Results and rejects together hold every row of the sample once, and the totals agree to the cent."""
    sample = sandbox_home.path / "payments.csv"
    sample.write_bytes((SAMPLES / "payments.csv").read_bytes())
    summary = sandbox_home.json("submit", "payments.csv")
    results, rejects = read(sandbox_home.path / summary["results"]), read(sandbox_home.path / summary["rejects"])
    assert sorted([int(row["row"]) for row in results] + [int(row["_row"]) for row in rejects]) == list(
        range(1, len(read(sample)) + 1)
    )
    assert Counter(row["state"] for row in results) == {
        state: summary[state] for state in ("accepted", "declined", "in_doubt")
    }
    cents = sum(round(float(row["amount"]) * 100) for row in results)
    assert f"{cents // 100}.{cents % 100:02d}" == summary["amount"]["valid"]
    assert summary["in_doubt"] == 2
    assert summary["exit_code"] == 7
    assert {stat.S_IMODE((sandbox_home.path / summary[kind]).stat().st_mode) for kind in ("results", "rejects")} == {
        0o600
    }


def test_running_again_repeats_nothing(oracle_home: Home, oracle: Oracle) -> None:
    """The same file, even under another name, is the same batch: nothing is sent a second time."""
    file = small_file(oracle_home.path / "a.csv", 25)
    first = oracle_home.json("submit", "a.csv")
    file.rename(oracle_home.path / "b.csv")
    second = oracle_home.json("submit", "b.csv")
    assert first["accepted"] == second["accepted"] == 25
    assert first["batch"] == second["batch"]
    assert oracle.received() == {f"INV-{number}": 1 for number in range(1, 26)}


def test_a_file_that_another_ledger_paid_is_refused_whole(oracle_home: Home, oracle: Oracle) -> None:
    """The old ledger is gone, its results are next to the file: nothing is sent until a person has checked."""
    small_file(oracle_home.path / "a.csv", 5)
    oracle_home.json("submit", "a.csv")
    for folder in (".local", ".config"):
        shutil.rmtree(oracle_home.path / folder, ignore_errors=True)
    done = oracle_home.run("submit", "a.csv")
    assert done.returncode == 4, done.stderr
    assert "another ledger may have paid this file" in done.stderr
    assert oracle_home.run("submit", "a.csv", "--paid-elsewhere-checked").returncode == 2
    assert set(oracle.received().values()) == {1}
    reason = ("--paid-elsewhere-checked", "--reason", "the sandbox was emptied")
    assert oracle_home.json("submit", "a.csv", *reason)["accepted"] == 5
    assert oracle_home.json("submit", "a.csv")["accepted"] == 5
    assert set(oracle.received().values()) == {2}


def test_the_restore_drill(oracle_home: Home, oracle: Oracle) -> None:
    """Back up, pay more, lose the disk, restore, be blocked, look up what was paid, continue: nothing is paid twice."""
    home, state = oracle_home, oracle_home.path / ".local" / "state" / "batchpay"
    for name, first in (("a.csv", 1), ("b.csv", 11), ("c.csv", 21)):
        small_file(home.path / name, 3, first=first)
    home.json("submit", "a.csv")
    assert home.run("ledger", "backup", "copy.db").returncode == 0
    home.json("submit", "b.csv")
    shutil.rmtree(state)
    assert home.run("submit", "c.csv").returncode == 5
    state.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(home.path / "copy.db", state / "ledger.db")
    assert home.run("submit", "c.csv").returncode == 5
    accepted = home.run("ledger", "accept", "--reason", "the disk died")
    assert accepted.returncode == 0
    assert (accepted.stdout + accepted.stderr).count("are lost: what was done since") == 1
    assert "batchpay ledger accept --confirm" in accepted.stdout
    assert home.run("submit", "c.csv").returncode == 8
    looked = home.run("submit", "c.csv", "--dry-run", "--json")
    assert (looked.returncode, json.loads(looked.stdout)["exit_code"]) == (8, 8)
    assert "since" in json.loads(looked.stdout)["waits_for"]
    assert home.run("submit", "b.csv", "--dry-run").returncode == 4
    assert home.run("health").returncode == 8
    assert home.run("submit", "b.csv").returncode in (4, 8)
    assert home.run("ledger", "accept", "--confirm", "--reason", "b.csv was paid").returncode == 0
    assert home.run("submit", "b.csv").returncode == 4
    assert home.json("submit", "c.csv")["accepted"] == 3
    assert home.json("submit", "a.csv")["accepted"] == 3
    assert sorted(oracle.received().values()) == [1] * 9


def test_one_added_row_pays_only_that_row(oracle_home: Home, oracle: Oracle) -> None:
    """A file with one more row is another batch, and what the first one paid is rejected by name."""
    small_file(oracle_home.path / "a.csv", 10)
    small_file(oracle_home.path / "b.csv", 11)
    oracle_home.json("submit", "a.csv")
    summary = oracle_home.json("submit", "b.csv")
    assert (summary["accepted"], summary["rejected"]) == (1, 10)
    assert "duplicate" in read(oracle_home.path / summary["rejects"])[0]["_errors"]
    assert set(oracle.received().values()) == {1}


def test_a_killed_run_resumes_without_paying_twice(home: Home) -> None:
    """Kill -9 in the middle: the same command finishes, rows in flight are in doubt, nothing arrives twice."""
    with running_oracle(home.path / "slow.log", "--latency-ms", "20", warm=WARM) as oracle:
        home.origin = oracle.origin
        small_file(home.path / "a.csv", 200)
        with home.start("submit", "a.csv", "-q") as process:
            try:
                assert oracle.gets(60, process)
            finally:
                process.kill()
        summary = home.json("submit", "a.csv", "--max-in-doubt", "50")
        assert summary["accepted"] + summary["in_doubt"] == 200
        assert 1 <= summary["in_doubt"] <= 8
        assert summary["exit_code"] == 7
        received = oracle.received()
        assert set(received.values()) == {1}
        states = {row["invoiceNumber"]: row["state"] for row in read(home.path / summary["results"])}
        assert all(received[reference] == 1 for reference, state in states.items() if state == "accepted")
        assert all(states[reference] in ("accepted", "in_doubt") for reference in received)


def test_a_signal_ends_a_run_cleanly(home: Home) -> None:
    """SIGTERM: rows in flight finish, the files are written, exit code 6, and the rest is sent later."""
    with running_oracle(home.path / "slow.log", "--latency-ms", "20", warm=WARM) as oracle:
        home.origin = oracle.origin
        small_file(home.path / "a.csv", 200)
        with home.start("submit", "a.csv", "--json", stdout=subprocess.PIPE) as process:
            assert oracle.gets(40, process)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate()
        first = json.loads(output)
        assert (process.returncode, first["exit_code"], first["in_doubt"]) == (6, 6, 0)
        assert first["accepted"] + first["pending"] == 200
        second = home.json("resume")
        assert second["accepted"] == 200
        assert set(oracle.received().values()) == {1}


def test_a_second_start_finds_the_batch_held(oracle_home: Home, oracle: Oracle) -> None:
    """While one run holds a batch, here one that is paced slowly, another ends with exit code 9 and sends nothing."""
    small_file(oracle_home.path / "a.csv", 200)
    with oracle_home.start("submit", "a.csv", "-q", "--rate", "10") as process:
        try:
            assert oracle.gets(3, process)
            assert oracle_home.run("submit", "a.csv").returncode == 9
            assert oracle_home.run("resume").returncode == 9
        finally:
            process.terminate()
    assert process.returncode == 6
    assert oracle_home.json("submit", "a.csv")["accepted"] == 200
    assert set(oracle.received().values()) == {1}


def test_a_second_signal_changes_nothing(home: Home) -> None:
    """SIGINT twice and then SIGTERM, while payments are on their way: still a clean stop, and no doubt."""
    with running_oracle(home.path / "slow.log", "--latency-ms", "50", warm=WARM) as oracle:
        home.origin = oracle.origin
        small_file(home.path / "a.csv", 100)
        with home.start("submit", "a.csv", "--json", stdout=subprocess.PIPE) as process:
            assert oracle.gets(10, process)
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                process.send_signal(number)
            output, _ = process.communicate()
        summary = json.loads(output)
        assert (process.returncode, summary["in_doubt"], summary["sending"]) == (6, 0, 0)
        oracle.settle()
        assert len(oracle.entries()) == summary["accepted"]


def test_a_dry_run_sends_and_records_nothing(oracle_home: Home, oracle: Oracle) -> None:
    """--dry-run shows what would happen, opens no socket and creates no ledger."""
    small_file(oracle_home.path / "a.csv", 5)
    done = oracle_home.run("submit", "a.csv", "--dry-run", "--show-requests", "1")
    assert done.returncode == 0
    assert "nothing is sent" in done.stdout
    assert '"achAccountNumber":"****' in done.stdout
    assert oracle.entries() == []
    assert not (oracle_home.path / ".local").exists()


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_a_dry_run_opens_no_socket(oracle_home: Home) -> None:
    """The system calls of a dry run and of a check: not one socket to a network."""
    small_file(oracle_home.path / "a.csv", 5)
    for arguments in (("submit", "a.csv", "--dry-run"), ("validate", "a.csv")):
        trace = oracle_home.path / "trace"
        command = strace("-o", str(trace), "-e", "trace=socket,connect,sendto")
        done = subprocess.run(
            [*command, *oracle_home.command(*arguments)],
            env=oracle_home.environment,
            cwd=oracle_home.path,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0
        assert "AF_INET" not in trace.read_text()


BAD_FILES = {
    "missing": (None, "missing.csv"),
    "empty": (b"", "empty.csv"),
    "binary": (bytes(range(256)) * 40, "binary.csv"),
    "without a required column": (b"amount,gatewayId\n1.00,7\n", "columns.csv"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(oracle_home: Home, oracle: Oracle, kind: str) -> None:
    """A file that can't be a payment file gives one clear line, exit code 4, and nothing is sent."""
    content, name = BAD_FILES[kind]
    if content is not None:
        (oracle_home.path / name).write_bytes(content)
    for command in ("validate", "submit"):
        done = oracle_home.run(command, name)
        assert (done.returncode, done.stdout) == (4, "")
        assert len(done.stderr.splitlines()) == 1
        assert name in done.stderr
    assert oracle.entries() == []


def test_wrong_credentials_stop_before_any_payment(sandbox_home: Home) -> None:
    """A refused key ends with exit code 6; every row stays pending for the next run."""
    sandbox_home.extra["BATCHPAY_API_KEY"] = "wrong-key"
    small_file(sandbox_home.path / "a.csv", 3, first=500)
    summary = sandbox_home.json("submit", "a.csv")
    assert (summary["exit_code"], summary["pending"]) == (6, 3)
    assert "credentials" in summary["stopped"] or "key" in summary["stopped"]
    sandbox_home.extra["BATCHPAY_API_KEY"] = "sandbox-key"
    assert sandbox_home.json("resume")["accepted"] == 3


def test_a_missing_gateway_leaves_every_row_pending(home: Home) -> None:
    """A refused connection proves that nothing was sent: exit code 6, all pending."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        home.origin = f"http://127.0.0.1:{unused.getsockname()[1]}"
        small_file(home.path / "a.csv", 3)
        summary = home.json("submit", "a.csv")
    assert (summary["exit_code"], summary["pending"], summary["in_doubt"]) == (6, 3, 0)


def test_no_ledger_no_payment(home: Home) -> None:
    """For a gateway that is not on loopback a ledger is never created automatically: exit code 5."""
    home.origin = "https://gateway.example"
    small_file(home.path / "a.csv", 3)
    done = home.run("submit", "a.csv")
    assert done.returncode == 5
    assert "ledger" in done.stderr


def test_a_live_gateway_behind_a_tunnel_gets_no_ledger_automatically(oracle_home: Home, oracle: Oracle) -> None:
    """A tunnel ends on loopback, and the path of the ledger is mistyped: an empty one would pay everything again."""
    small_file(oracle_home.path / "a.csv", 3)
    oracle_home.extra["BATCHPAY_ENVIRONMENT"] = "live"
    done = oracle_home.run("submit", "a.csv")
    assert (done.returncode, sum(oracle.received().values())) == (5, 0)
    assert "batchpay ledger init" in done.stderr


def test_an_account_number_shows_up_nowhere(oracle_home: Home) -> None:
    """No output, ledger, log or result holds an account number; only the rejects return the person's own rows."""
    file = small_file(oracle_home.path / "a.csv", 40)
    accounts = {row["achAccountNumber"] for row in read(file)}
    done = oracle_home.run("submit", "a.csv", "-v")
    assert done.returncode == 0
    kept = b"".join(path.read_bytes() for path in oracle_home.path.rglob("*") if path.is_file() and path != file)
    for account in accounts:
        assert account not in done.stdout + done.stderr
        assert account.encode() not in kept


def test_a_limit_sends_exactly_that_many(oracle_home: Home, oracle: Oracle) -> None:
    """--limit N sends N rows, including those already passed to workers: queued rows used to be dropped."""
    small_file(oracle_home.path / "a.csv", 30)
    summary = oracle_home.json("submit", "a.csv", "--limit", "20")
    assert (summary["accepted"], summary["pending"], summary["exit_code"]) == (20, 10, 6)
    assert set(oracle.received()) == {f"INV-{number}" for number in range(1, 21)}
    assert oracle_home.json("resume")["accepted"] == 30


def test_an_account_that_the_gateway_does_not_know_rejects_its_rows(sandbox_home: Home) -> None:
    """The gateway is queried for every gatewayId: rows of an unknown one or of a card account are rejected, unsent."""
    file = small_file(sandbox_home.path / "a.csv", 6, first=800)
    lines = file.read_text("utf-8").splitlines()
    lines[2], lines[4] = lines[2].replace(",1001,", ",4711,", 1), lines[4].replace(",1001,", ",1003,", 1)
    file.write_text("\n".join(lines) + "\n", "utf-8")
    summary = sandbox_home.json("submit", "a.csv")
    assert (summary["accepted"], summary["rejected"]) == (4, 2)
    assert summary["counts"] == {"gatewayId.unknown": 1, "gatewayId.not_echeck": 1}
    assert [row["_row"] for row in read(sandbox_home.path / summary["rejects"])] == ["2", "4"]


def test_one_reason_pays_once_more_whatever_came_between(oracle_home: Home, oracle: Oracle) -> None:
    """A reason that was used before pays nothing, even after another one. It once paid a fourth time."""
    small_file(oracle_home.path / "a.csv", 3)
    oracle_home.json("submit", "a.csv")
    for reason in ("first", "second", "first", " first  ", "second"):
        assert oracle_home.json("submit", "a.csv", "--again", "--reason", reason)["exit_code"] == 0
    assert set(oracle.received().values()) == {3}


def test_a_content_is_one_batch_with_and_without_repair(oracle_home: Home, oracle: Oracle) -> None:
    """--normalize makes more rows of the same batch valid; they take a release, and the others are not paid again.

    Days later no fingerprint catches such rows: the batch itself must.
    """
    (oracle_home.path / "batchpay.toml").write_text("[policy]\nduplicate_days = 0\n")
    file = small_file(oracle_home.path / "a.csv", 5)
    rows = [line.split(",") for line in file.read_text().splitlines()]
    identity, kind, amount = (rows[0].index(name) for name in ("paymentId", "transactionType", "amount"))
    for number, row in enumerate(rows[1:], start=1):
        row[identity] = ""
        row[kind] = "debit" if number == 2 else row[kind]
        row[amount] = "4.5" if number == 4 else row[amount]
    file.write_text("\n".join(map(",".join, rows)) + "\n")
    first = oracle_home.json("submit", "a.csv")
    assert (first["accepted"], first["rejected"]) == (3, 2)
    plain = oracle_home.json("submit", "a.csv", "--normalize")
    assert (plain["batch"], plain["accepted"], plain["rejected"]) == (first["batch"], 3, 2)
    second = oracle_home.json("submit", "a.csv", "--normalize", "--release", "--reason", "repaired, seen by Kim")
    assert second["batch"] == first["batch"]
    assert oracle_home.json("submit", "a.csv")["batch"] == first["batch"]
    assert (second["accepted"], second["rejected"]) == (5, 0)
    assert sorted(oracle.received().items()) == [(f"INV-{number}", 1) for number in range(1, 6)]


def test_the_limit_a_run_found_is_reported_and_kept(home: Home) -> None:
    """One refused request may have any reason: it is reported as a limit if one near that pace is refused again.

    The demo plays single refusals, and said that the gateway refuses requests faster than 453 a second. Either way the
    next run begins at that pace.
    """
    rules = home.path / "faults.json"
    rules.write_text(json.dumps([{"fault": "busy", "at": at, "retry_after": "0"} for at in (6, 10)]))
    with running(Options(port=0, faults=rules)) as home.origin:
        for name, rows, first in (("a", 7, 1), ("b", 3, 10), ("c", 1, 20)):
            small_file(home.path / f"{name}.csv", rows, first=first)
        once = home.json("submit", "a.csv", "--rate", "5", "--no-preflight")
        assert (once["accepted"], once["rate_found"], once["notes"]) == (7, None, [])
        again = home.run("submit", "b.csv", "--rate", "5", "--no-preflight")
        told = " ".join(again.stdout.split())
        slower = home.run("submit", "c.csv", "--rate", "1", "--no-preflight").stderr
    assert "a second, the pace at which an earlier run ended" in again.stderr
    assert "note: the gateway asked once for a slower pace" in told
    assert "the gateway refused requests faster than" in told
    assert "earlier run" not in slower, "what the person asks for is less"
