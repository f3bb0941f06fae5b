"""Kills and signals while requests are held: after the commit of `sending`, before the first byte."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.command import Home, small_file
from tests.support.held_up import SHARED, SIGN
from tests.support.oracle import Oracle
from tests.support.postgres import Server
from tests.support.warm import Process

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


@pytest.fixture
def paying_home(request: pytest.FixtureRequest, oracle_home: Home) -> Iterator[Home]:
    """A home whose ledger is a file, or in a database."""
    if request.param == "sqlite":
        yield oracle_home
        return
    server: Server = request.getfixturevalue("postgres_server")
    name = server.new_database()
    oracle_home.extra["BATCHPAY_LEDGER"] = server.url(name)
    made = oracle_home.run("ledger", "init", "--owner-url", server.owner_url(name))
    assert made.returncode == 0, made.stderr
    yield oracle_home
    server.drop(name)


@pytest.mark.parametrize(
    ("paying_home", "on_their_way"),
    [("sqlite", 0), ("sqlite", 4), ("sqlite", WORKERS - 1), ("postgres", 4)],
    indirect=["paying_home"],
)
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
