"""What earlier runs found out about gateways' limits: where the next run begins and checks again, never a fact.

A small JSON file next to the ledger, by environment and origin. It has no secret and nothing depends on it: one that
can't be read counts as missing, and one that can't be written costs the next run a few refusals.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from batchpay.errors import BatchpayError
from batchpay.outcome import Finding
from batchpay.settings import RATE_LEAST, RATE_MOST
from batchpay.writing.atomic import atomic_writer

FILE_NAME = "limits.json"
_BYTES_MAX = 65_536
_WINDOW_S_MOST = 31 * 86_400.0


def known_limit(folder: Path, gateway: str) -> Finding | None:
    """Return what an earlier run found for this gateway (environment and origin); None if nothing usable is there."""
    found = _read(folder / FILE_NAME).get(gateway)
    if not isinstance(found, dict):
        return None
    rate, window_s = _number(found.get("rate")), _number(found.get("window_s"))
    if rate is None or not RATE_LEAST <= rate <= RATE_MOST:
        return None
    return Finding(rate, window_s if window_s is not None and 0 < window_s <= _WINDOW_S_MOST else None)


def remember_limit(folder: Path, gateway: str, finding: Finding) -> None:
    """Keep what this run found."""
    kept = {**_read(folder / FILE_NAME), gateway: {"rate": round(finding.rate, 3), "window_s": finding.window_s}}
    ignored = (OSError, BatchpayError, RecursionError)  # what is nested too deeply to be written could still be read
    with contextlib.suppress(*ignored), atomic_writer(folder / FILE_NAME) as file:
        file.write(json.dumps(kept, indent=1, sort_keys=True).encode())


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    with contextlib.suppress(OverflowError):  # an integer may have hundreds of digits
        return float(value) if math.isfinite(value) else None
    return None
