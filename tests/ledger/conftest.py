"""A ledger of each kind in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import create_ledger, open_ledger
from batchpay.settings import LedgerSettings


class LedgerFactory:
    """Makes and opens one ledger; closes whatever it opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = LedgerSettings(
            url=str(folder / "state" / "ledger.db"),
            key_file=str(folder / "keys" / "ledger.key"),
            witness=str(folder / "keys" / "witness"),
        )
        self.path = folder / "state" / "ledger.db"
        self.key = folder / "keys" / "ledger.key"
        self.witness = folder / "keys" / "witness"
        self._opened: list[Ledger] = []

    def create(self) -> Ledger:
        """Make the ledger and open it."""
        create_ledger(self.settings, "tester")
        return self.open()

    def open(self, *, read_only: bool = False) -> Ledger:
        """Open the ledger that is there."""
        self._opened.append(open_ledger(self.settings, read_only=read_only))
        return self._opened[-1]

    def close(self) -> None:
        """Close all that was opened."""
        while self._opened:
            self._opened.pop().close()


@pytest.fixture(params=["sqlite"])
def ledger_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LedgerFactory]:
    """Every kind of ledger in turn."""
    tmp_path.chmod(0o700)
    factory = LedgerFactory(tmp_path)
    yield factory
    factory.close()


@pytest.fixture
def ledger(ledger_factory: LedgerFactory) -> Ledger:
    """A new, empty ledger."""
    return ledger_factory.create()
