"""Which files a call is about: globs, and the default names of results and rejects."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from batchpay.errors import NotUsable, WrongUse
from batchpay.writing.atomic import check_no_device
from batchpay.writing.place import is_output_name

_ENDINGS = (".csv", ".parquet", ".xlsx", ".txt", ".tsv")
_PACKED = (".gz", ".zst")


def expand(files: Sequence[str]) -> list[str]:
    """Expand globs that the shell left alone. A name that exists is taken as it is; a pattern must match something.

    A pattern leaves out our own results and rejects, which lie beside the input of an earlier call.
    """
    found: list[str] = []
    for name in files:
        if name == "-" or "://" in name or Path(name).exists() or not glob.has_magic(name):
            found.append(name)
            continue
        matches = sorted(path for path in glob.glob(name) if not is_output_name(Path(path).name))  # noqa: PTH207 - may be absolute
        if not matches:
            raise WrongUse(f"no file matches {name}")
        found.extend(matches)
    doubled = sorted({name for name in found if found.count(name) > 1})
    if doubled:
        raise WrongUse(f"{doubled[0]} is listed twice")
    return found


class Outputs:
    """The files that a call writes: none of them takes the place of a payment file, or of another one."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self._taken = {_real(name): (name, "") for name in inputs if name != "-" and "://" not in name}

    def claim(self, name: str | Path, kind: str = "") -> Path:
        """Take a path before anything is sent; raises WrongUse where it is taken, NotUsable where nothing can be.

        Outputs of one `kind`, of payment files of one name, share theirs: where it is written, a number is added.
        """
        path = Path(name)
        real = _real(path)
        other, its_kind = self._taken.get(real, ("", kind))
        if other and not (kind and kind == its_kind):
            raise WrongUse(f"{path} would overwrite {other}; name another file, or another folder with --out")
        check_no_device(path)
        check_folder(path.parent, path)
        self._taken[real] = str(path), kind
        return path


def check_folder(folder: Path, wanted_for: Path) -> None:
    """Raise NotUsable where no file can be made in a folder."""
    if not folder.is_dir():
        raise NotUsable(f"{wanted_for} can't be written: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NotUsable(f"{wanted_for} can't be written: {folder} is not writable")


def make_folder(folder: str | Path) -> Path:
    """Make a folder for files that only its owner reads, unless there is one; raises NotUsable."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise NotUsable(f"{path} can't be made: {error.strerror}") from None
    return path


def _real(path: str | Path) -> str:
    return os.path.realpath(path)


def beside(file: str, kind: str, out: str | None) -> Path:
    """Give the default name `NAME.results.csv` or `NAME.rejects.csv` (the input's own kind for rejects)."""
    name = "stdin" if file == "-" else Path(file.rsplit("/", 1)[-1] if "://" in file else file).name
    for ending in _PACKED:
        name = name.removesuffix(ending)
    suffix = next((ending for ending in _ENDINGS if name.lower().endswith(ending)), "")
    stem = name[: len(name) - len(suffix)] if suffix else name
    ending = suffix.lower() if kind == "rejects" and suffix.lower() in (".parquet", ".xlsx") else ".csv"
    folder = Path(out) if out else Path.cwd() if file == "-" or "://" in file else Path(file).parent
    return folder / f"{stem}.{kind}{ending}"
