"""The rows to correct, written as any rejects file is, but in memory, and sealed when they are put in their place."""

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
"""Under this name the rows to correct are kept."""


class SealedFile(PendingFile):
    """A file under way that no disk sees in the clear."""

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
        """Forget what was written."""
        self.file.close()

    def _blocks(self) -> Iterator[bytes]:
        while block := self.file.read(spool.PIECE_BYTES):
            yield block
