"""Which files a call is about: globs, and the default names of results and rejects."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from batchpay.errors import WrongUse

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
        matches = sorted(path for path in glob.glob(name) if not _is_ours(path))  # noqa: PTH207 - may be absolute
        if not matches:
            raise WrongUse(f"no file matches {name}")
        found.extend(matches)
    doubled = sorted({name for name in found if found.count(name) > 1})
    if doubled:
        raise WrongUse(f"{doubled[0]} is named twice")
    return found


def _is_ours(path: str) -> bool:
    return Path(Path(path).stem).suffix in (".results", ".rejects")


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
