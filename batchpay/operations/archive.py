"""The archive: move a finished payment file out of the way, never over another one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

from batchpay.errors import NotUsable
from batchpay.operations.inbox import CONTROL_SUFFIX
from batchpay.writing.atomic import PendingFile, sync_directory

_TRIES_MAX = 10_000


def archive(path: str | Path, folder: str | Path) -> Path:
    """Move a file, and the control file beside it, into a folder; gives where it is now. Raises NotUsable.

    Where the name is taken, `-2`, `-3` and so on goes in front of the ending. The file is there with mode 0600 and
    durable before it is gone here. The payment file goes first: a control file left behind alone does no harm.
    """
    source, target_folder = Path(path), Path(folder)
    control = Path(f"{source}{CONTROL_SUFFIX}")
    try:
        target_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        pairs = [(source, "")]
        if control.is_file() and not control.is_symlink():
            pairs.append((control, CONTROL_SUFFIX))
        target = _reserved(target_folder, source.name, [suffix for _, suffix in pairs])
        for number, (moved, suffix) in enumerate(pairs):
            try:
                _move(moved, Path(f"{target}{suffix}"))
            except BaseException:
                for _, left in pairs[number:]:
                    Path(f"{target}{left}").unlink(missing_ok=True)
                raise
    except OSError as error:
        raise NotUsable(f"{source} can't be moved to {target_folder}: {error.strerror}") from None
    return target


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


def _split(name: str) -> tuple[str, str]:
    """Part a name from its ending; `.csv.gz` is one ending."""
    path = Path(name)
    ending = path.suffix
    if ending.lower() in (".gz", ".zst"):
        ending = Path(path.stem).suffix + ending
    return name.removesuffix(ending) if ending else name, ending


def _move(source: Path, reserved: Path) -> None:
    """Put a file in the place of its reservation: by renaming, or by copying where that can't be done."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        if not _renamed(descriptor, source, reserved):
            copy = PendingFile(reserved)
            try:
                shutil.copyfileobj(file, copy.file)
            except BaseException:
                copy.abandon()
                raise
            copy.commit()
            source.unlink()
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
            return True
    return False
