"""When unattended work last completed: a small file next to the ledger, written at the end of every call that sends.

The ledger records runs, and a night without a file has none. `health` reads this file to see whether the job still
runs at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from batchpay.text import instant
from batchpay.writing.atomic import atomic_writer

_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class LastCall:
    """How the last call ended, and when one last completed."""

    ended_at: datetime
    exit_code: int
    completed_at: datetime | None


def last_call_path(ledger: Path) -> Path:
    """Return the path of the file that belongs to a ledger."""
    return ledger.with_name(f"{ledger.name}.last-call")


def write_last_call(path: Path, ended_at: datetime, exit_code: int, *, completed: bool) -> None:
    """Record the end of a call, and whether it did all its work; raises NotUsable."""
    before = read_last_call(path)
    completed_at = ended_at if completed else before.completed_at if before else None
    content = {"ended_at": instant(ended_at), "exit_code": exit_code, "completed_at": instant(completed_at)}
    with atomic_writer(path) as file:
        file.write(json.dumps(content).encode() + b"\n")


def read_last_call(path: Path) -> LastCall | None:
    """Read it; None if there is none, or none that can be read: then nothing is known to have run."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_BYTES_MAX))
        completed_at = content["completed_at"]
        return LastCall(
            datetime.fromisoformat(content["ended_at"]),
            int(content["exit_code"]),
            datetime.fromisoformat(completed_at) if completed_at else None,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
