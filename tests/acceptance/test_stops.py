"""What ends a call early, over one file and several, at midnight or with requests held; and what may not end it."""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.command import Home, small_file
from tests.support.held_up import SHARED, SIGN
from tests.support.oracle import Oracle, running_oracle
from tests.support.warm import WARM, Process


def test_a_signal_stops_the_files_after_it_too(oracle_home: Home, oracle: Oracle) -> None:
    """SIGTERM while the first of two files is sent: nothing of the second begins. It used to be paid in full."""
    small_file(oracle_home.path / "a.csv", 200)
    small_file(oracle_home.path / "b.csv", 5, first=500)
    with oracle_home.start("submit", "a.csv", "b.csv", "--rate", "50", "--json", stdout=subprocess.PIPE) as process:
        assert oracle.gets(5, process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate()
    first, second = json.loads(output)["files"]
    assert (process.returncode, first["stopped"]) == (6, "stopped by SIGTERM")
    assert second == {"file": "b.csv", "error": "not started: stopped by SIGTERM", "exit_code": 6}
    assert not any(reference == "INV-500" for reference in oracle.received())


def test_one_doubt_at_the_start_stops_the_files_after_it_too(home: Home) -> None:
    """A gateway that answers nonsense gets one payment of three files, not one of each."""
    with running_oracle(home.path / "garbage.log", "--garbage-every", "1", warm=WARM) as oracle:
        home.origin = oracle.origin
        for number in (1, 2, 3):
            small_file(home.path / f"{number}.csv", 4, first=100 * number)
        done = home.run("submit", "1.csv", "2.csv", "3.csv")
        assert done.returncode == 7
        assert "not started: 2 files" in done.stderr
        assert len(oracle.entries()) == 1


@pytest.mark.parametrize("output", ["full", "closed", "nobody reads"])
def test_an_output_that_fails_hides_no_doubt(home: Home, output: str) -> None:
    """A row in doubt and a standard output that can't be written: 7. It used to be 1, and hid the row."""
    if output == "full" and not Path("/dev/full").is_char_device():
        pytest.skip("this system has no /dev/full")
    reading, writing = os.pipe()
    os.close(reading)
    target = os.open("/dev/full", os.O_WRONLY) if output == "full" else writing
    with running_oracle(home.path / "garbage.log", "--garbage-every", "1", warm=WARM) as oracle:
        home.origin = oracle.origin
        small_file(home.path / "a.csv", 2)
        command = home.command("submit", "a.csv", "nowhere.csv")
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *command] if output == "closed" else command,
            env=home.environment, cwd=home.path, stdout=target, stderr=subprocess.PIPE, text=True, check=False,
            timeout=60,
        )  # fmt: skip
    for descriptor in {target, writing}:
        os.close(descriptor)
    assert done.returncode == 7
    assert "not started: 1 file" in done.stderr
    assert ("No space left" in done.stderr) == (output == "full")


def test_a_limit_applies_to_all_files_together(oracle_home: Home, oracle: Oracle) -> None:
    """--limit applies to the call: two files of five rows and a limit of seven make seven payments."""
    small_file(oracle_home.path / "a.csv", 5)
    small_file(oracle_home.path / "b.csv", 5, first=100)
    assert oracle_home.run("submit", "a.csv", "b.csv", "--limit", "7").returncode == 6
    assert len(oracle.entries()) == 7
    assert oracle_home.run("submit", "a.csv", "b.csv").returncode == 0
    assert set(oracle.received().values()) == {1}


def test_a_later_file_does_not_hide_a_doubt(home: Home) -> None:
    """A file that can't continue after one with a row in doubt: the call ends with 7, and names both."""
    with running_oracle(home.path / "oracle.log", "--silent-every", "5", warm=WARM) as oracle:
        home.origin = oracle.origin
        small_file(home.path / "a.csv", 5)
        small_file(home.path / "b.csv", 3, first=100)
        home.run("submit", "b.csv", "--limit", "1")
        home.origin = oracle.origin.replace("127.0.0.1", "localhost")
        done = home.run("submit", "a.csv", "b.csv", "a.csv.missing", "--json", "--workers", "1")
        told = json.loads(done.stdout)
        assert (done.returncode, told["exit_code"], told["in_doubt"]) == (7, 7, 1)
        assert [one["exit_code"] for one in told["files"]] == [7, 5, 6]
        assert "is intended for" in told["files"][1]["error"]


def test_a_ledger_that_is_lost_after_one_file_ends_a_call_with_6(oracle_home: Home, oracle: Oracle) -> None:
    """Its witness was away when the second file began, and the ledger could be read at the end.

    The call ended with 5, which says that nothing was sent: the first file had been paid.
    """
    for name in ("a", "b", "c"):
        small_file(oracle_home.path / f"{name}.csv", 2, first=100 * ord(name))
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):  # the summary of the first file has to wait until somebody reads
            pass
    os.set_blocking(writing, True)
    with oracle_home.start(
        "submit", "a.csv", "b.csv", "c.csv", "--verbose", stdout=writing, stderr=subprocess.PIPE
    ) as process:
        os.close(writing)
        assert process.stderr is not None
        while not process.stderr.readline().startswith("a.csv: batch"):
            assert process.poll() is None
        (witness,) = oracle_home.path.rglob("*.witness")
        witness.unlink()
        with os.fdopen(reading, "rb") as file:
            said = file.read().decode().lstrip("x")
        wrong = process.stderr.read()
    assert (process.returncode, "accepted  2  19,401.50" in said) == (6, True), said
    assert "not started: 1 file" in wrong and "nothing was sent" not in wrong
    assert len(oracle.entries()) == 2


def test_settings_that_do_not_fit_a_later_file_end_a_call_with_6(oracle_home: Home, oracle: Oracle) -> None:
    """The first file had been paid, and the call ended with 5; so it does where nothing was sent before."""
    for name in ("a", "b"):
        small_file(oracle_home.path / f"{name}.csv", 2, first=100 * ord(name))
    oracle_home.run("submit", "b.csv", "--limit", "1")
    oracle_home.origin = oracle.origin.replace("127.0.0.1", "localhost")
    assert oracle_home.json("submit", "b.csv", "a.csv")["exit_code"] == 5
    told = oracle_home.json("submit", "a.csv", "b.csv")
    assert (told["exit_code"], [one["exit_code"] for one in told["files"]]) == (6, [0, 5])
    assert len(oracle.entries()) == 3


def test_a_signal_while_a_file_is_read_is_not_wrong_use(home: Home) -> None:
    """SIGTERM before anything was sent: exit code 6, and it says so. It used to be 2, as after a no at the prompt."""
    command = home.command("validate", "-", "--format", "csv", "--json")
    with subprocess.Popen(
        command, env=home.environment, cwd=home.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        for _ in range(64):  # more than a pipe holds: when it has been taken, the command is reading
            process.stdin.write(b"x" * 4096)
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        process.wait()
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["exit_code"] == 6
    assert process.returncode == 6


@pytest.mark.parametrize(("arguments", "exit_code"), [
    (["--results", "results.xyz"], 2), (["--results", "no/such/folder/r.csv"], 5),
    (["--metrics-file", "no/such/folder/m.prom"], 5), (["--archive", "taken"], 5), (["--out", "taken"], 5),
    (["--results", "a.csv"], 2), (["--rejects", "a.csv"], 2), (["--rejects", "same.csv", "--results", "./same.csv"], 2),
    (["--metrics-file", "a.csv"], 2),
], ids=lambda value: " ".join(value) if isinstance(value, list) else str(value))  # fmt: skip
def test_outputs_are_checked_before_anything_is_sent(
    oracle_home: Home, oracle: Oracle, arguments: list[str], exit_code: int
) -> None:
    """What can't be written, or would overwrite the payment file, is reported before anything has been paid."""
    file = small_file(oracle_home.path / "a.csv", 3)
    before = file.read_bytes()
    (oracle_home.path / "taken").touch()
    assert oracle_home.run("submit", "a.csv", *arguments).returncode == exit_code
    assert oracle.entries() == []
    assert file.read_bytes() == before


def test_results_that_fail_after_the_sending_do_not_say_that_nothing_was_sent(
    oracle_home: Home, oracle: Oracle
) -> None:
    """The results' place is taken while payments are made: 5, every payment counted, and the next call writes them."""
    small_file(oracle_home.path / "a.csv", 30)
    results = oracle_home.path / "out" / "a.results.csv"
    with oracle_home.start(
        "submit", "a.csv", "--out", "out", "--rate", "100", "--json", stdout=subprocess.PIPE
    ) as process:
        assert oracle.gets(2, process)
        results.mkdir()
        output, _ = process.communicate()
    told = json.loads(output)
    assert (process.returncode, told["accepted"], told["pending"]) == (5, 30, 0)
    assert "a.results.csv can't be written" in told["stopped"]
    results.rmdir()
    assert oracle_home.run("submit", "a.csv", "--out", "out").returncode == 0
    assert results.read_text().count("\n") == 31
    assert set(oracle.received().values()) == {1}


@pytest.mark.parametrize("kind", ["results", "rejects"])
def test_a_folder_in_the_place_of_results_is_found_before_anything_is_sent(
    oracle_home: Home, oracle: Oracle, kind: str
) -> None:
    """The payments were made, and each call from then on ended with 6. The other files of a call are not held up."""
    small_file(oracle_home.path / "a.csv", 2)
    small_file(oracle_home.path / "b.csv", 2, first=11)
    (oracle_home.path / f"a.{kind}.csv").mkdir()
    told = oracle_home.json("submit", "a.csv", "b.csv")
    assert told["exit_code"] == 4
    assert "it is a folder" in told["files"][0]["error"]
    assert sorted(oracle.received()) == ["INV-11", "INV-12"]


def test_wrong_use_is_reported_as_json_too(home: Home) -> None:
    """With --json there is an object, however the call ends."""
    for arguments, exit_code in ((["submit"], 2), (["submit", "none.csv"], 5), (["status"], 5)):
        assert home.json(*arguments)["exit_code"] == exit_code


def test_a_ledger_that_fails_in_the_middle_leaves_an_account_of_what_was_sent(
    oracle_home: Home, oracle: Oracle
) -> None:
    """The ledger's disk fills up while payments are made: 6 with all totals, never 5; then nothing is paid twice."""
    small_file(oracle_home.path / "a.csv", 400)
    oracle_home.run("submit", "a.csv", "--limit", "1")

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    done = oracle_home.run("resume", "--json", "--workers", "1", preexec_fn=small_disk)
    told = json.loads(done.stdout)
    assert done.returncode == told["exit_code"] == 6
    assert "merged by the next run" in told["stopped"]
    assert told["accepted"] > 1
    assert told["accepted"] + told["sending"] + told["pending"] == 400
    assert oracle_home.json("resume")["accepted"] == 400
    assert set(oracle.received().values()) == {1}


def test_a_gateway_that_repeats_references_stops_the_run_at_the_second(home: Home) -> None:
    """Eight payments had one reference, and all were accepted. A person who knows such a gateway says so."""
    with running_oracle(home.path / "oracle.log", "--one-reference", warm=WARM) as oracle:
        home.origin = oracle.origin
        small_file(home.path / "a.csv", 8)
        done = home.run("submit", "a.csv", "--workers", "1", "--json")
        told = json.loads(done.stdout)
        assert (done.returncode, told["accepted"]) == (7, 1)
        assert told["in_doubt"] in (2, 3), "one more may be on its way when the second is recorded"
        assert "gateway.reference_is_unique = false" in told["stopped"]
        assert len(oracle.entries()) == 1 + told["in_doubt"]
        (home.path / "batchpay.toml").write_text("[gateway]\nreference_is_unique = false\n", "utf-8")
        assert home.json("resume")["accepted"] == 8 - told["in_doubt"]  # those in doubt are a person's
        assert (len(oracle.entries()), set(oracle.received().values())) == (8, {1})


ROWS, WORKERS = 40, 8
_FIRST_DAY = {
    "recurringIndicator": "TRUE", "recurringBillingCycle": "MONTHLY", "recurringEndOfMonth": "N",
    "recurringNumOfPayments": "12", "recurringAgreementFlag": "1",
}  # fmt: skip


def _file(path: Path) -> None:
    """Write 40 rows, every second one a recurring payment whose first day is today."""
    with small_file(path, ROWS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    starts = _FIRST_DAY | {"recurringStartDate": f"{datetime.now().astimezone():%m/%d/%Y}"}
    rows = [row | (starts if number % 2 else dict.fromkeys(starts, "") | {"recurringIndicator": "FALSE"})
            for number, row in enumerate(rows, 1)]  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def _run(home: Home, days: int, leave: int, hold: int, *command: str) -> Process:
    arguments = [*command, "--json", "--no-preflight", "--workers", str(WORKERS), "--rate", "100"]
    return home.start(
        str(days), str(leave), str(hold), *arguments,
        module="tests.support.over_midnight", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize(("left", "again"), [(1, ("submit", "a.csv")), (12, ("resume", "--results", "a.results.csv"))])
def test_a_run_that_is_killed_at_midnight_resumes_the_next_day(
    oracle_home: Home, oracle: Oracle, left: int, again: tuple[str, ...]
) -> None:
    """What was on its way is in doubt; what should have started the day before is held back, and reported."""
    _file(oracle_home.path / "a.csv")
    with _run(oracle_home, 0, left, WORKERS, "submit", "a.csv") as first:
        assert first.stderr is not None
        assert any(SIGN in line for line in first.stderr)
        while len(oracle.entries()) < left:
            assert first.poll() is None
        first.kill()
    before = set(oracle.received())
    assert len(before) == left
    with _run(oracle_home, 1, ROWS, ROWS, *again) as second:
        out, _ = second.communicate()
    told = json.loads(out)
    with (oracle_home.path / "a.results.csv").open(newline="") as file:
        by_state: dict[str, set[str]] = {}
        for row in csv.DictReader(file):
            by_state.setdefault(row["state"], set()).add(row["invoiceNumber"])
    received = oracle.received()
    assert set(received.values()) == {1}
    assert not {name for name in received.keys() - before if int(name.removeprefix("INV-")) % 2}
    assert by_state["in_doubt"].isdisjoint(received.keys() - before)
    assert by_state["accepted"] <= received.keys()
    held = by_state["pending"]
    assert held == {f"INV-{number}" for number in range(1, ROWS, 2)} - by_state["in_doubt"] - by_state["accepted"]
    assert (told["exit_code"], told["in_doubt"], told["pending"], told["held_back"]["rows"]) == (
        7, len(by_state["in_doubt"]), len(held), len(held),
    )  # fmt: skip
    assert WORKERS <= told["in_doubt"] <= WORKERS + left


WORKERS = 8


@contextmanager
def _held_up(home: Home, leave: int, hold: int, sign: str = SIGN) -> Iterator[Process]:
    """Start a submission of 40 rows, this many requests on their way, this many held (it prints the sign)."""
    small_file(home.path / "a.csv", 40)
    arguments = ["submit", "a.csv", "--json", "--no-preflight", "--workers", str(WORKERS), "--rate", "100"]
    with home.start(
        str(leave), str(hold), *arguments,
        module="tests.support.held_up", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any(sign in line for line in process.stderr)
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("paying_home", "on_their_way"), [
    ("sqlite", 0), ("sqlite", 4), ("sqlite", WORKERS - 1), ("postgres", 4),
], indirect=["paying_home"])  # fmt: skip
def test_a_row_killed_before_its_first_byte_is_in_doubt(paying_home: Home, oracle: Oracle, on_their_way: int) -> None:
    """Nobody knows afterward which of them had left: all are in doubt, no more than there are workers."""
    oracle.plan(held_from=2)
    with _held_up(paying_home, 1 + on_their_way, WORKERS - on_their_way) as process:
        assert oracle.gets(1 + on_their_way, process)
        process.kill()
    left = oracle.received()
    assert sum(left.values()) == 1 + on_their_way
    oracle.plan()
    again = paying_home.json("submit", "a.csv")
    assert (again["exit_code"], again["in_doubt"], again["accepted"]) == (7, WORKERS, 40 - WORKERS)
    with (paying_home.path / "a.results.csv").open(newline="") as file:
        doubted = {row["invoiceNumber"] for row in csv.DictReader(file) if row["state"] == "in_doubt"}
    received = oracle.received()
    assert set(received.values()) == {1}
    assert len(doubted & set(received)) == on_their_way
    assert len(received) == 40 - WORKERS + on_their_way


@pytest.mark.parametrize("paying_home", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("threads", [0, 2])
def test_threads_that_the_system_refuses_leave_no_row_in_doubt(paying_home: Home, oracle: Oracle, threads: int) -> None:
    """Under `ulimit -v` or a container's limit four rows were in doubt, at every run anew, and the run ended with 1."""
    oracle.plan()
    small_file(paying_home.path / "a.csv", 40)
    arguments = ["submit", "a.csv", "--json", "--no-preflight", "--workers", str(WORKERS), "--rate", "100"]
    with paying_home.start(
        str(threads), *arguments, module="tests.support.few_threads", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        told, notes = json.loads(process.stdout.read()), process.stderr.read()
    if threads:
        assert (told["exit_code"], told["accepted"], told["in_doubt"]) == (0, 40, 0)
        assert f"{threads} of {WORKERS} workers run: the system starts no more threads" in notes
    else:
        assert (told["exit_code"], told["accepted"], told["in_doubt"], told["pending"]) == (6, 1, 0, 39)
        assert told["stopped"].startswith("the system starts no more threads")
        assert paying_home.json("submit", "a.csv")["accepted"] == 40
    assert set(oracle.received().values()) == {1}


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_held_requests_leave(oracle_home: Home, oracle: Oracle, sign: signal.Signals) -> None:
    """The rows are recorded as sending: they are sent and answered; nothing else begins, nothing is in doubt."""
    with _held_up(oracle_home, 1, WORKERS) as process:
        process.send_signal(sign)
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
    assert (told["exit_code"], told["stopped"], told["in_doubt"]) == (6, f"stopped by {sign.name}", 0)
    assert told["accepted"] == len(oracle.entries()) == 1 + WORKERS
    assert oracle_home.json("submit", "a.csv")["accepted"] == 40
    assert set(oracle.received().values()) == {1}


@contextmanager
def _long_run(home: Home, oracle: Oracle) -> Iterator[Process]:
    """Start a submission of another file, at the same rate, that would last 20 seconds; it has begun to send."""
    small_file(home.path / "b.csv", 2000, first=1001)
    arguments = ["submit", "b.csv", "--json", "--no-preflight", "--workers", str(WORKERS), "--rate", "100"]
    with home.start(*arguments, stdout=subprocess.PIPE) as process:
        try:
            assert oracle.gets(WORKERS, process)
            yield process
        finally:
            process.kill()


def test_of_two_runs_at_one_rate_the_other_continues(oracle_home: Home, oracle: Oracle) -> None:
    """One is killed while the throttle holds rows that its ledger has as sending; both had leased their slots.

    No more of it is in doubt than it had workers. The other neither waits for it forever nor has a row in doubt.
    """
    with _long_run(oracle_home, oracle) as other:
        with _held_up(oracle_home, 1, WORKERS, SHARED) as process:
            process.kill()
        of_both = oracle.received()
        assert oracle.gets(len(of_both) + 5 * WORKERS, other)
        other.send_signal(signal.SIGTERM)
        assert other.stdout is not None
        told = json.loads(other.stdout.read())
    received = oracle.received()
    first = {f"INV-{number}" for number in range(1, 41)}
    assert len(first & set(received)) == 1
    assert (told["exit_code"], told["stopped"], told["in_doubt"]) == (7, "stopped by SIGTERM", 0)
    assert told["accepted"] == len(set(received) - first)
    again = oracle_home.json("submit", "a.csv")
    assert (again["exit_code"], again["in_doubt"], again["accepted"]) == (7, WORKERS, 40 - WORKERS)
    received = oracle.received()
    assert set(received.values()) == {1}
    assert len(first & set(received)) == 40 - WORKERS
