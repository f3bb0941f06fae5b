"""Where a ledger's files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """Where a ledger's files are."""

    ledger: Path
    """The ledger; where a database server holds it, the place beside which this machine's own files of it lie."""
    key: Path
    witness: Path
    url: str | None = None
    """The database that holds it, without user and password; None where `ledger` is its file."""

    @property
    def name(self) -> str:
        """Where the ledger is, as a person is told."""
        return self.url or str(self.ledger)
