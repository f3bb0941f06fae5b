"""The schema's versions: numbered .sql files next to this one, applied forward only, each in one transaction.

A new ledger goes through all of them, so there is one description of the schema and nothing to keep in sync with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from importlib.resources import files

APPLICATION_ID = 0x62706179
"""`bpay`: distinguishes a ledger from another program's SQLite file."""


def scripts() -> list[str]:
    """Return the texts of all migrations in order; the schema's version is their number."""
    sources = [source for source in files("batchpay.ledger.sqlite").iterdir() if source.name.endswith(".sql")]
    return [source.read_text("utf-8") for source in sorted(sources, key=lambda source: source.name)]


def statements(script: str) -> Iterator[str]:
    """Split a script; sqlite3's own executescript would commit before each."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if any(not line.startswith("--") for line in pending.splitlines() if line.strip()):
        raise ValueError("a migration ends in the middle of a statement")


def migrate(connection: sqlite3.Connection, migrations: Sequence[str], version: int) -> None:
    """Apply what is missing above `version`; the caller holds the transaction."""
    for script in migrations[version:]:
        for statement in statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")
