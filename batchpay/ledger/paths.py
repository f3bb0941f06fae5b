"""Where a ledger's files are, the locks on them, and when they can't be relied on: a path, its folder, its disk.

SQLite is not loaded: a check of a payment file does not need it if there is no ledger. A lock ends with its holder.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import pwd
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from batchpay.errors import BatchHeld, LedgerMissing, LedgerNotUsable, SettingsNotUsable
from batchpay.settings import LedgerSettings, config_directory, state_directory


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """Where a ledger's files are."""

    ledger: Path
    """The ledger; if a database server holds it, the path next to which this machine keeps its own files for it."""
    key: Path
    witness: Path
    url: str | None = None
    """The database that holds it, without user and password; None if `ledger` is its file."""

    def __post_init__(self) -> None:
        """Raise SettingsNotUsable if two of them are one file: whoever accepts the witness replaces it."""
        settings = {"ledger.url": self.ledger, "ledger.key_file": self.key, "ledger.witness": self.witness}
        named: dict[str, str] = {}
        for setting, path in settings.items():
            other = named.setdefault(os.path.realpath(path), setting)
            if other != setting:
                raise SettingsNotUsable(f"{other} and {setting} name the same file, {path}; each needs its own")

    @property
    def name(self) -> str:
        """Return where the ledger is, as shown to a person."""
        return self.url or str(self.ledger)


def own_path(setting: str, default: Path) -> Path:
    """Return the path that a setting names, or where the file is by default; raises SettingsNotUsable."""
    path = Path(setting).expanduser().absolute() if setting else default
    if not path.name:
        raise SettingsNotUsable(f"the ledger, its key and its witness are files; {path} is a folder")
    return path


def key_path(settings: LedgerSettings) -> Path:
    """Return the path of the ledger's key."""
    return own_path(settings.key_file, config_directory() / "ledger.key")


def make_private_directory(directory: Path) -> None:
    """Create a directory, and missing ones above it, for the owner only; raises LedgerNotUsable."""
    try:
        for missing in reversed([d for d in (directory, *directory.parents) if not d.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise LedgerNotUsable(f"the folder {directory} can't be created: {error.strerror}") from None


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
    """Say what may take the ledger with it at the next restart."""
    folder = place.ledger.parent
    kind = file_system(_mounts(), folder.resolve())
    lost = f"{folder} lies on {kind}: after a restart nobody may know any more what was paid"
    return [lost] if kind in _PASSING else []


def copies_beside(place: LedgerPaths) -> list[Path]:
    """Return the copies that were made before a ledger was brought up to date."""
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
