"""The inbox: which files of a folder are complete and may be taken.

A file is taken if its author says that it is complete, by a control file next to it (`FILE.control.toml`, whose totals
the check compares it with), or if nothing has touched it for a while. Cut-off uploads are caught again by the rules, by
control totals, and by the file's last line; this is the first safeguard, not the only one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from batchpay.errors import NotUsable
from batchpay.writing.atomic import is_output_name, unpacked_name

CONTROL_SUFFIX = ".control.toml"
_SETTLED_S = 60.0
"""How long a file without a control file must have been left alone."""
_ENDINGS = (".csv", ".tsv", ".parquet", ".xlsx", ".ach")
_UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".filepart", ".crdownload", ".swp", ".upload", "~")


def complete_files(folder: str | Path, *, now_s: float, takes: Callable[[str], bool] | None = None) -> list[Path]:
    """Return the complete payment files of a folder, the oldest first, then by name; raises NotUsable.

    `now_s` is the Unix time. Skipped: subfolders, links, names that begin with a period or end as unfinished uploads
    do, other kinds of files, and files named like our own results and rejects. A person who corrected one of those
    marks it as a payment file with a control file. `takes` says which names are taken instead.
    """
    takes, names = takes or is_payment_name, _entries(folder)
    found = sorted(
        (status.st_mtime, name)
        for name, status in names.items()
        if stat.S_ISREG(status.st_mode) and takes(name)
        if _is_whole(name, status, names.get(name + CONTROL_SUFFIX), now_s)
    )
    return [Path(folder) / name for _, name in found]


def is_still_complete(path: Path, *, now_s: float) -> bool:
    """Return whether a file that was complete when its inbox was read is still complete at its turn, or is gone.

    While the files before it are sent, it may be written again: paid as far as it had been written, and archived while
    it is still being written, its other rows would never be seen.
    """
    status = _status(path)
    control = _status(path.with_name(path.name + CONTROL_SUFFIX))
    return status is None or _is_whole(path.name, status, control, now_s)


def waiting_files(folder: str | Path, *, now_s: float) -> list[tuple[Path, float]]:
    """Return every file of an inbox that someone may expect to be paid, each with the Unix time of its last change.

    Wider than `complete_files`: an upload that never ended, a link or an unknown extension waits as well, and nobody
    may have noticed. Raises NotUsable.
    """
    found = sorted((_touched_at(status, now_s), name) for name, status in _expected(folder).items())
    return [(Path(folder) / name, since) for since, name in found]


def never_taken(folder: str | Path) -> list[str]:
    """Name what no later call takes either: links, and files whose names no payment file has.

    A name that an upload ends with, or one of our results and rejects, is not among them. Raises NotUsable.
    """
    return sorted(
        name
        for name, status in _expected(folder).items()
        if not stat.S_ISREG(status.st_mode) or not (is_payment_name(name) or name.lower().endswith(_UNFINISHED))
    )


def files_by_state(folder: str | Path, *, now_s: float) -> dict[str, int]:
    """Count an inbox's files: `waiting` to be taken, `incomplete`, or `ignored` by every call; raises NotUsable."""
    complete, ignored = complete_files(folder, now_s=now_s), set(never_taken(folder))
    left = [path.name for path, _ in waiting_files(folder, now_s=now_s) if path not in complete]
    never = sum(name in ignored or is_named_as_ours(name) for name in left)
    return {"waiting": len(complete), "incomplete": len(left) - never, "ignored": never}


def _is_whole(name: str, status: os.stat_result, control: os.stat_result | None, now_s: float) -> bool:
    if control is not None and stat.S_ISREG(control.st_mode):
        return True
    # Nothing was written, renamed or added for a while; a copied timestamp alone proves nothing.
    return not is_named_as_ours(name) and now_s - _touched_at(status, now_s) >= _SETTLED_S


def _expected(folder: str | Path) -> dict[str, os.stat_result]:
    """Return what somebody may expect to be paid."""
    return {
        name: status
        for name, status in _entries(folder).items()
        if not stat.S_ISDIR(status.st_mode) and not name.startswith(".") and not name.endswith(CONTROL_SUFFIX)
    }


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _entries(folder: str | Path) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # renamed or taken away at this moment
                    found[entry.name] = entry.stat(follow_symlinks=False)
    except OSError as error:
        raise NotUsable(f"inbox {folder} can't be read: {error.strerror}") from None
    return found


def is_payment_name(name: str) -> bool:
    """Return whether this may be a payment file's name."""
    return is_finished_name(name) and unpacked_name(name.lower()).endswith(_ENDINGS)


def is_finished_name(name: str) -> bool:
    """Return whether a name is none of those that uploads and programs give to what they still write."""
    lower = name.lower()
    return not (lower.startswith((".", "~", "#")) or lower.endswith((*_UNFINISHED, CONTROL_SUFFIX)))


def is_named_as_ours(name: str) -> bool:
    """Return whether a name is one of our results or rejects: such a file is paid only if a control file says so."""
    return is_output_name(unpacked_name(name.lower()))


def _touched_at(status: os.stat_result, now_s: float) -> float:
    """Return when a file was last touched; a timestamp copied from a computer whose clock is ahead is ignored."""
    return status.st_ctime if status.st_mtime > now_s else max(status.st_mtime, status.st_ctime)
