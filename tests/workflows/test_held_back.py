"""Pending rows that fail today's rules stay pending and are reported: having once been valid sends nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from batchpay.errors import WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State, Totals
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.sender import Sender
from batchpay.settings import PolicySettings
from batchpay.workflows import held_back, run
from batchpay.workflows.health import HealthLimits, health
from batchpay.workflows.held_back import HeldBack, start_has_passed
from batchpay.workflows.status import all_in_doubt, batch_status
from tests.model import clock
from tests.support.ledger_factory import Planned, add_batch
from tests.workflows.desk import ACCEPTED, IN_DOUBT, Desk, Quiet

TODAY = datetime.now().astimezone().date()
ONE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
TWO = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "500.00"}
MONTHLY = {
    "paymentId": "P-3", "invoiceNumber": "A-3", "amount": "20.00", "recurringIndicator": "TRUE",
    "recurringStartDate": f"{TODAY + timedelta(days=3):%m/%d/%Y}", "recurringBillingCycle": "MONTHLY",
    "recurringEndOfMonth": "N", "recurringNumOfPayments": "3", "recurringAgreementFlag": "1",
}  # fmt: skip


BILL = {"invoiceNumber": "A-1", "amount": "10.00"}


def asked_to_stop() -> StopRequest:
    """Return a stop request, as if Ctrl-C was pressed before the first row."""
    stop = StopRequest()
    stop.ask("stopped")
    return stop


def stop_before(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run send nothing: its limit is reached before the first row."""
    monkeypatch.setattr(Limits, "allow_row", lambda self: False)


def days_later(days: int) -> None:
    """Let days pass before a resume."""
    clock.offset_s = days * 86_400
    clock.exchange()


def at_noon(days: int) -> None:
    """Make it noon this many days after `TODAY`, whatever the date is now: midnight may pass while tests run."""
    noon = datetime.combine(TODAY + timedelta(days=days), time(12)).astimezone()
    clock.offset_s = (noon - datetime.now(UTC)).total_seconds()
    clock.exchange()


def test_rows_that_fail_todays_rules_are_held_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit was lowered after a file had been registered: the next run still sent its large row."""
    path = desk.file("may.csv", ONE, TWO)
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        assert desk.submit(path).exit_code == 6
    desk.limit("100.00")
    preview = desk.dry_run(path)
    assert (preview.proposal.to_send.total.rows, preview.summary.held_back) == (1, Totals(1, 50_000))
    held = desk.submit(path)
    assert (held.exit_code, held.held_back, held.of(State.PENDING)) == (3, Totals(1, 50_000), Totals(1, 50_000))
    assert held.as_json()["held_back"] == {"rows": 1, "amount": "500.00"}
    assert not path.with_suffix(".rejects.csv").exists(), "a row that may be sent is none to correct"
    status = batch_status(str(held.batch), desk.settings)
    assert (status.held_back, status.exit_code) == (Totals(1, 50_000), 3)
    assert desk.arrived == {"A-1": 1}
    desk.limit("")
    assert desk.submit(path).exit_code == 0
    assert desk.arrived == {"A-1": 1, "A-2": 1}


def test_a_batch_that_is_all_held_back_asks_nobody_and_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to send, no run begins: neither the gateway nor the person is asked."""
    path = desk.file("may.csv", TWO)
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(path)
    desk.limit("100.00")
    monkeypatch.setattr(Sender, "send_all", lambda *_: pytest.fail("nothing is to be sent"))
    assert desk.submit(path).exit_code == 3


@pytest.mark.parametrize(("days", "sent"), [(3, 3), (4, 2), (5, 1)])
def test_resume_holds_back_what_would_start_too_late(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, days: int, sent: int
) -> None:
    """A recurring payment whose first day has passed would start on a day that nobody agreed to."""
    next_day = f"{TODAY + timedelta(days=4):%m/%d/%Y}"
    later = MONTHLY | {"paymentId": "P-4", "invoiceNumber": "A-4", "recurringStartDate": next_day}
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(desk.file("may.csv", ONE, MONTHLY, later))
    at_noon(days)
    done = desk.resume()
    assert (done.exit_code, done.held_back.rows, desk.arrived.total()) == (0 if sent == 3 else 3, 3 - sent, sent)


def test_what_is_held_back_is_not_told_to_be_sent_as_well(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file repeats a row that waits beside it: `resume` sends that one alone."""
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        waits = desk.submit(desk.file("may.csv", ONE, MONTHLY)).batch
    at_noon(4)
    (note,) = (note for note in desk.submit(desk.file("june.csv", ONE)).notes if "same bills" in note)
    told = f"wait to be sent: batchpay resume {waits}, of which 1 row, 20.00, is held back there by today's rules"
    assert note.endswith(told)


def test_a_start_date_that_passed_can_be_corrected(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standing order waited for too long: the note on its corrected row advised `resume`, which held it back.

    The row's own message advised an invoice number of its own, with which the first row might be paid as well. Once
    the corrected row was paid, `health` failed for good.
    """
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        waits = desk.submit(desk.file("may.csv", ONE, MONTHLY)).batch
    at_noon(4)
    assert (desk.resume(waits).held_back, desk.arrived) == (Totals(1, 20_00), {"A-1": 1})
    corrected = MONTHLY | {"recurringStartDate": f"{TODAY + timedelta(days=30):%m/%d/%Y}"}
    refused = desk.submit(desk.file("june.csv", corrected))
    (note,) = (note for note in refused.notes if "same bills" in note)
    assert note.endswith(", of which 1 row, 20.00, is held back there by today's rules")
    assert note.count("of which") == 1, "nothing of it is left to send"
    (failure,) = desk.verdict.failures
    assert failure.message.endswith("is held back there by today's rules: give it a paymentId of its own")
    corrected["paymentId"] = "P-4"
    desk.submit(desk.file("june.csv", corrected))
    (failure,) = desk.verdict.failures
    advice = "is held back there by today's rules: submit it with --allow-duplicates --reason TEXT"
    assert failure.message.endswith(advice)
    assert stopped_batches(desk) == 6
    paid = desk.submit(desk.file("july.csv", corrected, TWO), allow_duplicates=True)
    assert (paid.of(State.ACCEPTED).rows, desk.arrived) == (2, {"A-1": 1, "A-2": 1, "A-3": 1})
    assert stopped_batches(desk) == 0
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, past_start=False))
    assert (desk.resume(waits).held_back, desk.arrived["A-3"]) == (Totals(1, 20_00), 1)


def stopped_batches(desk: Desk) -> int:
    """Return the exit code of health's check of stopped batches."""
    findings = health(desk.settings, HealthLimits(), datetime.now(UTC)).findings
    return next(finding.exit_code for finding in findings if finding.check == "batches")


def test_resume_holds_back_what_is_above_todays_limit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit was lowered while a batch waited: `submit` held the row back, `resume` sent it."""
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(desk.file("may.csv", TWO, ONE))
    desk.limit("10.00")
    begun: list[Totals] = []
    monkeypatch.setattr(Quiet, "begin", lambda self, batch, to_send: begun.append(to_send))
    done = desk.resume()
    assert (done.exit_code, done.held_back, desk.arrived) == (3, Totals(1, 50_000), {"A-1": 1})
    assert begun == [Totals(1, 1_000)], "what is shown is what goes"
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, rules_off=["amount.limit"]))
    assert desk.resume().exit_code == 0, "the rule is switched off, for a resume as for a submission"


@pytest.mark.parametrize("listed_max", [1000, 1])
@pytest.mark.parametrize("was_refused_first", [False, True])
def test_resume_does_not_pay_what_was_sent_with_another_file_since(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, was_refused_first: bool, listed_max: int
) -> None:
    """A run was stopped, and someone sent the rest in a file of its own: `submit` held it back, `resume` paid it.

    Of more than are listed nobody knows which: then none is sent, and health goes on telling of them.
    """
    monkeypatch.setattr("batchpay.workflows.earlier_payments.LISTED_MAX", listed_max)
    bills = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2, 3)]
    path, rest = desk.file("may.csv", *bills), desk.file("rest.csv", *bills[1:])
    stopped = desk.submit(path, run=run.RunRequest(None, Limits(rows_max=1)))
    if was_refused_first:
        assert desk.submit(rest).exit_code == 3
    desk.submit(rest, release="may.csv hangs" if was_refused_first else None, allow_duplicates=True)
    done = desk.resume(stopped.batch)
    assert (done.exit_code, done.held_back) == (3, Totals(2, 50_00))
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}
    assert stopped_batches(desk) == (0 if listed_max > 1 else 6)


def test_resume_pays_what_no_other_file_has(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third file let through more than are listed, but of another batch: that says nothing of this one."""
    monkeypatch.setattr("batchpay.workflows.earlier_payments.LISTED_MAX", 1)
    bills = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2, 3, 4)]
    stopped = desk.submit(desk.file("may.csv", *bills[:2]), run=run.RunRequest(None, stop=asked_to_stop()))
    desk.submit(desk.file("june.csv", *bills[2:]))
    desk.submit(desk.file("twice.csv", *bills[2:], {"invoiceNumber": "A-5", "amount": "5.00"}), allow_duplicates=True)
    desk.submit(desk.file("rest.csv", bills[0]), allow_duplicates=True)
    done = desk.resume(stopped.batch)
    assert (done.held_back, desk.arrived["A-1"], desk.arrived["A-2"]) == (Totals(1, 10_00), 1, 1)


def test_resume_does_not_pay_what_a_machine_whose_clock_is_behind_has_released(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clocks the bill was let through before the batch was registered, so nobody looked: it was paid twice."""
    bills = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2)]
    path, rest = desk.file("may.csv", *bills), desk.file("rest.csv", bills[0])
    stopped = desk.submit(path, run=run.RunRequest(None, stop=asked_to_stop()))
    assert desk.submit(rest).exit_code == 3
    behind_ms = int((datetime.now(UTC) - timedelta(minutes=50)).timestamp() * 1000)
    with monkeypatch.context() as patched:
        patched.setattr("batchpay.ledger.sqlite.store.now_ms", lambda: behind_ms)
        desk.submit(rest, release="may.csv hangs", allow_duplicates=True)
    done = desk.resume(stopped.batch)
    assert (done.held_back.rows, desk.arrived) == (1, {"A-1": 1, "A-2": 1})


def test_resume_pays_what_the_other_file_did_not_pay_after_all(desk: Desk) -> None:
    """The gateway declined it there, so it is no longer a duplicate, as for `submit`."""
    path, rest = desk.file("may.csv", BILL | {"paymentId": ""}), desk.file("rest.csv", BILL | {"paymentId": "P-9"})
    stopped = desk.submit(path, run=run.RunRequest(None, stop=asked_to_stop()))
    desk.answer = lambda _: Outcome(State.DECLINED, "no", Answer(200, "R01", "no"), bytes_sent=900)
    desk.submit(rest, allow_duplicates=True)
    desk.answer = lambda _: ACCEPTED
    assert desk.resume(stopped.batch).exit_code == 0
    assert desk.arrived == {"A-1": 2}


@pytest.mark.parametrize("state", [State.PENDING, State.SENDING, State.IN_DOUBT])
def test_resume_does_not_pay_what_the_other_file_may_still_pay(desk: Desk, state: State) -> None:
    """The other file's run was stopped, killed or got no answer: paid here as well, the bill may be paid twice."""
    stopped = desk.submit(
        desk.file("may.csv", BILL | {"paymentId": ""}), run=run.RunRequest(None, stop=asked_to_stop())
    )
    rest, stops = desk.file("rest.csv", BILL | {"paymentId": "P-9"}), run.RunRequest(None, stop=asked_to_stop())
    desk.answer = lambda _: IN_DOUBT
    desk.submit(rest, allow_duplicates=True, run=None if state is State.IN_DOUBT else stops)
    if state is State.SENDING:
        with closing(open_ledger(desk.settings.ledger)) as ledger:
            batch = ledger.find(None)
            with ledger.lock(batch.digest):
                ledger.start(batch.batch, "tester").commit([1], [])
    done = desk.resume(stopped.batch)
    assert (done.held_back, desk.arrived.total()) == (Totals(1, 10_00), state is State.IN_DOUBT)


def test_what_is_held_back_is_known_by_its_number() -> None:
    """Rows before, between and after those that are held back are sent."""
    held = HeldBack()
    held.add(2, 100)
    held.add(5, 250)
    assert [row for row in range(1, 8) if row in held] == [2, 5]
    assert "2" not in held
    assert held.totals == Totals(2, 350)


def test_resume_of_a_batch_that_nobody_touched_needs_a_person(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left for a week may have been paid some other way since."""
    path = desk.file("may.csv", ONE)
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(path)
    days_later(7)
    with pytest.raises(WrongUse, match="--stale --reason"):
        desk.resume()
    assert not desk.arrived
    assert desk.resume(stale_reason="asked the payee").exit_code == 0
    assert ("ann@desk-3", "asked the payee") in desk.events("started")
    assert desk.resume().exit_code == 0, "with nothing left to send nobody is asked"


def test_yesterdays_batch_is_resumed_as_usual(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """policy.stale_days counts whole days from the last event."""
    path = desk.file("may.csv", ONE)
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(path)
    days_later(6)
    assert desk.resume().exit_code == 0


def test_a_doubt_of_an_earlier_batch_ends_every_call_with_7(desk: Desk) -> None:
    """A row in doubt was reported once, in one exit code, and then no call mentioned it again."""

    def answer(reference: str) -> Outcome:
        return IN_DOUBT if reference == "A-2" else ACCEPTED

    desk.answer = answer
    doubtful = desk.submit(desk.file("may.csv", ONE, TWO))
    assert (doubtful.exit_code, doubtful.in_doubt_elsewhere) == (7, {})
    other = desk.submit(desk.file("june.csv", {"paymentId": "P-9", "invoiceNumber": "A-9", "amount": "1.00"}))
    assert (other.exit_code, other.in_doubt_elsewhere) == (7, {doubtful.batch: {"CREDIT": Totals(1, 50_000)}})
    assert other.as_json()["in_doubt_elsewhere"] == [{"batch": doubtful.batch, "rows": 1, "amount": "500.00"}]
    assert desk.resume(other.batch).exit_code == 7
    assert all_in_doubt(desk.settings) == {doubtful.batch: {"CREDIT": Totals(1, 50_000)}}


def test_what_a_killed_run_was_sending_ends_every_call_with_7(desk: Desk, on_both: None) -> None:
    """Its file was gone, so nobody took the batch over, and every later call ended with 0."""
    desk.submit(desk.file("may.csv", ONE))
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        killed = add_batch(ledger, [Planned(1, State.SENDING, 700)])
    other = desk.submit(desk.file("june.csv", {"paymentId": "P-9", "invoiceNumber": "A-9", "amount": "1.00"}))
    assert (other.exit_code, other.in_doubt_elsewhere) == (7, {killed: {"DEBIT": Totals(1, 700)}})
    assert all_in_doubt(desk.settings) == {killed: {"DEBIT": Totals(1, 700)}}


OFF = {"past_start": False}, {"rules_off": ["recurringStartDate.past"]}
"""Either setting switches the rule off."""


@pytest.mark.parametrize("off", OFF)
def test_past_start_switched_off_holds_nothing_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, off: dict[str, Any]
) -> None:
    """The rule is a house rule: switching it off applies to `resume` as well, which held back what `submit` sent."""
    path = desk.file("may.csv", MONTHLY)
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(path)
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, **off))
    days_later(5)
    assert desk.resume().exit_code == 0


@pytest.mark.parametrize(
    ("policy", "arrived"),
    [({}, ["A-1", "A-2", "A-3", "A-5"]), *((off, ["A-1", "A-2", "A-3", "A-4", "A-5"]) for off in OFF)],
)
def test_what_was_to_start_today_does_not_leave_after_midnight(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], arrived: list[str]
) -> None:
    """A run that crossed midnight sent recurring payments whose first day had just passed.

    What starts on the new day is in time, as is what has no first day, and what `--as-of` let through with an earlier
    day stays let through.
    """
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, **policy))
    starts = {3: TODAY + timedelta(days=1), 4: TODAY, 5: TODAY - timedelta(days=5)}
    rows = [
        MONTHLY | {"paymentId": f"P-{n}", "invoiceNumber": f"A-{n}", "recurringStartDate": f"{day:%m/%d/%Y}"}
        for n, day in starts.items()
    ]
    at_noon(0)

    def midnight_comes(reference: str) -> Outcome:
        at_noon(1)
        return ACCEPTED

    desk.answer = midnight_comes
    told: list[str] = []
    monkeypatch.setattr(Quiet, "say", lambda self, text: told.append(text))
    monkeypatch.setattr(run, "log", lambda event, **fields: told.append(f"{event} {fields.get('rows')}"))
    done = desk.submit(desk.file("may.csv", ONE, TWO, *rows), as_of=TODAY - timedelta(days=5))
    held = Totals() if policy else Totals(1, 20_00)
    assert told.count("1 row held back since midnight: the first day has passed") == held.rows
    assert told.count("rows held back 1") == held.rows, "a log without a word of them ended with 3 for no reason"
    assert sorted(desk.arrived) == arrived
    assert (done.exit_code, done.held_back, done.of(State.PENDING)) == (0 if policy else 3, held, held)
    assert (done.stopped, desk.resume().held_back) == (None, held)


def test_a_start_date_that_is_not_recorded_has_passed() -> None:
    """The first versions recorded none: such a payment waits for its file, not to begin on a day nobody asked for."""
    columns: Any = SimpleNamespace(details=[b'{"recurringIndicator":"TRUE"}', b'{"recurringIndicator":"FALSE"}'])
    assert start_has_passed(TODAY)(columns) == [True, False]


def test_rows_are_checked_only_if_one_may_fail(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every waiting row was read before the first byte of a resumed run: six seconds for a million rows."""
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(desk.file("may.csv", TWO, MONTHLY))

    def may_fail(*, is_of_first_version: bool = False) -> bool:
        with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
            batch = ledger.find(None)
            batch = replace(batch, options={}) if is_of_first_version else batch
            return held_back.fails_today(ledger, batch, desk.settings) is not None

    assert not may_fail()
    desk.limit("500.00")
    assert not may_fail()
    desk.limit("499.99")
    assert may_fail()
    desk.limit("")
    at_noon(3)
    assert not may_fail()
    assert may_fail(is_of_first_version=True), "the first versions did not note when the first one starts"
    at_noon(4)
    assert may_fail()


def test_a_row_that_was_released_is_checked_as_well(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was rejected when its batch was registered, and what was then recorded of the amounts does not cover it."""
    path = desk.file("may.csv", ONE, TWO)
    desk.limit("100.00")
    with monkeypatch.context() as patched:
        stop_before(desk, patched)
        desk.submit(path)
        desk.limit("1000.00")
        desk.submit(path, release="the limit was too low")
    desk.limit("100.00")
    done = desk.resume()
    assert (done.exit_code, done.held_back, desk.arrived) == (3, Totals(1, 50_000), {"A-1": 1})
