"""Writing a file so that it appears whole or not at all: temporary, synced, renamed, mode 0600 whatever the umask.

An output never replaces one of another batch: its name gets a number instead.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
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


FileOrPath = str | Path | Stream
_PROBE_BYTES = 65_536


@contextmanager
def atomic_writer(path: FileOrPath) -> Iterator[BinaryIO]:
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


CSV_ENDINGS = (".csv", ".txt", ".tsv")
_ENDINGS = (*CSV_ENDINGS, ".parquet", ".xlsx")
PACKED = (".gz", ".zst")
MayReplace = Callable[[Path, int], bool]
"""Whether the existing file at a path, the one with this number, may be replaced."""


def anything(path: Path, number: int) -> bool:
    """Replace whatever is at the path."""
    return True


def stem_and_ending(file: str) -> tuple[str, str]:
    """Return what the names of a payment file's outputs begin with, and the file's own ending, if it is one of ours."""
    name = unpacked_name("stdin" if file == "-" else Path(file).name)
    ending = next((ending for ending in _ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)], ending


def unpacked_name(name: str) -> str:
    """Return a file's name without the ending of its compression."""
    for packing in PACKED:
        name = name.removesuffix(packing)
    return name


def is_output_name(name: str) -> bool:
    """Whether a name is that of one of our results or rejects files, with or without a number."""
    return re.search(r"\.(results|rejects)(-[0-9]+)?\.[a-z]+$", name.lower()) is not None


def numbered(path: Path, number: int) -> Path:
    """Return the path for the first, second and so on of a name: `pay.results.csv`, `pay.results-2.csv`."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def standing(wanted: Path) -> list[Path]:
    """Return the files of a name, with or without a number, in order; nothing where the folder can't be read."""
    try:
        return [numbered(wanted, number) for number in _taken(wanted)]
    except OSError:
        return []


def place(pending: PendingFile, may_replace: MayReplace, *, only_over: bool = False) -> Path | None:
    """Put a file over the first of its names that may be replaced, else at the first free one; return where it is.

    A file with the same bytes, or none, may always be replaced. With `only_over` nothing is written where there is
    nothing to replace, and None is returned.
    """
    wanted = pending.target
    with pending.abandoned_on_error():
        for number in _taken(wanted):
            pending.target = numbered(wanted, number)
            if pending.target.is_dir() or pending.is_same_or_empty() or may_replace(pending.target, number):
                pending.commit()
                return pending.target
    if only_over:
        pending.abandon()
        return None
    for number in count(1):
        pending.target = numbered(wanted, number)
        if not (pending.target.is_symlink() or pending.target.exists()) and pending.commit_new():
            break
    return pending.target


def _taken(wanted: Path) -> list[int]:
    """Return the numbers under which a name exists, in order: there may be gaps where one was moved away."""
    name = re.compile(f"{re.escape(wanted.stem)}(?:-([1-9][0-9]*))?{re.escape(wanted.suffix)}", re.ASCII)
    found = (name.fullmatch(one.name) for one in wanted.parent.iterdir())
    return sorted(int(one[1] or 1) for one in found if one is not None and one[1] != "1")
