"""Nothing is sent that other people did not approve: whatever anyone tries, the oracle counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchpay.errors import FileRefused, WaitingForPerson
from batchpay.payment import Actor, Totals
from batchpay.workflows.requests import Decisions
from tests.model import clock
from tests.workflows.office import AGAIN, ANN, BEN, EVE, RELEASE, Office


def refused(office: Office, *arguments: object, **options: object) -> None:
    """Require that a submission waits for a person: nothing is registered, nothing sent."""
    batches, received = office.batches(), office.received()
    with pytest.raises(WaitingForPerson, match="needs approval"):
        office.submit(*arguments, **options)  # type: ignore[arg-type]
    assert (office.batches(), office.received()) == (batches, received)


def test_nothing_is_registered_without_an_approval(strict: Office) -> None:
    """Neither a plain submission nor one from a plan that nobody else approved; then the same command sends it."""
    path = strict.file("10.00", "20.00")
    refused(strict, path)
    plan = strict.plan(path)
    refused(strict, path, plan)
    strict.approve(plan, BEN)
    summary = strict.submit(path, plan)
    assert strict.received() == ["I-1", "I-2"]
    (used,) = strict.used_plans()
    assert (used["seal"], used["prepared by"]) == (summary.seal, "ann@desk")
    assert [approval["who"] for approval in used["approvals"]] == ["ben@desk"]


def test_maker_and_checker_see_one_seal(strict: Office) -> None:
    """On the page of either, on the plan, in the summary and in the ledger: the same twelve characters."""
    path = strict.file("10.00", "20.00")
    seals = {strict.dry_run(path, by).summary.seal for by in (ANN, BEN)}
    plan = strict.plan(path)
    page = strict.dry_run(path, EVE).page()
    view = strict.approve(plan, BEN)
    summary = strict.submit(path, plan)
    (used,) = strict.used_plans()
    seals |= {view.plan.seal, summary.seal, used["seal"]}
    (seal,) = seals
    assert seal is not None
    assert len(seal) == 12
    assert f"seal      {seal}" in page
    assert f"seal      {seal}" in view.page()


@pytest.mark.parametrize("name", ["ann", "ANN", "ａｎｎ ", "a\u200bnn", "ann@corp.example"])
def test_nobody_approves_what_they_prepared(strict: Office, name: str) -> None:
    """Under no spelling, from no machine; the plan stays as it was."""
    path = strict.file("10.00")
    plan = strict.plan(path)
    before = Path(plan).read_text()
    with pytest.raises(WaitingForPerson, match="another person"):
        strict.approve(plan, Actor(name, "elsewhere"))
    assert Path(plan).read_text() == before
    refused(strict, path, plan)


def test_two_approvals_are_two_people(office: Office) -> None:
    """If two must approve, one person can't do it twice."""
    office.policy(approvals=2)
    path = office.file("10.00")
    plan = office.plan(path)
    assert office.approve(plan, BEN).needed == 2
    with pytest.raises(WaitingForPerson, match="already approved this"):
        office.approve(plan, Actor("Ben", "laptop"))
    refused(office, path, plan)
    assert [str(one.who) for one in office.approve(plan, EVE).counted] == ["ben@desk", "eve@desk"]
    office.submit(path, plan)
    assert office.received() == ["I-1"]


def test_an_approval_that_was_copied_counts_once(office: Office) -> None:
    """The same keyed approval twice in the file is one."""
    office.policy(approvals=2)
    path = office.file("10.00")
    plan = office.plan(path)
    office.approve(plan, BEN)
    content = json.loads(Path(plan).read_text())
    content["approvals"] *= 2
    Path(plan).write_text(json.dumps(content))
    refused(office, path, plan)


def test_an_expired_approval_does_not_count(strict: Office) -> None:
    """After policy.approval_days someone must review again, and the same person may."""
    path = strict.file("10.00")
    plan = strict.plan(path)

    clock.offset_s = -8 * 86_400
    clock.exchange()
    strict.approve(plan, BEN)
    clock.restore()
    refused(strict, path, plan)
    strict.approve(plan, BEN)
    strict.submit(path, plan)
    assert strict.received() == ["I-1"]


def test_a_small_total_needs_no_approval_and_a_batch_is_one_total(office: Office) -> None:
    """What counts is all of a batch: sending it in parts doesn't make it small."""
    office.policy(approvals=1, approve_above="50.00")
    office.submit(office.file("49.99"))
    assert office.received() == ["I-1"]
    path = office.file("30.00", "20.00", ids="Q")
    refused(office, path)
    refused(office, path, limit=1)
    office.policy(approvals=0)
    office.submit(path, limit=1)
    office.policy(approvals=1)
    with pytest.raises(WaitingForPerson):
        office.resume()
    refused(office, path)
    assert len(office.received()) == 2


def test_an_approved_batch_resumes(strict: Office) -> None:
    """Resume, and the same command again, continue what was approved; the used plan pays nothing more."""
    path = strict.file("10.00", "20.00", "30.00")
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.submit(path, plan, limit=1)
    strict.resume(limit=1)
    assert strict.received() == ["I-1", "I-2"]
    strict.submit(path, plan)
    strict.submit(path, plan)
    strict.submit(path)
    assert strict.received() == ["I-1", "I-2", "I-3"]
    assert len(strict.used_plans()) == 1


def test_rows_that_were_never_approved_stay_when_the_policy_gets_stricter(office: Office) -> None:
    """Registered under a looser policy: neither resume nor submit sends the rest before it is approved."""
    path = office.file("10.00", "20.00")
    office.submit(path, limit=1)
    office.policy(approvals=1)
    with pytest.raises(WaitingForPerson):
        office.resume()
    refused(office, path)
    plan = office.plan(path)
    assert office.read(plan).totals("pending") == office.read(plan).totals("total") == Totals(1, 2_000)
    refused(office, path, plan)
    office.approve(plan, BEN)
    office.submit(path, plan)
    assert office.received() == ["I-1", "I-2"]


def test_a_stricter_number_requires_the_second_person(strict: Office) -> None:
    """One approval is not two: what is left of a batch waits for the second."""
    path = strict.file("10.00", "20.00")
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.submit(path, plan, limit=1)
    strict.policy(approvals=2)
    with pytest.raises(WaitingForPerson):
        strict.resume()
    second = strict.plan(path, name="second.json")
    for person in (BEN, EVE):
        strict.approve(second, person)
    strict.submit(path, second)
    assert strict.received() == ["I-1", "I-2"]


def test_a_release_is_approved_separately(strict: Office) -> None:
    """Rejected rows of an approved batch need a plan of their own, which shows only them."""
    path = strict.file("10.00", "20.5")
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.submit(path, plan)
    strict.submit(path, normalize=True)  # releases nothing by itself
    refused(strict, path, decisions=RELEASE, normalize=True)
    with pytest.raises(FileRefused, match="not what the plan approved"):  # it is used, and says nothing of a release
        strict.submit(path, plan, decisions=RELEASE, normalize=True)
    second = strict.plan(path, name="second.json", decisions=RELEASE, normalize=True)
    assert strict.read(second).totals("released") == strict.read(second).totals("total") == Totals(1, 2_050)
    refused(strict, path, second, decisions=RELEASE, normalize=True)
    strict.approve(second, EVE)
    strict.submit(path, second, decisions=RELEASE, normalize=True)
    assert strict.received() == ["I-1", "I-2"]
    assert [used["rows"] for used in strict.used_plans()] == [1, 1]


def test_paying_again_is_approved_separately(strict: Office) -> None:
    """--again is a new thing to approve: the first approval doesn't cover it, nor one for another reason."""
    path = strict.file("10.00")
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.submit(path, plan)
    refused(strict, path, decisions=AGAIN)
    with pytest.raises(FileRefused, match="not what the plan approved"):
        strict.submit(path, plan, decisions=AGAIN)
    second = strict.plan(path, name="second.json", decisions=AGAIN)
    strict.approve(second, BEN)
    with pytest.raises(FileRefused, match="reason is another one"):
        strict.submit(path, second, decisions=Decisions(again=True, reason="another one"))
    for _ in range(2):
        strict.submit(path, second, decisions=AGAIN)
    assert strict.received() == ["I-1", "I-1"]
