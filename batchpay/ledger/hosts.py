"""What is known of the machines whose runs sent a batch. Plain values that name no database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batchpay.text import instant

LEASE_S = 30.0
"""A machine whose heartbeat stands still for so long is taken for dead."""


@dataclass(frozen=True, slots=True)
class HostRun:
    """One machine's run of a batch that any of several may send."""

    host: str
    is_live: bool
    started_at: datetime
    finished_at: datetime | None
    seen_at: datetime
    """When it last committed anything, by the ledger's clock."""
    heartbeat_age_s: int
    stopped: str | None
    is_fenced: bool
    """Another machine took over its batch, and it has not been heard of since."""
    rows: int
    """Rows that it finished, or left in doubt."""
    in_doubt: int

    @property
    def has_heartbeat(self) -> bool:
        """Whether it was heard of within the time after which another machine may take over."""
        return self.heartbeat_age_s < LEASE_S

    @property
    def standing(self) -> str:
        """Return the run's status, in words."""
        if self.is_live:
            return f"{'at work' if self.has_heartbeat else 'no sign of life'}, heartbeat {self.heartbeat_age_s} s old"
        if self.is_fenced:
            return "taken over, not heard of since"
        if self.finished_at is None:
            return "taken over"
        return f"stopped: {self.stopped}" if self.stopped else "ended"

    def as_json(self) -> dict[str, Any]:
        """Return the run as `--json` shows it."""
        return {
            "host": self.host,
            "rows": self.rows,
            "in_doubt": self.in_doubt,
            "started_at": instant(self.started_at),
            "last_heard_of": instant(self.seen_at),
            "heartbeat_age_s": self.heartbeat_age_s if self.is_live else None,
            "finished_at": instant(self.finished_at),
            "standing": self.standing,
        }
