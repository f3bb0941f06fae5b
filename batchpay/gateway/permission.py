"""How long the ledger's permission to send a row is valid: checked right before the first byte.

A process that was suspended, or a machine that slept, between the ledger's commit and the first byte can't know what
others were told meanwhile: that the row is in doubt, or that a person decided to send it again. So permission expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PERMISSION_S = 10.0
"""A row leaves within this many seconds after the ledger was asked for permission, or not with this permission."""
TOO_OLD = "this machine or the ledger stalled between the permission to send and the first byte"

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

BeforeFirstByte = Callable[[], float | None]
"""The last step before sending; returns when its permission to send expires, on `since_boot_s`, if it does."""


def since_boot_s() -> float:
    """Return the seconds on a clock that keeps running while the machine sleeps, and that nobody can set."""
    return time.clock_gettime(_CLOCK)
