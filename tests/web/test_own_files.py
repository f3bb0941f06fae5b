"""With `own_files` a clerk sees what they uploaded and nothing of others, whichever way they ask: each route is walked.

A new page is walked as well: a list that forgets to ask names a file here, and an address of a file is refused before.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchpay.outcome import Outcome
from batchpay.web import server
from batchpay.web.site import Listen
from tests.support.in_process import Caller
from tests.web.house import ROWS, SAME_ORIGIN, WRONG, House, csv_of, words_of
from tests.web.test_returns import file_of
from tests.workflows.desk import ACCEPTED, IN_DOUBT

NAMED = re.compile(r"secret", re.IGNORECASE)
NOWHERE = {"file_id": "0" * 16, "batch": "nowhere", "number": "0"}
ASKED = ("", "?show=gone", "?show=waiting", "?q=.csv", "?payment=A", "?who=maria", "?page=1")
LISTS = {"/", "/to-approve", "/doubts", "/returns", "/history", "/audit", "/audit.csv"}


def only_own(house: House, *, on: bool = True) -> None:
    object.__setattr__(house.site, "access", replace(house.site.access, own_files=on))


def secret(house: House, what: str, **form: Any) -> str:
    """Upload one of Maria's files, whose payments nobody else has; gives its id."""
    row = {**ROWS[0], "paymentId": f"P-{what}", "invoiceNumber": f"SECRET-{what}", "amount": f"{len(what)}7.01"}
    given = {"file": (io.BytesIO(csv_of(row, WRONG)), f"secret-{what}.csv"), **form}
    answer = house.post("maria", "/files", **given)
    house.work()
    return answer.headers["Location"].rsplit("/", 1)[1]


@pytest.fixture
def lived_in(house: House) -> tuple[House, dict[str, str], str]:
    """Clara is a clerk, as Maria is, who has files in many states, one paid, with a doubt and a return: its batch."""
    house.add("clara", "Clara Berg", "prepare")

    def answer(reference: str) -> Outcome:
        return IN_DOUBT if reference == "INV-B" else ACCEPTED

    house.answer = answer
    files = {"sent": house.upload(*ROWS, WRONG, name="secret-sent.csv")}
    house.post("maria", f"/files/{files['sent']}/ask", partial="yes")
    house.approve(files["sent"])
    house.work()
    batch = str(house.file(files["sent"])["batch"])
    back = io.BytesIO(file_of(house, "R01,INV-A,10.00,,,", "R03,INV-Z,5.00,,,"))
    house.post("sam", "/returns", export=(back, "secret-back.csv"))
    files |= {name: secret(house, name) for name in ("asked", "checked", "discarded", "old")}
    house.post("maria", f"/files/{files['asked']}/ask", partial="yes")
    house.post("maria", f"/files/{files['discarded']}/discard")
    files["new"] = secret(house, "new", before=files["old"])
    begun = house.as_("maria").post("/files", data={"name": "secret-begun.csv", "size": "9"}, headers=SAME_ORIGIN)
    files["receiving"] = begun.json["id"]  # type: ignore[index]
    only_own(house)
    return house, files, batch


def addresses(house: House, names: dict[str, str], *, about: bool) -> Iterator[tuple[str, str]]:
    """Every method and address that is about a file or batch, or that is not, filled in with these names."""
    for rule in house.app.url_map.iter_rules():
        if rule.endpoint == "static_file" or bool(rule.arguments) != about:
            continue
        assert rule.arguments <= names.keys(), f"a route about something else, whose owner is unknown: {rule.rule}"
        address = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: names[found[1]], rule.rule)
        for method in sorted((rule.methods or set()) & {"GET", "POST", "PUT", "PATCH", "DELETE"}):
            yield method, address


def test_nothing_of_another_persons_file_is_reached(lived_in: tuple[House, dict[str, str], str]) -> None:
    """Each address of each of her files and batches answers Clara as one that there is not; nothing is changed."""
    house, files, batch = lived_in
    before = house.store.all("SELECT id, state, options FROM file")
    clara = house.as_("clara")
    nowhere = {path: words_of(clara.open(path, method=method, headers=SAME_ORIGIN))
               for method, path in addresses(house, NOWHERE, about=True)}  # fmt: skip
    assert set(nowhere.values()) == {words_of(clara.get("/files/0000000000000000"))}
    for file_id, name in [*((one, batch) for one in files.values()), (files["sent"], batch[:8])]:
        for method, path in addresses(house, {**NOWHERE, "file_id": file_id, "batch": name}, about=True):
            answer = clara.open(path, method=method, headers=SAME_ORIGIN)
            assert (answer.status_code, words_of(answer)) == (404, next(iter(nowhere.values()))), (method, path)
    assert clara.get("/returns", query_string={"batch": batch}).status_code == 404
    form = {"file": (io.BytesIO(csv_of(*ROWS)), "mine.csv"), "before": files["checked"]}
    assert "changed in the meantime" in house.said("clara", "/files", 400, **form)
    assert house.store.all("SELECT id, state, options FROM file") == before


def test_no_list_names_another_persons_file(lived_in: tuple[House, dict[str, str], str]) -> None:
    """Each page about no file in particular, however it is asked; who looks at everything finds them on seven."""
    house, files, batch = lived_in
    told = (*files.values(), batch, " in doubt</span></b>", " waiting for you</span></b>")
    shown = {"clara": set[str](), "lee": set[str]()}
    for name, found in shown.items():
        for _, path in (one for one in addresses(house, {}, about=False) if one[0] == "GET"):
            for asked in ASKED if name == "clara" and path in LISTS else ASKED[:1]:
                answer = house.as_(name).get(path + asked, buffered=True)
                said = answer.data.decode(errors="replace")
                if NAMED.search(said) or any(one in said for one in told):
                    found.add(path + asked)
    assert (shown["clara"], shown["lee"] & LISTS) == (set(), LISTS)
    only_own(house, on=False)
    assert NAMED.search(house.page("clara", "/")), "off by default: everybody sees every file"


def test_ones_own_file_is_seen_from_check_to_return(lived_in: tuple[House, dict[str, str], str]) -> None:
    """Clara's own file is in each list, with its doubt and its results; a role counts once it is confirmed."""
    house, files, _ = lived_in
    row = {**ROWS[0], "paymentId": "K", "invoiceNumber": "INV-K"}
    mine = house.upload(row, {**row, "paymentId": "L", "invoiceNumber": "INV-B"}, name="mine.csv", by="clara")
    house.post("clara", f"/files/{mine}/ask")
    assert "mine.csv" in house.page("clara", "/to-approve")
    house.approve(mine)
    house.work()
    batch = str(house.file(mine)["batch"])
    for path in ("/", "/doubts", "/history", "/audit", "/audit.csv", f"/files/{mine}/run", "/history?payment=K"):
        said = house.page("clara", path)
        assert "mine" in said or batch in said, path
        assert not NAMED.search(said), path
    assert "INV-K" in house.get("clara", f"/batches/{batch[:10]}/results?as=csv").get_data(as_text=True)
    house.get("clara", f"/returns?batch={batch}")
    old = secret(house, "z")
    for name in ("secret-newer.csv", "secret-newest.csv"):  # of another person, at the same time
        second = house.post("pia", "/files", file=(io.BytesIO(csv_of(row)), name), before=old).headers["Location"]
        house.work()
        with house.store.write() as db:
            db.execute("UPDATE file SET state = 'checked' WHERE id = ?", (old,))
        house.get("maria", second, 404)
        assert second not in house.get("maria", f"/files/{old}/check").get_data(as_text=True)
        assert second in house.get("pia", f"/files/{old}/check").get_data(as_text=True)
    house.add("nora", "Nora Vale", "prepare approve")
    with house.store.write() as db:
        db.execute("UPDATE user SET confirmed_by = NULL WHERE name = 'nora'")
    house.get("nora", f"/files/{files['checked']}", 404)


def test_the_settings_file_turns_it_on(call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`[web]` in the file was read, checked for unknown keys and then obeyed by no option of the page."""
    listens: list[Listen] = []
    monkeypatch.setattr(server, "serve", lambda settings, home, listening, *_, **__: listens.append(listening))
    settings = tmp_path / "page.toml"
    settings.write_text("[web]\nown_files = true\n")
    settings.chmod(0o600)
    call.text("web", "--config", str(settings))
    assert [one.own_files for one in listens] == [True]
