"""Payments on a day of their own, by a column or for a whole file: registered, kept, and what a person sees of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.approval.sign_off import plan_lines
from batchpay.errors import FileRefused, NotAsApproved, WaitingForPerson, WrongUse
from batchpay.ledger.open import bring_up_to_date, move, open_ledger
from batchpay.payment import Actor, State, Totals
from batchpay.reports.page import write_batch_page
from batchpay.reports.results import write_results
from batchpay.settings import GatewaySettings, LimitsSettings
from batchpay.summary import Summary
from batchpay.workflows.check import validate
from batchpay.workflows.requests import CheckOptions, file_request
from batchpay.workflows.resolve import Signature, cancel
from tests.model import clock
from tests.support.version_1 import ledger_of_version_1
from tests.workflows.desk import ANN, Desk

_SOON = datetime.now().astimezone().date() + timedelta(days=1)
MONDAY = _SOON + timedelta(days=-_SOON.weekday() % 7)
FRIDAY = MONDAY + timedelta(days=4)
BEN = Actor("ben", "desk-4", authenticated_by="password")
BILLS = [{"paymentId": f"P-{n}", "invoiceNumber": f"A-{n}", "amount": f"{n}0.00"} for n in range(1, 5)]


@pytest.fixture(autouse=True)
def monday(desk: Desk) -> None:
    """It is Monday noon, and days are those of a zone."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, zone="UTC"))
    at_noon(0)


def at_noon(days: int) -> None:
    """Make it noon this many days after Monday."""
    noon = datetime.combine(MONDAY + timedelta(days=days), time(12), UTC)
    clock.offset_s = (noon - datetime.now(UTC)).total_seconds()
    clock.exchange()


def on(row: dict[str, str], days: int) -> dict[str, str]:
    """A row that is sent so many days after Monday."""
    return row | {"payOn": f"{MONDAY + timedelta(days=days):%m/%d/%Y}"}


def cancelled(desk: Desk, batch: str | None, rows: list[int] | None = None) -> None:
    """Cancel pending rows of a batch."""
    assert batch is not None
    cancel(batch, rows, Signature("ben", "on another day"), desk.settings, ANN)


def sent(summary: Summary) -> tuple[int, int, int]:
    """Rows that are accepted, scheduled, and otherwise pending; the call went well."""
    assert summary.exit_code == 0
    scheduled = summary.scheduled.rows
    return summary.of(State.ACCEPTED).rows, scheduled, summary.of(State.PENDING).rows - scheduled


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("is_option", [True, False])
def test_what_is_uploaded_on_monday_is_paid_on_friday(desk: Desk, is_option: bool) -> None:
    """By a column or by one day for the file: nothing leaves before, and the next call on the day sends all of it.

    No repetition by then is an error, whatever the day of the call; results tell each row's day.
    """
    rows = BILLS if is_option else [on(row, 4) for row in BILLS]
    path = desk.file("pay.csv", *rows)
    options: dict[str, Any] = {"pay_on": FRIDAY} if is_option else {}
    first = desk.submit(path, **options)
    assert sent(first) == (0, 4, 0)
    assert first.next_pay_on == FRIDAY
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        write_batch_page(ledger, ledger.find(first.batch), desk.folder / "pay.html")
    report = (desk.folder / "pay.html").read_text()
    assert f"not before {FRIDAY:%m/%d/%Y}" in report and "4 rows, 100.00" in report
    at_noon(3)
    assert sent(desk.submit(path)) == sent(desk.submit(path, **options)) == (0, 4, 0)
    assert not desk.arrived
    at_noon(5)  # the machine was off on Friday
    assert sent(desk.submit(path)) == (4, 0, 0)
    assert desk.arrived == {f"A-{n}": 1 for n in range(1, 5)}
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        batch = ledger.find(first.batch)
        assert batch.options.get("pay_on") == (FRIDAY.isoformat() if is_option else None)
        written = write_results(ledger, batch, desk.folder / "pay.results.csv")
        assert ledger.check() == []
    assert pl.read_csv(written, infer_schema=False)["payOn"].to_list() == [f"{FRIDAY:%m/%d/%Y}"] * 4


def test_half_of_the_rows_are_due_today(desk: Desk, on_both: None) -> None:
    """Those without a day, and those of today, are sent at once."""
    path = desk.file("pay.csv", BILLS[0], on(BILLS[1], 0), on(BILLS[2], 4), on(BILLS[3], 1))
    assert sent(desk.submit(path)) == (2, 2, 0)
    assert set(desk.arrived) == {"A-1", "A-2"}
    at_noon(1)
    assert sent(desk.resume()) == (3, 1, 0)
    at_noon(4)
    assert sent(desk.resume()) == (4, 0, 0)
    assert desk.arrived.total() == 4


@pytest.mark.usefixtures("on_both")
def test_the_day_of_a_batch_is_another_only_by_a_person(desk: Desk) -> None:
    """The same content on Thursday is refused, and so is a day for what was registered without: cancel, then again."""
    path = desk.file("pay.csv", *BILLS)
    batch = desk.submit(path, pay_on=FRIDAY).batch
    told = f"already batch {batch}, to be sent on {FRIDAY}: .* batchpay cancel {batch} --reason TEXT, .*--again"
    thursday = FRIDAY - timedelta(days=1)
    with pytest.raises(FileRefused, match=told):
        desk.submit(path, pay_on=thursday)
    with pytest.raises(FileRefused, match=told):
        desk.dry_run(path, pay_on=thursday)
    with pytest.raises(WrongUse, match="still has rows"):
        desk.submit(path, pay_on=thursday, again="a day earlier")
    cancelled(desk, batch)
    with pytest.raises(FileRefused, match=f"on {thursday} instead: submit it with --again"):
        desk.submit(path, pay_on=thursday)  # there is nothing to cancel any more
    new = desk.submit(path, pay_on=thursday, again="a day earlier")
    assert (new.batch == batch, new.next_pay_on) == (False, thursday)
    at_noon(3)
    assert sent(desk.submit(path, again="a day earlier")) == (4, 0, 0)
    plain = desk.file("plain.csv", BILLS[0] | {"paymentId": "Q", "invoiceNumber": "Q"})
    desk.submit(plain)
    with pytest.raises(FileRefused, match="without a day"):
        desk.submit(plain, pay_on=FRIDAY)


def test_a_day_for_a_file_with_days_is_wrong(desk: Desk, on_both: None) -> None:
    """Which of them counts? And a recurring payment begins on its start date."""
    with pytest.raises(WrongUse, match="pay-on is for a file without a column payOn"):
        desk.dry_run(desk.file("pay.csv", *(on(row, 4) for row in BILLS)), pay_on=FRIDAY)
    recurring = {
        "recurringIndicator": "TRUE", "recurringStartDate": f"{FRIDAY:%m/%d/%Y}", "recurringBillingCycle": "DAILY",
        "recurringEndOfMonth": "N", "recurringNumOfPayments": "2", "recurringAgreementFlag": "1",
    }  # fmt: skip
    summary = desk.submit(desk.file("some.csv", BILLS[0], BILLS[1] | recurring), pay_on=FRIDAY)
    assert (summary.scheduled.rows, desk.verdict.counts) == (1, {"payOn.conflict": 1})


@pytest.mark.parametrize(("days", "why"), [(-1, "has passed"), (91, "is too far ahead")])
def test_a_day_on_which_nothing_can_be_sent_is_refused_whole(desk: Desk, on_both: None, days: int, why: str) -> None:
    """It registered every row as rejected, and the right day was then another day of the same content."""
    path = desk.file("pay.csv", *BILLS)
    with pytest.raises(FileRefused, match=why):
        desk.submit(path, pay_on=MONDAY + timedelta(days=days))
    assert sent(desk.submit(path, pay_on=FRIDAY)) == (0, len(BILLS), 0)


@pytest.mark.usefixtures("on_both")
def test_a_day_that_was_right_at_registration_stays_right(desk: Desk) -> None:
    """Of two rows the day of one has passed when the file is submitted first; later that of the other has as well.

    That one is sent, by a limit that was lowered too. The first stays rejected, whatever is released.
    """
    desk.settings = replace(desk.settings, limits=LimitsSettings(pay_on_days=5))
    path = desk.file("pay.csv", on(BILLS[0], -1), on(BILLS[1], 4), on(BILLS[2], 6))
    first = desk.submit(path)
    assert desk.verdict.counts == {"payOn.past": 1, "payOn.range": 1}
    assert (first.exit_code, first.scheduled.rows) == (3, 1)
    desk.settings = replace(desk.settings, limits=LimitsSettings(pay_on_days=1))
    assert desk.submit(path).held_back == Totals()
    desk.settings = replace(desk.settings, limits=LimitsSettings(pay_on_days=5))
    at_noon(5)
    late = desk.submit(path, release="what is right now")
    assert (late.of(State.ACCEPTED).rows, late.scheduled.rows, late.of(State.REJECTED).rows) == (1, 1, 1)
    assert desk.arrived == {"A-2": 1}, "the third, a day ahead by now, waits for it"
    at_noon(9)
    assert desk.submit(path, release="once more").of(State.REJECTED).rows == 1
    assert desk.arrived == {"A-2": 1, "A-3": 1}


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("is_option", [True, False])
def test_cancelled_rows_are_not_sent_and_released_ones_on_their_day(desk: Desk, is_option: bool) -> None:
    """A person takes back two scheduled rows, and another has one of them after all.

    A day for the whole file is the batch's: it need not be said again.
    """
    path = desk.file("pay.csv", *(BILLS if is_option else [on(row, 4) for row in BILLS]))
    batch = desk.submit(path, pay_on=FRIDAY if is_option else None).batch
    assert list(desk.dry_run(path).proposal.to_send.by_day) == [FRIDAY.isoformat()]
    cancelled(desk, batch, [2, 3])
    released = desk.submit(path, release="both are right")
    assert (released.of(State.REJECTED).rows, released.scheduled.rows) == (0, 4)
    cancelled(desk, batch, [3])
    assert not desk.arrived
    at_noon(4)
    assert desk.resume().of(State.REJECTED).rows == 1
    assert set(desk.arrived) == {"A-1", "A-2", "A-4"}


RENT = {"amount": "500.00"}


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("in_one_file", [True, False])
def test_rents_of_four_fridays_are_registered_ahead(desk: Desk, in_one_file: bool) -> None:
    """In one file, or in four on the same Monday; each is sent on its Friday. One more of a Thursday is the same."""
    fridays = [on(RENT, 4 + 7 * week) for week in range(4)]
    if in_one_file:
        files = [desk.file("rents.csv", *fridays)]
    else:
        files = [desk.file(f"rent-{number}.csv", row) for number, row in enumerate(fridays)]
    assert [desk.submit(path).exit_code for path in files] == [0] * len(files)
    repeated = desk.submit(desk.file("again.csv", on(RENT, 10)))
    assert (repeated.exit_code, desk.verdict.counts) == (3, {"row.duplicate": 1})
    today = desk.submit(desk.file("today.csv", RENT))
    assert (today.exit_code, desk.verdict.counts) == (3, {"row.duplicate": 1}), "it would be sent four days before"
    for week in range(4):
        at_noon(4 + 7 * week)
        for path in files if in_one_file else files[week : week + 2]:
            desk.submit(path)
        assert desk.arrived.total() == week + 1


@pytest.mark.usefixtures("on_both")
def test_a_plan_covers_the_days_that_were_signed(desk: Desk) -> None:
    """Rows and cents by day are on the page and in the seal; each later day sends what was signed, without a new look.

    Approvals count until the plan is used, not until the last day.
    """
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, approvals=1, approval_days=2))
    path = desk.file("pay.csv", BILLS[0], on(BILLS[1], 1), on(BILLS[2], 4), on(BILLS[3], 4))
    preview = desk.dry_run(path, with_plan=True)
    assert preview.plan is not None
    day = (MONDAY + timedelta(days=1)).isoformat(), FRIDAY.isoformat()
    assert preview.as_json()["to_send"]["by_day"] == {
        day[0]: {"DEBIT": {"rows": 0, "amount": "0.00"}, "CREDIT": {"rows": 1, "amount": "20.00"}},
        day[1]: {"DEBIT": {"rows": 0, "amount": "0.00"}, "CREDIT": {"rows": 2, "amount": "70.00"}},
    }
    for lines in (preview.page(), plan_lines(preview.plan)):
        (line,) = [line.split() for line in lines if day[1] in line]
        assert line[-2:] == ["2", "70.00"]
    with pytest.raises(WaitingForPerson):
        desk.submit(path)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        plan = preview.plan.approved_by(BEN, clock.now(UTC), ledger)
    at_noon(1)
    assert sent(desk.submit(path, plan=plan)) == (2, 2, 0)
    at_noon(4)
    assert sent(desk.resume()) == (4, 0, 0)


def test_a_plan_for_one_day_is_not_for_another(desk: Desk, on_both: None) -> None:
    """What was signed for Friday is not sent at once, nor on Thursday."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, approvals=1))
    path = desk.file("pay.csv", *BILLS)
    plan = desk.dry_run(path, with_plan=True, pay_on=FRIDAY).plan
    assert plan is not None
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        plan = plan.approved_by(BEN, clock.now(UTC), ledger)
    for other in (None, FRIDAY - timedelta(days=1)):
        with pytest.raises(NotAsApproved, match=f"by day: {FRIDAY}"):
            desk.submit(path, plan=plan, pay_on=other)
    assert sent(desk.submit(path, plan=plan, pay_on=FRIDAY)) == (0, 4, 0)


def test_a_limit_of_a_day_counts_rows_on_their_day(desk: Desk, on_both: None) -> None:
    """Two rows fit into two days; both on Friday do not."""
    desk.settings = replace(desk.settings, limits=LimitsSettings(max_per_day="50.00"))
    with pytest.raises(FileRefused, match=f"credits of {FRIDAY:%m/%d/%Y}, 70.00, exceed"):
        desk.submit(desk.file("one.csv", on(BILLS[2], 4), on(BILLS[3], 4)))
    assert sent(desk.submit(desk.file("two.csv", on(BILLS[2], 3), on(BILLS[3], 4)))) == (0, 2, 0)


def test_without_a_zone_a_file_with_days_is_refused(desk: Desk, on_both: None) -> None:
    """A dry run says so as well; a check, which may be made anywhere, mentions it. Blank cells are no days."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, zone=""))
    path, told = desk.file("pay.csv", on(BILLS[0], 4)), "batchpay ledger policy set --zone America/New_York"
    for call in (desk.submit, desk.dry_run):
        with pytest.raises(FileRefused, match=told):
            call(path)
    preview = validate(file_request(str(path), None, CheckOptions(), desk.settings), desk.settings)
    assert (preview.summary.exit_code, [told in note for note in preview.summary.notes]) == (0, [True])
    assert sent(desk.submit(desk.file("plain.csv", BILLS[0]))) == (1, 0, 0)


SAMPLE = Path(__file__).parents[2] / "samples" / "small.csv"


@pytest.mark.parametrize("ledger", ["sqlite", "postgres"])
@pytest.mark.parametrize("column", ["", ",payOn"])
def test_a_batch_that_version_1_sent_half_goes_on(
    desk: Desk, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ledger: str, column: str
) -> None:
    """The file has the digest that it had, also with a column of days that is blank: nothing of it is paid twice."""
    old = ledger_of_version_1(desk.folder, "half_sent")
    bring_up_to_date(old)
    if ledger == "postgres":
        server = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("XDG_STATE_HOME", str(desk.folder / "state"))
        database = server.new_database()
        new = replace(old, url=server.url(database))
        move(old, new.url, "ada", "a second host", owner_url=server.owner_url(database))
        old = new
    gateway = GatewaySettings(base_url="http://127.0.0.1:8780", api_id="sandbox")
    desk.settings = replace(desk.settings, gateway=gateway, ledger=old)
    lines = SAMPLE.read_text("utf-8").splitlines()[:6]
    path = desk.folder / "again.csv"
    path.write_text("\n".join([lines[0] + column, *(line + column[:1] for line in lines[1:])]) + "\n", "utf-8")
    summary = desk.submit(path)
    assert (summary.batch, summary.of(State.ACCEPTED).rows) == ("326a2d106bfd", 4)
    assert desk.arrived == {"INV-20003": 1, "INV-20005": 1}, "the two that were left"


def test_where_the_ledgers_day_is_another_than_the_machines_a_release_names_none(desk: Desk) -> None:
    """A note said `--release --as-of` with the zone's day, which nobody had asked for: the next day it would be old."""
    behind = datetime.now().astimezone().hour < 12
    desk.settings = replace(
        desk.settings, policy=replace(desk.settings.policy, zone="Etc/GMT+12" if behind else "Etc/GMT-14")
    )
    clock.offset_s = 0.0
    path = desk.file("pay.csv", on(BILLS[0], 4), on(BILLS[1], 4))
    cancelled(desk, desk.submit(path).batch, [1])
    (note,) = (note for note in desk.submit(path).notes if "--release" in note)
    assert "submit --release --reason TEXT" in note
