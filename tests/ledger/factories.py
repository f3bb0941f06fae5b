"""Makes ledgers for tests, of each kind; light, because every actor of test_processes.py starts with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING

import psycopg

from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept, create_ledger, join, open_ledger
from batchpay.ledger.records import LostWindow
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
        self._copy = folder / "copy.db"
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

    def keep(self) -> None:
        """Keep a copy of the ledger as it is now, whoever has it open."""
        with closing(sqlite3.connect(self.path)) as connection, closing(sqlite3.connect(self._copy)) as copy:
            connection.backup(copy)

    def put_back(self) -> None:
        """Write the copy over the ledger, as `cp` does: whoever has it open finds nothing else changed."""
        for left in ("-wal", "-shm"):
            Path(f"{self.path}{left}").unlink(missing_ok=True)
        copyfile(self._copy, self.path)

    def accept_loss(self, why: str, *, rows_in_doubt: bool = False) -> LostWindow:
        """Accept the ledger; return what it may not know of."""
        lost = accept(self.settings, "ben", why, rows_in_doubt=rows_in_doubt).lost
        assert lost is not None
        return lost

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
        self._tables: dict[str, bytes] = {}
        self._numbers: list[tuple[object, ...]] = []
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

    def keep(self) -> None:
        tables = self.run(
            "SELECT relname FROM pg_class WHERE relnamespace = 'batchpay'::regnamespace AND relkind = 'r'"
        )
        with self._as_owner() as connection, connection.cursor() as cursor:
            for (table,) in tables:
                with cursor.copy(f"COPY batchpay.{table} TO STDOUT".encode()) as copy:
                    self._tables[str(table)] = b"".join(copy)
        self._numbers = self.run(
            "SELECT format('%I.%I', schemaname, sequencename), coalesce(last_value, 1), last_value IS NOT NULL"
            " FROM pg_sequences"
        )

    def put_back(self) -> None:
        """Put the copy's rows in the place of all, as a snapshot of the server's files would; nobody is cut off."""
        with self._as_owner() as connection, connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")
            cursor.execute(f"TRUNCATE {', '.join(f'batchpay.{table}' for table in self._tables)}".encode())
            for table, content in self._tables.items():
                with cursor.copy(f"COPY batchpay.{table} FROM STDIN".encode()) as copy:
                    copy.write(content)
            for number in self._numbers:
                cursor.execute("SELECT setval(%s::regclass, %s, %s)", number)

    def _as_owner(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.server.owner_url(self.database))

    def on_another_machine(self, folder: Path) -> LedgerFactory:
        """Give the same ledger as another machine works with it: the key is there, no witness."""
        other = LedgerFactory(folder, self.settings.url)
        other.key.parent.mkdir(mode=0o700, parents=True)
        other.key.write_bytes(self.key.read_bytes())
        other.key.chmod(0o600)
        other.settings = replace(other.settings, key_file=str(other.key))
        return other
