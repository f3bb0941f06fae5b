"""What a clock that may be wrong decides: nothing is paid again because of it, and a person is told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from batchpay.settings import PolicySettings
from batchpay.text import counted

if TYPE_CHECKING:
    from batchpay.ledger.contract import Ledger

_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


def windows_end(ledger: Ledger, policy: PolicySettings) -> datetime:
    """Return the time from which windows are counted back: the ledger's, less what nothing explains."""
    return ledger.now() - (_since_last_event(ledger) if _is_too_late(ledger, policy) else timedelta())


def clock_note(ledger: Ledger, policy: PolicySettings) -> str | None:
    """Return what a person should know of the clock; None if nothing is odd about it."""
    if (ahead := ledger.clock_ahead) > timedelta():
        time = counted(round(ahead / _DAY), "day") if ahead >= _DAY else counted(round(ahead / _HOUR), "hour")
        return (
            f"the clock went {time} ahead while this machine ran: earlier payments are looked up as if it had not; set "
            "the clock, or let a time server keep it"
        )
    days = _since_last_event(ledger) // _DAY
    if days <= policy.clock_ahead_days:
        return None
    looked_up = "; earlier payments are looked up as of that event" if _is_too_late(ledger, policy) else ""
    return f"the clock was {days} days after the ledger's last event: is the date correct?{looked_up}"


def _is_too_late(ledger: Ledger, policy: PolicySettings) -> bool:
    return _since_last_event(ledger) // _DAY > policy.clock_ahead_days and not ledger.is_clock_sure()


def _since_last_event(ledger: Ledger) -> timedelta:
    return timedelta(seconds=ledger.opened_after_s) - ledger.clock_ahead
