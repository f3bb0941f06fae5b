"""The ledger's only door: which database a setting names, and how it is made, opened and accepted.

Whoever needs a ledger comes in here; no other room knows which database holds it (tests/test_architecture.py). A second
kind of ledger is one more folder beside `sqlite/`, chosen here by `ledger.url`.
"""

from __future__ import annotations

from batchpay.errors import SettingsNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import LedgerPaths
from batchpay.ledger.sqlite import opening
from batchpay.settings import LedgerSettings


def location(settings: LedgerSettings) -> LedgerPaths:
    """Tell where the ledger, its key and its witness are; raises SettingsNotUsable."""
    if "://" in settings.url:
        raise SettingsNotUsable("ledger.url must be the path of an SQLite ledger")
    return opening.location(settings)


def open_ledger(settings: LedgerSettings, *, create_as: str | None = None, read_only: bool = False) -> Ledger:
    """Open the ledger, or refuse it: missing, damaged, newer, older than its witness, not writable, not private.

    `create_as` names who makes one where there is none (for a gateway on loopback only). A ledger opened `read_only`
    can be looked at even if it is older than its witness. Raises LedgerNotUsable.
    """
    return opening.open_ledger(location(settings), create_as=create_as, read_only=read_only)


def create_ledger(settings: LedgerSettings, who: str) -> LedgerPaths:
    """Make a new, empty ledger, its key if there is none yet, and its witness; returns where they are.

    Never over an existing ledger, and never where a witness remembers one with payments. Raises LedgerNotUsable.
    """
    return opening.create_ledger(location(settings), who)


def accept_ledger(settings: LedgerSettings, who: str, why: str) -> int:
    """Accept a ledger without, or older than, its witness: rows it would send become in doubt. Returns how many."""
    return opening.accept_ledger(location(settings), who, why)
