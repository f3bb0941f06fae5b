"""Writing a file so that it is there whole or not at all: beside, synced, renamed, mode 0600 whatever the umask."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from batchpay.errors import NotUsable


@contextmanager
def atomic_writer(path: str | Path) -> Iterator[BinaryIO]:
    """Give a binary file that takes the place of `path` when the block ends well, and vanishes when it does not.

    The temporary file lies in the same directory, is created exclusively and is readable by its owner alone. Raises
    NotUsable where the directory can't be written, or the disk is full.
    """
    target = Path(path)
    pending = PendingFile(target)
    try:
        yield pending.file
    except OSError as error:
        pending.abandon()
        raise NotUsable(f"{target} can't be written: {error.strerror}") from None
    except BaseException:
        pending.abandon()
        raise
    pending.commit()


class PendingFile:
    """A file under way: `file` is written, then `commit()` puts it in its place or `abandon()` removes it."""

    def __init__(self, target: str | Path) -> None:
        self.target = Path(target)
        self._temporary = self.target.with_name(f".{self.target.name}.{secrets.token_hex(6)}.part")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(self._temporary, flags, 0o600)
        except OSError as error:
            raise NotUsable(f"{self.target} can't be written: {error.strerror}") from None
        os.fchmod(descriptor, 0o600)
        self.file: BinaryIO = os.fdopen(descriptor, "w+b")

    def commit(self) -> None:
        """Sync the content, rename the file into its place, sync the directory."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self._temporary.replace(self.target)
        except OSError as error:
            self.abandon()
            raise NotUsable(f"{self.target} can't be written: {error.strerror}") from None
        sync_directory(self.target.parent)

    def abandon(self) -> None:
        """Remove the temporary file; what stood at the place before stays."""
        with contextlib.suppress(OSError):  # a full disk: the content is thrown away anyway
            self.file.close()
        self._temporary.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make a new, renamed or removed name in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
