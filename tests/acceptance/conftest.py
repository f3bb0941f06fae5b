"""A home for the command, a sandbox and an oracle, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Home
from tests.support.oracle import Oracle, running_oracle
from tests.support.postgres import Server
from tests.support.warm import WARM


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home without a gateway."""
    return Home(tmp_path)


@pytest.fixture(scope="session")
def sandbox_origin() -> Iterator[str]:
    """Origin of a sandbox that runs for the whole session; tests use payments of their own."""
    command = [sys.executable, "-m", "batchpay", "sandbox", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().rsplit(" ", 1)[1].strip()
        process.terminate()


@pytest.fixture
def sandbox_home(home: Home, sandbox_origin: str) -> Home:
    """A home whose gateway is the sandbox."""
    home.origin = sandbox_origin
    return home


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[Oracle]:
    """A gateway that only counts."""
    with running_oracle(tmp_path / "oracle.log", warm=WARM) as running:
        yield running


@pytest.fixture
def oracle_home(home: Home, oracle: Oracle) -> Home:
    """A home whose gateway is the oracle."""
    home.origin = oracle.origin
    return home


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
