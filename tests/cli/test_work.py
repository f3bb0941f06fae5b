"""What `batchpay work` says of a batch when it has ended."""

from __future__ import annotations

from datetime import date, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from batchpay.payment import State, Totals
from batchpay.summary import Summary
from batchpay.workflows import work
from batchpay.workflows.run import RunRequest
from tests.support.in_process import Caller


@pytest.mark.parametrize(("held_back", "exit_code"), [(Totals(), 0), (Totals(2, 700), 3)])
def test_a_helper_that_ends_a_batch_tells_of_rows_held_back(
    call: Caller, monkeypatch: pytest.MonkeyPatch, held_back: Totals, exit_code: int
) -> None:
    """The machine that led was killed, the one that helped held 450 of 600 rows back, and its exit code was 0: what was
    declined is told where the batch is led, but of these rows nobody told.
    """  # noqa: D205
    by_state = {State.ACCEPTED: Totals(3, 300), State.DECLINED: Totals(1, 100), State.PENDING: held_back}
    total = sum(by_state.values(), Totals())
    ended = Summary("payments.csv", total, by_state, batch="3f2a91c0d7e1", held_back=held_back)
    monkeypatch.setattr("batchpay.workflows.work.work", lambda *_: [ended])
    found = call("work", "3f2a91c0d7e1")
    assert (found["exit_code"], found["batches"][0]["exit_code"]) == (exit_code, exit_code)


def test_a_helper_that_waits_tells_of_its_batches_when_it_ends(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json it printed nothing at all, and neither its log nor its metrics had the batches."""
    by_state = {State.ACCEPTED: Totals(3, 300)}
    ended = Summary("payments.csv", Totals(3, 300), by_state, batch="3f2a91c0d7e1")
    monkeypatch.setattr("batchpay.workflows.work.work_forever", lambda *_: iter([ended]))
    found = call("work", "--forever")
    assert (found["exit_code"], [one["accepted"] for one in found["batches"]]) == (0, [3])


def test_a_helper_that_waits_for_days_takes_the_day_anew_with_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept the day of its own start, and held back payments let through since with an earlier first day."""
    request, days = RunRequest(results=None, day=date(2026, 11, 1)), list[date]()

    def help_with(ledger: object, batch: object, one: RunRequest, *_: object) -> Any:
        days.append(one.day)
        request.stop.ask("enough")
        return SimpleNamespace(stopped=None)

    monkeypatch.setattr(work, "open_ledger", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(work, "_at_work", lambda *_: [SimpleNamespace(batch="3f2a91c0d7e1", started_at=None)])
    monkeypatch.setattr(work, "help_with", help_with)
    nothing: Any = SimpleNamespace(ledger=None)
    assert len(list(work.work_forever(request, nothing, nothing, nothing, nothing))) == 1
    assert days == [datetime.now().astimezone().date()]
