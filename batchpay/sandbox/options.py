"""The options a sandbox is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_API_ID = "sandbox"
DEFAULT_API_KEY = "sandbox-key"
DEFAULT_DIALECT = "envelope"
DEFAULT_PORT = 8780


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one sandbox; the defaults are those of `batchpay sandbox`."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 picks a free one."""
    db: Path | None = None
    """SQLite file that keeps payments, accounts and journal; None keeps them in memory."""
    dialect: str = DEFAULT_DIALECT
    limit: float | None = None
    """Requests answered per second; those above are refused with 429. None: no limit."""
    limit_kind: str = "second"
    """How they are counted (see limits.py)."""
    latency_ms: float = 0.0
    """Minimum time from a request's last byte to its answer."""
    seed: int = 0
    """Decides which requests a fault with a probability hits."""
    faults: Path | None = None
    """JSON list of fault rules in force from the start (see faults.py)."""
    lenient: bool = False
    """Check only that the required fields are there, not what is in them; accept unknown fields."""
    service_header: str = "SERVICE"
    """The word for SERVICE in SERVICE-API-ID and SERVICE-API-KEY."""
    api_id: str = DEFAULT_API_ID
    api_key: str = field(default=DEFAULT_API_KEY, repr=False)
