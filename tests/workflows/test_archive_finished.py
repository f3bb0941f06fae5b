"""A payment file leaves the inbox only when nothing in it waits to be sent."""

from __future__ import annotations

from typing import Any

import pytest

from batchpay.errors import NotUsable
from batchpay.payment import State, Totals
from batchpay.summary import Summary
from batchpay.workflows import submit as archiving

READ: Any = object()
STAYS = [State.PENDING, State.SENDING]


def summary_with(state: State) -> Summary:
    """Return the summary of a file of two rows, one of them accepted."""
    return Summary("pay.csv", Totals(2, 30), {State.ACCEPTED: Totals(1, 10)} | {state: Totals(1, 20)}, read=READ)


@pytest.mark.parametrize("state", [state for state in State if state is not State.ACCEPTED])
def test_what_waits_to_be_sent_stays(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with pending rows that was archived was never completely sent."""
    moved: list[tuple[object, ...]] = []

    def move(*asked: object) -> str:
        moved.append(asked)
        return "done/pay.csv"

    monkeypatch.setattr(archiving, "archive", move)
    summary = summary_with(state)
    archiving.archive_finished("pay.csv", "done", summary)
    assert moved == ([] if state in STAYS else [("pay.csv", "done", READ)])
    assert summary.notes == ([] if state in STAYS else ["archived as done/pay.csv"])


def test_a_file_that_can_not_be_moved_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file is there by now, the folder is full, or there is no file: the payments are made either way."""

    def refuse(*_: object) -> None:
        raise NotUsable("the folder is full")

    summary = summary_with(State.DECLINED)
    monkeypatch.setattr(archiving, "archive", lambda *_: None)
    archiving.archive_finished("pay.csv", "done", summary)
    assert summary.notes == ["pay.csv is not archived: the file there now is not the file that was read"]
    monkeypatch.setattr(archiving, "archive", refuse)
    archiving.archive_finished("pay.csv", "done", summary)
    assert summary.stopped == "the folder is full"
    summary.read, summary.stopped = None, None
    archiving.archive_finished("-", "done", summary)
    assert summary.stopped is None
