"""What the machines that work on one batch know of one another. Plain values that name no database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Shared:
    """What all runs of a batch know together, as of one's latest commit."""

    stop: str | None = None
    """Why all of them stop; None while they go on."""
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
    """It was shut out, and nothing has been heard of it since."""
    rows: int
    """Rows that it brought to an end, or left in doubt."""
    in_doubt: int
