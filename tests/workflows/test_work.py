"""Several machines send one batch: one leads, the others help, each row goes once, and a stop stops all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import HeldElsewhere, SettingsNotUsable, WrongUse
from batchpay.gateway.credentials import Credentials
from batchpay.ledger.open import create_ledger, join, open_ledger
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.sending.limits import Limits
from batchpay.settings import LedgerSettings, PolicySettings, Secret, Settings, SubmitSettings
from batchpay.summary import Summary
from batchpay.workflows import submit as submitting
from batchpay.workflows.move_gateway import move_gateway
from batchpay.workflows.requests import CheckOptions, file_request
from batchpay.workflows.resolve import RowDecision, Signature, settle
from batchpay.workflows.resume import resume
from batchpay.workflows.run import RunRequest
from batchpay.workflows.status import runs_of_batch
from batchpay.workflows.submit import SubmitRequest
from batchpay.workflows.work import help_with, work, work_forever
from tests.support.postgres import Server
from tests.workflows.desk import ACCEPTED, ANN, IN_DOUBT, Desk, Quiet

CREDENTIALS = Credentials("desk", Secret("desk-key"))
ROWS, CHUNK_ROWS = 100, 16
REFUSED = Outcome(State.PENDING, "401", stop="the gateway refused the key")


class Machines:
    """A desk whose ledger two machines share, and a file of several chunks."""

    def __init__(self, desk: Desk, server: Server) -> None:
        self.desk = desk
        database = server.new_database()
        self.one = self._settings("one", server.url(database))
        create_ledger(self.one.ledger, "tester", owner_url=server.owner_url(database))
        self.two = self._settings("two", server.url(database))
        key = Path(self.two.ledger.key_file)
        key.parent.mkdir(mode=0o700)
        key.write_bytes(Path(self.one.ledger.key_file).read_bytes())
        key.chmod(0o600)
        join(self.two.ledger, "tester", "a second machine")
        rows = ({"invoiceNumber": f"R{row}", "amount": f"{row}.00"} for row in range(1, ROWS + 1))
        self.file = desk.file("payments.csv", *rows)
        self.said: list[str] = []

    def _settings(self, name: str, url: str) -> Settings:
        keys = self.desk.folder / name
        ledger = LedgerSettings(url=url, key_file=str(keys / "ledger.key"), witness=str(keys / "witness"))
        return replace(self.desk.settings, ledger=ledger, submit=SubmitSettings(rate="20000", workers=1))

    def submit(self, settings: Settings, *, joins: bool = False, rows_max: int | None = None) -> Summary:
        """Submit the file from one of the machines."""
        results = self.desk.folder / f"{Path(settings.ledger.key_file).parent.name}.results.csv"
        request = SubmitRequest(RunRequest(results, Limits(rows_max)))
        request = replace(request, joins=True) if joins else request  # the page says nothing of it
        asked = file_request(str(self.file), None, CheckOptions(), settings)
        return submitting.submit(asked, request, settings, CREDENTIALS, ANN, Quiet())[0]

    def help(self, batch: str | None = None) -> list[Summary]:
        """Help from the second machine."""
        return work(batch, RunRequest(None), self.two, CREDENTIALS, ANN, Quiet())

    def while_leading(self, act: Callable[[str], None], rows_max: int | None = None) -> Summary:
        """Let the first machine lead, and do something when it has sent two rows; it continues when that is done."""
        reached, go_on = threading.Event(), threading.Event()
        answer = self.desk.answer

        def wait(reference: str) -> Outcome:
            if len(self.desk.arrived) == 3 and not reached.is_set():
                reached.set()
                assert go_on.wait(60)
            return answer(reference)

        self.desk.answer = wait
        led: list[Summary] = []
        leading = threading.Thread(target=lambda: led.append(self.submit(self.one, rows_max=rows_max)))
        leading.start()
        assert reached.wait(60)
        with closing(open_ledger(self.one.ledger, read_only=True)) as ledger:
            batch = ledger.find(None).batch
        try:
            act(batch)
        finally:
            go_on.set()
            leading.join()
        return led[0]

    def wait_for_help(self, batch: str) -> None:
        """Wait until there is a second run."""
        while len(self.sent_by(batch)) < 2:
            threading.Event().wait(0.02)

    def sent_by(self, batch: str) -> list[tuple[bool, int]]:
        """Return which machine, the one that leads or one that helps, sent how many rows."""
        return [(run.leads, run.rows) for run in runs_of_batch(batch, self.one)]


@pytest.fixture
def machines(desk: Desk, postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    monkeypatch.setenv("XDG_STATE_HOME", str(desk.folder / "state"))
    monkeypatch.setattr("batchpay.ledger.payload.CHUNK_ROWS", CHUNK_ROWS)
    monkeypatch.setattr("batchpay.sending.sender._CLAIM_ROWS", CHUNK_ROWS)
    desk.folder.chmod(0o700)
    found = Machines(desk, postgres_server)
    yield found
    postgres_server.drop(found.one.ledger.url.rsplit("/", 1)[1])


def test_two_machines_send_each_row_once(machines: Machines) -> None:
    """The leader waits for those that help, and its results have every row."""
    helped: list[Summary] = []
    begun = threading.Event()
    helping = threading.Thread(target=lambda: helped.extend(machines.help()))

    def act(batch: str) -> None:
        answer = machines.desk.answer

        def seen(reference: str) -> Outcome:
            if threading.current_thread() not in ours:
                begun.set()
            return answer(reference)

        ours = set(threading.enumerate())
        machines.desk.answer = seen
        helping.start()
        assert begun.wait(60)

    led = machines.while_leading(act)
    helping.join()
    assert set(machines.desk.arrived.values()) == {1}
    assert len(machines.desk.arrived) == ROWS
    assert (led.exit_code, led.of(State.ACCEPTED).rows) == (0, ROWS)
    assert [(one.exit_code, one.batch) for one in helped] == [(0, led.batch)]
    sent = machines.sent_by(str(led.batch))
    assert [leads for leads, _ in sent] == [True, False]
    assert sum(rows for _, rows in sent) == ROWS
    assert min(rows for _, rows in sent) > 0
    assert (machines.desk.folder / "one.results.csv").read_text().count("accepted") == ROWS
    with closing(open_ledger(machines.one.ledger)) as ledger:
        assert ledger.check() == []


def test_a_second_submission_is_refused_or_helps(machines: Machines) -> None:
    """Two machines get one file by cron: with --join the second one helps immediately, and both write the results."""
    joined: list[Summary] = []
    joining = threading.Thread(target=lambda: joined.append(machines.submit(machines.two, joins=True)))

    def act(batch: str) -> None:
        with pytest.raises(HeldElsewhere, match=rf"has sent \d of 100; help with: batchpay work {batch}$"):
            machines.submit(machines.two)
        joining.start()
        machines.wait_for_help(batch)

    led = machines.while_leading(act)
    joining.join()
    assert set(machines.desk.arrived.values()) == {1}
    assert (led.exit_code, joined[0].exit_code, joined[0].of(State.ACCEPTED).rows) == (0, 0, ROWS)
    assert (machines.desk.folder / "two.results.csv").exists()


def test_what_stops_one_machine_stops_all(machines: Machines) -> None:
    """The gateway refuses the key while two machines send: neither continues."""
    helped: list[Summary] = []
    helping = threading.Thread(target=lambda: helped.extend(machines.help()))
    sends = threading.Event()

    def act(batch: str) -> None:
        ours = set(threading.enumerate())

        def refuse(reference: str) -> Outcome:
            if threading.current_thread() in ours:
                return ACCEPTED
            sends.set()
            return ACCEPTED if len(machines.desk.arrived) < 40 else REFUSED

        machines.desk.answer = refuse
        helping.start()
        assert sends.wait(60)

    led = machines.while_leading(act)
    helping.join()
    assert (led.stopped, helped[0].stopped) == (REFUSED.stop, REFUSED.stop)
    assert (led.exit_code, helped[0].exit_code) == (6, 6)
    assert set(machines.desk.arrived.values()) == {1}
    assert machines.help() == []
    again = machines.help(str(led.batch))
    assert (again[0].stopped, again[0].exit_code) == (REFUSED.stop, 6)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_leader_that_stops_all_and_dies_does_not_hold_the_batch(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """Found by the campaign: the helpers left at its word, nobody saw that it was dead, and nobody could lead."""
    monkeypatch.setattr("batchpay.ledger.postgres.company.LEASE_S", 0.2)
    monkeypatch.setattr("batchpay.ledger.postgres.company.BEAT_S", 0.05)
    machines.desk.answer = lambda reference: ACCEPTED if len(machines.desk.arrived) < 3 else REFUSED
    monkeypatch.setattr("batchpay.ledger.postgres.run.PostgresRun.finish", die)
    with pytest.raises(KeyboardInterrupt):
        machines.submit(machines.one)
    monkeypatch.undo()
    monkeypatch.setattr("batchpay.ledger.postgres.company.LEASE_S", 0.2)
    monkeypatch.setattr("batchpay.ledger.postgres.company.BEAT_S", 0.05)
    with closing(open_ledger(machines.one.ledger, read_only=True)) as ledger:
        batch = ledger.find(None).batch
    with pytest.raises(HeldElsewhere):
        machines.submit(machines.two)
    arrived = len(machines.desk.arrived)
    assert [one.stopped for one in machines.help(batch if is_named else None)] == [REFUSED.stop]
    assert len(machines.desk.arrived) == arrived
    assert [run.is_live for run in runs_of_batch(batch, machines.one)] == [False, False]


def test_rows_that_a_dead_leader_was_sending_are_put_in_doubt_if_none_is_left_to_send(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was left to send, so a helper left at once: the batch stayed held, and nobody was told of its doubts."""
    monkeypatch.setattr("batchpay.ledger.postgres.company.LEASE_S", 0.2)
    monkeypatch.setattr("batchpay.ledger.postgres.company.BEAT_S", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr("batchpay.sending.recorder.Recorder.record", lambda *_: None)  # dead before an answer is recorded
        patch.setattr("batchpay.ledger.postgres.run.PostgresRun.finish", die)
        with pytest.raises(KeyboardInterrupt):
            machines.submit(machines.one)
    with closing(open_ledger(machines.one.ledger, read_only=True)) as ledger:
        batch = ledger.find(None)
        assert batch.by_state[State.SENDING].rows == ROWS
    helped = machines.help(batch.batch)
    assert [(one.exit_code, one.of(State.IN_DOUBT).rows) for one in helped] == [(7, ROWS)]
    assert [run.is_live for run in runs_of_batch(batch.batch, machines.one)] == [False, False]


def test_a_stop_that_stopped_nothing_is_not_told_by_a_helper(machines: Machines) -> None:
    """A signal came while the last row was in flight: whoever helps later finds all of it sent."""
    request = RunRequest(None)

    def answer(reference: str) -> Outcome:
        if reference == f"R{ROWS}":
            request.stop.ask("stopped by SIGTERM")
        return ACCEPTED

    machines.desk.answer = answer
    asked = file_request(str(machines.file), None, CheckOptions(), machines.one)
    led = submitting.submit(asked, SubmitRequest(request), machines.one, CREDENTIALS, ANN, Quiet())[0]
    assert (led.of(State.ACCEPTED).rows, led.stopped) == (ROWS, None)
    [helped] = machines.help(led.batch)
    assert (helped.stopped, helped.exit_code) == (None, 0)


def die(*_: object) -> None:
    """End like a process that is killed before it has written anything."""
    raise KeyboardInterrupt


def test_a_leader_with_a_limit_keeps_its_rows(machines: Machines) -> None:
    """Another machine would not know how many rows are enough."""
    helped: list[Summary] = []
    helping = threading.Thread(target=lambda: helped.extend(machines.help()))

    def act(batch: str) -> None:
        helping.start()
        machines.wait_for_help(batch)

    led = machines.while_leading(act, rows_max=20)
    helping.join()
    assert len(machines.desk.arrived) == 20
    assert (led.exit_code, [one.exit_code for one in helped]) == (6, [6])


def test_a_helper_waits_until_it_is_stopped(machines: Machines) -> None:
    """It takes the batch that another machine leads, and ends only by a signal."""
    request = RunRequest(None)
    helped: list[Summary] = []
    started = threading.Event()

    def help_on() -> None:
        started.set()
        for summary in work_forever(request, machines.two, CREDENTIALS, ANN, Quiet()):
            helped.append(summary)
            request.stop.ask("stopped by SIGTERM")

    helping = threading.Thread(target=help_on)

    def act(batch: str) -> None:
        helping.start()
        assert started.wait(60)
        machines.wait_for_help(batch)

    led = machines.while_leading(act)
    helping.join()
    assert (led.exit_code, [one.batch for one in helped]) == (0, [led.batch])


def test_a_run_that_settings_end_holds_the_batch_on_no_other_machine(machines: Machines) -> None:
    """It was begun and never ended: every other machine took it for one at work, and one that waits began it anew."""
    wrong = replace(machines.one, submit=SubmitSettings(rate="fast", workers=1))
    with pytest.raises(SettingsNotUsable, match="rate"):
        machines.submit(wrong)
    led = machines.submit(machines.two)
    assert (led.exit_code, led.of(State.ACCEPTED).rows) == (0, ROWS)


def test_a_ledger_in_a_file_is_not_shared(desk: Desk) -> None:
    """There a second machine would have a second ledger: the refusal says where to read more."""
    desk.submit(desk.file("a.csv", {"invoiceNumber": "R1", "amount": "1.00"}))
    for batch in (None, desk.submit(desk.folder / "a.csv").batch):
        with pytest.raises(WrongUse, match=r"several-machines\.md"):
            work(batch, RunRequest(None), desk.settings, CREDENTIALS, ANN, Quiet())


def test_a_batch_that_waited_for_another_one_is_looked_up_anew(machines: Machines) -> None:
    """A helper lists the batches once, and works on the first for an hour: the second one's gateway had moved by then.

    What was paid or let through elsewhere in that hour, and what needed an approval since, was not seen either.
    """
    batch = machines.submit(machines.one, rows_max=1).batch
    old, new = machines.two.gateway.base_url, "http://127.0.0.1:10"
    with closing(open_ledger(machines.two.ledger)) as ledger:
        listed = ledger.find(batch)
        move_gateway(old, new, "their letter of May", machines.one, ANN)
        with pytest.raises(SettingsNotUsable, match=f"is intended for the gateway {new}"):
            help_with(ledger, listed, RunRequest(None), machines.two, CREDENTIALS, ANN, Quiet())
    assert machines.desk.arrived.total() == 1


def test_who_helps_pays_from_the_account_of_the_machine_that_leads(machines: Machines) -> None:
    """Also before anything is paid, when a mistyped API ID could still be corrected: the one that leads goes on."""
    batch = machines.submit(machines.one, rows_max=0).batch
    other = replace(machines.two, gateway=replace(machines.two.gateway, api_id="neighbor"))
    with closing(open_ledger(machines.two.ledger)) as ledger:
        listed = ledger.find(batch)
        with pytest.raises(SettingsNotUsable, match=r"another gateway\.api_id"):
            help_with(ledger, listed, RunRequest(None), other, CREDENTIALS, ANN, Quiet())
        assert len(machines.sent_by(listed.batch)) == 1, "it did not even begin"
        help_with(ledger, listed, RunRequest(None), machines.two, CREDENTIALS, ANN, Quiet())


def test_a_batch_that_nobody_touched_for_long_is_not_helped_with(machines: Machines) -> None:
    """As for whoever resumes it: its payments may have been made some other way, and a person must say otherwise."""
    batch = machines.submit(machines.one, rows_max=1).batch
    today = replace(machines.two, policy=PolicySettings(stale_days=0))
    with closing(open_ledger(today.ledger)) as ledger, pytest.raises(WrongUse, match="has had no activity"):
        help_with(ledger, ledger.find(batch), RunRequest(None), today, CREDENTIALS, ANN, Quiet())
    assert machines.desk.arrived.total() == 1


class _Looks:
    """Somebody who decides about a row; meanwhile something happens on another machine."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def show(self, found: object) -> None:
        """They know the row."""

    def sign(self) -> Signature:
        """Give their name."""
        return Signature("ann", "not in the portal")

    def confirm(self, sent_again: int) -> None:
        """Take their time."""
        self._meanwhile()


def test_a_row_that_another_machine_sent_while_a_person_decided_is_not_settled(machines: Machines) -> None:
    """A batch is held on one machine only: what was known of the first attempt was recorded of the second one.

    It may well have been paid by then, and was to be sent a third time.
    """
    machines.desk.answer = lambda reference: IN_DOUBT
    batch = machines.submit(machines.one, rows_max=1).batch or ""
    again = [RowDecision(1, "send again")]

    def send_again() -> None:
        settle(batch, again, _Looks(), machines.two, ANN)
        resume(batch, lambda _: None, RunRequest(None, Limits(1)), machines.two, CREDENTIALS, ANN, Quiet())

    with pytest.raises(WrongUse, match="row 1 was sent again in the meantime, look it up again; nothing was changed"):
        settle(batch, again, _Looks(send_again), machines.one, ANN)
    assert machines.desk.arrived == {"R1": 2}
    with closing(open_ledger(machines.one.ledger, read_only=True)) as ledger:
        assert ledger.find(batch).by_state[State.IN_DOUBT].rows == 1
