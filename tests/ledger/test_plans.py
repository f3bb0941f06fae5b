"""Plans in the ledger: used once, in the transaction of what they let through, with the people who approved."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from batchpay.errors import FileRefused, LedgerNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import NewBatch, RecordedApproval, SignOff
from batchpay.payment import Totals
from tests.ledger.batches import columns, new_batch, register, rejected, release
from tests.ledger.factories import LedgerFactory

MORNING = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
BEN, EVE = RecordedApproval("ben@desk", MORNING), RecordedApproval("eve@desk", MORNING)
FIRST_TWO = Totals(2, 101 + 201)
THIRD = Totals(1, 301)


def sign_off(adds: Totals, *approvals: RecordedApproval, plan: str = "p1", held_back: Totals | None = None) -> SignOff:
    return SignOff(plan, "5EA15EA15EA1", "ann@desk", approvals, adds, held_back or Totals())


def write(ledger: Ledger, batch: NewBatch) -> str:
    """Register rows 1 and 2, with row 3 rejected."""
    with ledger.register(batch, "cron@desk") as registering:
        registering.add_payments(columns(ledger, [1, 2]))
        registering.add_rejected(rejected([3]))
        return registering.finish()


def test_a_registration_and_its_plan_are_one(ledger: Ledger) -> None:
    """Plan, seal, maker and approvers stand in the chained history, right after what they let through."""
    name = write(ledger, replace(new_batch(ledger, 3), sign_off=sign_off(FIRST_TWO, BEN, EVE)))
    registered, used = ledger.events(name)
    assert (registered.kind, used.kind, used.who) == ("registered", "plan used", "cron@desk")
    assert json.loads(used.detail) == {
        "plan": "p1",
        "seal": "5EA15EA15EA1",
        "prepared by": "ann@desk",
        "approvals": [
            {"who": "ben@desk", "at": "2026-11-23T09:30:00.000Z"},
            {"who": "eve@desk", "at": "2026-11-23T09:30:00.000Z"},
        ],
        "rows": 2,
        "cents": 302,
        "rows held back": 0,
    }
    assert ledger.batch_of_plan("p1") == name
    assert ledger.batch_of_plan("p2") is None
    assert ledger.check() == []


@pytest.mark.parametrize("adds", [Totals(2, 303), Totals(1, 302), Totals()])
def test_other_rows_than_approved_undo_the_registration(ledger: Ledger, adds: Totals) -> None:
    """The transaction holds what was approved, or nothing stands."""
    with pytest.raises(LedgerNotUsable, match="differs from what the plan approved"):
        write(ledger, replace(new_batch(ledger, 3), sign_off=sign_off(adds, BEN)))
    assert ledger.batches() == []
    assert ledger.batch_of_plan("p1") is None


def test_a_plan_is_used_once(ledger: Ledger) -> None:
    """A second registration, a release and a run from a used plan are refused, and nothing of them stands."""
    name = write(ledger, replace(new_batch(ledger, 3), sign_off=sign_off(FIRST_TWO, BEN)))
    again = replace(new_batch(ledger, 3, again="once more"), sign_off=sign_off(FIRST_TWO, BEN))
    with pytest.raises(FileRefused, match=f"already used, for batch {name}"):
        write(ledger, again)
    with pytest.raises(FileRefused, match="already used"):
        release(ledger, name, [columns(ledger, [3])], "cron", "right now", sign_off(THIRD, BEN))
    with pytest.raises(FileRefused, match="already used"):
        ledger.use_plan(name, "cron", sign_off(Totals(), BEN))
    assert [batch.batch for batch in ledger.batches()] == [name]
    assert ledger.find(name).total == Totals(3, 603)
    assert len(list(ledger.rejected(name))) == 1


def test_of_runs_that_begin_at_once_one_uses_a_plan(ledger_factory: LedgerFactory) -> None:
    """Whoever looks whether a plan was used keeps all others out until it has used it."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1]))
    ledgers = [ledger_factory.open() for _ in range(8)]
    together = threading.Barrier(len(ledgers))

    def is_used_by(one: Ledger) -> bool:
        together.wait()
        try:
            one.use_plan(name, "cron", sign_off(Totals(), BEN))
        except FileRefused:
            return False
        return True

    with ThreadPoolExecutor(len(ledgers)) as pool:
        assert sum(pool.map(is_used_by, ledgers)) == 1
    assert [event.kind for event in ledger.events(name)].count("plan used") == 1


def test_a_release_has_a_plan_of_its_own(ledger: Ledger) -> None:
    """Rows that a release adds were not approved with the others: without approvals the batch has none any more."""
    name = write(ledger, replace(new_batch(ledger, 3), sign_off=sign_off(FIRST_TWO, BEN, EVE)))
    assert ledger.approvers(name) == 2
    with pytest.raises(LedgerNotUsable, match="differs from what the plan approved"):
        release(ledger, name, [columns(ledger, [3])], "cron", "right now", sign_off(FIRST_TWO, EVE, plan="p2"))
    assert release(ledger, name, [columns(ledger, [3])], "cron", "right now", sign_off(THIRD, EVE, plan="p2")) == 1
    assert ledger.approvers(name) == 1
    assert ledger.check() == []


def test_a_release_whose_plan_nobody_approved_takes_approvals_away(ledger: Ledger) -> None:
    """It spends the plan: the row that it adds was seen by nobody but who prepared it."""
    name = write(ledger, replace(new_batch(ledger, 3), sign_off=sign_off(FIRST_TWO, BEN, EVE)))
    assert release(ledger, name, [columns(ledger, [3])], "cron", "right now", sign_off(THIRD, plan="p2")) == 1
    assert (ledger.approvers(name), ledger.batch_of_plan("p2")) == (0, name)
    with pytest.raises(FileRefused, match="already used"):
        ledger.use_plan(name, "cron", sign_off(Totals(), BEN, plan="p2"))


def test_rows_released_without_a_plan_are_approved_by_nobody(ledger: Ledger) -> None:
    """A release under a looser policy takes the batch's approvals away."""
    name = write(ledger, replace(new_batch(ledger, 3), sign_off=sign_off(FIRST_TWO, BEN, EVE)))
    release(ledger, name, [columns(ledger, [3])], "cron", "right now")
    assert ledger.approvers(name) == 0


def test_pending_rows_are_approved_later(ledger: Ledger) -> None:
    """A batch registered without approvals gets them with a plan of its pending rows, unless that left rows out."""
    name = register(ledger, columns(ledger, range(1, 4)))
    assert ledger.approvers(name) == 0
    ledger.use_plan(name, "cron", sign_off(Totals(), BEN, plan="p1", held_back=THIRD))
    assert ledger.approvers(name) == 0
    ledger.use_plan(name, "cron", sign_off(Totals(), BEN, plan="p2"))
    assert ledger.approvers(name) == 1
    ledger.use_plan(name, "cron", sign_off(Totals(), plan="p3"))
    assert ledger.approvers(name) == 1
