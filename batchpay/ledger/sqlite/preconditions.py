"""When a ledger is not usable: its file, its directory, its disk; and SQLite's errors in our words.

PackedTexts name paths and reasons, never data: SQLite's own texts are not passed on.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchpay.errors import BatchpayError, LedgerDamaged, LedgerMissing, LedgerNotUsable

_NETWORK = frozenset(
    ("9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gfs", "gfs2", "gpfs", "lustre",
     "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs")
)  # fmt: skip
"""File systems on which locks or syncs of another machine can't be trusted. Everything FUSE is refused as well."""
_PASSING = frozenset(("tmpfs", "ramfs", "overlay"))
"""File systems that are empty again after a restart, or with a new container."""


def check_file(path: Path) -> Path:
    """Give the canonical path of an existing ledger, or refuse what can't be one.

    SQLite's journals are found by name: a second name for the file would hide them, so hard links are refused.
    """
    if path.is_symlink() and not path.exists():
        raise LedgerMissing(f"the ledger {path} is a link to a missing file")
    try:
        path = path.resolve(strict=True)
        status = path.stat()
    except FileNotFoundError:
        raise LedgerMissing(
            f"there is no ledger at {path}; is its disk mounted? A new one is made by: batchpay ledger init"
        ) from None
    except OSError as error:
        raise LedgerNotUsable(f"the ledger {path} can't be reached: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise LedgerNotUsable(f"the ledger {path} is not a regular file")
    if status.st_nlink > 1:
        raise LedgerNotUsable(f"the ledger {path} has a second name (hard link), which its journal does not know")
    check_owner(path, status.st_uid)
    if status.st_mode & 0o077:
        raise LedgerNotUsable(f"the ledger {path} is readable by other users; set its mode to 0600")
    check_directory(path.parent)
    return path


def check_owner(path: Path, owner: int) -> None:
    """Refuse what belongs to another user, before this one leaves a file there that would lock its owner out."""
    if owner != os.geteuid():
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        raise LedgerNotUsable(f"{path} belongs to {name}; run batchpay as that user")


def check_directory(directory: Path) -> None:
    """Refuse a directory in which others may put files, and one on a file system that can't keep a ledger."""
    try:
        status = directory.stat()
    except OSError as error:
        raise LedgerNotUsable(f"the ledger's directory {directory} can't be reached: {error.strerror}") from None
    check_owner(directory, status.st_uid)
    if status.st_mode & 0o022:
        raise LedgerNotUsable(f"the ledger's directory {directory} can be written by others; set its mode to 0700")
    kind = file_system(_mounts(), directory.resolve())
    if kind in _NETWORK or kind.startswith("fuse"):
        raise LedgerNotUsable(
            f"the ledger's directory {directory} lies on a {kind} file system, whose locks can't be trusted: "
            "use a local disk"
        )


def passing_file_system(directory: Path) -> str | None:
    """Name a file system that does not outlive a restart: memory, or the upper layer of a container."""
    kind = file_system(_mounts(), directory.resolve())
    return kind if kind in _PASSING else None


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""  # no Linux: nothing to ask


def file_system(mounts: str, directory: Path) -> str:
    """Name the kind of file system that holds a directory, by the text of /proc/self/mountinfo; blank if unknown."""
    best_length, best_kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5 or not kinds[0]:
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if (directory.is_relative_to(point)) and len(point) >= best_length:
            best_length, best_kind = len(point), kinds[0]
    return best_kind


FOREIGN = (sqlite3.Error, OSError, UnicodeDecodeError, MemoryError)
"""What SQLite raises for a ledger's sake; text or sizes in a damaged file can reach us as the last two."""


def translate(error: BaseException, path: Path) -> BatchpayError:
    """Give our error for one of FOREIGN."""
    if isinstance(error, UnicodeDecodeError):
        return LedgerDamaged(f"the ledger {path} is damaged; bring back a backup, nothing was sent")
    if isinstance(error, MemoryError):
        return LedgerNotUsable(f"the ledger {path} is not usable: there is no memory left")
    if isinstance(error, OSError):
        return LedgerNotUsable(f"the ledger {path} is not usable: {error.strerror or type(error).__name__}")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            return LedgerDamaged(f"the ledger {path} contains what batchpay did not write")
        return LedgerNotUsable(f"the ledger {path} is not usable: {type(error).__name__}")
    return _by_code(code, path)


def _by_code(code: int, path: Path) -> BatchpayError:
    primary = code & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH):
        return LedgerDamaged(f"the ledger {path} is damaged, or is not a ledger; bring back a backup, nothing was sent")
    if primary in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG):
        return LedgerDamaged(f"the ledger {path} lacks what batchpay wrote into it: damaged, or another program's file")
    words = {
        sqlite3.SQLITE_BUSY: "another program keeps it locked",
        sqlite3.SQLITE_LOCKED: "another program keeps it locked",
        sqlite3.SQLITE_PROTOCOL: "another program keeps it locked",
        sqlite3.SQLITE_FULL: "its disk is full",
        sqlite3.SQLITE_READONLY: "it can't be written",
        sqlite3.SQLITE_PERM: "it may not be opened",
        sqlite3.SQLITE_AUTH: "it may not be opened",
        sqlite3.SQLITE_CANTOPEN: "it can't be opened",
        sqlite3.SQLITE_IOERR: "its disk reports an input/output error",
        sqlite3.SQLITE_NOMEM: "there is no memory left",
        sqlite3.SQLITE_NOLFS: "its file system can't hold a file so large",
        sqlite3.SQLITE_CONSTRAINT: "a record was refused by the ledger's own rules",
    }.get(primary, "SQLite failed")
    return LedgerNotUsable(f"the ledger {path} is not usable: {words} (SQLite {code})")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into ours."""
    try:
        yield
    except FOREIGN as error:
        raise translate(error, path) from None
