"""How long the ledger's permission to send a row holds: looked at right before the first byte.

A process that was stopped, or a machine that slept, between the ledger's commit and the first byte can't know what
others were told meanwhile: that the row is in doubt, or that a person decided to send it again. So a permission ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PERMISSION_S = 10.0
"""A row leaves within so many seconds after the ledger was asked for it, or not by this permission."""
TOO_OLD = "this machine or the ledger stood still between the permission to send and the first byte"

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

BeforeFirstByte = Callable[[], float | None]
"""What is done when all but the sending is; gives when its permission to send ends, on `since_boot_s`, if it does."""


def since_boot_s() -> float:
    """Seconds on a clock that goes on while the machine sleeps, and that nobody can set."""
    return time.clock_gettime(_CLOCK)
