"""The archive: move a finished payment file out of the way, only the file that was read, and never over another."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from pathlib import Path

from batchpay.errors import NotUsable
from batchpay.operations.inbox import CONTROL_SUFFIX
from batchpay.writing.atomic import PACKED, FileIdentity, PendingFile, ReadFiles, sync_directory

_TRIES_MAX = 10_000


class _AnotherFile(Exception):
    """The file at the path is not the one that was read."""


def archive(path: str | Path, folder: str | Path, read: ReadFiles) -> Path | None:
    """Move a file and its control file into a folder; return the file's new path. Raises NotUsable.

    Only what was read is moved: a file that has since replaced it, or was changed, stays (None is returned), and so
    does another control file. If the name is taken, `-2`, `-3` and so on is added before the extension. The file is in
    the folder, with mode 0600 and durable, before it is removed from here. The payment file goes first: a control file
    left behind alone does no harm.
    """
    source, target_folder = Path(path), Path(folder)
    control = Path(f"{source}{CONTROL_SUFFIX}")
    try:
        if not _is(source, read.payments):
            return None
        target_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        moves = [(source, "", read.payments)]
        if read.control is not None and _is(control, read.control):
            moves.append((control, CONTROL_SUFFIX, read.control))
        target = _reserved(target_folder, source.name, [suffix for _, suffix, _ in moves])
        for number, (moved, suffix, identity) in enumerate(moves):
            try:
                _move(moved, Path(f"{target}{suffix}"), identity)
            except BaseException as error:
                for _, left, _ in moves[number:]:
                    _release(Path(f"{target}{left}"))
                if isinstance(error, _AnotherFile):
                    return target if number else None
                raise
    except OSError as error:
        raise NotUsable(f"{source} can't be moved to {target_folder}: {error.strerror}") from None
    return target


def _is(path: Path, identity: FileIdentity) -> bool:
    try:
        return FileIdentity.of(path.lstat()) == identity
    except FileNotFoundError:
        return False


def _reserved(folder: Path, name: str, suffixes: list[str]) -> Path:
    """Find a free name and reserve it with empty files, created exclusively: the next process finds it taken."""
    stem, ending = _split(name)
    for number in range(1, _TRIES_MAX):
        target = folder / (name if number == 1 else f"{stem}-{number}{ending}")
        taken: list[Path] = []
        try:
            for suffix in suffixes:
                one = Path(f"{target}{suffix}")
                os.close(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
                taken.append(one)
        except OSError as error:
            for one in taken:
                one.unlink(missing_ok=True)
            if not isinstance(error, FileExistsError):
                raise
        else:
            return target
    raise NotUsable(f"{folder} already has {_TRIES_MAX} files called {name}")


def _release(reserved: Path) -> None:
    """Give up a reservation; a file that has meanwhile been put there stays."""
    if reserved.exists() and not reserved.stat().st_size:
        reserved.unlink()


def _split(name: str) -> tuple[str, str]:
    """Split a name from its extension; `.csv.gz` is one extension."""
    path = Path(name)
    ending = path.suffix
    if ending.lower() in PACKED:
        ending = Path(path.stem).suffix + ending
    return name.removesuffix(ending), ending


def _move(source: Path, reserved: Path, identity: FileIdentity) -> None:
    """Put a file in its reserved place: by renaming, or by copying where it can't be renamed."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if FileIdentity.of(os.fstat(descriptor)) != identity:
            raise _AnotherFile
        if not _renamed(descriptor, source, reserved):
            copy = PendingFile(reserved)
            try:
                shutil.copyfileobj(file, copy.file)
            except BaseException:
                copy.abandon()
                raise
            copy.commit()
            try:
                _take_away(source, identity)
            except OSError:
                if _is(source, identity):  # otherwise the copy is all that is left of it
                    reserved.unlink()
                raise
    for folder in {reserved.parent, source.parent}:
        sync_directory(folder)


def _renamed(descriptor: int, source: Path, reserved: Path) -> bool:
    """Rename over the reservation; False if the folder is on another disk or the file belongs to someone else."""
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
        try:
            source.replace(reserved)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            if not os.path.samestat(reserved.lstat(), os.fstat(descriptor)):
                _put_back(reserved, source)
                raise _AnotherFile
            return True
    return False


def _take_away(source: Path, identity: FileIdentity) -> None:
    """Remove a file that was copied; one that has meanwhile replaced it stays."""
    aside = source.with_name(f".{source.name}.{secrets.token_hex(6)}.part")
    source.rename(aside)
    if aside.lstat().st_ino == identity.inode:
        aside.unlink()
    else:
        _put_back(aside, source)


def _put_back(taken: Path, place: Path) -> None:
    """Put back a file that appeared at the path between the check and the move.

    If yet another file is there by now, it stays where it is, and the error says so.
    """
    os.link(taken, place)
    taken.unlink()
