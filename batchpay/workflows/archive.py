"""Archiving: a payment file leaves the inbox when nothing of it waits to be sent or written; its summary notes that."""

from __future__ import annotations

from batchpay.errors import NotUsable
from batchpay.operations.archive import archive
from batchpay.payment import State
from batchpay.summary import Summary


def archive_finished(path: str, folder: str, summary: Summary) -> None:
    """Move a file whose rows are all settled or wait for a person, and note it; the payments are made either way.

    A file whose results could not be written stays: the next call writes them, and would not otherwise process it.
    """
    if summary.read is None or summary.of(State.PENDING).rows or summary.of(State.SENDING).rows:
        return
    if summary.results_missing:
        return
    try:
        archived = archive(path, folder, summary.read)
        left = f"{path} is not archived: the file there now is not the file that was read"
        summary.notes.append(f"archived as {archived}" if archived else left)
    except NotUsable as error:
        summary.stopped = "; ".join(filter(None, (summary.stopped, str(error))))
