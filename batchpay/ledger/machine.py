"""Which machine this is, for the ledger, and whether its clock can be right.

A copy of a ledger that wakes up on another machine must not continue by itself.
"""

from __future__ import annotations

from pathlib import Path

from batchpay.errors import ClockBehind, LedgerNotUsable
from batchpay.ledger.contract import CLOCK_BEHIND_MAX
from batchpay.settings import LedgerSettings

MACHINE_ID = Path("/etc/machine-id")


def machine_name(settings: LedgerSettings) -> str | None:
    """Return this machine's identity: `ledger.machine`, else the contents of /etc/machine-id, else None.

    With None nothing is compared: containers often have no identity, or a new one each time.
    """
    if settings.machine.strip():
        return settings.machine.strip()
    try:
        found = MACHINE_ID.read_text("ascii", "replace").strip()
    except OSError:
        return None
    return None if found in ("", "uninitialized") else found


def clock_behind(opened_after_s: float) -> list[LedgerNotUsable]:
    """Return what is wrong if a ledger's last event is far ahead of the clock."""
    if opened_after_s >= -CLOCK_BEHIND_MAX.total_seconds():
        return []
    return [
        ClockBehind(
            f"the clock is {-opened_after_s / 3600:.0f} hours before the ledger's last event; nothing was sent; set "
            "the clock, or if it is right and was ahead when that event was written, a named person may accept that: "
            'batchpay ledger accept --reason "…"'
        )
    ]
