"""Writing a file so that it appears whole or not at all: temporary, synced, renamed, mode 0600 whatever the umask."""

from __future__ import annotations

import contextlib
import filecmp
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from batchpay.errors import BatchpayError, NotUsable


@dataclass(frozen=True, slots=True)
class Stream:
    """An open file, at its start, that its owner closes. The name determines the format, and is shown to the user."""

    name: str
    file: BinaryIO

    def __str__(self) -> str:
        """Return the name, as a path does."""
        return self.name


_PROBE_BYTES = 65_536


@contextmanager
def atomic_writer(path: str | Path | Stream) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces `path` when the block succeeds, and is removed when it fails.

    A stream is its owner's responsibility: it is yielded as is.

    The temporary file is in the same directory, is created exclusively and is readable by its owner alone. Raises
    NotUsable where the directory can't be written, or the disk is full.
    """
    if isinstance(path, Stream):
        yield path.file
        return
    pending = PendingFile(path)
    with pending.abandoned_on_error():
        yield pending.file
    pending.commit()


class PendingFile:
    """A file being written: `file` is written, then `commit()` puts it in its place or `abandon()` removes it."""

    def __init__(self, target: str | Path) -> None:
        self.target = Path(target)
        check_no_device(self.target)
        self._temporary = self.target.with_name(f".{self.target.name}.{secrets.token_hex(6)}.part")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(self._temporary, flags, 0o600)
        except OSError as error:
            raise self._not_usable(error) from None
        self.file: BinaryIO = os.fdopen(descriptor, "w+b")
        with self.abandoned_on_error():
            os.fchmod(descriptor, 0o600)

    @contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """Remove the file where writing it fails; raises NotUsable for what the disk refuses."""
        try:
            yield
        except Exception as error:
            refused = self._refused_by_disk(error)
            self.abandon()
            if refused is not None:
                raise self._not_usable(refused) from None
            raise
        except BaseException:
            self.abandon()
            raise

    def commit(self) -> None:
        """Sync the content, rename the file into its place, sync the directory."""
        try:
            self._sync()
            self.file.close()
            self._temporary.replace(self.target)
            sync_directory(self.target.parent)
        except OSError as error:
            self.abandon()
            raise self._not_usable(error) from None

    def commit_new(self) -> bool:
        """Put the file in its place only if that is free; return False where it no longer is."""
        with self.abandoned_on_error():
            self._sync()  # asked once: a disk that lost what was written says so the first time only
        try:
            os.link(self._temporary, self.target)
        except FileExistsError:
            return False
        except OSError:  # no hard links here
            self.commit()
            return True
        self.abandon()  # the temporary name alone
        try:
            sync_directory(self.target.parent)
        except OSError as error:
            raise self._not_usable(error) from None
        return True

    def is_same_or_empty(self) -> bool:
        """Whether the existing file has the same bytes, or none; raises NotUsable where the disk is full."""
        with self.abandoned_on_error():
            self.file.flush()
        try:
            size = self.target.stat().st_size
            return not size or filecmp.cmp(self._temporary, self.target, shallow=False)
        except OSError:
            return False

    def _sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def _refused_by_disk(self, error: Exception) -> OSError | None:
        """Return what the disk refused, if that is what went wrong.

        Libraries have their own errors for it, some without the reason: one more write to the disk shows it.
        """
        if isinstance(error, BatchpayError) or (isinstance(error, OSError) and error.strerror):
            return error if isinstance(error, OSError) else None
        try:
            os.write(self.file.fileno(), bytes(_PROBE_BYTES))
        except OSError as refused:
            return refused
        except ValueError:  # the library has closed the file
            pass
        return error if isinstance(error, OSError) else None

    def _not_usable(self, error: OSError) -> NotUsable:
        return NotUsable(f"{self.target} can't be written: {error.strerror or type(error).__name__}")

    def abandon(self) -> None:
        """Remove the temporary file, as far as the disk allows; the file that it would have replaced stays."""
        with contextlib.suppress(OSError):  # a full disk: the content is discarded anyway
            self.file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink()


def check_no_device(path: Path) -> None:
    """Raise NotUsable for a device, pipe or socket: the rename would replace the machine's /dev/null itself."""
    try:
        is_other = path.exists() and not (path.is_file() or path.is_dir())
    except OSError as error:  # a name that is too long, for one
        raise NotUsable(f"{path} can't be written: {error.strerror}") from None
    if is_other:
        raise NotUsable(f"{path} can't be written: it is a device or a pipe, and only a file can be replaced")


def sync_directory(directory: Path) -> None:
    """Make a new, renamed or removed name in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
