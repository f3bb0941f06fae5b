"""Where a ledger's files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """Where a ledger's files are."""

    ledger: Path
    """The ledger; if a database server holds it, the path next to which this machine keeps its own files for it."""
    key: Path
    witness: Path
    url: str | None = None
    """The database that holds it, without user and password; None if `ledger` is its file."""

    @property
    def name(self) -> str:
        """Return where the ledger is, as shown to a person."""
        return self.url or str(self.ledger)
