"""How a file comes in: in pieces that are sealed as they arrive, or by a plain form, and what is refused."""

from __future__ import annotations

import hashlib
import io
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from flask import request

from batchpay.errors import LedgerDamaged, NotUsable
from batchpay.web import files, spool
from tests.web.house import ROWS, SAME_ORIGIN, House, csv_of

CONTENT = csv_of(*ROWS)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a hundred bytes: a small file has several."""
    monkeypatch.setattr(spool, "PIECE_BYTES", 100)


def begin(house: House, by: str = "maria", **form: Any) -> Any:
    data = {"name": "pay.csv", "size": len(CONTENT), **form}
    return house.as_(by).post("/files", data=data, headers=SAME_ORIGIN)


def put(house: House, file_id: str, number: int, data: bytes | None = None, by: str = "maria") -> Any:
    piece = CONTENT[number * 100 : (number + 1) * 100] if data is None else data
    return house.as_(by).put(f"/files/{file_id}/pieces/{number}", data=piece, headers=SAME_ORIGIN)


def pieces() -> range:
    return range(-(-len(CONTENT) // 100))


def test_a_file_in_pieces_is_the_file(house: House) -> None:
    """Each piece is answered with the next one; the last begins the check of just what was sent."""
    begun = begin(house).json
    for number in pieces():
        assert house.file(begun["id"])["state"] == "receiving"
        assert put(house, begun["id"], number).json == {"next": number + 1}
    assert house.file(begun["id"])["state"] == "checking"
    page = house.page("maria", begun["to"])
    assert "Reading the file" in page and "close this page" in page
    house.work()
    file = house.file(begun["id"])
    assert (file["state"], file["sha256"]) == ("checked", hashlib.sha256(CONTENT).hexdigest())
    ended = house.get("maria", f"/files/{begun['id']}/progress", 286)
    assert ended.headers["HX-Redirect"] == begun["to"]


def test_an_upload_goes_on_where_it_broke_off(house: House) -> None:
    """A lost answer is asked for again, a piece out of turn is told which one is next, and another server goes on."""
    file_id = begin(house).json["id"]
    for number in (0, 1, 1, 0):
        put(house, file_id, number)
    assert put(house, file_id, 5).json == {"next": 2}
    assert house.file(file_id)["pieces"] == 2
    for number in pieces()[2:]:
        put(house, file_id, number)
    house.work()
    assert house.file(file_id)["state"] == "checked"
    assert put(house, file_id, 0).json == {"next": len(pieces())}, "a file that came in is not written over"


def test_pieces_are_those_of_their_person(house: House) -> None:
    file_id = begin(house).json["id"]
    assert put(house, file_id, 0, by="pia").status_code == 403
    assert put(house, file_id, 0, by="daniel").status_code == 403
    assert put(house, file_id, 0, b"short").status_code == 400
    assert put(house, file_id, 0, CONTENT[:150]).status_code == 400
    assert house.file(file_id)["pieces"] == 0
    assert begin(house, by="daniel").status_code == 403


def test_nothing_lies_in_the_clear(house: House) -> None:
    """Pieces, grid and marked rows are sealed, each for its own place: swapped or changed they can't be read."""
    file_id = begin(house).json["id"]
    for number in pieces():
        put(house, file_id, number)
    house.work()
    for path in filter(Path.is_file, house.site.home.rglob("*")):
        assert b"Bo Hart" not in path.read_bytes(), path
    folder, ledger = spool.place(house.site.home, file_id), house.site.ledger()
    first, second = folder / "0.piece", folder / "1.piece"
    kept = first.read_bytes(), second.read_bytes()
    first.write_bytes(kept[1])
    second.write_bytes(kept[0])
    with pytest.raises(LedgerDamaged):
        list(spool.pieces(ledger, house.site.home, file_id, 2))
    first.unlink()
    with pytest.raises(NotUsable):
        list(spool.pieces(ledger, house.site.home, file_id, 2))


def test_a_swapped_upload_is_not_checked_again(house: House) -> None:
    """What is checked anew, or sent, is what was checked first."""
    mine, other = house.upload(), house.upload(ROWS[0], name="other.csv")
    with house.store.write() as db:
        db.execute("UPDATE file SET sha256 = (SELECT sha256 FROM file WHERE id = ?) WHERE id = ?", (other, mine))
    house.post("maria", f"/files/{mine}/check")
    house.work()
    file = house.file(mine)
    assert file["state"] == "refused"
    assert "not the file that was checked" in file["told"]


@pytest.mark.parametrize(("form", "told"), [
    ({"name": "letter.docx"}, "only workbooks"), ({"size": 0}, "is empty"),
    ({"size": spool.FILE_BYTES_MAX + 1}, "the file has more than 512 MiB"), ({"expect_rows": "many"}, "whole number"),
    ({"expect_total": "1.2.3"}, "an amount like 12,345.67"), ({"expect_total": "12,34"}, "an amount like 12,345.67"),
    ({"expect_total": "1,1.00"}, "an amount like 12,345.67"), ({"expect_rows": "1,04"}, "whole number"),
    ({"before": "0" * 16}, "changed in the meantime"),
], ids=str)  # fmt: skip
def test_what_is_not_taken_is_told_at_once(house: House, form: dict[str, Any], told: str) -> None:
    answer = begin(house, **form)
    assert answer.status_code == 400
    assert told in answer.json["error"]
    assert not house.store.all("SELECT * FROM file")


@pytest.mark.parametrize(("asked", "names"), [
    ("", "cba"), ("?sort=oldest", "abc"), ("?sort=name", "abc"), ("?sort=status", "cab"), ("?sort=DROP", "cba"),
    ("?until=2026-11-18", "a"), ("?since=2026-11-19", "cb"), ("?since=2026-11-19&until=2026-11-19&sort=name", "b"),
    ("?since=yesterday", "cba"), ("?since=9000-12-31", ""), ("?until=9999-12-31", "cba"), ("?since=0001-01-01", "cba"),
    ("?until=2026-11-18&zone=Pacific/Kiritimati", ""), ("?until=2026-11-18&zone=../America", "a"),
])  # fmt: skip
def test_the_list_is_sorted_and_found_by_day(house: House, asked: str, names: str) -> None:
    """A day is one of the zone in which the page shows times, the reader's; nonsense is not asked for."""
    for day, (name, state) in enumerate((("a", "stopped"), ("B", "done"), ("c", "checked"))):
        at = datetime(2026, 11, 18 + day, 23, 59).astimezone().timestamp()
        with house.store.write() as db:
            db.execute(
                "INSERT INTO file (id, name, bytes, uploaded_by, uploaded_at, state) VALUES (?, ?, 1, 'maria', ?, ?)",
                (f"{day:016}", f"{name}.csv", at, state),
            )
    found = re.findall("<bdi>(.)[.]csv", house.get("lee", f"/{asked}").get_data(as_text=True))
    assert "".join(found).lower() == names


def test_a_full_disk_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "has_room", lambda home, size: False)
    assert "no room" in begin(house).json["error"]


def test_unfinished_uploads_block_their_own_person_and_not_for_long(house: House) -> None:
    """Twenty of anybody blocked the uploads of everybody for a day, and the page spoke of a minute."""
    begun = [begin(house) for _ in range(spool.OPEN_MAX + 1)]
    assert [answer.status_code for answer in begun] == [200] * spool.OPEN_MAX + [400]
    assert f"{spool.OPEN_MAX} of your uploads are unfinished" in begun[-1].json["error"]
    assert begin(house, by="pia").status_code == 200
    file_id = begun[0].json["id"]
    assert "Discard this upload" in house.page("maria", f"/files/{file_id}")
    assert "Discard this upload" not in house.page("pia", f"/files/{file_id}")
    house.post("pia", f"/files/{file_id}/discard", 403)
    put(house, file_id, 0)
    house.post("maria", f"/files/{file_id}/discard")
    assert house.store.file(file_id) is None
    assert not spool.place(house.site.home, file_id).exists()
    assert begin(house).status_code == 200
    assert begin(house).status_code == 400
    house.now[0] += spool.OPEN_S - 1
    put(house, begun[1].json["id"], 0)
    house.now[0] += 2
    answers = [begin(house).status_code for _ in range(spool.OPEN_MAX)]
    assert answers == [200] * (spool.OPEN_MAX - 1) + [400], "one of the earlier ones still grows"


def test_totals_that_a_person_expects_refuse_another_file(house: House) -> None:
    """The number and the sum are compared with the whole file, as --expect-rows and --expect-total do."""
    right = house.post("maria", "/files", file=(io.BytesIO(CONTENT), "pay.csv"), expect_rows="3", expect_total="60.75")
    wrong = house.post("maria", "/files", file=(io.BytesIO(CONTENT), "pay.csv"), expect_total="1,060.75")
    house.work()
    states = [house.file(answer.headers["Location"].rsplit("/", 1)[1]) for answer in (right, wrong)]
    assert [file["state"] for file in states] == ["checked", "refused"]
    assert "1060.75" in states[1]["told"].replace(",", "")


def test_a_name_is_shown_and_never_obeyed(house: House) -> None:
    """Folders are cut off, control and bidirectional characters are escaped, markup stays text."""
    content = io.BytesIO(CONTENT)
    answer = house.post("maria", "/files", file=(content, "../../x<script>alert(1)</script>\u202e.csv"))
    house.work()
    page = house.get("maria", answer.headers["Location"] + "/check").get_data(as_text=True)
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "\\u202e.csv" in page
    assert not list(house.site.home.parent.rglob("x*script*"))


def test_what_is_due_is_swept_away(house: House) -> None:
    """Unfinished uploads after a day, what settled files left after thirty; a file that waits keeps its upload."""
    unfinished, checked, asked = begin(house).json["id"], house.upload(), house.ask(ROWS[0])
    put(house, unfinished, 0)
    house.now[0] += spool.UNFINISHED_S + 1
    assert spool.sweep(house.store) == 1
    assert house.store.file(unfinished) is None
    house.now[0] += spool.KEPT_S
    assert spool.sweep(house.store) == 1
    assert [spool.place(house.site.home, one).exists() for one in (checked, asked)] == [False, True]
    page = house.page("lee", f"/files/{checked}/check")
    assert "60.75" in page, "what the check found is still there"
    assert files.left_of(house.site, house.file(checked)) == files.Left()


def test_no_temporary_file_sees_an_upload(house: House) -> None:
    """Whole by a form, above the size at which werkzeug would write it to a disk: in memory until it is sealed."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="pay.csv"\r\n\r\n'
    body, kind = head + CONTENT * 2000 + b"\r\n--x--\r\n", "multipart/form-data; boundary=x"
    with house.app.test_request_context("/files", method="POST", data=body, content_type=kind):
        given = request.files["file"].stream
    assert isinstance(given, io.BytesIO)


def test_files_are_found_by_what_the_list_shows_of_them(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the person's name as it stands there, in any letters; those that the list has no room for are counted."""
    house.upload(name="Zürich.csv")
    batch = house.file(house.sent(ROWS[0]))["batch"]

    def found(wanted: str) -> list[str]:
        page = house.as_("lee").get("/", query_string={"q": wanted}).get_data(as_text=True)
        return re.findall(r"<bdi>([^<]*)</bdi></a></th>", page)

    assert found("maria LIND") == found("maria") == ["pay.csv", "Zürich.csv"]
    assert found("ZÜRICH") == ["Zürich.csv"]
    assert found(batch[:6]) == ["pay.csv"]
    assert found("張") == [], "every file that was sent was found by a name without a Latin letter"
    monkeypatch.setattr(files, "LISTED", 1)
    assert "and 1 more, which the search finds." in house.page("lee", "/")
