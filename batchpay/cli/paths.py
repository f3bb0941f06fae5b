"""Which files a call is about: globs, what it may write, and the default names of results and rejects."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.errors import FileRefused, NotUsable, WrongUse
from batchpay.workflows.marks import MARKS, REPORT, may_be_written
from batchpay.writing.atomic import check_no_device, is_output_name, stem_and_ending

if TYPE_CHECKING:
    from batchpay.cli.context import Context

_NAME_BYTES_MAX = 230
"""File systems take 255 bytes: a number is added to a name that is taken, and more while a file is written."""


def expand(files: Sequence[str]) -> list[str]:
    """Expand globs that the shell left alone. A name that exists is taken as it is; a pattern must match something.

    A pattern leaves out our own results and rejects, which lie beside the input of an earlier call.
    """
    found: list[str] = []
    for name in files:
        if name == "-" or "://" in name or os.path.lexists(name) or not glob.has_magic(name):
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


def outputs_among(files: Sequence[str]) -> dict[str, str]:
    """Give those of the files that are named as results or rejects of another one, with that one's name.

    A shell that expands `*.csv` finds them in a folder that an earlier call wrote to: nobody has asked to pay what it
    rejected. A person who corrected one names it alone.
    """
    sources = {_without_ending(beside(name, kind, None)): name for name in files for kind in ("results", "rejects")}
    named = {name: _without_ending(Path(name)) for name in files if is_output_name(Path(name).name)}
    bare = {name: stem.with_name(re.sub(r"-[0-9]+$", "", stem.name)) for name, stem in named.items()}
    return {name: sources[stem] for name, stem in bare.items() if stem in sources}


def _without_ending(path: Path) -> Path:
    return path.with_name(path.stem)


class Outputs:
    """The files that a call writes. Every path of every option goes through `guard` before anything is written.

    None takes the place of what the call lives on (ledger, key, witness, settings), of a file that it reads, of another
    output, or of a file that this program did not write as one of that kind.
    """

    def __init__(self, inputs: Iterable[str], protected: Mapping[Path, str] | None = None) -> None:
        self._taken: dict[_Place, tuple[str, str]] = {}
        self._foreseen: dict[_Place, tuple[str, str]] = {}
        for path, what in (protected or {}).items():
            _note(self._taken, path, f"{what} {path}", "")
        for name in inputs:
            if name != "-" and "://" not in name:
                _note(self._taken, Path(name), name, "")
                _note(self._taken, Path(f"{name}.control.toml"), f"the control file {name}.control.toml", "")

    def foresee(self, name: str | Path, kind: str) -> None:
        """Keep a place for what will be claimed later as this kind: log and metrics are begun before it."""
        _note(self._foreseen, Path(name), str(name), kind)

    def guard(self, name: str | Path, kind: str = "") -> Path:
        """Take a path for an output; raises WrongUse where it is taken, or holds another's file.

        Outputs of one `kind`, of payment files of one name, share theirs: where it is written, a number is added.
        """
        path = Path(name)
        for places in (self._taken, self._foreseen):
            for place in _places(path):
                other, its_kind = places.get(place, ("", kind))
                if other and not (kind and kind == its_kind):
                    raise WrongUse(f"{path} would overwrite {other}; name another file, or another folder with --out")
        if kind in MARKS and not may_be_written(path, kind):
            raise WrongUse(f"{path} is not a {kind} that batchpay wrote, and was left as is; name another file")
        _note(self._taken, path, str(path), kind)
        return path

    def refusal(self, named: Iterable[tuple[str | None, str]]) -> WrongUse | None:
        """Guard named outputs with their kinds, and give what ends the call: inside, where log and metrics tell it."""
        try:
            for name, kind in named:
                if name:
                    self.guard(name, kind)
        except WrongUse as error:
            return error
        return None

    def claim(self, name: str | Path, kind: str = "") -> Path:
        """Take a path as `guard` does, before anything is sent; raises NotUsable where nothing can be written."""
        path = self.guard(name, kind)
        if len(os.fsencode(path.name)) > _NAME_BYTES_MAX:  # this file's fault: those after it can be worked on
            raise FileRefused(f"{path.name[:40]}... can't be written: its name is too long; rename the payment file")
        try:
            is_folder = path.is_dir()
        except OSError as error:
            raise NotUsable(f"{path} can't be written: {error.strerror}") from None
        if is_folder:
            what = f"{path} can't be written: it is a folder"
            if kind in MARKS:
                raise NotUsable(f"{what}; name a file in it")
            raise FileRefused(f"{what}; name another file, or another folder with --out")
        if kind == REPORT and path.suffix.lower() not in (".html", ".htm"):
            raise WrongUse(f"{path}: the name of a report must end in .html; for a PDF, print it from a browser")
        check_no_device(path)
        check_folder(path.parent, path)
        return path


def outputs_of(context: Context, inputs: Iterable[str | None] = ()) -> Outputs:
    """Give the outputs of a call: what it lives on and what it reads is never written over."""
    from batchpay.workflows.requests import protected_files

    protected = protected_files(context.settings_as_far_as_known, context.settings_path)
    return Outputs([name for name in inputs if name], protected)


_Place = str | tuple[int, int]
"""A resolved path, or device and inode of the file that is there: a link is another name of the same."""


def _places(path: Path) -> Iterator[_Place]:
    """Give what a path is known by, and the folders above it: the ledger has one of its own."""
    yield from _identities(path)
    yield from map(str, Path(os.path.realpath(path)).parents)


def _identities(path: Path) -> Iterator[_Place]:
    yield os.path.realpath(path)
    with contextlib.suppress(OSError):
        status = path.stat()
        yield status.st_dev, status.st_ino


def _note(places: dict[_Place, tuple[str, str]], path: Path, name: str, kind: str) -> None:
    for place in _identities(path):
        places.setdefault(place, (name, kind))


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
        raise NotUsable(f"{path} can't be created: {error.strerror}") from None
    return path


def beside(file: str, kind: str, out: str | None) -> Path:
    """Give the default name `NAME.results.csv` or `NAME.rejects.csv` (the input's own kind for rejects)."""
    stem, suffix = stem_and_ending(file)
    ending = suffix if kind == "rejects" and suffix in (".parquet", ".xlsx") else ".csv"
    folder = Path(out) if out else Path.cwd() if file == "-" or "://" in file else Path(file).parent
    return folder / f"{stem}.{kind}{ending}"
