"""Which machine this is, for the ledger, and whether its clock can be right.

A copy of a ledger that wakes up on another machine must not continue by itself.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from batchpay.errors import ClockBehind, ClockDiffers, LedgerNotUsable
from batchpay.ledger.contract import CLOCK_BEHIND_MAX
from batchpay.settings import LedgerSettings

MACHINE_ID = Path("/etc/machine-id")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CLOCKS_APART_MAX_S = 120
"""A machine whose clock differs by more from that of the ledger's server sends nothing."""
CLOCK_TIMES = 3
"""So often a server is asked for its time; the quickest answer counts."""
_TIMEX_BYTES, _TIME_ERROR = 512, 5
"""More than the kernel's `struct timex`, and its word for a clock that nobody keeps."""


def machine_name(settings: LedgerSettings) -> str | None:
    """Return this machine's identity: `ledger.machine`, else the contents of /etc/machine-id, else None.

    With None nothing is compared: containers often have no identity, or a new one each time.
    """
    if settings.machine.strip():
        return settings.machine.strip()
    try:
        found = MACHINE_ID.read_text("ascii", "replace").strip()
    except OSError:
        return None
    return None if found in ("", "uninitialized") else found


def now_ms() -> int:
    """Return the milliseconds since 1970, UTC, by the clock of this machine."""
    return time.time_ns() // 1_000_000


def since_boot_ms() -> int:
    """Return milliseconds on a clock that keeps running while the machine sleeps, and that nobody can set."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


@dataclass(frozen=True, slots=True)
class SharedClock:
    """A server's clock, asked once and counted on from there, whatever happens to this machine's own."""

    server_ms: int
    machine_ms: int
    """This machine's clock in the middle between question and answer."""
    since_boot_ms: int
    """The same moment by the clock that nobody can set."""
    took_ms: int
    """From question to answer."""

    @classmethod
    def ask(cls, server_ms: Callable[[], int], *, times: int = 1) -> SharedClock:
        """Ask a server for its time, and keep the quickest of its answers."""
        found = []
        for _ in range(times):
            machine_ms, asked_ms = now_ms(), since_boot_ms()
            server, took_ms = server_ms(), since_boot_ms() - asked_ms
            found.append(cls(server, machine_ms + took_ms // 2, asked_ms + took_ms // 2, took_ms))
        return min(found, key=lambda one: one.took_ms)

    def now_ms(self) -> int:
        """Return what the server's clock shows now."""
        return self.server_ms + since_boot_ms() - self.since_boot_ms

    def require_alike(self) -> None:
        """Raise ClockDiffers if the two clocks were certainly further apart than they may be."""
        if abs(self.machine_ms - self.server_ms) - self.took_ms / 2 > CLOCKS_APART_MAX_S * 1000:
            times = (datetime.fromtimestamp(one / 1000, UTC) for one in (self.machine_ms, self.server_ms))
            machine, server = (f"{one:%Y-%m-%d %H:%M:%S}" for one in times)
            raise ClockDiffers(
                f"the clock of this machine shows {machine} UTC, that of the ledger's server {server} UTC, which is "
                "more than two minutes apart; nothing more is sent from here; set the clock that is wrong"
            )


@dataclass(frozen=True, slots=True)
class OwnClock:
    """What a ledger that belongs to one machine can know of that machine's clock."""

    mark: str
    """Which boot it is, and when it began by the clock: it is kept, and the clock compared with it until the next."""
    ahead_ms: int
    """How far the clock has gone ahead since then while no time passed; 0 if a time server keeps it."""
    is_known: bool
    """Whether it is as it was when the ledger was first opened in this boot."""

    @property
    def boot(self) -> str:
        """Which boot it is; empty if that is not known."""
        return self.mark.partition(" ")[0]

    @property
    def began_ms(self) -> int:
        """When this boot began, by the clock."""
        return int(self.mark.partition(" ")[2])

    @classmethod
    def compare(cls, known: str | None) -> OwnClock:
        """Compare the clock with the mark that was kept when the ledger was last opened."""
        boot, began_ms = "", now_ms() - since_boot_ms()
        with suppress(OSError):
            boot = BOOT_ID.read_text("ascii", "replace").strip()
        known_boot, known_ms = parse_mark(known)
        most_ms = CLOCK_BEHIND_MAX.total_seconds() * 1000
        if boot and known_boot == boot:
            ahead_ms = began_ms - known_ms
            if abs(ahead_ms) <= most_ms:
                return cls(f"{boot} {known_ms}", 0, is_known=True)
            if ahead_ms > 0 and not is_synchronized():
                return cls(f"{boot} {known_ms}", ahead_ms, is_known=False)
        return cls(f"{boot} {began_ms}", 0, is_known=False)


def parse_mark(text: str | None) -> tuple[str, int]:
    """Read a boot and a time that were kept; one that is damaged is of no boot."""
    boot, _, time_ms = (text or "").partition(" ")
    return (boot, int(time_ms)) if time_ms.isdecimal() and time_ms.isascii() else ("", 0)


def is_synchronized() -> bool:
    """Return whether a time server keeps this machine's clock, by the kernel, which forgets it if the clock is set."""
    try:
        ask = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return False
    return ask(ctypes.create_string_buffer(_TIMEX_BYTES)) in range(_TIME_ERROR)


def clock_behind(opened_after_s: float) -> list[LedgerNotUsable]:
    """Return what is wrong if a ledger's last event is far ahead of the clock."""
    if opened_after_s >= -CLOCK_BEHIND_MAX.total_seconds():
        return []
    return [
        ClockBehind(
            f"the clock is {-opened_after_s / 3600:.0f} hours before the ledger's last event; nothing was sent; set "
            "the clock, or if it is right and was ahead when that event was written, a named person may accept that: "
            'batchpay ledger accept --reason "…"'
        )
    ]
