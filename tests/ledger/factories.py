"""Makes ledgers for tests, of each kind; light, because every actor of test_processes.py starts with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import create_ledger, join, open_ledger
from batchpay.settings import LedgerSettings

if TYPE_CHECKING:
    from tests.support.postgres import Server


class LedgerFactory:
    """Makes and opens one ledger; closes whatever it opened."""

    kind = "sqlite"

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

    @property
    def locks(self) -> Path:
        """The folder of this machine's locks of batches."""
        beside = self.path if self.kind == "sqlite" else self.witness
        return beside.with_name(f"{beside.name}.d")

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

    def edit(self, *, sqlite: str, postgres: str) -> None:
        """Change the tables with a database tool; nothing of this process has the ledger open."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.executescript(sqlite)

    def count(self, table: str) -> int:
        """Count the rows of a table."""
        with closing(sqlite3.connect(self.path)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def close(self) -> None:
        """Close all that was opened."""
        while self._opened:
            self._opened.pop().close()


class PostgresFactory(LedgerFactory):
    """The same in a database, which the owner of its tables can be asked about."""

    kind = "postgres"

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

    def edit(self, *, sqlite: str, postgres: str) -> None:
        self.run(f"SET session_replication_role = replica; SET search_path = batchpay; {postgres}")

    def count(self, table: str) -> int:
        return int(str(self.run(f"SELECT count(*) FROM batchpay.{table}")[0][0]))

    def on_another_machine(self, folder: Path) -> LedgerFactory:
        """Give the same ledger as another machine works with it: the key is there, no witness."""
        other = LedgerFactory(folder, self.settings.url)
        other.key.parent.mkdir(mode=0o700, parents=True)
        other.key.write_bytes(self.key.read_bytes())
        other.key.chmod(0o600)
        other.settings = replace(other.settings, key_file=str(other.key))
        return other
