"""What a child's job stands on: the row of its file, the upload in memory, and a place to tell how far it is."""

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

_TELL_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Task:
    """One job at work."""

    store: Store
    settings: Settings
    job: Row
    file: Row

    @property
    def folder(self) -> Path:
        """Where everything of the file is kept."""
        return spool.place(self.store.home, self.file["id"])

    def with_map(self, found: dict[str, Any]) -> Task:
        """Give the same job with a map for its file."""
        with self.store.write() as db:
            db.execute("UPDATE file SET map = ? WHERE id = ?", (json.dumps(found), self.file["id"]))
        file = self.store.file(self.file["id"])
        assert file is not None, "the file of a job stays"
        return replace(self, file=file)

    def actor(self, name: str | None = None) -> Actor:
        """Name whoever asked for this job, as the ledger records it."""
        who = name or self.job["made_by"]
        return Actor(who, "page", "the page")

    @contextmanager
    def upload(self) -> Iterator[str]:
        """Give a path to the uploaded file in the clear, in this process' memory alone.

        Raises FileRefused where it is not the file that was checked.
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

    def teller(self) -> Teller:
        """Begin to tell how far this job is."""
        return Teller(self.folder / "progress.json")


class Teller:
    """Tells a page how far a job is: a small file, written now and then, read by the server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told_at = 0.0

    def tell(self, *, now: bool = False, **facts: Any) -> None:
        """Tell, unless it was told a moment ago."""
        if not now and time.monotonic() - self._told_at < _TELL_EVERY_S:
            return
        self._told_at = time.monotonic()
        with suppress(OSError):  # how far it is matters to nobody's money
            temporary = self._path.with_name(".progress.new")
            temporary.write_text(json.dumps(facts), "utf-8")
            temporary.replace(self._path)


def unknown_batch(batch: str) -> str:
    """Say that a file went as a batch that the ledger does not know: what of it was paid, nobody here can tell."""
    return f"The ledger does not know batch {batch}, which this file was sent as: it was restored, or is another one"


def told(folder: Path) -> dict[str, Any]:
    """Read what a job told last; nothing where there is nothing."""
    try:
        found = json.loads((folder / "progress.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
