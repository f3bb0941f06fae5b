"""The archive: move a finished payment file out of the way, the very one that was read, never over another one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from pathlib import Path

from batchpay.errors import NotUsable
from batchpay.operations.inbox import CONTROL_SUFFIX
from batchpay.writing.atomic import PendingFile, sync_directory
from batchpay.writing.identity import FileIdentity, ReadFiles

_TRIES_MAX = 10_000


class _AnotherFile(Exception):
    """What stands at the path is not the file that was read."""


def archive(path: str | Path, folder: str | Path, read: ReadFiles) -> Path | None:
    """Move a file, and the control file beside it, into a folder; gives where it is now. Raises NotUsable.

    Only what was read is moved: a file that took its place since, or was changed, stays (None is given), and so does
    another control file. Where the name is taken, `-2`, `-3` and so on goes in front of the ending. The file is there
    with mode 0600 and durable before it is gone here. The payment file goes first: a control file left behind alone
    does no harm.
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
    """Find a free name and take it with empty files, made exclusively: whoever comes next finds it taken."""
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
    raise NotUsable(f"{folder} holds {_TRIES_MAX} files called {name} already")


def _release(reserved: Path) -> None:
    """Give up a reservation; a file that stands there meanwhile stays."""
    if reserved.exists() and not reserved.stat().st_size:
        reserved.unlink()


def _split(name: str) -> tuple[str, str]:
    """Part a name from its ending; `.csv.gz` is one ending."""
    path = Path(name)
    ending = path.suffix
    if ending.lower() in (".gz", ".zst"):
        ending = Path(path.stem).suffix + ending
    return name.removesuffix(ending), ending


def _move(source: Path, reserved: Path, identity: FileIdentity) -> None:
    """Put a file in the place of its reservation: by renaming, or by copying where that can't be done."""
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
            _take_away(source, identity)
    for folder in {reserved.parent, source.parent}:
        sync_directory(folder)


def _renamed(descriptor: int, source: Path, reserved: Path) -> bool:
    """Rename over the reservation; False where the folder is on another disk or the file is somebody else's."""
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
    """Remove a file that was copied; one that took its place meanwhile stays."""
    aside = source.with_name(f".{source.name}.{secrets.token_hex(6)}.part")
    source.rename(aside)
    if aside.lstat().st_ino == identity.inode:
        aside.unlink()
    else:
        _put_back(aside, source)


def _put_back(taken: Path, place: Path) -> None:
    """Give back a file that came to the path in the moment between looking and moving.

    Where yet another one is there by now it stays where it is, and the error says so.
    """
    os.link(taken, place)
    taken.unlink()
