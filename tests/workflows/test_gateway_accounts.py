"""Rows whose gateway account can't take payments are rejected before anything is sent."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import pytest

from batchpay.approval.plan import Plan
from batchpay.errors import FileRefused, RunStopped
from batchpay.gateway.accounts import Preflight
from batchpay.ledger.open import open_ledger
from batchpay.payment import State
from batchpay.sending.limits import Limits
from batchpay.workflows.run import RunRequest
from tests.workflows.desk import Desk

ROWS = [
    {"invoiceNumber": f"A-{gateway}", "amount": "10.00", "gatewayId": gateway} for gateway in ("1001", "1002", "1003")
]


class Gateway:
    """Knows which accounts can't take payments, once it can be queried."""

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
    """If the check could not query the gateway, the run tries again; either way none of their bytes leaves."""
    found = desk.submit(desk.file("may.csv", *ROWS), preflight=Gateway(silent_for=silent_for))
    assert (found.exit_code, found.of(State.REJECTED).rows, desk.arrived) == (3, 2, {"A-1001": 1})


def test_the_rejects_say_what_to_do(desk: Desk) -> None:
    """Next to the row, in words."""
    path = desk.file("may.csv", *ROWS)
    desk.submit(path, preflight=Gateway())
    with path.with_suffix(".rejects.csv").open(newline="") as file:
        errors = {line["invoiceNumber"]: line["_errors"] for line in csv.DictReader(file)}
    assert errors.keys() == {"A-1002", "A-1003"}
    assert "no account with this id" in errors["A-1002"]
    assert "is for cards" in errors["A-1003"]


def test_a_gateway_that_is_silent_gets_nothing(desk: Desk) -> None:
    """Neither check nor run could query it: the rows wait."""
    found = desk.submit(desk.file("may.csv", *ROWS), preflight=Gateway(silent_for=2))
    assert (found.exit_code, found.of(State.PENDING).rows, desk.arrived) == (6, 3, {})


def _plan(desk: Desk, gateway: Gateway | None, *, insists: bool = False) -> Plan:
    if not (desk.folder / "state" / "ledger.db").exists():
        open_ledger(desk.settings.ledger, create_as="tester").close()
    found = desk.dry_run(desk.file("may.csv", *ROWS), preflight=gateway, insists=insists, with_plan=True).plan
    assert found is not None
    return found


def test_a_dry_run_that_queried_says_what_the_submission_finds(desk: Desk) -> None:
    """It said 3 rows with a note that one would be rejected: the plan was refused for 3, and so was every new one."""
    plan = _plan(desk, Gateway(), insists=True)
    assert plan.totals("total").rows == 1
    found = desk.submit(desk.folder / "may.csv", preflight=Gateway(), plan=plan)
    assert (found.exit_code, found.seal, desk.arrived) == (3, plan.seal, {"A-1001": 1})


def test_a_plan_without_the_accounts_is_refused_with_the_next_step(desk: Desk) -> None:
    """From the totals alone, the only way out was to edit the file."""
    plan = _plan(desk, None)
    with pytest.raises(FileRefused, match=r"approved was 3 rows .* account of 2 rows: .* --preflight leaves them out"):
        desk.submit(desk.folder / "may.csv", preflight=Gateway(), plan=plan)
    assert desk.arrived == {}


def test_a_silent_gateway_does_not_invalidate_an_approved_plan(desk: Desk) -> None:
    """Nobody knows then which rows would be sent: safe to run again; `not what the plan approved` needs a person."""
    plan, path = _plan(desk, Gateway()), desk.folder / "may.csv"
    with pytest.raises(RunStopped, match="could not be asked"):
        desk.submit(path, preflight=Gateway(silent_for=1), plan=plan)
    assert desk.submit(path, preflight=Gateway(), plan=plan).of(State.ACCEPTED).rows == 1


def test_a_dry_run_that_insists_ends_if_the_gateway_is_silent(desk: Desk) -> None:
    """Without an answer its plan would differ from the one requested; the page's check continues, and says so."""
    with pytest.raises(RunStopped):
        _plan(desk, Gateway(silent_for=1), insists=True)
    assert _plan(desk, Gateway(silent_for=1)).totals("total").rows == 3


@pytest.mark.parametrize(
    ("gateway", "with_plan", "approvals", "is_told"),
    [(None, False, 0, False), (None, True, 0, True), (None, False, 1, True), (Gateway(silent_for=1), True, 0, True),
     (Gateway(), True, 1, False)],
)  # fmt: skip
def test_approvers_read_that_nobody_queried_the_gateway(
    desk: Desk, gateway: Gateway | None, with_plan: bool, approvals: int, is_told: bool
) -> None:
    """Where a plan is made, or approvals are needed."""
    open_ledger(desk.settings.ledger, create_as="tester").close()
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, approvals=approvals))
    found = desk.dry_run(desk.file("may.csv", *ROWS), preflight=gateway, with_plan=with_plan)
    assert found.accounts_unasked is is_told


def test_a_release_is_promised_only_if_the_gateway_was_queried(desk: Desk) -> None:
    """`2 rows are right now: submit --release sends them`, and the release rejected both again."""
    path = desk.file("may.csv", *ROWS)
    desk.submit(path, preflight=Gateway())
    (told,) = desk.dry_run(path).summary.notes
    assert told.endswith("pass the rules now: submit --release --reason TEXT would check them again, accounts as well")
    asked = desk.dry_run(path, preflight=Gateway())
    assert (asked.releasable.rows, asked.summary.notes) == (0, [])
    assert desk.submit(path, release="seen", preflight=Gateway()).released.rows == 0


def test_a_plan_for_what_is_left_needs_no_note_on_a_release(desk: Desk) -> None:
    """The note on rows that a release might add is no part of what was approved: querying the gateway changes it."""
    path = desk.file("may.csv", *ROWS, {"invoiceNumber": "A-2", "amount": "20.00"})
    desk.submit(path, run=RunRequest(None, Limits(1), cast(Preflight, Gateway())))
    plan = desk.dry_run(path, with_plan=True).plan
    assert plan is not None
    assert plan.totals("total").rows == 1
    assert desk.submit(path, preflight=Gateway(), plan=plan).of(State.ACCEPTED).rows == 2
