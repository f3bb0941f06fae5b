"""The policy that the ledger keeps, so that all machines agree: the zone in which days begin and end.

It comes from a named person by `batchpay ledger policy set`, or once from a settings file, never from a variable.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from batchpay.errors import FileRefused, SettingsNotUsable, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.settings import LedgerSettings, Settings
from batchpay.text import instant, printable

_HOW = "batchpay ledger policy set --zone {} --reason TEXT"


def settle_zone(ledger: Ledger, settings: Settings, actor: Actor) -> None:
    """Write the zone of the settings file into a ledger that has none.

    Raises SettingsNotUsable if it is another one than the ledger has, or if there is no such zone.
    """
    if not (wanted := settings.policy.zone):
        return
    if not is_zone(wanted):
        raise SettingsNotUsable(f"policy.zone: {printable(wanted)} is no time zone: write it like America/New_York")
    known = ledger.zone()
    if known is None:
        ledger.set_policy(wanted, str(actor), "policy.zone of the settings file")
    elif known.key != wanted:
        raise SettingsNotUsable(
            f"policy.zone is {wanted}, and the ledger has {known.key}; to change it for all machines: "
            f"{_HOW.format(wanted)}"
        )


def require_zone(ledger: Ledger | None, settings: Settings, file: str) -> None:
    """Raise FileRefused for a file with days if nobody has said in which zone they begin."""
    if (note := note_without_zone(ledger, settings, file)) is not None:
        raise FileRefused(note)


def note_without_zone(ledger: Ledger | None, settings: Settings, file: str) -> str | None:
    """Say of a file with days that nobody has said in which zone they begin, and what sets it; None if it is set."""
    if settings.policy.zone or (ledger is not None and ledger.zone() is not None):
        return None
    return (
        f"{printable(file)} says on which days to send payments (payOn), and nobody has said in which time zone: "
        f"{_HOW.format('America/New_York')}"
    )


def is_zone(name: str) -> bool:
    """Return whether there is a time zone of this name."""
    try:
        return bool(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False


def set_zone(settings: LedgerSettings, zone: str, reason: str | None, actor: Actor) -> dict[str, Any]:
    """Set the zone for all machines, and return the policy as it is now; raises WrongUse."""
    from batchpay.workflows.ledger_care import require_reason  # a check reads the policy, and sets none

    why = require_reason("ledger policy set", reason)
    if not is_zone(zone):
        raise WrongUse(f"--zone: {printable(zone)} is no time zone: write it like America/New_York")
    with closing(open_ledger(settings)) as ledger:
        ledger.set_policy(zone, str(actor), why)
        return _policy(ledger)


def policy_of(settings: LedgerSettings) -> dict[str, Any]:
    """Return the policy: `zone`, and `who`, `why` and when (`at`) it was set; all None if nobody has."""
    with closing(open_ledger(settings, read_only=True)) as ledger:
        return _policy(ledger)


def _policy(ledger: Ledger) -> dict[str, Any]:
    if (event := ledger.policy()) is None:
        return dict.fromkeys(("zone", "who", "why", "at"))
    return {**json.loads(event.detail), "who": event.who, "why": event.why, "at": instant(event.at)}
