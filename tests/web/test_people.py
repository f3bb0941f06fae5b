"""`batchpay web user`: who may sign in is decided on the machine alone, and the ledger remembers each change."""

from __future__ import annotations

from contextlib import closing

import pytest

from batchpay.errors import WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.web import people
from tests.support.in_process import Caller
from tests.web.house import House, words_of
from tests.web.test_enrollment import CHOSEN, by_link, needs_code
from tests.web.test_sign_in import enter

REAL_HASH = people._HASH


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one takes half a second."""
    monkeypatch.setattr(people, "_HASH", "scrypt:1024:8:1")


def test_a_person_is_invited_reset_and_switched_off(house: House, call: Caller) -> None:
    """No password is ever printed; off and reset end the session at once; each change is in the ledger's history."""
    first = call("web", "user", "add", "olga", "--role", "prepare", "--shown", "Olga Tarr", "--json")
    assert set(first) == {"name", "link", "until", "exit_code"}
    client = by_link(house, first["link"])
    assert "Olga Tarr" in words_of(client.get("/"))
    call("web", "user", "off", "olga", "--json")
    assert client.get("/").status_code == 302
    assert enter(client, "olga", CHOSEN).status_code == 401
    assert call.fails("web", "user", "reset", "olga") == 2
    second = call("web", "user", "reset", "olga", "--on", "--json")
    assert enter(client, "olga", CHOSEN).status_code == 401
    client = by_link(house, second["link"])
    told = call.text("web", "user", "reset", "olga")
    assert client.get("/").status_code == 302, "a reset ends what it finds"
    told_events = [event["why"] for event in house.events("person changed")]
    assert told_events == [
        "added olga: prepare", "enrolled", "switched off olga",
        "gave olga a new link to enroll by, and switched them on", "enrolled", "gave olga a new link to enroll by",
    ]  # fmt: skip
    listed = {one["name"]: one for one in call("web", "user", "list", "--json")["people"]}
    assert listed["olga"] == {
        "name": "olga", "shown": "Olga Tarr", "roles": ["prepare"], "limit": None, "code": False, "off": False,
        "enrolled": False, "confirmed": False,
    }  # fmt: skip
    assert "works once" in told
    assert "invited" in call.text("web", "user", "list")


def test_who_moves_money_has_an_authenticator_and_a_limit(house: House, call: Caller) -> None:
    made = call("web", "user", "add", "omar", "--role", "approve", "--role", "look", "--limit", "5000.00", "--json")
    assert needs_code(house, made["link"])
    assert "5,000.00" in call.text("web", "user", "list")
    assert not needs_code(house, call("web", "user", "add", "ines", "--role", "settle", "--no-code", "--json")["link"])
    (found,) = [one for one in call("web", "user", "list", "--json")["people"] if one["name"] == "omar"]
    assert (found["limit"], found["roles"]) == ("5000.00", ["approve", "look"])
    assert house.events("person changed")[0]["why"] == "added omar: approve, look, approves up to 5,000.00"


@pytest.mark.parametrize("name", ["Maria", "maria lind", "-x", "", "a" * 65, "márta", "x/../y"])
def test_names_are_plain(call: Caller, name: str) -> None:
    assert call.fails("web", "user", "add", "--role", "look", "--", name) == 2


def test_a_person_is_changed_and_each_change_recorded(house: House, call: Caller) -> None:
    """What is not named stays; whoever comes to move money gets an authenticator, and signs in anew."""
    first = call("web", "user", "add", "olga", "--role", "prepare", "--json")
    client = by_link(house, first["link"])
    assert call("web", "user", "set", "olga", "--shown", "Olga Tarr", "--json") == {"name": "olga", "exit_code": 0}
    assert "Olga Tarr" in words_of(client.get("/"))
    second = call("web", "user", "set", "olga", "--role", "look", "--role", "approve", "--limit", "500.00", "--json")
    assert needs_code(house, second["link"])
    assert client.get("/").status_code == 302
    call("web", "user", "off", "olga", "--json")
    call("web", "user", "set", "olga", "--limit", "600.00", "--json")
    for wrong in (["olga"], ["nobody", "--limit", "1.00"]):
        assert call.fails("web", "user", "set", *wrong) == 2
    (found,) = [one for one in call("web", "user", "list", "--json")["people"] if one["name"] == "olga"]
    assert (found["roles"], found["limit"], found["enrolled"], found["off"]) == (
        ["approve", "look"],
        "600.00",
        False,
        True,
    )
    assert [event["why"] for event in house.events("person changed")] == [
        "added olga: prepare", "enrolled", "changed olga (Olga Tarr): prepare",
        "changed olga (Olga Tarr): approve, look, approves up to 500.00", "switched off olga",
        "changed olga (Olga Tarr): approve, look, approves up to 600.00",
    ]  # fmt: skip
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        assert ledger.people_off() == {"olga"}


@pytest.mark.parametrize("name", ["ma.ria", "maria_", "m-aria@example.com"])
def test_names_that_differ_in_punctuation_alone_are_one(call: Caller, name: str) -> None:
    """Nobody who reads a list of approvals can tell them apart."""
    assert call.fails("web", "user", "add", name, "--role", "look") == 2


def test_a_name_is_one_person_for_good(house: House, call: Caller) -> None:
    """Nobody takes over the name of somebody who was switched off; nobody unknown is switched off or reset."""
    assert call.fails("web", "user", "add", "maria", "--role", "look") == 2
    call("web", "user", "off", "maria", "--json")
    assert call.fails("web", "user", "add", "maria", "--role", "approve") == 2
    assert call.fails("web", "user", "add", "daniel@example.com", "--role", "look") == 2, "approvals take them for one"
    assert call.fails("web", "user", "off", "nobody") == 2
    assert call.fails("web", "user", "reset", "nobody") == 2
    assert [event["why"] for event in house.events("person changed")] == ["switched off maria"]


def test_a_change_that_the_ledger_can_not_record_is_not_made(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its event in the history nobody is added."""
    with closing(open_ledger(house.site.settings.ledger)) as ledger:

        def fails(*_: str) -> None:
            raise WrongUse("the ledger's disk is full")

        monkeypatch.setattr(ledger, "note_person", fails)
        with pytest.raises(WrongUse):
            people.add(house.store, ledger, Actor("root", "host"), "olga", "Olga", ["look"], None)
    assert house.store.one("SELECT * FROM user WHERE name = 'olga'") is None


def test_real_passwords_are_hashed_dearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrypt with 32 MiB."""
    monkeypatch.setattr(people, "_HASH", REAL_HASH)
    assert people.hashed(CHOSEN).startswith("scrypt:32768:8:3$")
