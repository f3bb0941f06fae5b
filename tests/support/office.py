"""LibreOffice, as a person has it: opens workbooks, calculates them anew, and saves or prints them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

needs_libreoffice = pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed")


def converted(paths: Sequence[Path], kind: str, folder: Path) -> list[Path]:
    """Open each workbook and save it as `xlsx`, `csv` (its first sheet) or `pdf` in a folder of its own."""
    out = folder / f"as-{kind}"
    command = ["soffice", "--headless", f"-env:UserInstallation=file://{folder}/office", "--convert-to", kind]
    subprocess.run([*command, "--outdir", out, *paths], check=True, capture_output=True, timeout=180)
    return [out / f"{path.stem}.{kind}" for path in paths]
