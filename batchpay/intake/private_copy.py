"""Private copies: what can be read only once, or must not change while it is read, is kept in a sealed memory file.

Standard input, objects of a store and workbooks are read once into such a copy; text is compressed on the way.
Nothing here writes to a disk: a payment file contains account numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from batchpay.intake.kinds import HEAD_BYTES, Kind, kind_of

BLOCK_BYTES = 1 << 20
_ZSTD_LEVEL = 1


@dataclass(frozen=True, slots=True)
class PrivateCopy:
    """A copy that can no longer be changed."""

    descriptor: int
    size: int
    """Bytes that were copied; the copy itself may be smaller."""


def private_copy(blocks: Iterable[bytes], name: str, asked: str | None = None) -> PrivateCopy:
    """Copy a payment file; text is packed with zstd. Raises FileRefused as soon as the first bytes rule one out."""
    incoming = iter(blocks)
    head = b""
    while len(head) < HEAD_BYTES and (block := next(incoming, None)) is not None:
        head += block
    kind, packing = kind_of(head[:HEAD_BYTES], name, asked)
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for block in chain((head,), incoming):
            size += len(block)
            yield block

    descriptor = memory_file()
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.writelines(_packed(counted()) if kind is Kind.CSV and packing is None else counted())
        seal(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return PrivateCopy(descriptor, size)


def memory_file() -> int:
    """Create an anonymous file in memory; it never reaches a disk where the system offers memfd."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("payments", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def seal(descriptor: int) -> None:
    """Seal a memory file against any change, whoever gets hold of its descriptor."""
    if hasattr(fcntl, "F_ADD_SEALS"):
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)


def given_blocks(descriptor: int) -> Iterator[bytes]:
    """Read a pipe to its end. A signal is handled while nothing comes, whichever thread the system delivers it to."""
    with _woken_by_signals() as woken:
        while True:
            ready = select.select([descriptor, *woken], [], [])[0]
            for alarm in woken:
                if alarm in ready:
                    os.read(alarm, 4096)  # the handlers themselves run between two steps of the interpreter
            if descriptor in ready:
                block = os.read(descriptor, BLOCK_BYTES)
                if not block:
                    return
                yield block


@contextlib.contextmanager
def _woken_by_signals() -> Iterator[list[int]]:
    """Yield descriptors that become readable when a signal comes; only the main thread can be notified."""
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    alarm, wakeup = os.pipe()
    for end in (alarm, wakeup):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    try:
        yield [alarm]
    finally:
        signal.set_wakeup_fd(before)
        os.close(alarm)
        os.close(wakeup)


def _packed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    import zstandard

    packer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()
