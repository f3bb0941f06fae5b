"""The rows to correct, written like any rejects file, but in memory, and sealed when they are put in their place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.ledger.contract import Ledger
from batchpay.web import spool
from batchpay.writing.atomic import PendingFile

if TYPE_CHECKING:
    from batchpay.web.task import Task

MARKED = "marked"
"""The rows to correct are kept under this name."""


class SealedFile(PendingFile):
    """A file being written that is never on disk unencrypted."""

    def __init__(self, task: Task, ledger: Ledger, target: Path) -> None:
        self.target = target
        self._task, self._ledger = task, ledger
        self.file = os.fdopen(os.memfd_create("rows to correct", os.MFD_CLOEXEC), "w+b")

    def commit(self) -> None:
        """Seal the content."""
        self.file.flush()
        self.file.seek(0)
        spool.keep(self._ledger, self._task.store.home, self._task.file["id"], MARKED, self._blocks())
        self.file.close()

    def commit_new(self) -> bool:
        """Seal the content: nobody else writes in this folder."""
        self.commit()
        return True

    def abandon(self) -> None:
        """Discard what was written."""
        self.file.close()

    def _blocks(self) -> Iterator[bytes]:
        while block := self.file.read(spool.PIECE_BYTES):
            yield block
