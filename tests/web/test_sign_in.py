"""Signing in: who is let in, for how long, and after how many failures nobody is."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.web import people, sign_in
from batchpay.web.app import create_app
from batchpay.web.site import FAILURES_MAX, Listen
from tests.web.house import PASSWORD, SAME_ORIGIN, House, words_of


def enter(client: FlaskClient, name: str, password: str = PASSWORD, **form: str) -> TestResponse:
    return client.post("/sign-in", data={"name": name, "password": password, **form}, headers=SAME_ORIGIN)


def behind(house: House, **access: object) -> FlaskClient:
    """A browser of the same house, reached another way."""
    object.__setattr__(house.site, "access", Listen(hosts={"localhost"}, **access))  # type: ignore[arg-type]
    return create_app(house.site).test_client()


def test_a_stranger_sees_the_door_alone(house: House) -> None:
    """Every page sends to the door, a fragment makes the page go there, and what would change something is refused."""
    client = house.app.test_client()
    assert client.get("/history?q=x").headers["Location"] == "/sign-in?next=/history?q%3Dx"
    fragment = client.get("/files/1/progress", headers={"HX-Request": "true"})
    assert (fragment.status_code, fragment.headers["HX-Redirect"]) == (204, "/sign-in")
    assert client.post("/files", headers=SAME_ORIGIN).status_code == 401
    assert client.get("/healthz").data == b"ok\n"


def test_a_person_comes_in_and_goes_out(house: House) -> None:
    client = house.app.test_client()
    answer = enter(client, " Maria ")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    assert "Maria Lind" in words_of(client.get("/"))
    token = cookie.partition("=")[2].partition(";")[0]
    (found,) = house.store.all("SELECT mark FROM session WHERE person = 'maria'")
    assert token.encode() not in found["mark"], "a session's token is kept as a digest alone"
    client.post("/sign-out", headers=SAME_ORIGIN)
    client.set_cookie("batchpay", token)
    assert client.get("/").status_code == 302, "the session ended on the server"


@pytest.mark.parametrize(
    "then",
    [
        "//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "/\t/evil.example",
        "/\n/evil.example", "/x\r\nSet-Cookie: a=b", "\t//evil.example", "http:///evil.example", "/\x00", "/a\\b", "",
        "///evil.example", "/\u2028/evil.example",
    ],
)  # fmt: skip
def test_nobody_is_led_elsewhere(house: House, then: str) -> None:
    client = house.app.test_client()
    answer = client.post(
        "/sign-in", query_string={"next": then}, data={"name": "lee", "password": PASSWORD}, headers=SAME_ORIGIN
    )
    assert answer.headers["Location"] == "/"


def test_wrong_is_wrong_in_one_word(house: House) -> None:
    """A wrong name, a wrong password and a person who was switched off look alike."""
    client = house.app.test_client()
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        people.switch_off(house.store, ledger, Actor("root", "host"), "lee")
    told = {words_of(enter(client, *who)) for who in (("nobody",), ("maria", "wrong"), ("lee",))}
    assert len({page.replace("nobody", "").replace("maria", "") for page in told}) == 1
    assert sign_in.WRONG in told.pop()


def test_whoever_signs_in_is_led_to_the_page_they_asked_for(house: House) -> None:
    asked = {"next": "/history?payment=a%20b#x"}
    form = {"name": "lee", "password": PASSWORD}
    answer = house.app.test_client().post("/sign-in", query_string=asked, data=form, headers=SAME_ORIGIN)
    assert answer.headers["Location"] == "/history?payment=a%20b"


def wait_s(answer: TestResponse) -> int:
    """How long the page asks a person to wait."""
    assert answer.status_code == 429
    found = re.search(r"Wait (\d+) second", words_of(answer))
    assert found is not None
    return int(found[1])


def test_a_name_slows_down_and_is_never_locked(house: House) -> None:
    """After eight failures each one more doubles the wait, also for the right password; it outlives a restart."""
    client, waits = house.app.test_client(), []
    for _ in range(sign_in.FREE):
        assert enter(client, "maria", "wrong").status_code == 401
    for _ in range(8):
        waits.append(wait_s(enter(client, "maria", "wrong")))
        assert wait_s(enter(create_app(house.site).test_client(), "maria")) == waits[-1]
        house.now[0] += waits[-1]
        assert enter(client, "maria", "wrong").status_code == 401
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert enter(client, "lee").status_code == 303
    house.now[0] += 60
    assert enter(client, "maria").status_code == 303


def test_wrong_sign_ins_of_others_lock_nobody_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty of anybody locked out everybody behind a proxy, and nobody who was signed in could approve."""
    monkeypatch.setattr(people, "password_is", lambda found, password: password == PASSWORD)
    file_id, stranger = house.ask(), {"REMOTE_ADDR": "203.0.113.9"}
    for number in range(200):
        form = {"name": ("maria", "daniel", f"name{number}")[number % 3], "password": "wrong"}
        house.app.test_client().post("/sign-in", data=form, headers=SAME_ORIGIN, environ_base=stranger)
    assert enter(house.app.test_client(), "maria").status_code == 303
    for number in range(60):
        enter(house.app.test_client(), f"colleague{number}", "wrong")
    house.approve(file_id)


def test_one_address_that_tries_many_names_slows_down(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "password_is", lambda found, password: password == PASSWORD)
    client = house.app.test_client()
    for number in range(sign_in.FREE_FROM):
        assert enter(client, f"name{number}", "wrong").status_code == 401
    assert wait_s(enter(client, "lee")) == 1
    house.now[0] += 1
    assert enter(client, "lee").status_code == 303


def test_guesses_at_the_same_moment_are_counted_one_by_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A try counts before its password is compared: whoever sends many at once has no more of them."""
    tries = 0

    def slow(found: object, password: str) -> bool:
        nonlocal tries
        tries += 1
        if tries < 2 * sign_in.FREE:  # the next one comes while this one is compared
            enter(house.app.test_client(), "maria", "wrong")
        return False

    monkeypatch.setattr(people, "password_is", slow)
    enter(house.app.test_client(), "maria", "wrong")
    assert tries == sign_in.FREE


def test_a_session_ends_by_itself(house: House) -> None:
    """After half an hour without a person, and after twelve hours whoever is there; a page that polls is no person."""
    client = house.as_("maria")
    for _ in range(4):
        house.now[0] += sign_in.IDLE_S / 2
        assert client.get("/").status_code == 200
    for _ in range(2):
        house.now[0] += sign_in.IDLE_S / 2
        client.get("/files/x/progress", headers={"HX-Request": "true"})
    assert client.get("/").status_code == 302
    client = house.app.test_client()
    enter(client, "maria")
    for _ in range(int(sign_in.LIFE_S / sign_in.IDLE_S * 2) - 1):
        house.now[0] += sign_in.IDLE_S / 2
        assert client.get("/").status_code == 200
    house.now[0] += sign_in.IDLE_S / 2
    assert client.get("/").status_code == 302


def test_behind_tls_the_cookie_is_for_this_host_alone(house: House) -> None:
    answer = enter(behind(house, behind_tls=True), "maria")
    assert answer.headers["Set-Cookie"].startswith("__Host-batchpay=")
    assert "Secure" in answer.headers["Set-Cookie"]
    assert answer.headers["Strict-Transport-Security"]


def test_a_code_counts_once_and_is_asked_for_at_the_door(house: House) -> None:
    """With an authenticator the password alone opens nothing, and a code that was seen is worth nothing any more."""
    secret = people.new_secret()
    sealed = house.site.ledger().seal(secret, people.TOTP_PLACE.format("maria"))
    with house.store.write() as db:
        db.execute("UPDATE user SET totp = ? WHERE name = 'maria'", (sealed,))
    client, step = house.app.test_client(), int(house.now[0]) // people.STEP_S
    code = people.code_at(secret, step)
    assert enter(client, "maria", PASSWORD).status_code == 401
    assert enter(client, "maria", PASSWORD, code="000000").status_code == 401
    assert enter(client, "maria", PASSWORD, code=f"{code[:3]} {code[3:]}").status_code == 303
    assert enter(house.app.test_client(), "maria", PASSWORD, code=code).status_code == 401


def test_a_proxy_says_who_and_never_what(house: House) -> None:
    """One header, once, of a person who is known here; missing or another name: signed out; no door of ours."""
    client, maria = behind(house, proxy_header="X-Forwarded-Email"), {"X-Forwarded-Email": "Maria"}
    assert client.get("/").status_code == 403
    assert client.get("/", headers={"X-Forwarded-Email": "stranger"}).status_code == 403
    assert client.get("/", headers=[("X-Forwarded-Email", "maria"), ("X-Forwarded-Email", "dora")]).status_code == 403
    assert client.get("/history", headers=maria).status_code == 303
    assert "Maria Lind" in words_of(client.get("/", headers=maria))
    assert client.get("/").status_code == 403, "without the header the session is nothing"
    assert client.get("/", headers={"X-Forwarded-Email": "daniel"}).status_code == 303
    assert "Daniel Osei" in words_of(client.get("/", headers={"X-Forwarded-Email": "daniel"}))
    assert enter(client, "maria").status_code == 403


def test_where_others_reach_the_page_an_act_on_money_needs_a_code(house: House) -> None:
    """Behind TLS or a proxy a person without an authenticator moves nothing, with whatever password."""
    file_id, client, over_tls = house.ask(), behind(house, behind_tls=True), {"base_url": "https://localhost"}
    form = {"name": "daniel", "password": PASSWORD, "decision": "approve", "seal": house.file(file_id)["seal"]}
    form |= house.hidden(f"/files/{file_id}/decide")
    assert client.post("/sign-in", data=form, headers=SAME_ORIGIN, **over_tls).status_code == 303
    answer = client.post(f"/files/{file_id}/decide", data=form, headers=SAME_ORIGIN, **over_tls)
    assert (answer.status_code, sign_in.NO_CODE in words_of(answer)) == (401, True)
    assert house.file(file_id)["state"] == "asked"


def test_whoever_was_signed_out_comes_back_to_the_same_file(house: House) -> None:
    """By a form that came too late, and by a page that asks by itself; nothing was done meanwhile."""
    file_id = house.ask()
    nobody = house.app.test_client()
    answer = nobody.post(f"/files/{file_id}/decide", headers=SAME_ORIGIN)
    assert answer.status_code == 401
    assert f'href="/sign-in?next=/files/{file_id}"' in answer.get_data(as_text=True)
    for page, then in (
        (f"http://localhost/files/{file_id}/run?a=b", f"?next=/files/{file_id}/run?a%3Db"),
        ("http://localhost/\\evil.example", ""),
        ("http://[", ""),
    ):
        asked = {"HX-Request": "true", "HX-Current-URL": page}
        moved = nobody.get(f"/files/{file_id}/run/now", headers=asked).headers["HX-Redirect"]
        assert moved == f"/sign-in{then}", "its query was lost, and a broken address was an internal error"


def test_a_full_disk_does_not_close_the_page(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """That somebody was seen could not be written down: a minute later every page was an error for everyone."""
    file_id = house.ask()
    house.now[0] += 120

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    for name in ("daniel", "lee"):
        house.get(name, "/")
    house.now[0] += 120
    monkeypatch.setattr(house.store, "write", fails)
    assert "60.75" in house.page("daniel", f"/files/{file_id}/approve")
    assert "pay.csv" in house.page("lee", "/")


SECRET = b"12345678901234567890"


@pytest.mark.parametrize(
    ("at", "code"),
    [(59, "94287082"), (1111111109, "07081804"), (1234567890, "89005924"), (20000000000, "65353130")],
)
def test_codes_are_those_of_rfc_6238(at: int, code: str) -> None:
    """Its vectors have eight digits, ours are the last six."""
    assert people.code_at(SECRET, at // people.STEP_S, digits=8) == code
    assert people.code_at(SECRET, at // people.STEP_S) == code[2:]


def test_a_step_counts_once_and_only_near_its_time() -> None:
    """The code before and the one after are taken, for clocks that differ; none that was used, and none older."""
    now, step = 3_000_000.0, 100_000
    codes = {near: people.code_at(SECRET, step + near) for near in (-2, -1, 0, 1, 2)}
    assert [people.step_of(SECRET, codes[near], now, 0) for near in codes] == [None, step - 1, step, step + 1, None]
    assert people.step_of(SECRET, codes[0], now, step) is None
    assert people.step_of(SECRET, codes[-1], now, step) is None
    assert people.step_of(SECRET, codes[1], now, step) == step + 1


def test_a_secret_is_shown_to_be_typed_and_to_be_linked() -> None:
    assert people.secret_shown(SECRET).replace(" ", "") == "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    assert people.secret_address(SECRET, "maria").startswith("otpauth://totp/batchpay%3Amaria?secret=GEZDGNBV")


def failures(house: House) -> list[tuple[str, str, str]]:
    """What the page's history says of failures: who, what, from where."""
    found = house.store.all("SELECT who, what, how FROM event WHERE how LIKE 'from %' ORDER BY number")
    return [(one["who"], one["what"], one["how"]) for one in found]


def test_who_was_not_let_in_is_recorded(house: House) -> None:
    """With the address, and where pauses begin; what was typed for a name may be a password. Sign-outs as well."""
    file_id, client = house.ask(), house.app.test_client()
    enter(client, "my secret passphrase", "wrong")
    for _ in range(sign_in.FREE):
        enter(client, "maria", "wrong")
    enter(client, "maria")
    form = {"decision": "approve", "seal": house.file(file_id)["seal"], "password": "wrong"}
    house.post("daniel", f"/files/{file_id}/decide", 401, **form)
    client.post("/enroll", data={"token": "x" * 43}, headers=SAME_ORIGIN)
    told = [
        ("unknown", "failed to sign in"), *[("maria", "failed to sign in")] * (sign_in.FREE - 1),
        ("maria", "failed to sign in; tries must wait from now on"), ("daniel", "gave a wrong password or code"),
        ("unknown", "tried a link to enroll by that is over"),
    ]  # fmt: skip
    assert failures(house) == [(who, what, "from 127.0.0.1") for who, what in told]
    house.post("daniel", "/sign-out")
    assert "signed out" in house.page("lee", "/audit")
    assert "passphrase" not in house.get("lee", "/audit.csv").get_data(as_text=True)


def test_a_stranger_can_not_fill_the_disk(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a thousand addresses: a hundred are recorded in a quarter of an hour, and that there were more."""
    monkeypatch.setattr(people, "password_is", lambda found, password: False)
    for number in range(150):
        address = {"REMOTE_ADDR": f"203.0.113.{number}"}
        form = {"name": f"n{number}", "password": "x"}
        house.app.test_client().post("/sign-in", data=form, headers=SAME_ORIGIN, environ_base=address)
    told = failures(house)
    assert len(told) == FAILURES_MAX
    assert "more failures within 15 minutes are not recorded" in told[-1][1]
    house.now[0] += sign_in.WINDOW_S
    enter(house.app.test_client(), "maria", "wrong")
    assert len(failures(house)) == FAILURES_MAX + 1


def test_a_line_of_the_log_for_each_request(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Who asked for which page of which file, and the answer: nothing that was typed, no token."""
    caplog.set_level("INFO", "batchpay")
    file_id = house.ask()
    caplog.clear()
    house.get("lee", f"/files/{file_id}/approve?q=query-words")
    house.get("lee", "/648443924-typed", 404)
    house.app.test_client().post("/enroll", data={"token": "a-token-of-a-link"}, headers=SAME_ORIGIN)
    lines = [record.__dict__ for record in caplog.records if record.message == "request"]
    assert [(one["method"], one["path"], one["http_status"], one["who"]) for one in lines] == [
        ("GET", "/files/<file_id>/approve", 200, "lee"), ("GET", "unknown", 404, "lee"), ("POST", "/enroll", 403, None),
    ]  # fmt: skip
    assert [one["file"] for one in lines] == [file_id, None, None]
    assert not re.search("query-words|typed|a-token", str([vars(one) for one in caplog.records]))


def test_a_cookie_that_reached_another_port_changes_nothing(house: House) -> None:
    """On loopback browsers send it to every port. A second secret stays with the page's script."""
    object.__setattr__(house.site, "access", Listen(hosts={"localhost"}, port=8790))
    client = house.app.test_client()
    assert enter(client, "maria", page="kept by the script").headers["Set-Cookie"].startswith("batchpay-8790=")
    about = {"name": "a.csv", "size": "9"}
    for data, headers in ((about, {}), (about | {"page": "another"}, {}), (about, {"X-Batchpay-Page": "another"})):
        assert client.post("/files", data=data, headers=SAME_ORIGIN | headers).status_code == 401
    begun = client.post("/files", data=about | {"page": "kept by the script"}, headers=SAME_ORIGIN)
    piece, own = f"/files/{begun.get_json()['id']}/pieces/0", {"X-Batchpay-Page": "kept by the script"}
    assert client.put(piece, data=b"a,b\n1,2\n\n", headers=SAME_ORIGIN).status_code == 401
    assert client.put(piece, data=b"a,b\n1,2\n\n", headers=SAME_ORIGIN | own).status_code == 200
    client.post("/sign-out", headers=SAME_ORIGIN)
    assert client.get("/").status_code == 200
    enter(house.app.test_client(), "lee")
    assert house.store.count("SELECT count(*) FROM session WHERE page IS NULL") == 1, "without script the cookie is all"
