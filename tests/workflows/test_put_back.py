"""Rows that an answer which was set aside puts back: nobody looked at them before the run that sends them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import LedgerNotUsable, WaitingForPerson
from batchpay.ledger.open import open_ledger
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.sending.recorder import Recorder
from batchpay.settings import PolicySettings
from tests.workflows.desk import ACCEPTED, Desk

REFUSED = Outcome(State.PENDING, "401", Answer(401), bytes_sent=900, stop="the gateway refused the key")


@pytest.fixture
def set_aside(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Submit a file whose first row is refused for a wrong key, at the moment when the ledger's disk is full."""

    def full(recorder: Recorder, row: int, outcome: Outcome) -> None:
        recorder._fail(LedgerNotUsable("the disk is full"))
        recorder._spill([(row, outcome)])

    def submit(rows: int) -> Path:
        path = desk.file(
            "may.csv", *({"invoiceNumber": f"A-{row}", "amount": f"{row}0.00"} for row in range(1, rows + 1))
        )
        desk.answer = lambda reference: REFUSED
        with monkeypatch.context() as patch:
            patch.setattr(Recorder, "record", full)
            assert desk.submit(path).of(State.SENDING).rows == 1
        desk.answer = lambda reference: ACCEPTED
        desk.arrived.clear()
        return path

    return submit


@pytest.mark.parametrize("by_file", [True, False], ids=["submit", "resume"])
def test_it_needs_the_approvals_of_today(desk: Desk, set_aside: Callable[[int], Path], by_file: bool) -> None:
    """With no other row pending, none was asked for; once somebody has approved, it is sent."""
    path = set_aside(1)
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, approvals=1))
    for _ in range(2):
        with pytest.raises(WaitingForPerson, match="needs approval by another person"):
            desk.submit(path) if by_file else desk.resume()
    assert not desk.arrived
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        assert ledger.find(None).by_state[State.PENDING].rows == 1
        assert ledger.check() == []
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False))
    assert desk.resume().exit_code == 0
    assert desk.arrived == {"A-1": 1}


def test_it_is_not_sent_with_a_plan_that_does_not_have_it(desk: Desk, set_aside: Callable[[int], Path]) -> None:
    """The plan shows what was pending when it was prepared: that is sent, or nothing."""
    path = set_aside(3)
    preview = desk.dry_run(path, with_plan=True)
    assert any("the answers to 1 row of batch" in note for note in preview.summary.notes)
    plan = preview.plan
    assert plan is not None
    assert plan.totals("pending").rows == 2
    with pytest.raises(WaitingForPerson, match=r"1 row .* that the plan does not have"):
        desk.submit(path, plan=plan)
    assert not desk.arrived
    preview = desk.dry_run(path, with_plan=True)
    assert not any("set aside" in note for note in preview.summary.notes)
    plan = preview.plan
    assert desk.submit(path, plan=plan).exit_code == 0
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_it_is_held_back_if_it_was_let_through_with_another_file(desk: Desk, set_aside: Callable[[int], Path]) -> None:
    """The bill was paid with that one, and then with this one as well."""
    set_aside(1)
    bills = ({"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 9))
    june = desk.file("june.csv", *bills)
    assert desk.submit(june, allow_duplicates=True).exit_code == 0
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        may = ledger.batches()[-1].batch
    assert (desk.resume(may).held_back.rows, desk.arrived) == (1, {"A-1": 1, "A-9": 1})
