"""One rate for all runs on this ledger that send to one gateway: a small file that they share.

It contains the next free slot and a line for each run: until when it counts, its rate, and until when its gateway told
it to wait. A run that is alone keeps its own pace and checks the file from time to time; as soon as there are two, each
leases its slots here, a few at a time, and no two get the same one. Nothing durable is here: the file means nothing
after a restart of the machine, and one that can't be used leaves each run to its own pace.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from batchpay.ledger.folders import make_private_directory
from batchpay.ledger.records import Lease
from batchpay.ledger.sqlite.known_limits import known_limit, remember_limit
from batchpay.outcome import Finding
from batchpay.settings import RATE_LEAST, RATE_MOST

LOOK_S = 0.01
"""A run that is alone checks this often whether it still is."""
JOINING_S = 0.03
"""A run that joins others waits this long, until they have all seen it."""
HEARD_S = 2.0
"""A run that has not checked for this long after its last slot sends nothing, or is gone."""
LEASED_S = 0.1
"""All runs together lease their slots at most this far ahead."""
CATCH_UP_S = 0.02
"""At most this much lost time is made up."""
SPREAD = 1.0065
"""Slots are farther apart than the rate requires, by this factor, since a network bunches what leaves evenly."""
FAR_S = 3600.0
"""A slot farther ahead than this was not written by a run."""
_HOLDER_WAIT_S = 0.05
_TRIES = 5
"""How many times, with the throttle's pause between, the file is tried if another run has it and is suspended."""
_LINES = 32
_HEAD = struct.Struct("=16sd")  # which boot of the machine this belongs to, the next free slot
_LINE = struct.Struct("=8sddd")  # whose it is, counts until, rate, paused until
_Line = tuple[bytes, float, float, float]
_NOBODYS: _Line = (bytes(8), -math.inf, 0.0, -math.inf)
_BYTES = _HEAD.size + _LINES * _LINE.size
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def pace_file(folder: Path, gateway: str) -> PaceFile | None:
    """Open the file of a gateway; None if that fails."""
    try:
        make_private_directory(folder)
        return PaceFile(folder / f"{hashlib.sha256(gateway.encode()).hexdigest()[:32]}.pace", gateway)
    except Exception:
        return None


class PaceFile:
    """See contract.SharedRate."""

    def __init__(self, path: Path, gateway: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is the same for all processes of the machine."""
        self._clock = clock
        self._gateway, self._beside = gateway, path.parent.parent
        self._start_of_machine = _start_of_machine()
        self._name = os.urandom(8)
        self._line = 0
        self._tries_left = _TRIES
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)

    def found(self) -> Finding | None:
        """See contract.SharedRate."""
        return known_limit(self._beside, self._gateway)

    def remember(self, finding: Finding) -> None:
        """See contract.SharedRate."""
        remember_limit(self._beside, self._gateway, finding)

    def lease(self, rate: float, paused_s: float) -> Lease | None:
        """See contract.SharedRate. A run that can't use the file keeps its own pace: none may wait for it forever."""
        try:
            if not self._lock():
                self._tries_left -= 1
                return None if self._tries_left > 0 else Lease(0.0, HEARD_S, 0, 1)
            try:
                self._tries_left = _TRIES
                return self._lease(self._clock(), rate, paused_s)
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError:
            return Lease(0.0, HEARD_S, 0, 1)

    def close(self) -> None:
        """See contract.SharedRate. A pause outlives the run that was told to wait."""
        with suppress(OSError):
            if self._lock():
                name, _, rate, paused_until = self._read(self._clock())[1][self._line]
                if name == self._name:
                    self._write((name, -math.inf, rate, paused_until))
        os.close(self._descriptor)

    def _lock(self) -> bool:
        """Lock the file, for microseconds; return False if the process that has it is suspended."""
        deadline = self._clock() + _HOLDER_WAIT_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if self._clock() >= deadline:
                    return False
                time.sleep(0.0002)

    def _lease(self, now: float, rate: float, paused_s: float) -> Lease:
        free_at, lines = self._read(now)
        joins = lines[self._line][0] != self._name or not _is_heard(lines[self._line], now)
        if joins:
            self._line = next((at for at, line in enumerate(lines) if not _is_known(line, now)), 0)
        others = lines[: self._line] + lines[self._line + 1 :]
        heard = [line for line in others if _is_heard(line, now)]
        paused_until = max(until for _, _, _, until in others)
        if not heard and paused_until <= now:
            self._write((self._name, now + HEARD_S, rate, now + paused_s))
            return Lease(0.0, LOOK_S, 0, 1)
        sharers = len(heard) + 1
        least = min([rate, *(of_other for _, _, of_other, _ in heard)])
        every_s = SPREAD / least
        slots = max(1, math.ceil(least * LEASED_S / sharers))
        first = max(free_at, paused_until, now + JOINING_S if joins else now - CATCH_UP_S)
        last = first + slots * every_s
        os.pwrite(self._descriptor, _HEAD.pack(self._start_of_machine, last), 0)
        self._write((self._name, max(now, last) + HEARD_S, rate, now + paused_s))
        return Lease(first - now, every_s, slots, sharers)

    def _read(self, now: float) -> tuple[float, list[_Line]]:
        content = os.pread(self._descriptor, _BYTES, 0)
        if len(content) == _BYTES:
            start, free_at = _HEAD.unpack_from(content)
            if start == self._start_of_machine:
                lines = [line if _can_be(line, now) else _NOBODYS for line in _LINE.iter_unpack(content[_HEAD.size :])]
                return free_at if free_at <= now + FAR_S else -math.inf, lines
        # It is new, or of a clock that has restarted.
        blank = _HEAD.pack(self._start_of_machine, -math.inf) + _LINE.pack(*_NOBODYS) * _LINES
        os.pwrite(self._descriptor, blank, 0)
        return -math.inf, [_NOBODYS] * _LINES

    def _write(self, line: _Line) -> None:
        os.pwrite(self._descriptor, _LINE.pack(*line), _HEAD.size + self._line * _LINE.size)


def _can_be(line: tuple[Any, ...], now: float) -> bool:
    """Return whether a run may have written a line."""
    return bool(RATE_LEAST <= line[2] <= RATE_MOST and line[3] <= now + FAR_S)


def _is_heard(line: _Line, now: float) -> bool:
    """Return whether a run sends."""
    return now <= line[1] <= now + FAR_S


def _is_known(line: _Line, now: float) -> bool:
    """Return whether a line still counts: for a run that sends, or a pause that lasts."""
    return _is_heard(line, now) or line[3] > now


def _start_of_machine() -> bytes:
    """Return sixteen bytes that differ after the machine was restarted, and its clock with it."""
    try:
        return hashlib.sha256(_BOOT_ID.read_bytes()).digest()[:16]
    except OSError:
        return bytes(15) + b"\1"
