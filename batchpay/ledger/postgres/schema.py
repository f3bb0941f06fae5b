"""The schema's versions: numbered .sql files next to this one, applied forward only, all in one transaction.

A new ledger goes through all of them, so there is one description of the schema and nothing to keep in sync with it.
"""

from __future__ import annotations

from importlib.resources import files

from batchpay.errors import LedgerNewer, LedgerOlder
from batchpay.ledger.postgres.store import PostgresTransaction


def scripts() -> list[str]:
    """Return the texts of all migrations in order; the schema's version is their number."""
    sources = [source for source in files("batchpay.ledger.postgres").iterdir() if source.name.endswith(".sql")]
    return [source.read_text("utf-8") for source in sorted(sources, key=lambda source: source.name)]


def migrate(transaction: PostgresTransaction, version: int) -> None:
    """Apply what is missing above `version`; only the schema's owner may."""
    for script in scripts()[version:]:
        transaction.connection.execute(script.encode(), prepare=False)


def require_current(version: int, name: str) -> None:
    """Raise LedgerNewer or LedgerOlder if the schema is not of this program's version."""
    latest = len(scripts())
    if version > latest:
        raise LedgerNewer(f"the ledger {name} was written by a later version of batchpay; update batchpay")
    if version < latest:
        raise LedgerOlder(f"the ledger {name} is of an older version; its owner runs: batchpay ledger init --owner-url")
