"""A copy of the program, broken on purpose: a campaign or a walk must notice."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Change = tuple[str, str, str]
"""File of the package, text, replacement."""


def broken(name: str, changes: Iterable[Change], program: Path) -> Path:
    """Copy the program and change the copy; return the folder to import it from.

    Raises LookupError if a text is no longer there: then the sabotage must be rewritten for the present code.
    """
    shutil.copytree(ROOT / "batchpay", program / "batchpay", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, other in changes:
        path = program / "batchpay" / file
        content = path.read_text("utf-8")
        if content.count(text) != 1:
            raise LookupError(f"'{name}': the text to change stands {content.count(text)} times in {file}")
        path.write_text(content.replace(text, other), "utf-8")
    return program
