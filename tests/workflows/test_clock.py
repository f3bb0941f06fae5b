"""Nothing is paid again because a clock is wrong, and a clock never speaks of a loss (promise 17)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from batchpay.errors import ClockDiffers, LedgerNotUsable
from batchpay.ledger.open import accept, create_ledger, open_ledger
from batchpay.payment import State
from batchpay.sending.limits import StopRequest
from batchpay.workflows.health import HealthLimits, health
from batchpay.workflows.run import RunRequest
from tests.model import clock
from tests.workflows.desk import Desk

DAY_S = 86_400
BILLS = [{"paymentId": f"P-{number}", "invoiceNumber": f"A-{number}", "amount": "10.00"} for number in range(1, 4)]
ANEW = [bill | {"paymentId": f"Q-{number}"} for number, bill in enumerate(BILLS)]
"""The same bills, as an export that numbers them anew has them: duplicates within `policy.duplicate_days`, five."""


def move(*, passed: float = 0.0, wrong: float = 0.0) -> None:
    """Let days pass, and let the clock of this machine be wrong by some more."""
    clock.offset_s, clock.wrong_s = passed * DAY_S, wrong * DAY_S
    clock.exchange()


def test_a_clock_six_days_ahead_pays_no_bill_again(desk: Desk, on_both: None, request: pytest.FixtureRequest) -> None:
    """It paid three bills a second time; then machines with the right clock were refused, for a loss that never was."""
    move()
    assert desk.submit(desk.file("may.csv", *BILLS)).of(State.ACCEPTED).rows == 3
    move(wrong=6)
    again = desk.file("again.csv", *ANEW)
    if "postgres" in request.node.name:
        with pytest.raises(
            ClockDiffers, match=r"clock of this machine shows 20.*that of the ledger's server 20"
        ) as refused:
            desk.submit(again)
        assert refused.value.exit_code == 6
        assert health(desk.settings, HealthLimits(), clock.now()).findings[0].exit_code == 6
    else:
        summary = desk.submit(again)
        assert (summary.of(State.REJECTED).rows, summary.exit_code) == (3, 3)
        assert desk.verdict.counts == {"row.duplicate": 3}
        assert any("the clock went 6 days ahead while this machine ran" in note for note in summary.notes)
    assert len(desk.arrived) == 3
    move()
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        assert ledger.lost_window() is None


def test_an_idle_week_stops_nothing(desk: Desk, on_both: None) -> None:
    """The days have passed: the same bills are next week's."""
    move()
    desk.submit(desk.file("may.csv", *BILLS))
    move(passed=7)
    summary = desk.submit(desk.file("june.csv", *ANEW))
    assert (summary.of(State.ACCEPTED).rows, summary.exit_code, summary.notes) == (3, 0, [])


@pytest.mark.parametrize(("is_kept", "accepted"), [(False, 0), (True, 3)])
def test_a_clock_far_after_the_last_event_pays_no_bill_again(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool, accepted: int
) -> None:
    """Since a restart nothing says that the time has passed, unless a time server keeps the clock."""
    create_ledger(desk.settings.ledger, "tester")
    move()
    desk.submit(desk.file("may.csv", *BILLS))
    move(passed=61)
    monkeypatch.setattr(clock, "synchronized", is_kept)
    (tmp_path / "boot").write_text("another boot")
    monkeypatch.setattr("batchpay.ledger.machine.BOOT_ID", tmp_path / "boot")
    monkeypatch.setattr("batchpay.ledger.machine.since_boot_ms", lambda: 60_000)
    summary = desk.submit(desk.file("july.csv", *ANEW))
    assert summary.of(State.ACCEPTED).rows == accepted
    (note,) = (note for note in summary.notes if "clock" in note)
    assert note.startswith("the clock was 61 days after the ledger's last event: is the date correct?")
    assert ("looked up as of that event" in note) is not is_kept


def test_a_clock_that_was_ahead_when_the_machine_started_is_accepted_without_a_loss(desk: Desk, tmp_path: Path) -> None:
    """Set right, it is before the last event. The way out put all pending rows in doubt, and held up every new file."""
    create_ledger(desk.settings.ledger, "tester")
    move(wrong=6)
    desk.submit(desk.file("may.csv", *BILLS), run=RunRequest(None, stop=stopped()))
    move()
    with pytest.raises(LedgerNotUsable, match="the clock is 144 hours before the ledger's last event"):
        desk.submit(desk.file("june.csv", *ANEW))
    assert accept(desk.settings.ledger, "ann", "its battery was empty").marked_in_doubt == 0
    assert desk.resume(None).of(State.ACCEPTED).rows == 3
    assert desk.submit(desk.file("june.csv", BILLS[0] | {"paymentId": "R-1", "amount": "3.00"})).exit_code == 0


def stopped() -> StopRequest:
    stop = StopRequest()
    stop.ask("stopped")
    return stop
