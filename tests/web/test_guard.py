"""What every page and every act keeps to: who may send it, what the browser is told, what nobody is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from batchpay.web.app import CONTENT_SECURITY_POLICY
from tests.web.house import PEOPLE, ROWS, SAME_ORIGIN, WRONG, House
from tests.workflows.desk import PLAIN

SECRET_NUMBERS = (PLAIN["achAccountNumber"], WRONG["achAccountNumber"])
_MADE_BY_A_CHILD = re.compile(r"/(results|report|sheet|reconcil|template)")
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\bstyle\s*=|\son[a-z]+\s*=|javascript:|\bhx-on", re.IGNORECASE)


def rules(house: House, method: str) -> list[Rule]:
    return [rule for rule in house.app.url_map.iter_rules() if method in (rule.methods or ())]


def addresses(house: House, files: list[str], batches: list[str]) -> Iterator[str]:
    """Every page there is, for every file and batch."""
    for rule in rules(house, "GET"):
        names = rule.arguments
        if rule.endpoint == "static_file" or names - {"file_id", "batch"}:
            continue
        for file_id in files if "file_id" in names else [""]:
            for batch in batches if "batch" in names else [""]:
                address = rule.rule.replace("<file_id>", file_id).replace("<batch>", batch)
                assert "<" not in address, f"an address that this test can't fill in: {address}"
                yield address


@pytest.fixture
def lived_in(house: House) -> tuple[House, list[str], list[str]]:
    """A house with files in several states, one of them paid."""
    sent = house.sent(*ROWS, WRONG, partial="yes")
    checked = house.upload({**ROWS[0], "paymentId": "Z", "invoiceNumber": "INV-Z"}, WRONG, name="other.csv")
    refused = house.upload(name="empty.xlsx")
    return house, [sent, checked, refused], [str(house.file(sent)["batch"])]


def require_told(answer: TestResponse, address: str) -> None:
    """Every answer tells the browser what it may do: nothing is kept, and no page needs an exception."""
    assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY, address
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    is_page = "attachment" not in answer.headers.get("Content-Disposition", "")
    if is_page and answer.mimetype == "text/html":
        found = INLINE.search(answer.get_data(as_text=True))
        assert found is None, (address, found)


def test_no_page_shows_a_whole_account_number(lived_in: tuple[House, list[str], list[str]]) -> None:
    """Each page as each person: only who prepares sees whole numbers, and only in rows to correct.

    Each of these answers also tells the browser what it may do.
    """
    house, files, batches = lived_in
    shown: set[tuple[str, str]] = set()
    for name in PEOPLE:
        for address in addresses(house, files, batches):
            if name not in ("pia", "lee") and _MADE_BY_A_CHILD.search(address):
                continue  # dear, and the same for everybody
            answer = house.as_(name).get(address, buffered=True)
            assert answer.status_code < 500, (name, address)
            require_told(answer, address)
            if any(number.encode() in answer.data for number in SECRET_NUMBERS):
                shown.add((name, re.sub(r"/files/[0-9a-f]+", "", address)))
    assert shown, "the rows to correct show whole numbers to their person"
    assert shown <= {(name, page) for name in ("maria", "pia") for page in ("/check", "/rows", "/marked")}
    for path in filter(Path.is_file, house.site.home.rglob("*")):
        assert not any(number.encode() in path.read_bytes() for number in SECRET_NUMBERS), path


def test_strangers_are_told_the_same(house: House) -> None:
    """The door and what is nowhere."""
    require_told(house.app.test_client().get("/sign-in"), "/sign-in")
    require_told(house.as_("pia").get("/nowhere"), "/nowhere")


@pytest.mark.parametrize("headers", [
    {}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"},
    {"Origin": "https://evil.example"}, {"Origin": "null"},
    {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
], ids=str)  # fmt: skip
def test_no_other_site_can_make_somebody_act(house: House, headers: dict[str, str]) -> None:
    """Every address that changes something refuses what did not come from our own pages, or from nobody."""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for rule in rules(house, method):
            address = re.sub(r"<[^>]*>", "1", rule.rule)
            answer = house.as_("pia").open(address, method=method, headers=headers)
            assert answer.status_code == 403, (method, address)
            if rule.endpoint not in ("sign_in.enter", "enrollment.enroll_by_form"):
                assert house.app.test_client().open(address, method=method, headers=SAME_ORIGIN).status_code == 401


def test_our_own_pages_act_with_and_without_fetch_metadata(house: House) -> None:
    """Browsers that send no Sec-Fetch-Site send an Origin."""
    client = house.as_("maria")
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://localhost"}):
        assert client.post("/files", data={"name": "a.csv", "size": "9"}, headers=headers).status_code == 200


def test_another_name_for_this_machine_is_refused(house: House) -> None:
    """A page of evil.example whose name leads here (DNS rebinding) is told nothing."""
    for host in ("evil.example", "localhost.evil.example", "localhost:81"):
        answer = house.as_("maria").get("/", headers={"Host": host})
        assert answer.status_code == 421
        assert b"Maria" not in answer.data


def test_static_files_never_change_under_their_name(house: House) -> None:
    page = house.app.test_client().get("/sign-in").get_data(as_text=True)
    for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', page):
        answer = house.app.test_client().get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
    for address in ("/static/0/app.css", "/static/0/../app.py", "/static/0/htmx.LICENSE.txt"):
        assert house.app.test_client().get(address).status_code in (302, 404)
