"""Marks of runs: which runs in the database were begun on this machine.

A file next to the witness for each, created before the run is and removed after its end. A process that holds the
batch's lock on this machine and finds the mark of a run that the database considers alive knows that it is dead: it was
this machine's, and nothing here works on the batch anymore. Host names, process ids and machine ids prove nothing of
the kind.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from batchpay.errors import LedgerNotUsable
from batchpay.writing.atomic import sync_directory


class RunMarks:
    """The marks next to one witness."""

    def __init__(self, witness: Path) -> None:
        self._witness = witness

    def make(self, token: bytes) -> None:
        """Mark a run that is about to begin here."""
        path = self._path(token)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            sync_directory(path.parent)
        except OSError as error:
            raise LedgerNotUsable(f"the mark of a run, {path}, can't be created: {error.strerror}") from None

    def exists(self, token: bytes) -> bool:
        """Return whether a run was begun here."""
        return os.path.lexists(self._path(token))

    def remove(self, token: bytes) -> None:
        """Forget a run that has ended, or never began."""
        with suppress(OSError):
            self._path(token).unlink()

    def forget(self) -> None:
        """Remove all that were copied here from another machine: none of its runs was begun here."""
        for path in self._witness.parent.glob(f"{self._witness.name}.run.*"):
            path.unlink(missing_ok=True)

    def _path(self, token: bytes) -> Path:
        # The token itself permits writing in the run's name: its file does not show it.
        return self._witness.with_name(f"{self._witness.name}.run.{hashlib.sha256(token).hexdigest()[:24]}")
