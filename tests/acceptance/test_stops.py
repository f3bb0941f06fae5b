"""What ends a call early, over one file and several, and what may not end it once payments were made."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.command import Home, small_file
from tests.support.oracle import Oracle, running_oracle
from tests.support.warm import WARM


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


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["--results", "results.xyz"], 2),
        (["--results", "no/such/folder/r.csv"], 5),
        (["--metrics-file", "no/such/folder/m.prom"], 5),
        (["--archive", "taken"], 5),
        (["--out", "taken"], 5),
        (["--results", "a.csv"], 2),
        (["--rejects", "a.csv"], 2),
        (["--rejects", "same.csv", "--results", "./same.csv"], 2),
        (["--metrics-file", "a.csv"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
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
