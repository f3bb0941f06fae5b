"""LibreOffice, as a person has it: opens workbooks, recalculates them, and saves or prints them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

needs_libreoffice = pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed")


def converted(paths: Sequence[Path], kind: str, folder: Path, ending: str | None = None) -> list[Path]:
    """Open each workbook and save it as `xlsx`, `csv` (its first sheet) or `pdf` in a folder of its own.

    `kind` may name a filter with its options; `ending` is then the files' extension.
    """
    ending = ending or kind
    out = folder / f"as-{ending}"
    command = ["soffice", "--headless", f"-env:UserInstallation=file://{folder}/office", "--convert-to", kind]
    subprocess.run([*command, "--outdir", out, *paths], check=True, capture_output=True, timeout=180)
    return [out / f"{path.stem}.{ending}" for path in paths]
