"""Which file an opened descriptor is: kept from the reading, and compared before a path is moved or replaced."""

from __future__ import annotations

import os
from typing import NamedTuple, Self


class FileIdentity(NamedTuple):
    """A file as it was at one moment; the same name may lead to another file, or to another content, later."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Take it from what `os.stat` or `os.fstat` gives."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class ReadFiles(NamedTuple):
    """The files of a disk that a command read: the payments, and the control file beside them."""

    payments: FileIdentity
    control: FileIdentity | None = None
