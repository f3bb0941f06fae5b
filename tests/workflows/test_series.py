"""Files that are numbered by their control files: a number is used once, and a gap waits for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import FileRefused, WaitingForPerson
from batchpay.workflows import submit as submitting
from batchpay.workflows.series import require_in_turn
from tests.workflows.desk import Desk

pytestmark = pytest.mark.usefixtures("on_both")


def numbered(desk: Desk, name: str, number: int, *amounts: str, series: str = "payroll") -> Path:
    ids = [f"{name}-{at}" for at in range(len(amounts))]
    rows = [{"paymentId": one, "invoiceNumber": one, "amount": cents} for one, cents in zip(ids, amounts, strict=True)]
    path = desk.file(f"{name}.csv", *rows)
    control = f'rows = {len(amounts)}\nseries = "{series}"\nnumber = {number}\n'
    path.with_name(f"{name}.csv.control.toml").write_text(control)
    return path


def test_a_number_is_used_once_and_a_gap_waits(desk: Desk) -> None:
    """A payroll file that never came is noticed when the next one comes; the same file again is the same batch."""
    first = numbered(desk, "first", 12, "1.00")
    assert desk.submit(first).exit_code == 0, "a series may begin with any number"
    assert desk.submit(first).exit_code == 0
    with pytest.raises(FileRefused, match="number 12 of series payroll was used for other payments"):
        desk.submit(numbered(desk, "other", 12, "2.00"))
    later = numbered(desk, "later", 15, "3.00")
    with pytest.raises(WaitingForPerson, match="number 13 has not come"):
        desk.submit(later)
    preview = desk.dry_run(later)
    assert preview.exit_codes == [0, 8] and "number 13 has not come" in (preview.waits_for or "")
    assert desk.submit(numbered(desk, "weekly", 3, "4.00", series="pay")).exit_code == 0
    assert desk.arrived.total() == 2
    assert desk.submit(later, gap="13 and 14 were cancelled by HR").exit_code == 0
    assert desk.submit(numbered(desk, "next", 16, "5.00")).exit_code == 0
    assert desk.submit(numbered(desk, "late", 13, "6.00")).exit_code == 0, "it came after all"
    assert desk.arrived.total() == 5
    assert desk.options("later")["gap"] == "13 and 14 were cancelled by HR"


def test_a_file_of_which_nothing_was_paid_may_be_sent_corrected(desk: Desk) -> None:
    """Its number is free while every row of it was rejected."""
    assert desk.submit(numbered(desk, "wrong", 7, "x", "y")).exit_code == 3
    assert desk.submit(numbered(desk, "right", 7, "1.00", "2.00")).exit_code == 0
    assert desk.arrived.total() == 2


def test_two_machines_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked before the other wrote: one number would have been paid for two contents."""
    ours, theirs = numbered(desk, "ours", 2, "2.00"), [numbered(desk, "theirs", 2, "3.00")]

    def look(*arguments: Any, **named: Any) -> None:
        require_in_turn(*arguments, **named)
        while theirs:
            desk.submit(theirs.pop())

    monkeypatch.setattr(submitting, "require_in_turn", look)
    with pytest.raises(FileRefused, match="was used for other payments"):
        desk.submit(ours)
    assert desk.arrived == {"theirs-0": 1}


@pytest.mark.parametrize(
    "line", ['series = "payroll"', "number = 3", 'series = ""\nnumber = 1', 'series = "a"\nnumber = -1']
)
def test_a_control_file_has_both(desk: Desk, line: str) -> None:
    """A number without its series would be compared with nothing."""
    path = desk.file("pay.csv", {"amount": "1.00"})
    path.with_name("pay.csv.control.toml").write_text(f"rows = 1\n{line}\n")
    with pytest.raises(FileRefused, match="a numbered file has both"):
        desk.submit(path)
