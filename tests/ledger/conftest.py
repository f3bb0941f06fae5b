"""A ledger of each kind in a folder, or a database, of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import create_ledger, join, open_ledger
from batchpay.settings import LedgerSettings
from tests.support.postgres import Server, encrypt, reload_setting

KINDS = ("sqlite", "postgres")


class LedgerFactory:
    """Makes and opens one ledger; closes whatever it opened."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.settings = LedgerSettings(
            url=url or str(folder / "state" / "ledger.db"),
            key_file=str(folder / "keys" / "ledger.key"),
            witness=str(folder / "keys" / "witness"),
        )
        self.path = folder / "state" / "ledger.db"
        self.key = folder / "keys" / "ledger.key"
        self.witness = folder / "keys" / "witness"
        self._opened: list[Ledger] = []

    def create(self) -> Ledger:
        """Make the ledger and open it."""
        self.create_as(self.settings)
        return self.open()

    def create_as(self, settings: LedgerSettings) -> None:
        """Make the ledger by other settings."""
        create_ledger(settings, "tester")

    def open(self, *, read_only: bool = False) -> Ledger:
        """Open the ledger that is there."""
        self._opened.append(open_ledger(self.settings, read_only=read_only))
        return self._opened[-1]

    def join(self) -> Ledger:
        """Let this machine work with a ledger that is in a database, and open it."""
        join(self.settings, "tester", "a second machine")
        return self.open()

    def close(self) -> None:
        """Close all that was opened."""
        while self._opened:
            self._opened.pop().close()


class PostgresFactory(LedgerFactory):
    """The same in a database, which the owner of its tables can be asked about."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        self.database = server.new_database()
        super().__init__(folder, server.url(self.database))

    def create_as(self, settings: LedgerSettings) -> None:
        """Make the ledger by the owner of the tables: batchpay's own login may not."""
        owner_url = self.server.owner_url(self.database)
        create_ledger(settings, "tester", owner_url=owner_url)

    def run(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement behind batchpay's back, as the owner."""
        return self.server.run(statement, self.database)

    def on_another_machine(self, folder: Path) -> LedgerFactory:
        """Give the same ledger as another machine works with it: the key is there, no witness."""
        other = LedgerFactory(folder, self.settings.url)
        other.key.parent.mkdir(mode=0o700, parents=True)
        other.key.write_bytes(self.key.read_bytes())
        other.key.chmod(0o600)
        other.settings = replace(other.settings, key_file=str(other.key))
        return other


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
