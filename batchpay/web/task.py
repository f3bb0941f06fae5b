"""What a child's job works with: its file's row and how that file is read, the upload in memory, files that it writes.

A file is read as its person chose on the page, the same for its check and for its run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from batchpay.errors import FileRefused
from batchpay.intake.maps.loading import mapping_of
from batchpay.intake.maps.mapping import Mapping
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import ON_THE_WEB, Actor
from batchpay.settings import Settings
from batchpay.web import spool
from batchpay.web.spool import MARKED, Row, WebStore
from batchpay.workflows.requests import CheckOptions, FileRequest, file_request
from batchpay.writing.atomic import PendingFile

MAP_NAME = "the map made on the page"
ERRORS_LISTED = 200
_WRITE_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Task:
    """One job at work."""

    store: WebStore
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
        return Actor(who, "page", ON_THE_WEB)

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


class FileInMemory(PendingFile):
    """A file being written that is never on disk unencrypted; its target is a name alone."""

    def __init__(self, file: BinaryIO, target: Path) -> None:
        self.target, self.file = target, file

    def commit(self) -> None:
        """Write what is buffered."""
        self.file.flush()

    def commit_new(self) -> bool:
        """Commit: nobody else writes there."""
        self.commit()
        return True

    def abandon(self) -> None:
        """Discard what was written."""
        self.file.close()


class SealedFile(FileInMemory):
    """One that is sealed, and kept."""

    def __init__(self, task: Task, ledger: Ledger, target: Path) -> None:
        super().__init__(os.fdopen(os.memfd_create("rows to correct", os.MFD_CLOEXEC), "w+b"), target)
        self._task, self._ledger = task, ledger

    def commit(self) -> None:
        """Seal the content."""
        self.file.flush()
        blocks = spool.blocks_of(self.file.fileno())
        spool.keep(self._ledger, self._task.store.home, self._task.file["id"], MARKED, blocks)
        self.file.close()


def request_of(file: Row, path: str, settings: Settings) -> FileRequest:
    """Describe how an uploaded file, unencrypted at `path`, is read and what it is compared with."""
    chosen = options_of(file)
    options = CheckOptions(
        normalize=bool(chosen.get("normalize")),
        accept_suggestions=",".join(chosen["accept"]) if chosen.get("accept") else None,
        expect_rows=chosen.get("expect_rows"),
        expect_cents=chosen.get("expect_cents"),
        max_errors=ERRORS_LISTED,
        **reading_of(file),
    )
    return replace(file_request(path, None, options, settings), name=file["name"], mapping=mapping_for(file))


def options_of(file: Row) -> dict[str, Any]:
    """Return what the person chose for a file."""
    found: dict[str, Any] = json.loads(file["options"])
    return found


def reading_of(file: Row) -> dict[str, Any]:
    """Return which text, sheet and rows of a file are read, as the person chose."""
    chosen = options_of(file)
    return {
        "encoding": chosen.get("encoding"),
        "sheet": chosen.get("sheet"),
        "include_hidden": bool(chosen.get("include_hidden")),
    }


def mapping_for(file: Row) -> Mapping | None:
    """Return the map that a file is read through; None if its columns are ours."""
    return mapping_of(json.loads(file["map"])["tables"], MAP_NAME) if file["map"] else None
