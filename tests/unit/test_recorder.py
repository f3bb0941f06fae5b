"""The recorder's groups: some of what waits, in order, and all of it in the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from batchpay.ledger.contract import PendingPayment
from batchpay.payment import Outcome, State
from batchpay.submission import Recorder, StopRequest

ACCEPTED = Outcome(State.ACCEPTED, "success")


class _Groups:
    """A run that notes what each commit was given, and holds the first one until told."""

    recovered = 0

    def __init__(self) -> None:
        self.outcomes: list[list[int]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def pending(self, after_row: int, limit: int) -> list[PendingPayment]:
        return []

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        self.outcomes.append([row for row, _ in outcomes])
        self.begun.set()
        assert self.go_on.wait(30)
        return set(intents)

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        raise AssertionError

    def reject(self, rows: Sequence[int], reason: str) -> None:
        raise AssertionError

    def finish(self, stopped: str | None) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_commit_takes_a_quarter_of_what_waits_in_order() -> None:
    """Who is committed together is answered together: with all that waits in each commit 64 workers came in waves."""
    run = _Groups()
    recorder = Recorder(run, StopRequest())
    recorder.record(1, ACCEPTED)
    assert run.begun.wait(30)
    for row in range(2, 102):
        recorder.record(row, ACCEPTED)
    run.go_on.set()
    recorder.close()
    assert [row for group in run.outcomes for row in group] == list(range(1, 102))
    waiting = 101 - len(run.outcomes[0])
    for group in run.outcomes[1:]:
        assert len(group) <= max(10, (waiting + 1) // 4)  # the end waits too
        waiting -= len(group)
    assert waiting == 0
