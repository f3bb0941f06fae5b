"""Rows whose gateway account no payment can go through are rejected before anything is sent."""

from __future__ import annotations

import csv
from collections.abc import Iterable

import pytest

from batchpay.errors import RunStopped
from batchpay.payment import State
from tests.workflows.desk import Desk

ROWS = [
    {"invoiceNumber": f"A-{gateway}", "amount": "10.00", "gatewayId": gateway} for gateway in ("1001", "1002", "1003")
]


class Gateway:
    """Knows which accounts no payment can go through, once it can be asked."""

    def __init__(self, *, silent_for: int = 0) -> None:
        self._silent_for = silent_for

    def check_connection(self) -> None:
        pass

    def refused(self, gateway_ids: Iterable[str]) -> dict[str, str]:
        self._silent_for -= 1
        if self._silent_for >= 0:
            raise RunStopped("the gateway could not be asked")
        known = {"1002": "unknown", "1003": "not_echeck"}
        return {one: known[one] for one in gateway_ids if one in known}


@pytest.mark.parametrize("silent_for", [0, 1])
def test_they_are_rejected_by_the_check_or_by_the_run(desk: Desk, silent_for: int) -> None:
    """Where the check could not ask, the run asks again; either way no byte of theirs leaves."""
    found = desk.submit(desk.file("may.csv", *ROWS), preflight=Gateway(silent_for=silent_for))
    assert (found.exit_code, found.of(State.REJECTED).rows, desk.arrived) == (3, 2, {"A-1001": 1})


def test_the_rejects_say_what_to_do(desk: Desk) -> None:
    """Beside the row, in words."""
    path = desk.file("may.csv", *ROWS)
    desk.submit(path, preflight=Gateway())
    with path.with_suffix(".rejects.csv").open(newline="") as file:
        errors = {line["invoiceNumber"]: line["_errors"] for line in csv.DictReader(file)}
    assert errors.keys() == {"A-1002", "A-1003"}
    assert "no account with this id" in errors["A-1002"]
    assert "is for cards" in errors["A-1003"]


def test_a_gateway_that_is_silent_gets_nothing(desk: Desk) -> None:
    """Neither check nor run could ask: the rows wait."""
    found = desk.submit(desk.file("may.csv", *ROWS), preflight=Gateway(silent_for=2))
    assert (found.exit_code, found.of(State.PENDING).rows, desk.arrived) == (6, 3, {})
