"""Rows with a day of their own: sent on that day and not before, and no alarm until then."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from batchpay.errors import FileRefused, SettingsNotUsable, WaitingForPerson, WrongUse
from batchpay.gateway.accounts import Preflight
from batchpay.gateway.credentials import Credentials
from batchpay.ledger.open import create_ledger, open_ledger
from batchpay.outcome import Outcome
from batchpay.payment import State, Totals
from batchpay.registration import digests
from batchpay.sending.limits import Limits
from batchpay.settings import Secret
from batchpay.workflows import run
from batchpay.workflows.health import HealthLimits, health
from batchpay.workflows.policy import policy_of, set_policy
from batchpay.workflows.run import RunRequest, resume
from batchpay.workflows.status import batch_status
from tests.model import clock
from tests.workflows.desk import ACCEPTED, ANN, Desk, Quiet

TODAY = datetime.now(UTC).date() + timedelta(days=1)
"""The first day of each test: noon on it comes after the ledger was made."""
BILLS = [{"paymentId": f"P-{n}", "invoiceNumber": f"A-{n}", "amount": f"{n}0.00"} for n in range(1, 5)]


def at_noon(days: int) -> None:
    """Make it noon this many days after `TODAY`."""
    noon = datetime.combine(TODAY + timedelta(days=days), time(12), UTC)
    clock.offset_s = (noon - datetime.now(UTC)).total_seconds()
    clock.exchange()


def register_with_days(monkeypatch: pytest.MonkeyPatch, days: Mapping[int, int]) -> None:
    """Register rows, by their number, for so many days after `TODAY`."""
    build = digests._payment_columns

    def with_days(*arguments: Any) -> Any:
        columns = build(*arguments)
        pay_on = [(TODAY + timedelta(days=days[row])).toordinal() if row in days else None for row in columns.rows]
        return replace(columns, pay_on=pay_on)

    monkeypatch.setattr(digests, "_payment_columns", with_days)


@pytest.fixture(autouse=True)
def zone(desk: Desk) -> None:
    """Let days be those of UTC in these tests."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, zone="UTC"))


def test_a_row_is_sent_on_its_day(desk: Desk, on_both: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it is no reason for an exit code, an alarm or a word but that it is scheduled."""
    at_noon(0)
    register_with_days(monkeypatch, {2: 3, 3: 1, 4: 0})
    path = desk.file("pay.csv", *BILLS)
    first = desk.submit(path)
    assert (first.exit_code, first.stopped, first.waiting) == (0, None, 0)
    assert (first.scheduled, first.next_pay_on) == (Totals(2, 5000), TODAY + timedelta(days=1))
    assert first.as_json()["scheduled"] == {"rows": 2, "amount": "50.00"}
    assert first.as_json()["next_pay_on"] == (TODAY + timedelta(days=1)).isoformat()
    assert set(desk.arrived) == {"A-1", "A-4"}
    again = desk.submit(path)
    assert (again.exit_code, again.scheduled) == (0, Totals(2, 5000))
    found = {one.check: one for one in health(desk.settings, HealthLimits(), clock.now(UTC)).findings}
    assert (found["batches"].exit_code, found["batches"].message) == (0, "no batch is stopped with rows to send")
    assert desk.arrived.total() == 2
    at_noon(1)
    assert batch_status(str(first.batch), desk.settings).exit_code == 6, "it is due, and nobody has sent it"
    assert desk.resume().exit_code == 0
    assert set(desk.arrived) == {"A-1", "A-3", "A-4"}
    at_noon(4)
    last = desk.submit(path)
    assert (last.exit_code, last.scheduled, last.next_pay_on) == (0, Totals(), None)
    assert (last.of(State.ACCEPTED).rows, desk.arrived.total()) == (4, 4)


@pytest.mark.parametrize(
    ("due", "quiet", "alarm"),
    [
        (date(2027, 1, 15), date(2027, 1, 18), date(2027, 1, 19)),  # a Friday; the Monday is a holiday
        (date(2027, 2, 9), date(2027, 2, 9), date(2027, 2, 10)),
        (date(2027, 2, 6), date(2027, 2, 7), date(2027, 2, 8)),  # a Saturday
    ],
)
def test_health_fails_once_a_banking_day_has_passed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, due: date, quiet: date, alarm: date
) -> None:
    """Until then any call of the night may still send it, and over a weekend there is none."""
    at_noon(0)
    register_with_days(monkeypatch, {2: (due - TODAY).days})
    desk.submit(desk.file("pay.csv", *BILLS[:2]))

    def looked() -> dict[str, tuple[int, str]]:
        found = health(desk.settings, HealthLimits(), clock.now(UTC)).findings
        return {one.check: (one.exit_code, one.message) for one in found}

    assert looked()["scheduled"] == (0, f"1 row scheduled, 20.00, next on {due:%m/%d/%Y}")
    at_noon((quiet - TODAY).days)
    assert looked()["batches"] == (0, "no batch is stopped with rows to send")
    assert "scheduled" not in looked()
    at_noon((alarm - TODAY).days)
    code, told = looked()["batches"]
    assert (code, told[:14], f"overdue since {due:%m/%d/%Y}: batchpay resume" in told) == (6, "1 row to be se", True)


def test_a_call_with_nothing_due_says_when_the_next_is(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night without anything to send needs no gateway, and names the day."""
    at_noon(0)
    register_with_days(monkeypatch, dict.fromkeys(range(1, 5), 2))
    said: list[str] = []
    monkeypatch.setattr(Quiet, "say", lambda _, text: said.append(text))
    summary = desk.submit(desk.file("pay.csv", *BILLS))
    assert (summary.exit_code, summary.work.attempts) == (0, 0)
    later = f"{TODAY + timedelta(days=2):%m/%d/%Y}"
    assert said == [f"batch {summary.batch}: nothing is left to send; 4 rows scheduled, next on {later}"]


def test_a_run_over_midnight_sends_what_was_due_on_its_day(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first answer comes after midnight: what is due since then is the next call's, and no alarm of this one."""
    at_noon(0)
    register_with_days(monkeypatch, {2: 1, 4: 2})

    def slowly(reference: str) -> Outcome:
        at_noon(1)
        return ACCEPTED

    desk.answer = slowly
    path = desk.file("pay.csv", *BILLS)
    summary = desk.submit(path)
    assert set(desk.arrived) == {"A-1", "A-3"}
    assert (summary.exit_code, summary.scheduled, summary.next_pay_on) == (
        0,
        Totals(2, 6000),
        TODAY + timedelta(days=1),
    )
    assert desk.submit(path).scheduled == Totals(1, 4000)
    assert set(desk.arrived) == {"A-1", "A-2", "A-3"}


def test_what_is_asked_before_a_run_is_asked_of_its_day(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Midnight that passed before the run began let it send what had been scheduled when approvals were asked for."""
    at_noon(0)
    register_with_days(monkeypatch, dict.fromkeys(range(1, 5), 1))
    name = desk.submit(desk.file("pay.csv", *BILLS)).batch
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, approvals=1))
    asked = run._require_approval

    def until_midnight(*arguments: Any) -> None:
        asked(*arguments)
        at_noon(1)

    with monkeypatch.context() as patched:
        patched.setattr(run, "_require_approval", until_midnight)
        assert desk.resume(name).scheduled.rows == 4
    assert not desk.arrived
    with pytest.raises(WaitingForPerson):
        desk.resume(name)


def test_todays_rules_are_asked_on_the_day(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that was lowered holds a scheduled row back when it is due: until then it may be raised again."""
    at_noon(0)
    register_with_days(monkeypatch, {2: 1, 3: 1})
    path = desk.file("pay.csv", *BILLS)
    desk.submit(path)
    desk.limit("25.00")
    now = desk.submit(path)
    assert (now.exit_code, now.held_back, now.scheduled.rows) == (0, Totals(), 2)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ended = ledger.latest_event("finished")
        assert ended is not None
        assert "held back" not in ended.detail
    at_noon(1)
    due = desk.submit(path)
    assert (due.exit_code, due.held_back, due.scheduled.rows) == (3, Totals(1, 3000), 0)
    assert desk.arrived["A-2"] == 1


def test_an_account_that_takes_no_payments_rejects_what_is_due(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a scheduled row's day the account may be open again."""
    at_noon(0)
    register_with_days(monkeypatch, {2: 1})

    class Closed:
        def check_connection(self) -> None:
            """The credentials are good."""

        def refused(self, gateway_ids: Any) -> dict[str, str]:
            return dict.fromkeys(gateway_ids, "unknown")

    with monkeypatch.context() as patched:
        patched.setattr(Limits, "allow_row", lambda self: False)
        desk.submit(desk.file("pay.csv", *BILLS[:2]))
    request = RunRequest(results=None, preflight=cast(Preflight, Closed()))
    summary = resume(None, lambda _: None, request, desk.settings, Credentials("desk", Secret("k")), ANN, Quiet())
    assert (summary.of(State.REJECTED).rows, summary.scheduled.rows, summary.exit_code) == (1, 1, 3)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        assert ledger.check() == []


def with_zone(desk: Desk, zone: str) -> None:
    """Let the settings file name a zone."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, zone=zone))


def test_a_file_with_days_is_refused_until_a_zone_is_set(desk: Desk) -> None:
    """Two machines in two zones would not agree when a day begins; a file without days asks for none."""
    at_noon(0)
    with_zone(desk, "")
    assert desk.submit(desk.file("plain.csv", BILLS[3])).exit_code == 0
    path = desk.file("pay.csv", BILLS[0], BILLS[1] | {"payOn": f"{TODAY + timedelta(days=1):%m/%d/%Y}"})
    with pytest.raises(FileRefused, match=r"pay\.csv .*ledger policy set --zone America/New_York --reason TEXT"):
        desk.submit(path)
    assert desk.events("registered") == [("ann@desk-3", None)], "plain.csv"
    set_policy(desk.settings, {}, "UTC", "the company is there", ANN)
    assert desk.submit(path).scheduled.rows == 1


def test_the_zone_of_the_settings_file_is_taken_over_once(desk: Desk, on_both: None) -> None:
    """From then on a machine whose settings differ is refused before anything: it would send on another day."""
    at_noon(0)
    path = desk.file("pay.csv", BILLS[0])
    with_zone(desk, "Mars/Olympus_Mons")
    with pytest.raises(SettingsNotUsable, match=r"policy\.zone: Mars/Olympus_Mons is no time zone"):
        desk.submit(path)
    with_zone(desk, "Europe/Paris")
    desk.submit(path)
    desk.resume()
    assert desk.events("policy") == [("ann@desk-3", "policy.zone of the settings file")]
    with_zone(desk, "Asia/Tokyo")
    told = "policy.zone is Asia/Tokyo, and the ledger has Europe/Paris; .*ledger policy set --zone Asia/Tokyo"
    with pytest.raises(SettingsNotUsable, match=told):
        desk.submit(path)
    with pytest.raises(SettingsNotUsable, match=told):
        desk.resume()
    assert set_policy(desk.settings, {}, "Asia/Tokyo", "moved", ANN)["zone"] == "Asia/Tokyo"
    assert desk.resume().exit_code == 0
    with pytest.raises(WrongUse, match="ledger policy needs --reason TEXT"):
        set_policy(desk.settings, {}, "UTC", None, ANN)
    with pytest.raises(WrongUse, match="--zone: UTC5 is no time zone"):
        set_policy(desk.settings, {}, "UTC5", "x", ANN)
    found = policy_of(desk.settings)
    assert (found["zone"], found["who"], found["why"]) == ("Asia/Tokyo", "ann@desk-3", "moved")


def started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, up_days: float = 0.0) -> None:
    """Start the machine again; it has been running for so many days."""
    (tmp_path / "boot").write_text("another boot")
    monkeypatch.setattr("batchpay.ledger.machine.BOOT_ID", tmp_path / "boot")
    monkeypatch.setattr("batchpay.ledger.machine.since_boot_ms", lambda: int(up_days * 86_400_000))


@pytest.mark.parametrize(
    ("days", "up_days", "is_kept", "is_sent"),
    [(4, 0.1, False, False), (4, 0.1, True, True), (4, 3.1, False, True), (1, 0.1, False, True)],
    ids=["nothing vouches for it", "a time server does", "the machine has been running since", "a day is believed"],
)
def test_a_row_that_is_due_only_by_a_doubtful_clock_waits(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, up_days: float, is_kept: bool, is_sent: bool
) -> None:
    """A machine that starts with a dead battery would send next month's rents today; no later event vouches for it."""
    create_ledger(desk.settings.ledger, "tester")
    at_noon(0)
    register_with_days(monkeypatch, {2: days})
    path = desk.file("pay.csv", *BILLS[:2])
    name = desk.submit(path).batch
    at_noon(days)
    monkeypatch.setattr(clock, "synchronized", is_kept)
    started_again(monkeypatch, tmp_path, up_days=up_days)
    if is_sent:
        assert desk.submit(path).of(State.ACCEPTED).rows == 2
        return
    register_with_days(monkeypatch, {})
    assert desk.submit(desk.file("others.csv", BILLS[2])).exit_code == 0, "an event at the wrong time"
    another_word = partial(desk.submit, path, looked_elsewhere="no other ledger has it")
    for call in (partial(desk.submit, path), another_word, partial(desk.resume, name)):
        with pytest.raises(WaitingForPerson, match=rf"batch {name}: 1 row due by the clock of this machine"):
            call()
    assert desk.resume(name, "it is the fifth, by the newspaper").of(State.ACCEPTED).rows == 2
