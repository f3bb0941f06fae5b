"""Ledgers that version 0.1.0 wrote, as `tests/ledger/version_1` keeps them: tables as SQL, key and witness."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from batchpay.settings import LedgerSettings

_WRITTEN = Path(__file__).parents[1] / "ledger" / "version_1"
_APPLICATION_ID = 0x62706179


def ledger_of_version_1(folder: Path, name: str = "ledger") -> LedgerSettings:
    """Put one of them in a folder: `ledger` has two batches of two rows, `half_sent` one of five."""
    folder.chmod(0o700)
    path = folder / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript((_WRITTEN / f"{name}.sql").read_text("utf-8"))
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    for ending in ("key", "witness"):
        (folder / f"ledger.{ending}").write_bytes((_WRITTEN / f"{name}.{ending}").read_bytes())
    for made in folder.glob("ledger.*"):
        made.chmod(0o600)
    return LedgerSettings(url=str(path), key_file=str(folder / "ledger.key"), witness=str(folder / "ledger.witness"))
