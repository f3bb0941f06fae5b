"""Locks between the processes of one machine, on batches and for writing: files whose lock ends with their holder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from batchpay.errors import BatchHeld, LedgerNotUsable
from batchpay.ledger.paths import make_private_directory

_POLL_S_MAX = 0.02


class FileLock:
    """The lock between processes that write to one ledger; it dies with its process."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._path = path

    def acquire(self, wait_s: float) -> None:
        """Take the lock, or raise LedgerNotUsable after `wait_s`."""
        deadline = time.monotonic() + wait_s
        pause_s = 0.0005
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LedgerNotUsable(f"another program has locked the ledger ({self._path})") from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _POLL_S_MAX)

    def release(self) -> None:
        """Release the lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, and release the lock with it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class BatchLocks:
    """The locks on one ledger's batches, by the digests of their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: set[bytes] = set()
        """Digests whose locks this object holds now."""

    @contextmanager
    def hold(self, digest: bytes) -> Iterator[None]:
        """Hold a batch; raises BatchHeld immediately if another process does."""
        path = self._path(digest)
        make_private_directory(self.folder)
        try:
            descriptor = _locked_file(path)
        except OSError as error:
            raise self._unusable(error) from None
        self.held.add(digest)
        try:
            yield
        finally:
            self.held.discard(digest)
            # Under the lock: a process that opened this very file in between finds that its name is gone.
            with suppress(OSError):
                path.unlink()
            os.close(descriptor)

    def is_held(self, digest: bytes) -> bool:
        """Return whether any process holds a batch."""
        try:
            return _is_held(self._path(digest))
        except OSError as error:
            raise self._unusable(error) from None

    def any_is_held(self) -> bool:
        """Return whether any process holds any batch."""
        return any(_is_held(path) for path in self.folder.glob("*.lock"))

    def _path(self, digest: bytes) -> Path:
        return self.folder / f"{digest.hex()[:32]}.lock"

    def _unusable(self, error: OSError) -> LedgerNotUsable:
        return LedgerNotUsable(f"the locks in {self.folder} can't be used: {error.strerror}")


def _locked_file(path: Path) -> int:
    """Open and lock a file that is removed with its lock; raises BatchHeld immediately if it is locked."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            if _is_held(path):
                raise BatchHeld("another run is working on this batch") from None
            continue  # whoever had it was only checking, or has just ended
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_held(path: Path) -> bool:
    """Return whether a run has locked a file; a process that wants the lock during this check tries again."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
