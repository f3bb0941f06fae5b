"""The ledger's only door: which database a setting names, and how it is made, opened and accepted.

Whoever needs a ledger comes in here; no other room knows which database holds it (tests/test_architecture.py). A second
kind of ledger is one more folder beside `sqlite/`, chosen here by `ledger.url`.
"""

from __future__ import annotations

from pathlib import Path

from batchpay.errors import SettingsNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.machine import machine_name
from batchpay.ledger.records import AcceptedWitness, LedgerPaths
from batchpay.ledger.sqlite import opening
from batchpay.settings import LedgerSettings


def location(settings: LedgerSettings) -> LedgerPaths:
    """Tell where the ledger, its key and its witness are; raises SettingsNotUsable."""
    if "://" in settings.url:
        raise SettingsNotUsable("ledger.url must be the path of an SQLite ledger")
    return opening.location(settings)


def weaknesses(settings: LedgerSettings) -> list[str]:
    """Tell what a person should know of where the ledger lies, though it can be used; a sentence each."""
    found = opening.weaknesses(location(settings))
    if machine_name(settings) is None:
        found.append(
            "this machine has no identity (ledger.machine, /etc/machine-id): a copy of the ledger on another machine "
            "would not be noticed"
        )
    return found


def copies_beside(settings: LedgerSettings) -> list[Path]:
    """Find the copies that were left beside the ledger when a later version brought it up to date."""
    return opening.copies_beside(location(settings))


def open_ledger(settings: LedgerSettings, *, create_as: str | None = None, read_only: bool = False) -> Ledger:
    """Open the ledger, or refuse it: missing, damaged, newer, older than its witness, not writable, not private.

    `create_as` names who makes one where there is none (for a gateway on loopback only). A ledger opened `read_only`
    can be looked at even if it is older than its witness. Raises LedgerNotUsable.
    """
    return opening.open_ledger(location(settings), machine_name(settings), create_as=create_as, read_only=read_only)


def bring_up_to_date(settings: LedgerSettings) -> None:
    """Bring a ledger of an older version up to date, after a backup; leaves any other as it is.

    Opening for writing does the same; reading alone refuses an older ledger. Raises LedgerNotUsable.
    """
    opening.bring_up_to_date(location(settings), machine_name(settings))


def create_ledger(settings: LedgerSettings, who: str, beside_another: str | None = None) -> LedgerPaths:
    """Make a new, empty ledger, its key if there is none yet, and its witness; returns where they are.

    Never over an existing ledger, and never where a witness remembers one with payments. Where another ledger's witness
    lies beside the key it takes a person's reason, `beside_another`; else it raises LedgerBesideAnother before it has
    written anything. Raises LedgerNotUsable.
    """
    return opening.create_ledger(location(settings), machine_name(settings), who, beside_another)


def accept_witness(settings: LedgerSettings, who: str, why: str) -> AcceptedWitness:
    """Accept a ledger without, or older than, its witness: rows that it would send become in doubt.

    From then on nothing new is registered until `settle_lost_window`.
    """
    return opening.accept_witness(location(settings), machine_name(settings), who, why)


def accept_machine(settings: LedgerSettings, who: str, why: str) -> None:
    """Accept a ledger that was last used on another machine, as this machine's; raises WrongUse where it was not."""
    opening.accept_machine(location(settings), machine_name(settings), who, why)


def settle_lost_window(settings: LedgerSettings, who: str, why: str) -> None:
    """Record a person's word that what a restored ledger lost is known; raises WrongUse where nothing is open."""
    opening.settle_lost_window(location(settings), machine_name(settings), who, why)
