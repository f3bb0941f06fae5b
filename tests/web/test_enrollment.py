"""Enrolling: a link is good once and for a day; whoever has it chooses; another person confirms who it was."""

from __future__ import annotations

import base64
import re
from contextlib import closing

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from batchpay.errors import WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.web import enrollment, people
from tests.web.house import SAME_ORIGIN, House, words_of
from tests.web.test_sign_in import behind, enter

CHOSEN = "three words that nobody knows"
ROOT = Actor("root", "host")


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one takes half a second."""
    monkeypatch.setattr(people, "_HASH", "scrypt:1024:8:1")


def opened(client: FlaskClient, link: str, **form: str) -> TestResponse:
    """Send the link's token as the page's script does, with what was chosen."""
    return client.post("/enroll", data={"token": link.rpartition("#")[2], **form}, headers=SAME_ORIGIN)


def by_link(house: House, link: str) -> FlaskClient:
    """Enroll by a link; gives the browser, in which the person is signed in then."""
    client = house.app.test_client()
    form = {"password": CHOSEN, "again": CHOSEN}
    code = code_on(house, opened(client, link))
    answer = opened(client, link, **form, code=code) if code else opened(client, link, **form)
    assert answer.status_code == 303, words_of(answer)
    return client


def code_on(house: House, page: TestResponse) -> str:
    """The code of the authenticator that a page has just set up; a blank if it sets up none."""
    found = re.search(r"<code>([A-Z2-7 ]+)</code>", page.get_data(as_text=True))
    if found is None:
        return ""
    secret = base64.b32decode(found[1].replace(" ", ""))
    return people.code_at(secret, int(house.now[0]) // people.STEP_S)


def needs_code(house: House, link: str) -> bool:
    """Whether a link's page sets up an authenticator, by a picture as well."""
    page = opened(house.app.test_client(), link)
    return bool(code_on(house, page)) and "<svg" in page.get_data(as_text=True)


def invite(house: House, name: str, *roles: str, reset: bool = False) -> str:
    """Add or reset a person; gives their token."""
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        if reset:
            return people.reset(house.store, ledger, ROOT, name)
        return people.add(house.store, ledger, ROOT, name, name.title(), roles, None)


def confirmed(house: House, by: str, name: str, code: int = 303) -> str:
    """Confirm an enrollment with the form as its page had it."""
    found = house.store.one("SELECT enrolled_at FROM user WHERE name = ?", name)
    assert found is not None
    form = {"who": name, "enrolled_at": found["enrolled_at"], "password": True}
    return house.said(by, "/you/confirm", code, **form)


def test_a_link_is_good_once_and_for_a_day(house: House) -> None:
    """Used, older than 24 hours, replaced by another, or of somebody who was switched off: it opens nothing."""
    used, late = invite(house, "olga", "look"), invite(house, "omar", "look")
    found = house.store.one("SELECT * FROM invitation WHERE person = 'olga'")
    assert found is not None and used.encode() not in bytes(found["mark"]), "the token is kept as a digest alone"
    by_link(house, used)
    replaced, off = invite(house, "olga", reset=True), invite(house, "ines", "look")
    invite(house, "olga", reset=True)
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        people.switch_off(house.store, ledger, ROOT, "ines")
    house.now[0] += enrollment.LINK_S
    for token in (used, late, replaced, off, "", "x" * 43):
        for form in ({}, {"password": CHOSEN, "again": CHOSEN}):
            answer = opened(house.app.test_client(), token, **form)
            assert (answer.status_code, enrollment.OVER in words_of(answer)) == (403, True)
    assert enter(house.app.test_client(), "omar", CHOSEN).status_code == 401
    assert enter(house.app.test_client(), "omar", "").status_code == 401, "nobody without a password signs in"


def test_what_is_chosen_is_tried_before_the_link_is_spent(house: House) -> None:
    """A short password, two that differ, a wrong code: the link stays. An authenticator shown before is none."""
    token, client = invite(house, "olga", "approve"), house.app.test_client()
    first = opened(client, token)
    stale = code_on(house, first)
    for form in (
        {"password": "short", "again": "short"},
        {"password": CHOSEN, "again": CHOSEN + "."},
        {"password": CHOSEN, "again": CHOSEN, "code": "000000"},
        {"password": CHOSEN, "again": CHOSEN, "code": stale},  # somebody who opened the link before knows this one
        {"password": CHOSEN, "again": CHOSEN, "code": ""},
    ):
        assert opened(client, token, **form).status_code == 400, form
    assert client.get("/").status_code == 302
    code = code_on(house, opened(client, token))
    assert opened(client, token, password=CHOSEN, again=CHOSEN, code=code).status_code == 303
    assert "Olga" in words_of(client.get("/"))
    assert enter(house.app.test_client(), "olga", CHOSEN, code=code).status_code == 401, "a code counts once"
    house.now[0] += people.STEP_S
    assert enter(house.app.test_client(), "olga", CHOSEN).status_code == 401


def test_an_approver_counts_once_another_one_confirmed_who_enrolled(house: House) -> None:
    """Not by themselves, nor by a maker, who may have caught the link, nor by somebody else who waits."""
    file_id = house.ask()
    olga = by_link(house, invite(house, "olga", "approve"))
    by_link(house, invite(house, "omar", "approve"))
    house.clients["olga"] = olga
    assert "Another person has yet to confirm" in house.page("olga", "/")
    form = {"decision": "approve", "seal": house.file(file_id)["seal"], "password": CHOSEN}
    house.post("olga", f"/files/{file_id}/decide", 403, **form)
    for by, code in (("olga", 401), ("maria", 409), ("sam", 409)):
        confirmed(house, by, "olga", code)
        assert "Confirm who enrolled" not in house.page(by, "/you")
    assert "Olga (olga) enrolled on" in house.page("daniel", "/you")
    assert "1 to confirm" not in house.page("maria", "/") and "2 to confirm" in house.page("daniel", "/")
    house.post("daniel", "/you/confirm", 401, who="olga", enrolled_at=house.now[0], password="wrong")
    confirmed(house, "daniel", "olga")
    confirmed(house, "dora", "olga", 409)
    assert "yet to confirm" not in house.page("olga", "/")
    assert house.events("person changed")[-1]["why"] == "confirmed that olga enrolled"
    assert house.post("olga", f"/files/{file_id}/decide", 401, **form | {"password": "wrong"})


def test_a_confirmation_is_of_one_enrollment_by_somebody_who_is_on(house: House) -> None:
    """Enrolled anew meanwhile, perhaps by another: the page that Daniel had open is of no use, nor is Dora's."""
    by_link(house, invite(house, "olga", "settle"))
    form = {"who": "olga", "enrolled_at": house.now[0], "password": True}
    house.page("dora", "/you")
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        people.switch_off(house.store, ledger, ROOT, "dora")
    house.post("dora", "/you/confirm", 401, **form)
    house.now[0] += 60
    by_link(house, invite(house, "olga", reset=True))
    house.post("daniel", "/you/confirm", 409, **form)
    confirmed(house, "daniel", "olga")
    invite(house, "olga", reset=True)
    found = house.store.one("SELECT * FROM user WHERE name = 'olga'")
    assert found is not None and (found["confirmed_by"], found["totp"], found["hash"]) == (None, None, "")


def test_where_nobody_approves_yet_anybody_else_confirms(house: House) -> None:
    """The first approver of a house; a second one is confirmed by the first."""
    with house.store.write() as db:
        db.execute("UPDATE user SET is_off = 1, confirmed_at = NULL WHERE roles LIKE '%approve%'")
    for name in ("olga", "omar"):
        house.clients[name] = by_link(house, invite(house, name, "approve"))
    confirmed(house, "maria", "olga")
    confirmed(house, "maria", "omar", 409)


def test_the_only_approver_who_enrolls_anew_is_confirmed_by_an_administrator(house: House) -> None:
    """A maker caught the link, enrolled by it, confirmed that and approved her own file: two names, one person."""
    for name in ("dora", "pia"):
        with closing(open_ledger(house.site.settings.ledger)) as ledger:
            people.switch_off(house.store, ledger, ROOT, name)
    by_link(house, invite(house, "daniel", reset=True))
    confirmed(house, "maria", "daniel", 409)
    assert "Confirm who enrolled" not in house.page("maria", "/you")
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        for name in ("dora", "maria", "nobody"):
            with pytest.raises(WrongUse):
                people.confirm(house.store, ledger, ROOT, name)
        people.confirm(house.store, ledger, ROOT, "daniel")
    assert house.events("person changed")[-1]["why"] == "confirmed that daniel enrolled"
    found = house.store.one("SELECT * FROM user WHERE name = 'daniel'")
    assert found is not None and people.person_of(found, "password", "").may("approve")


def test_a_person_changes_how_they_sign_in(house: House) -> None:
    """By what they sign in with now: it ends the sessions elsewhere, and takes no new confirmation."""
    token = invite(house, "olga", "approve")
    house.clients["olga"] = by_link(house, token)
    confirmed(house, "daniel", "olga")
    house.post("olga", "/you/change", 401, password=CHOSEN, with_code="yes")
    maria, other = house.as_("maria"), house.app.test_client()
    house.post("maria", "/you/change", 401, password="wrong")
    page = house.post("maria", "/you/change", 200, password=True).get_data(as_text=True)
    (token,) = re.findall(r'name="token" value="([^"]+)"', page)
    enter(other, "maria")
    assert "<svg" not in page.partition("<main")[2].partition("password")[2]
    assert opened(maria, token, password=CHOSEN, again=CHOSEN).status_code == 303
    assert other.get("/").status_code == 302 and maria.get("/").status_code == 200
    assert enter(other, "maria").status_code == 401
    assert enter(other, "maria", CHOSEN).status_code == 303
    assert house.events("person changed")[-1]["why"] == "changed how they sign in"
    found = house.store.one("SELECT confirmed_by FROM user WHERE name = 'maria'")
    assert found is not None and found["confirmed_by"] == "root"


def test_behind_a_proxy_only_the_person_it_names_enrolls(house: House) -> None:
    """A link alone is not enough there; no password is asked for, and the authenticator is."""
    token, client = invite(house, "olga", "approve"), behind(house, proxy_header="X-Who")
    assert opened(client, token).status_code in (401, 403)
    for name in ("daniel", "olga"):
        client = house.app.test_client()
        client = behind(house, proxy_header="X-Who")
        client.get("/", headers={"X-Who": name})
        data = {"token": token}
        answer = client.post("/enroll", data=data, headers=SAME_ORIGIN | {"X-Who": name})
        assert answer.status_code == (200 if name == "olga" else 403)
    assert 'name="password"' not in answer.get_data(as_text=True)
    data["code"] = code_on(house, answer)
    assert client.post("/enroll", data=data, headers=SAME_ORIGIN | {"X-Who": "olga"}).status_code == 303
    found = house.store.one("SELECT * FROM user WHERE name = 'olga'")
    assert found is not None and found["totp"] and not found["hash"]
