"""What a child's job works with: the row of its file, the upload in memory, and a place to report its progress."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchpay.errors import FileRefused
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.settings import Settings
from batchpay.web import spool
from batchpay.web.store import Row, Store

_WRITE_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Task:
    """One job at work."""

    store: Store
    settings: Settings
    job: Row
    file: Row

    @property
    def folder(self) -> Path:
        """The folder of everything kept for the file."""
        return spool.place(self.store.home, self.file["id"])

    def with_map(self, found: dict[str, Any]) -> Task:
        """Return the same job with a map for its file."""
        with self.store.write() as db:
            db.execute("UPDATE file SET map = ? WHERE id = ?", (json.dumps(found), self.file["id"]))
        file = self.store.file(self.file["id"])
        assert file is not None, "the file of a job stays"
        return replace(self, file=file)

    def actor(self, name: str | None = None) -> Actor:
        """Return whoever asked for this job, as the ledger records it."""
        who = name or self.job["made_by"]
        return Actor(who, "page", "the page")

    @contextmanager
    def upload(self) -> Iterator[str]:
        """Yield a path to the uploaded file unencrypted, in this process's memory only.

        Raises FileRefused if it is not the file that was checked.
        """
        with closing(open_ledger(self.settings.ledger, read_only=True)) as ledger:
            descriptor, digest = spool.in_memory(
                spool.pieces(ledger, self.store.home, self.file["id"], self.file["pieces"])
            )
        try:
            if self.file["sha256"] not in (None, digest):
                raise FileRefused("the stored upload is not the file that was checked")
            if self.file["sha256"] is None:
                with self.store.write() as db:
                    db.execute("UPDATE file SET sha256 = ? WHERE id = ?", (digest, self.file["id"]))
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

    def progress_writer(self) -> ProgressWriter:
        """Return a writer of this job's progress."""
        return ProgressWriter(self.folder / "progress.json")


class ProgressWriter:
    """Writes how far a job is: a small file, updated now and then, read by the server for the page."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_at = 0.0

    def write(self, *, now: bool = False, **facts: Any) -> None:
        """Write the progress, unless it was written a moment ago."""
        if not now and time.monotonic() - self._written_at < _WRITE_EVERY_S:
            return
        self._written_at = time.monotonic()
        with suppress(OSError):  # no payment depends on progress
            temporary = self._path.with_name(".progress.new")
            temporary.write_text(json.dumps(facts), "utf-8")
            temporary.replace(self._path)


def unknown_batch(batch: str) -> str:
    """Report that a file was sent as a batch that the ledger does not know: what of it was paid can't be known here."""
    return f"The ledger does not know batch {batch}, which this file was sent as: it was restored, or is another one"


def read_progress(folder: Path) -> dict[str, Any]:
    """Read a job's latest progress; empty if there is none."""
    try:
        found = json.loads((folder / "progress.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
