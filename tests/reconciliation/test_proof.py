"""What a line of an export proves of a row in doubt: its day, the sign of its amount."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from batchpay.payment import State
from tests.reconciliation.test_reconciliation import DOUBT, TODAY, held_against
from tests.support.ledger_factory import Planned

ACCEPTED = {1: State.ACCEPTED}
FOR_A_PERSON = {1: None}


@pytest.mark.parametrize("number", ["R9,INV-1", "R1,"])
@pytest.mark.parametrize(("days", "settled"), [(0, ACCEPTED), (1, ACCEPTED), (2, FOR_A_PERSON), (160, FOR_A_PERSON)])
def test_a_line_of_a_day_to_come_proves_nothing(
    tmp_path: Path, number: str, days: int, settled: dict[int, State | None]
) -> None:
    """A line dated next May settled a row as accepted today; tomorrow is today in other time zones."""
    line = f"{number},12.50,{TODAY + timedelta(days=days)},x6789,Settled"
    row = Planned(1, State.IN_DOUBT, reference="R1")
    _, verdicts, found = held_against(tmp_path, [row], [line])
    assert (found, verdicts) == (settled, {"1": "in doubt, found"})


@pytest.mark.parametrize("now_first", [True, False])
@pytest.mark.parametrize(("now", "settled"), [("Settled", ACCEPTED), ("Declined", FOR_A_PERSON)])
def test_the_line_of_today_speaks_before_one_to_come(
    tmp_path: Path, now: str, settled: dict[int, State | None], now_first: bool
) -> None:
    """What is paid is paid, whatever is announced; a declined payment that is announced again is for a person."""
    lines = [f"R9,INV-1,12.50,TODAY,x6789,{now}", f"R8,INV-1,12.50,{TODAY + timedelta(days=9)},x6789,Settled"]
    assert held_against(tmp_path, [DOUBT], lines if now_first else lines[::-1])[2] == settled
