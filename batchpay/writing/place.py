"""Where an output goes: it never replaces one of another batch; its name gets a number instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

from batchpay.writing.atomic import PendingFile

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
