"""Counts the house: `python -m tests.support.size`, with `--row` also what one row of `submit` runs through.

Lines, names imported between our own modules, class names that stand for several things, and the files, classes and
functions that a submission of one row enters, by a profile hook in the process and its threads; children don't count.
"""

from __future__ import annotations

import ast
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]


def sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files of folders, those behind links left out."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


def line_count(*folders: str) -> int:
    """Count the lines of the Python files of folders."""
    return sum(path.read_text("utf-8").count("\n") for path in sources(*folders))


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield module and name of what a module takes from other modules of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("batchpay"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def entered_by_one_row() -> set[tuple[str, str, int]]:
    """Submit a file of one row to a sandbox in another process; return file, name and line of all that runs."""
    from batchpay.cli.main import main
    from tests.support.command import small_file
    from tests.support.oracle import running_oracle

    entered: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":  # all modules are loaded by something
            entered.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    with tempfile.TemporaryDirectory() as folder, running_oracle(Path(folder) / "gateway.log") as oracle:
        small_file(Path(folder) / "one.csv", 1)
        settings = {
            "HOME": folder,
            "PATH": os.defpath,
            "BATCHPAY_BASE_URL": oracle.origin,
            "BATCHPAY_API_ID": "sandbox",
            "BATCHPAY_API_KEY": "sandbox-key",
        }
        with patch.dict(os.environ, settings, clear=True), patch.object(sys, "argv", ["batchpay", "submit", "one.csv"]):
            os.chdir(folder)
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                main()
            except SystemExit as done:
                assert not done.code, f"the submission ended with {done.code}"
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
                os.chdir(ROOT)
    ours = [str(ROOT / folder) + os.sep for folder in ("batchpay", "schemas")]
    return {entry for entry in entered if entry[0].startswith(tuple(ours))}


def main() -> None:
    """Print every count."""
    trees = [ast.parse(path.read_text("utf-8")) for path in sources("batchpay", "schemas")]
    classes = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    repeated = {name: count for name, count in sorted(classes.items()) if count > 1}
    functions = sum(isinstance(node, ast.FunctionDef) for tree in trees for node in ast.walk(tree))
    print("lines of batchpay/ and schemas/:", line_count("batchpay", "schemas"))
    print("lines of tests/:", line_count("tests"))
    print("files of batchpay/ and schemas/:", len(trees))
    print("classes:", classes.total(), " functions:", functions)
    print("names imported between modules:", len({name for tree in trees for name in imported_names(tree)}))
    print("class names used more than once:", len(repeated), repeated)
    if "--row" in sys.argv:
        entered = entered_by_one_row()
        print("files entered by one row of submit:", len({file for file, _, _ in entered}))
        print("functions entered by one row of submit:", len(entered))


if __name__ == "__main__":
    main()
