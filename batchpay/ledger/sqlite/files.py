"""Where the ledger's files are, and when they can't be relied on: a path, its directory, its disk.

SQLite is not loaded: a check of a payment file does not need it if there is no ledger.
"""

from __future__ import annotations

import glob
import hashlib
import os
import pwd
import stat
from pathlib import Path

from batchpay.errors import LedgerMissing, LedgerNotUsable
from batchpay.ledger.paths import LedgerPaths, key_path, own_path
from batchpay.settings import LedgerSettings, state_directory

_NETWORK = frozenset(
    ("9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gfs", "gfs2", "gpfs", "lustre",
     "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs")
)  # fmt: skip
"""File systems on which another machine's locks or syncs can't be trusted. Everything FUSE is refused as well."""
_PASSING = frozenset(("tmpfs", "ramfs", "overlay"))
"""File systems that are empty again after a restart, or with a new container."""


def location(settings: LedgerSettings) -> LedgerPaths:
    """Return where the ledger, its key and its witness are.

    A ledger at a path of its own has a witness of its own, next to the key: its name contains a digest of the path.
    """
    default = state_directory() / "ledger.db"
    ledger, key = own_path(settings.url, default), key_path(settings)
    if settings.witness or ledger == default:
        return LedgerPaths(ledger, key, own_path(settings.witness, key.with_name("ledger.witness")))
    mark = hashlib.sha256(os.fsencode(ledger.resolve())).hexdigest()[:8]
    return LedgerPaths(ledger, key, key.with_name(f"ledger-{mark}.witness"))


def weaknesses(place: LedgerPaths) -> list[str]:
    folder = place.ledger.parent
    kind = file_system(_mounts(), folder.resolve())
    lost = f"{folder} lies on {kind}: after a restart nobody may know any more what was paid"
    return [lost] if kind in _PASSING else []


def copies_beside(place: LedgerPaths) -> list[Path]:
    return sorted(place.ledger.parent.glob(f"{glob.escape(place.ledger.name)}.version-*"))


def check_file(path: Path) -> Path:
    """Return the canonical path of an existing ledger, or refuse what can't be one.

    SQLite's journals are found by name: a second name for the file would hide them, so hard links are refused.
    """
    try:
        if path.is_symlink() and not path.exists():
            raise LedgerMissing(f"the ledger {path} is a link to a missing file")
        path = path.resolve(strict=True)
        status = path.stat()
    except FileNotFoundError:
        raise LedgerMissing(
            f"there is no ledger at {path}; is its disk mounted? If one was there, restore its latest backup; only the "
            "first one is made by: batchpay ledger init"
        ) from None
    except OSError as error:
        raise LedgerNotUsable(f"the ledger {path} can't be reached: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise LedgerNotUsable(f"the ledger {path} is not a regular file")
    if status.st_nlink > 1:
        raise LedgerNotUsable(f"the ledger {path} has a second name (hard link): its journal would be missed")
    check_owner(path, status.st_uid)
    if status.st_mode & 0o077:
        raise LedgerNotUsable(f"the ledger {path} is readable by other users; set its mode to 0600")
    check_directory(path.parent)
    return path


def check_owner(path: Path, owner: int) -> None:
    """Refuse what belongs to another user, before this user leaves a file there that would lock its owner out."""
    if owner != os.geteuid():
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        raise LedgerNotUsable(f"{path} belongs to {name}; run batchpay as that user")


def check_directory(directory: Path) -> None:
    """Refuse a directory to which others may write, and one on a file system that can't hold a ledger safely."""
    try:
        status = directory.stat()
    except OSError as error:
        raise LedgerNotUsable(f"the ledger's folder {directory} can't be reached: {error.strerror}") from None
    check_owner(directory, status.st_uid)
    if status.st_mode & 0o022:
        raise LedgerNotUsable(f"the ledger's folder {directory} can be written by others; set its mode to 0700")
    kind = file_system(_mounts(), directory.resolve())
    if kind in _NETWORK or kind.startswith("fuse"):
        raise LedgerNotUsable(
            f"the ledger's folder {directory} is on a {kind} file system, whose locks can't be trusted: "
            "use a local disk"
        )


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""  # not Linux: nothing to read


def file_system(mounts: str, directory: Path) -> str:
    """Return the kind of file system of a directory, from the text of /proc/self/mountinfo; blank if unknown."""
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
