"""Which file an opened descriptor is: recorded when read, and compared before a path is moved or replaced."""

from __future__ import annotations

import os
from typing import NamedTuple, Self


class FileIdentity(NamedTuple):
    """A file as it was at one moment; later the same name may refer to another file, or to other content."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Make it from the result of `os.stat` or `os.fstat`."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class ReadFiles(NamedTuple):
    """The files on a disk that a command read: the payments, and the control file next to them."""

    payments: FileIdentity
    control: FileIdentity | None = None
