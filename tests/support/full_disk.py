"""A disk without room, for one folder's files only: their descriptors are those of /dev/full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")


class FullDisk:
    """Files opened in `folder` from now on can be created, and accept no byte."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder.resolve()
        self._open = os.fdopen
        patch.setattr("batchpay.writing.atomic.os.fdopen", self._fdopen)

    def _fdopen(self, descriptor: int, *arguments: Any, **options: Any) -> Any:
        if Path(f"/proc/self/fd/{descriptor}").readlink().parent == self.folder:
            full = os.open(FULL, os.O_RDWR)
            os.dup2(full, descriptor, inheritable=False)
            os.close(full)
        return self._open(descriptor, *arguments, **options)
