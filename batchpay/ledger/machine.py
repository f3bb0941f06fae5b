"""Which machine this is, for the ledger: a copy of a ledger that wakes up on another one must not go on by itself."""

from __future__ import annotations

from pathlib import Path

from batchpay.settings import LedgerSettings

MACHINE_ID = Path("/etc/machine-id")


def machine_name(settings: LedgerSettings) -> str | None:
    """Name this machine: `ledger.machine`, else what the system wrote into /etc/machine-id, else None.

    With None nothing is compared: containers often have no identity, or a new one each time.
    """
    if settings.machine.strip():
        return settings.machine.strip()
    try:
        found = MACHINE_ID.read_text("ascii", "replace").strip()
    except OSError:
        return None
    return None if found in ("", "uninitialized") else found
