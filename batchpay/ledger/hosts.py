"""What the machines that work on one batch know about each other. Plain values that name no database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batchpay.text import instant


@dataclass(frozen=True, slots=True)
class Shared:
    """What all runs of a batch share, as of this run's latest commit."""

    stop: str | None = None
    """Why all of them stop; None while they continue."""
    in_a_row: int = 0
    """Rows in doubt one after another."""
    in_all: int = 0


@dataclass(frozen=True, slots=True)
class HostRun:
    """One machine's run of a batch that several may work on."""

    host: str
    leads: bool
    is_live: bool
    started_at: datetime
    finished_at: datetime | None
    seen_at: datetime
    """When it last committed anything, by its own clock."""
    stopped: str | None
    is_shut_out: bool
    """It was shut out, and has not been heard from since."""
    rows: int
    """Rows that it finished, or left in doubt."""
    in_doubt: int

    @property
    def standing(self) -> str:
        """Return the run's status, in words."""
        if self.is_live:
            return "at work"
        if self.is_shut_out:
            return "shut out, not heard of since"
        if self.finished_at is None:
            return "shut out"
        return f"stopped: {self.stopped}" if self.stopped else "ended"

    def as_json(self) -> dict[str, Any]:
        """Return the run as `--json` shows it."""
        return {
            "host": self.host,
            "role": "leads" if self.leads else "helps",
            "rows": self.rows,
            "in_doubt": self.in_doubt,
            "started_at": instant(self.started_at),
            "last_heard_of": instant(self.seen_at),
            "finished_at": instant(self.finished_at),
            "standing": self.standing,
        }
