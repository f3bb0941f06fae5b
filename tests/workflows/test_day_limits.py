"""Limits of a day, as people who submit meet them: refused whole, waiting for tomorrow, or let through by others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from batchpay.approval.approvals import FileLimits
from batchpay.approval.plan import Plan
from batchpay.errors import FileRefused, NotAsApproved, SettingsNotUsable, WaitingForPerson
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor, State
from batchpay.sending.limits import Limits
from batchpay.sending.pacing import Throttle
from batchpay.settings import LimitsSettings
from batchpay.summary import Summary
from batchpay.workflows import approve as approving
from batchpay.workflows import submit as submitting
from batchpay.workflows.run import RunRequest
from tests.model import clock
from tests.workflows.desk import ACCEPTED, DECLINED, IN_DOUBT, Desk

pytestmark = pytest.mark.usefixtures("on_both")
EVERY_DAY = {"day": {"max_per_day": "100.00"}, "payee": {"max_per_payee_day": "100.00"}}
BOTH = pytest.mark.parametrize("limits", EVERY_DAY.values(), ids=EVERY_DAY)


def limit(desk: Desk, **limits: Any) -> None:
    """Change [limits]."""
    desk.settings = replace(desk.settings, limits=LimitsSettings(**limits))


def file(desk: Desk, name: str, *amounts: str, **cells: str) -> Path:
    """Write a file of credits to one account, each its own bill."""
    rows = [{"invoiceNumber": f"{name}-{n}", "amount": amount, **cells} for n, amount in enumerate(amounts, 1)]
    return desk.file(f"{name}.csv", *rows)


def days_later(days: int) -> None:
    """Let days pass."""
    clock.offset_s = days * 86_400
    clock.exchange()


def waiting(summary: Summary) -> tuple[int, int]:
    """How many rows wait, and the exit code."""
    return summary.of(State.PENDING).rows, summary.exit_code


@BOTH
def test_a_file_that_brings_a_day_above_its_limit_is_refused_whole(desk: Desk, limits: dict[str, str]) -> None:
    """Alone, and together with what was sent: it says by how much, and on which day."""
    limit(desk, **limits)
    (name,) = limits
    with pytest.raises(FileRefused, match=rf"100\.01, exceed limits\.{name} \(100\.00\).* 100\.01, 0\.01 too much;"):
        desk.submit(file(desk, "a", "50.00", "50.01"))
    assert desk.submit(file(desk, "b", "40.00", "40.00")).exit_code == 0
    path = file(desk, "c", "20.01")
    with pytest.raises(
        FileRefused, match=r"of \d\d/\d\d/\d{4}, 20\.01, .*sent or planned 100\.01, 0\.01 too much; nothing was"
    ):
        desk.submit(path)
    preview = desk.dry_run(path)
    assert preview.exit_codes == [0, 4]
    assert preview.as_json()["over_limits"] and preview.summary.notes[-1].startswith("a submission would be refused: ")
    assert any(name in line for line in preview.page())
    desk.submit(file(desk, "d", "20.00"))
    desk.submit(file(desk, "e", "100.00", transactionType="DEBIT", achAccountNumber="648443925"))
    assert sum(desk.arrived.values()) == 4
    with pytest.raises(FileRefused):
        desk.submit(file(desk, "f", "0.01"))
    days_later(1)
    desk.submit(file(desk, "f", "0.01"))
    assert desk.arrived["f-1"] == 1


@BOTH
def test_rows_above_the_limit_wait_for_the_next_day(desk: Desk, limits: dict[str, str]) -> None:
    """Registered before there was a limit: what fits is sent, the rest tomorrow, with 8 and words until then."""
    path = file(desk, "a", "60.00", "60.00", "30.00", "60.00", "10.00")
    limit(desk, **dict.fromkeys(limits, "1000.00"))
    desk.submit(path, run=RunRequest(None, Limits(1)))
    limit(desk, **limits)
    summary = desk.submit(path)
    assert (waiting(summary), set(desk.arrived)) == ((2, 8), {"a-1", "a-3", "a-5"})
    (name,) = limits
    assert str(summary.stopped).startswith(f"limits.{name} (100.00): 100.00 of credits sent on ")
    assert str(summary.stopped).endswith("or in doubt; 2 rows, 120.00, wait for another day")
    assert waiting(desk.resume()) == (2, 8)
    days_later(1)
    assert waiting(desk.resume()) == (1, 8)
    days_later(2)
    assert waiting(desk.submit(path)) == (0, 0)
    assert set(desk.arrived.values()) == {1} and len(desk.arrived) == 5


@BOTH
def test_a_row_above_the_limit_by_itself_is_not_told_to_wait(desk: Desk, limits: dict[str, str]) -> None:
    """A limit lowered below its amount let it wait for another day, every day."""
    path = file(desk, "a", "60.00", "120.00", "60.00", "150.00")
    limit(desk, **dict.fromkeys(limits, "1000.00"))
    batch = desk.submit(path, run=RunRequest(None, Limits(1))).batch
    limit(desk, **limits)
    end = "or batchpay cancel {} --rows 2,4 --reason TEXT"
    never = f"; no day has room for 2 rows, each above the limit by itself: raise the limit, {end.format(batch)}"
    assert str(desk.submit(path).stopped).endswith(f"or in doubt; 1 row, 60.00, wait for another day{never}")
    days_later(1)
    assert str(desk.resume().stopped).endswith(f"60.00 of credits sent on {clock.now():%m/%d/%Y}, or in doubt{never}")


@BOTH
@pytest.mark.parametrize(("answer", "left"), [(DECLINED, 0), (IN_DOUBT, 1)])
def test_declined_rows_make_room_and_rows_in_doubt_keep_it(
    desk: Desk, limits: dict[str, str], answer: Any, left: int
) -> None:
    """In the same run, with outcome and next row in one commit."""
    path = file(desk, "a", "5.00", "60.00", "60.00")
    desk.submit(path, run=RunRequest(None, Limits(1)))
    limit(desk, **limits)
    desk.answer = lambda reference: answer if reference == "a-2" else ACCEPTED
    assert desk.submit(path).of(State.PENDING).rows == left
    assert desk.arrived == {"a-1": 1, "a-2": 1} | ({} if left else {"a-3": 1})


def test_another_file_between_check_and_registration(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both fitted when they were looked at; the second is looked at again, and refused in words."""
    limit(desk, max_per_day="100.00")
    let_through: Callable[..., Any] = approving.let_through

    def first_another(*asked: Any) -> Any:
        monkeypatch.setattr(submitting, "let_through", let_through)
        found = let_through(*asked)
        desk.submit(file(desk, "other", "60.00"))
        return found

    monkeypatch.setattr(submitting, "let_through", first_another)
    with pytest.raises(FileRefused, match=r"max_per_day \(100\.00\): with what else is sent or planned 120\.00"):
        desk.submit(file(desk, "mine", "60.00"))
    assert desk.arrived == {"other-1": 1}


def approved(desk: Desk, path: Path, *, by: str = "ben") -> Plan:
    """Prepare a plan, and let another person approve it."""
    plan = desk.dry_run(path, with_plan=True).plan
    assert plan is not None
    ledger = open_ledger(desk.settings.ledger)
    found = plan.approved_by(Actor(by, "desk"), ledger.now(), ledger)
    ledger.close()
    return found


@BOTH
def test_other_people_let_a_file_through_that_names_its_limit(desk: Desk, limits: dict[str, str]) -> None:
    """Also after a stop, by `resume`, and though other files changed the day's sum since they approved."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, approvals=1, approve_above="1000.00"))
    limit(desk, **limits)
    path, other = file(desk, "a", "60.00", "60.00", "60.00"), file(desk, "b", "10.00")
    with pytest.raises(WaitingForPerson):
        desk.submit(path)
    plan = approved(desk, path)
    assert desk.dry_run(path).approvals_missing == 1
    desk.submit(other)
    with pytest.raises(WaitingForPerson):
        desk.submit(path, plan=approved(desk, path, by="ann"))
    desk.submit(path, plan=plan, run=RunRequest(None, Limits(2)))
    assert desk.resume().exit_code == 0
    assert sum(desk.arrived.values()) == 4
    with pytest.raises(WaitingForPerson):
        desk.submit(file(desk, "c", "0.01"))


def test_a_plan_of_a_file_that_fitted_lets_nothing_above_the_limit_through(desk: Desk) -> None:
    """Nobody approved that it exceeds the day. One that no longer exceeds it is let through."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, approvals=1))
    limit(desk, max_per_day="100.00")
    path, other = file(desk, "a", "60.00"), file(desk, "b", "60.00")
    plan = approved(desk, path)
    desk.answer = lambda reference: DECLINED
    desk.submit(other, plan=approved(desk, other), run=RunRequest(None, Limits(0)))
    with pytest.raises(NotAsApproved, match=r"over limits is credits of .*, 60\.00, exceed limits\.max_per_day"):
        desk.submit(path, plan=plan)
    plan = approved(desk, path)
    desk.resume()
    desk.answer = lambda reference: ACCEPTED
    assert desk.submit(path, plan=plan).exit_code == 0


def test_what_a_release_adds_counts(desk: Desk) -> None:
    """Rows that were rejected when their batch was registered."""
    limit(desk, max_amount="50.00")
    path = file(desk, "a", "40.00", "61.00")
    desk.submit(path)
    limit(desk, max_per_day="100.00", max_per_payee_day="101.00")
    with pytest.raises(
        FileRefused, match=r"credits of .*, 61\.00, exceed limits\.max_per_day .*101\.00, 1\.00 too much"
    ):
        desk.submit(path, release="seen")
    limit(desk, max_per_day="101.00", max_per_payee_day="101.00")
    assert desk.submit(path, release="seen").exit_code == 0


def test_more_accounts_than_a_message_names(desk: Desk) -> None:
    """It names the first of them by a row, never by the number of an account."""
    limit(desk, max_per_payee_day="1.00")
    rows = [{"invoiceNumber": f"I-{n}", "amount": "0.60", "achAccountNumber": f"64844392{n // 2}"} for n in range(14)]
    with pytest.raises(FileRefused) as refused:
        desk.submit(desk.file("a.csv", *rows))
    assert str(refused.value).count("the account's payments of") == 5
    assert str(refused.value).endswith("sent or planned 2 accounts; nothing was registered or sent")
    assert "64844392" not in str(refused.value)


def test_no_slot_is_used_for_rows_that_have_no_room(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred rows of the full day took a hundred slots of the gateway's pace, one connection each."""
    asked: list[object] = []
    path = file(desk, "a", *["60.00"] * 100)
    desk.submit(path, run=RunRequest(None, Limits(1)))
    limit(desk, max_per_day="100.00")
    acquire = Throttle.acquire

    def counted(throttle: Throttle) -> bool:
        asked.append(1)
        return acquire(throttle)

    monkeypatch.setattr(Throttle, "acquire", counted)
    assert waiting(desk.submit(path)) == (99, 8)
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["max_per_day", "max_per_payee_day"])
def test_limits_that_can_not_be_read(name: str) -> None:
    """They stop the call."""
    limits: Any = {name: "1000"}
    with pytest.raises(SettingsNotUsable, match=rf"limits\.{name} must be an amount like 12345\.67"):
        FileLimits.from_settings(LimitsSettings(**limits))


@BOTH
def test_a_day_to_come_is_full(desk: Desk, limits: dict[str, str]) -> None:
    """By what was registered for it; the message names that day, and today has its own sum."""
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.set_policy(lambda kept: {**kept, "zone": "America/New_York"}, "ann", "the company is there")
        friday, today = ledger.today() + timedelta(days=3), ledger.today()
    limit(desk, **limits)
    assert desk.submit(file(desk, "a", "60.00", payOn=f"{friday:%m/%d/%Y}")).exit_code == 0
    path = file(desk, "b", "60.00", payOn=f"{friday:%m/%d/%Y}")
    with pytest.raises(
        FileRefused, match=rf"of {friday:%m/%d/%Y}, 60\.00, exceed .* 120\.00, 20\.00 too much; nothing"
    ):
        desk.submit(path)
    assert desk.dry_run(path).exit_codes == [0, 4]
    assert desk.submit(file(desk, "c", "100.00")).exit_code == 0
    with pytest.raises(FileRefused, match=rf"of {today:%m/%d/%Y}, 0\.01, exceed"):
        desk.submit(file(desk, "d", "0.01"))
    assert set(desk.arrived) == {"c-1"}
