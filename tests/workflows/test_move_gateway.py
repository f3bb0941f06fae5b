"""A gateway at a new address or API ID: its batches follow it on a person's word, within one environment."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import BatchHeld, CredentialsRefused, SettingsNotUsable, WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.outcome import Outcome
from batchpay.payment import Actor, Environment, State
from batchpay.sending.limits import Limits, StopRequest
from batchpay.settings import GatewaySettings, Settings
from batchpay.workflows.move_gateway import move_gateway, notes_on_gateway, refuse_other_gateway
from batchpay.workflows.run import RunRequest
from tests.support.ledger_factory import ORIGIN, Planned, add_batch, ledger_in, ledger_settings
from tests.workflows.desk import ACCEPTED, ANN, Desk, Quiet

NEW = "http://127.0.0.1:10"
ADA = Actor("ada", "test")
REFUSED = Outcome(State.PENDING, "401", stop="the gateway refused the key")


def settings_at(folder: Path, base_url: str, environment: str = "") -> Settings:
    gateway = GatewaySettings(base_url=base_url, environment=environment)
    return Settings(gateway=gateway, ledger=ledger_settings(folder))


def test_batches_follow_their_gateway(tmp_path: Path) -> None:
    """The settings name a new address: the batch is refused with the command, which moves it, and is sent again."""
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1), Planned(2, State.PENDING)])
        live = add_batch(ledger, [Planned(1)], file="live.csv", environment=Environment.LIVE)
        settings = settings_at(tmp_path, NEW)
        with pytest.raises(SettingsNotUsable, match=f"ledger move-gateway {ORIGIN} {NEW} --reason"):
            refuse_other_gateway(ledger, ledger.find(name), settings)
    assert move_gateway(f"{ORIGIN}/", NEW, "their letter of May", settings, ADA) == [name]
    with ledger_in(tmp_path) as ledger:
        refuse_other_gateway(ledger, ledger.find(name), settings)
        assert ledger.find(live).origin == ORIGIN, "another environment's batch stays where it is"
        event = list(ledger.events(name))[-1]
        assert (event.kind, event.who, event.why) == ("gateway moved", str(ADA), "their letter of May")
        with ledger.lock(ledger.find(name).digest):
            ledger.start(name, "ada").finish(None)
        assert ledger.check() == []
        with pytest.raises(SettingsNotUsable, match="test and live never mix"):
            refuse_other_gateway(ledger, ledger.find(live), settings)


@pytest.mark.parametrize(("old", "new", "reason", "told"), [
    (ORIGIN, f"{ORIGIN}/", "why", "the same address, and no batch waits under another gateway.api_id"),
    (ORIGIN, "https://pay.example.com", "why", "rehearsals"), ("https://pay.example.com", ORIGIN, "why", "rehearsals"),
    ("http://127.0.0.1:11", NEW, "why", "no batch of the test environment"), (ORIGIN, NEW, " ", "with a reason"),
])  # fmt: skip
def test_nonsense_is_refused(tmp_path: Path, old: str, new: str, reason: str, told: str) -> None:
    """A slip in an address must not send test rows to a bank, and nothing moves without a reason."""
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1, State.PENDING)])
    with pytest.raises(WrongUse, match=told):
        move_gateway(old, new, reason, settings_at(tmp_path, NEW), ADA)
    with ledger_in(tmp_path) as ledger:
        assert ledger.find(name).origin == ORIGIN


def test_a_batch_that_is_being_sent_is_not_moved(tmp_path: Path) -> None:
    """Its run has already checked the address."""
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [Planned(1, State.PENDING)]))
        with ledger.lock(batch.digest), pytest.raises(BatchHeld):
            move_gateway(ORIGIN, NEW, "why", settings_at(tmp_path, NEW), ADA)


class Moving(StopRequest):
    """What a run begins with, and by which a batch is moved after the run has found it."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk

    def begin(self) -> None:
        with closing(open_ledger(self.desk.settings.ledger)) as ledger:
            ledger.move_gateway([ledger.find(None).batch], NEW, "", str(ADA), "their letter of May")


@pytest.mark.usefixtures("on_both")
def test_a_batch_that_moves_as_its_run_begins_is_not_sent_to_the_old_address(desk: Desk) -> None:
    """A move keeps no lock on the batches: there may be thousands."""
    path = two_bills(desk)
    desk.submit(path, run=RunRequest(None, Limits(rows_max=0)))
    with pytest.raises(BatchHeld, match=f"was moved to {NEW} meanwhile; nothing was sent"):
        desk.submit(path, run=RunRequest(None, stop=Moving(desk)))
    assert desk.arrived == {}


def test_a_new_address_of_an_environment_is_reported(tmp_path: Path) -> None:
    """Whoever points live payments at another address reads what to do if it is the same gateway, or a test one."""
    elsewhere = settings_at(tmp_path, "https://pay.example.com", "test")
    with ledger_in(tmp_path) as ledger:
        assert notes_on_gateway(ledger, elsewhere) == []
        add_batch(ledger, [Planned(1)])
        (note,) = notes_on_gateway(ledger, elsewhere)
        assert f"move-gateway {ORIGIN} https://pay.example.com --reason" in note
        assert notes_on_gateway(ledger, settings_at(tmp_path, "https://pay.example.com")) == []
        assert notes_on_gateway(ledger, replace(elsewhere, gateway=GatewaySettings(base_url=NEW))) == []


def test_an_address_that_batches_went_to_before_is_not_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if others came after it, and however it is written: repeated every day, the note would no longer be read."""
    with ledger_in(tmp_path) as ledger:
        for row, origin in enumerate(("https://pay.example.com", "https://elsewhere.example.com"), start=1):
            monkeypatch.setattr("tests.support.ledger_factory.ORIGIN", origin)
            add_batch(ledger, [Planned(row)], environment=Environment.LIVE)
        for origin in ("https://pay.example.com:443/", "https://elsewhere.example.com"):
            assert notes_on_gateway(ledger, settings_at(tmp_path, origin)) == []
        (note,) = notes_on_gateway(ledger, settings_at(tmp_path, "https://third.example.com"))
    assert note.startswith(
        "earlier live batches went to https://elsewhere.example.com, this one goes to https://third."
    )


def test_a_dry_run_refuses_a_batch_of_another_gateway_as_a_submission_would(desk: Desk) -> None:
    """It said what would be sent, and ended with 0. Without a gateway in the settings it only checks the file."""
    path = two_bills(desk)
    desk.submit(path, run=RunRequest(None, Limits(rows_max=1)))
    desk.settings = replace(desk.settings, gateway=GatewaySettings(base_url=NEW))
    with pytest.raises(SettingsNotUsable, match=f"move-gateway http://127.0.0.1:9 {NEW} --reason"):
        desk.dry_run(path)
    desk.settings = replace(desk.settings, gateway=GatewaySettings(environment="test"))
    assert desk.dry_run(path).proposal.to_send.total.rows == 1


def test_a_submission_to_a_new_address_tells_whoever_runs_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note was made, and nothing held that a submission says it."""
    said: list[str] = []
    monkeypatch.setattr(Quiet, "say", lambda _, text: said.append(text))
    desk.submit(desk.file("monday.csv", {"invoiceNumber": "A-1", "amount": "10.00"}))
    gateway = GatewaySettings(base_url="https://pay.example.com", environment="test", api_id="desk")
    desk.settings = replace(desk.settings, gateway=gateway)
    assert said == []
    desk.submit(desk.file("tuesday.csv", {"invoiceNumber": "A-2", "amount": "20.00"}))
    (note,) = said
    assert "this one goes to https://pay.example.com" in note
    assert desk.arrived == {"A-1": 1, "A-2": 1}


def test_what_is_left_of_a_batch_is_paid_from_the_account_that_began_it(desk: Desk) -> None:
    """Two companies with one ledger: the cron job of the second took the latest batch, and paid it from its account."""
    path = two_bills(desk)
    batch = desk.submit(path, run=RunRequest(None, Limits(rows_max=1))).batch
    began_with, desk.settings = desk.settings, with_api_id(desk, "neighbor")
    for pays in (desk.resume, lambda: desk.submit(path), lambda: desk.dry_run(path)):
        with pytest.raises(SettingsNotUsable, match=r"begun under another gateway\.api_id than the settings name"):
            pays()
    assert desk.arrived == {"A-1": 1}
    assert len(desk.events("started")) == 1, "a run that is refused does not begin"
    desk.settings = began_with
    desk.resume(batch)
    assert desk.arrived == {"A-1": 1, "A-2": 1}
    desk.settings = with_api_id(desk, "neighbor")
    assert desk.submit(path).exit_code == 0, "nothing is left to be paid from any account"


def test_another_account_than_the_latest_batch_had_is_reported(desk: Desk) -> None:
    """Before its first payment: whoever checks reads that these may be the settings of another company."""
    desk.submit(two_bills(desk))
    other = desk.file("theirs.csv", {"invoiceNumber": "B-1", "amount": "20.00"})
    assert not [note for note in desk.dry_run(other).summary.notes if "api_id" in note]
    desk.settings = with_api_id(desk, "neighbor")
    (note,) = (note for note in desk.dry_run(other).summary.notes if "api_id" in note)
    assert note.startswith("the latest test batch was paid under another gateway.api_id than the settings name; each")
    desk.submit(other)
    assert not [note for note in desk.dry_run(other).summary.notes if "api_id" in note]


def test_a_batch_follows_its_company_to_a_new_api_id(desk: Desk) -> None:
    """The refusal names the command; once it was given, the old API ID is the other one."""
    path = two_bills(desk)
    batch = desk.submit(path, run=RunRequest(None, Limits(rows_max=1))).batch
    desk.settings = with_api_id(desk, "renewed")
    with pytest.raises(SettingsNotUsable, match=f"move-gateway {ORIGIN} {ORIGIN} --reason"):
        desk.resume(batch)
    assert move_gateway(ORIGIN, ORIGIN, "their letter of May", desk.settings, ADA) == [batch]
    with pytest.raises(WrongUse, match="no batch waits under another"):
        move_gateway(ORIGIN, ORIGIN, "their letter of May", desk.settings, ADA)
    desk.settings, renewed = with_api_id(desk, "desk"), desk.settings
    with pytest.raises(SettingsNotUsable, match="begun under another"):
        desk.resume(batch)
    desk.settings = renewed
    desk.resume(batch)
    assert desk.arrived == {"A-1": 1, "A-2": 1}


def test_a_new_address_is_no_new_account(desk: Desk) -> None:
    """Whoever moves the gateway may do so with the settings of another company."""
    batch = desk.submit(two_bills(desk), run=RunRequest(None, Limits(rows_max=1))).batch
    desk.settings = with_api_id(desk, "neighbor", NEW)
    move_gateway(ORIGIN, NEW, "their letter of May", desk.settings, ADA)
    with pytest.raises(SettingsNotUsable, match="begun under another"):
        desk.resume(batch)
    assert desk.arrived == {"A-1": 1}


def test_a_mistyped_api_id_is_corrected_without_a_word(desk: Desk) -> None:
    """The gateway did not know it, so nothing was paid from any account."""
    path, right = two_bills(desk), desk.settings
    desk.settings = with_api_id(desk, "deks")
    assert desk.submit(path, preflight=_Unknown()).exit_code == 6
    desk.settings = right
    desk.submit(path)
    assert desk.arrived == {"A-1": 1, "A-2": 1}


def two_bills(desk: Desk) -> Path:
    return desk.file("monday.csv", *({"invoiceNumber": f"A-{at}", "amount": "10.00"} for at in (1, 2)))


def with_api_id(desk: Desk, api_id: str, base_url: str = ORIGIN) -> Settings:
    return replace(desk.settings, gateway=replace(desk.settings.gateway, api_id=api_id, base_url=base_url))


class _Unknown:
    """A gateway that does not know the API ID."""

    def check_connection(self) -> None:
        raise CredentialsRefused("HTTP 401")

    def refused(self, _: object) -> dict[str, str]:
        return {}


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("seen", ["nothing", "an intent", "a plan"])
def test_a_batch_follows_the_settings_until_something_of_it_was_to_be_sent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    """A mistyped address at the first call: nothing was sent, and the batch was bound to it for good.

    Not once a row was about to be sent, even if no byte of it left; nor where a plan names the address.
    """
    path, run, plan = two_bills(desk), RunRequest(None, Limits(rows_max=0)), None
    if seen == "an intent":
        desk.answer, run = lambda _: REFUSED, RunRequest(None, Limits(rows_max=1))
    if seen == "a plan":
        plan = desk.dry_run(path, with_plan=True).plan
    stopped = desk.submit(path, run=run, plan=plan)
    assert stopped.of(State.PENDING).rows == 2
    sent = dict(desk.arrived)
    desk.answer = lambda _: ACCEPTED
    desk.settings = replace(desk.settings, gateway=replace(desk.settings.gateway, base_url="http://127.0.0.1:10"))
    said: list[str] = []
    monkeypatch.setattr(Quiet, "say", lambda _, text: said.append(text))
    if seen != "nothing":
        for call in (desk.dry_run, desk.submit):
            with pytest.raises(SettingsNotUsable, match=r"is intended for the gateway http:"):
                call(path)
        assert (desk.arrived, desk.events("gateway moved")) == (sent, [])
        return
    assert desk.dry_run(path).proposal.to_send.total.rows == 2
    assert desk.submit(path).exit_code == 0
    assert desk.events("gateway moved") == [(str(ANN), "nothing of it was sent yet: it follows the settings")]
    assert [text for text in said if "127.0.0.1" in text] == [
        f"batch {stopped.batch}: nothing of it was sent to http://127.0.0.1:9 yet; it goes to http://127.0.0.1:10"
    ]
