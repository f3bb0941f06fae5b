"""Limits of a whole file: above one nothing is registered, unless other people approve a plan that names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchpay.approval.approvals import FileLimits
from batchpay.errors import FileRefused, NotAsApproved, SettingsNotUsable, WaitingForPerson
from batchpay.payment import Totals
from batchpay.settings import LimitsSettings
from tests.workflows.office import AGAIN, BEN, RELEASE, Office

SHIFTED = ("12.50", *["Ann Lee"] * 9)
"""Amounts of a file with a shifted column: one row happens to be valid."""


def limit(office: Office, **limits: Any) -> None:
    """Change [limits]."""
    office.settings = replace(office.settings, limits=replace(LimitsSettings(), **limits))


def test_a_file_above_a_total_is_refused_whole(office: Office) -> None:
    """It says which limit, and by how much; one at the limit is paid, and what is left of it continues."""
    limit(office, max_total="60.00")
    path = office.file("30.00", "30.01")
    with pytest.raises(
        FileRefused, match=r"add up to 60\.01, 0\.01 more than limits\.max_total \(60\.00\); nothing was"
    ):
        office.submit(path)
    preview = office.dry_run(path)
    assert preview.exit_codes == [0, 4]
    assert preview.summary.notes[0].startswith("a submission would be refused: the payments add up to 60.01")
    assert (office.batches(), office.received()) == (0, [])
    path = office.file("30.00", "30.00")
    office.submit(path, limit=1)
    limit(office, max_total="1.00")
    office.submit(path)
    assert office.received() == ["I-1", "I-2"]
    limit(office, max_total="60.00")
    office.submit(path, decisions=AGAIN)
    limit(office, max_total="59.99")
    with pytest.raises(FileRefused, match="max_total"):
        office.submit(path, decisions=replace(AGAIN, reason="and again"))


@pytest.mark.parametrize("most", ["10%", "8", "89.9%", "0"])
def test_a_file_with_a_shifted_column_pays_nothing(office: Office, most: str) -> None:
    """Of ten rows one happened to be valid, and was paid."""
    limit(office, max_rejected=most)
    with pytest.raises(FileRefused, match=rf"9 of 10 rows are rejected, more than limits\.max_rejected \({most}\)"):
        office.submit(office.file(*SHIFTED))
    assert (office.batches(), office.received()) == (0, [])


@pytest.mark.parametrize("most", ["90%", "9", "100%", ""])
def test_as_many_rejected_rows_as_the_limit_allows(office: Office, most: str) -> None:
    """The limit is the most that is allowed."""
    limit(office, max_rejected=most)
    office.submit(office.file(*SHIFTED))
    assert office.received() == ["I-1"]


def test_duplicates_and_rows_rejected_earlier_are_no_mistakes_of_the_file(office: Office) -> None:
    """A file that repeats yesterday's bills, and one that is submitted again, are not taken for a shifted one."""
    limit(office, max_rejected="0")
    office.submit(office.file("10.00", "20.00"))
    office.submit(office.file("10.00", "20.00", "30.00", name="more.csv"))
    assert office.received() == ["I-1", "I-2", "I-3"]
    limit(office, max_rejected="1")
    path = office.file("1.00", "x", name="wrong.csv", ids="W", invoiceNumber="W-1")
    office.submit(path)
    limit(office, max_rejected="0")
    office.submit(path)


def test_what_a_release_adds_is_held_against_the_total(office: Office) -> None:
    """Rows of a batch that was registered below the limit."""
    path = office.file("10.00", "20.00")
    office.submit(path, max_amount_cents=15_00)
    limit(office, max_total="19.99")
    with pytest.raises(FileRefused, match=r"20\.00, 0\.01 more than"):
        office.submit(path, decisions=RELEASE)
    limit(office, max_total="20.00")
    office.submit(path, decisions=RELEASE)
    assert office.received() == ["I-1", "I-2"]


def test_another_person_lets_a_file_through_that_names_its_limit(office: Office) -> None:
    """Also where its total needs no approval; a plan from before the limit does not let it through."""
    office.policy(approvals=1, approve_above="1000.00")
    path = office.file("30.00", "30.01")
    old = office.plan(path, name="old.json")
    office.approve(old, BEN)
    limit(office, max_total="60.00")
    with pytest.raises(NotAsApproved, match="over limits"):
        office.submit(path, old)
    with pytest.raises(WaitingForPerson, match="approval by another person"):
        office.submit(path)
    plan = office.plan(path)
    assert office.dry_run(path).approvals_missing == 1
    with pytest.raises(WaitingForPerson):
        office.submit(path, plan)
    assert office.approve(plan, BEN).needed == 1
    office.submit(path, plan)
    assert office.received() == ["I-1", "I-2"]


@pytest.mark.parametrize(
    "limits", [{"max_total": "much"}, {"max_rejected": "-1"}, {"max_rejected": "101%"}, {"max_rejected": "ten"}]
)
def test_limits_that_can_not_be_read(limits: dict[str, Any]) -> None:
    """They stop the call: a limit that does not hold must not look as if it did."""
    with pytest.raises(SettingsNotUsable, match=rf"limits\.{next(iter(limits))} must be"):
        FileLimits.from_settings(replace(LimitsSettings(), **limits))


def test_no_limit_is_exceeded_where_none_is_set() -> None:
    """The default."""
    limits = FileLimits.from_settings(LimitsSettings())
    assert not limits.are_set
    assert limits.exceeded(Totals(1, 10**12), 1, 1) == ()
