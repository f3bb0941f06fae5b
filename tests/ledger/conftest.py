"""A ledger of each kind in a folder, or a database, of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from batchpay.ledger.contract import Ledger
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.support.postgres import Server, encrypt, reload_setting

KINDS = ("sqlite", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test of this folder on each kind of ledger, unless it is marked for some of them."""
    if "ledger_factory" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("ledgers")
        metafunc.parametrize("ledger_factory", marker.args if marker else KINDS, indirect=True)


@pytest.fixture
def ledger_factory(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LedgerFactory]:
    """A kind of ledger."""
    tmp_path.chmod(0o700)
    if request.param == "sqlite":
        factory = LedgerFactory(tmp_path)
    else:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        factory = PostgresFactory(tmp_path, request.getfixturevalue("postgres_server"))
    yield factory
    factory.close()
    if isinstance(factory, PostgresFactory):
        factory.server.drop(factory.database)


@pytest.fixture
def encrypting_server(postgres_server: Server, authority: trustme.CA) -> Iterator[Server]:
    """The server with TLS and a certificate for localhost."""
    if os.environ.get("BATCHPAY_TEST_POSTGRES"):
        pytest.skip("certificates are given to a server of our own alone")
    if not encrypt(postgres_server, authority):
        pytest.skip("this server was built without TLS")
    yield postgres_server
    postgres_server.run("ALTER SYSTEM RESET ALL")
    reload_setting(postgres_server, "ssl", "off")


@pytest.fixture
def ledger(ledger_factory: LedgerFactory) -> Ledger:
    """A new, empty ledger."""
    return ledger_factory.create()
