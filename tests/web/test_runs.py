"""Running and finished: the page's numbers are the command line's, polling ends, and files about a batch are made."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from batchpay.errors import NotUsable
from batchpay.outcome import Outcome
from batchpay.web import papers, run_job
from batchpay.workflows.resolve import RowDecision, settle
from tests.support.in_process import Caller
from tests.web.house import ROWS, House, Yes, words_of
from tests.workflows.desk import ACCEPTED, ANN, DECLINED, IN_DOUBT


def answered(house: House, doubt: str) -> None:
    def answer(reference: str) -> Outcome:
        return IN_DOUBT if reference == doubt else ACCEPTED

    house.answer = answer


def test_asking_how_far_it_is_ends_with_the_run(house: House) -> None:
    """While it runs the part is given, at the end htmx is told to ask no more and to show the whole page."""
    file_id = house.ask()
    house.approve(file_id)
    path = f"/files/{file_id}/run/now"
    assert "waiting for its turn" in house.page("lee", path)
    house.work()
    ended = house.get("lee", path, 286)
    assert ended.headers["HX-Refresh"] == "true"
    assert "Finished" in words_of(ended)


def test_a_child_that_is_gone_is_said(house: House) -> None:
    """Nobody is told that a run goes on whose process is dead: it is restarted."""
    file_id = house.sent()
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'sending' WHERE id = ?", (file_id,))
    assert "ended unexpectedly and is being restarted" in house.page("lee", f"/files/{file_id}/run/now")


def test_a_batch_is_shown_as_the_file_that_it_was_sent_from(house: House) -> None:
    """The same content uploaded again under another name is checked, and takes nothing of the first one's place."""
    answered(house, "INV-C")
    sent = house.sent()
    again = house.upload(name="again.csv")
    batch = house.file(sent)["batch"]
    assert house.file(again)["batch"] == batch
    assert house.get("lee", f"/batches/{batch}", 302).headers["Location"] == f"/files/{sent}"
    assert f'href="/files/{sent}"' in house.get("lee", "/doubts").get_data(as_text=True)
    home = house.get("lee", "/").get_data(as_text=True)
    assert home.count("1 payment in doubt") == 1, "nothing of the second file was ever sent"


def test_what_the_gateway_refused_is_listed_with_its_reason(house: House) -> None:
    """The page said that the results say why: nobody who was to correct a payment saw it."""
    house.answer = lambda reference: DECLINED if reference == "INV-B" else ACCEPTED
    file_id = house.sent()
    page = house.page("maria", f"/files/{file_id}/run")
    assert "line 3 Bo Hart account ****" in page and "20.50 credit No funds" in page
    assert "Ann Lee" not in page


def test_go_on_is_offered_where_the_ledger_has_something_to_send(house: House) -> None:
    """A row that the command line made pending waits in a file that had ended: it is no longer called finished."""
    answered(house, "INV-C")
    file_id = house.sent()
    batch, run = house.file(file_id)["batch"], f"/files/{file_id}/run"
    house.answer = lambda reference: ACCEPTED
    assert "Continue" not in house.page("daniel", run)
    house.post("daniel", f"/files/{file_id}/resume", 409, password=True)
    settle(batch, [RowDecision(3, "send again")], Yes(), house.site.settings, ANN)
    page = house.page("daniel", run)
    assert "1 payment, 30.25, waits to be sent" in page
    assert "Continue with 1 payment, 30.25" in page
    assert "Finished" not in page
    assert "1 payment waiting" in house.page("lee", "/")
    house.post("daniel", f"/files/{file_id}/resume", password=True)
    house.post("dora", f"/files/{file_id}/resume", 409, password=True)
    house.work()
    assert house.arrived["INV-C"] == 2
    assert "Finished. Every payment was answered." in house.page("daniel", run)


def test_a_limit_holds_before_anything_is_registered(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's key was missing, so there is no batch whose payments could be counted: the plan's total is."""
    house.add("tara", "Tara Moss", "approve", limit_cents=60_74)
    house.add("ugo", "Ugo Berg", "approve", limit_cents=60_75)

    def without_key(*_: object) -> None:
        raise NotUsable("no API key")

    with monkeypatch.context() as patch:
        patch.setattr(run_job, "run_request", without_key)
        file_id = house.sent()
    assert (house.file(file_id)["state"], house.file(file_id)["batch"]) == ("stopped", None)
    page = house.page("tara", f"/files/{file_id}/run")
    assert "60.75 is above your limit of 60.74" in page and "Your password" not in page
    assert "60.75 is above your limit of 60.74" in house.said("tara", f"/files/{file_id}/resume", 403, password=True)
    assert house.file(file_id)["state"] == "stopped" and not house.store.all("SELECT * FROM job WHERE wanted = 1")
    house.post("ugo", f"/files/{file_id}/resume", password=True)
    house.work()
    assert house.arrived.total() == 3


def test_a_run_is_continued_with_what_its_page_showed(house: House) -> None:
    """One payment waited when Daniel's page was loaded; meanwhile others agreed to send a second one again."""
    house.answer = lambda reference: ACCEPTED if reference == "INV-A" else IN_DOUBT
    file_id = house.sent()
    batch, settings = house.file(file_id)["batch"], house.site.settings
    house.answer = lambda reference: ACCEPTED
    settle(batch, [RowDecision(3, "send again")], Yes(), settings, ANN)
    seen = house.hidden(f"/files/{file_id}/resume")
    assert "Continue with 1 payment, 30.25" in house.page("daniel", f"/files/{file_id}/run")
    settle(batch, [RowDecision(2, "send again")], Yes(), settings, ANN)
    page = house.said("daniel", f"/files/{file_id}/resume", 409, password=True, **seen)
    assert "Nothing was done" in page and "Continue with 2 payments, 50.75" in page
    house.work()
    assert house.arrived == {"INV-A": 1, "INV-B": 1, "INV-C": 1}
    house.post("daniel", f"/files/{file_id}/resume", password=True)


def test_a_run_that_the_command_line_ended_is_not_called_stopped(house: House, call: Caller) -> None:
    """`batchpay resume` sent what waited: list and page said that it was stopped, and payments not sent."""
    answered(house, "INV-A")  # a doubt before the first clear answer stops the run
    file_id = house.sent()
    batch, run = house.file(file_id)["batch"], f"/files/{file_id}/run"
    assert "Stopped:" in house.page("maria", run)
    house.answer = lambda reference: ACCEPTED
    settle(batch, [RowDecision(1, "declined")], Yes(), house.site.settings, ANN)
    call("resume", batch, "--json")
    assert house.arrived.total() == 3
    page = house.page("maria", run)
    assert "Stopped:" not in page and "Finished. Every payment was answered." in page and "Sent : done" in page
    assert "pay.csv finished" in house.page("maria", "/")


def test_history_is_taken_away_as_csv(house: House) -> None:
    """Events of ledger and page in one list, by person; no cell is run by a spreadsheet; the chain is checked."""
    house.sent()
    with house.store.write() as db:
        house.store.note(db, "maria", None, "=1+1", "page")
    lines = list(csv.DictReader(io.StringIO(house.get("lee", "/audit.csv").get_data(as_text=True))))
    assert {line["recorded in"] for line in lines} == {"ledger", "page"}
    assert "'=1+1" in {line["what"] for line in lines}
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    found = house.page("lee", "/audit?who=daniel")
    assert "Daniel Osei (daniel)" in found
    assert "Maria Lind (maria)" not in found
    assert house.page("lee", "/audit?who=daniel+osei").partition("CSV")[2] == found.partition("CSV")[2], (
        "the name by which the page shows a person left out what the ledger says of them"
    )
    assert not [line["who"] for line in lines if "(web)" in line["who"]], "one person had two names in one list"
    assert {line["recorded in"] for line in lines if line["who"] == "Daniel Osei (daniel)"} == {"ledger", "page"}
    house.post("maria", "/audit/check", 403)
    house.post("lee", "/audit/check")
    assert "had the whole ledger checked: nothing was altered" in house.page("lee", "/audit")
    at = [datetime.fromisoformat(line["at"]).astimezone(UTC) for line in lines]
    page = house.get("lee", "/audit").get_data(as_text=True)
    assert all(f'title="{one:%Y-%m-%d %H:%M:%S} UTC">' in page for one in at), "a time is not told in UTC"


def test_a_payment_is_found_by_its_id(house: House) -> None:
    """However it is written; one that was never sent is not, and says why a name finds nothing."""
    batch = house.file(house.sent())["batch"]
    assert f"is line 3 of batch {batch}" in house.page("lee", "/history?payment=%20b")
    assert "No payment with the paymentId" in house.page("lee", "/history?payment=Bo+Hart")


def test_a_declined_payment_is_found_by_its_id_until_it_is_paid(house: House) -> None:
    """A clerk looks for just those; the payment that stands, or may stand, comes first."""
    house.answer = lambda reference: DECLINED if reference == "INV-B" else ACCEPTED
    first = house.file(house.sent())["batch"]
    found = house.page("lee", "/history?payment=%20b")
    assert (
        f"is line 3 of batch {first}" in found
        and "The gateway declined it: No funds" in found
        and "came back" not in found
    )
    house.answer = lambda reference: ACCEPTED
    second = house.file(house.sent({**ROWS[1], "amount": "20.51"}))["batch"]
    found = house.page("lee", "/history?payment=B")
    assert f"is line 2 of batch {second}" in found and "declined it" not in found


def test_a_finished_file_is_archived_by_its_people_and_found_again(house: House) -> None:
    """Nothing that needs somebody leaves the list, nobody else's file does, and nothing is deleted."""
    answered(house, "INV-C")
    file_id = house.sent()
    path, link = f"/files/{file_id}/archive", f'href="/files/{file_id}"'
    assert "Archive this file" not in house.page("maria", f"/files/{file_id}/run")
    assert "is not finished" in house.said("maria", path, 409)
    batch = house.file(file_id)["batch"]
    settle(batch, [RowDecision(3, "declined")], Yes(), house.site.settings, ANN)
    house.post("pia", path, 403)
    assert "Archive this file" in house.page("maria", f"/files/{file_id}/run")
    house.post("maria", path)
    house.post("maria", path)
    pages = ("/", "/?show=archived", "/?q=PAY", f"/?q={batch[:6]}", "/?since=2026-01-01")
    shown = {page: link in house.get("lee", page).get_data(as_text=True) for page in pages}
    assert shown == {page: page != "/" for page in pages}
    house.post("maria", path, back="yes")
    assert link in house.get("lee", "/").get_data(as_text=True)
    said = [one["what"] for one in house.store.all("SELECT what FROM event WHERE file = ? ORDER BY number", file_id)]
    assert said[-2:] == ["archived it", "put it back into the list of files"], "the second click recorded nothing"
    house.post("maria", path)
    with house.store.write() as db:
        assert house.store.move(db, file_id, "done", "approved")
    assert link in house.get("lee", "/").get_data(as_text=True), "a file that moves on is not hidden"


def test_a_fault_of_a_child_tells_no_row(
    house: House, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unexpected error's text and traceback may hold cells: the child says where it was, and the page a sentence."""

    def fails(*_: object) -> None:
        raise ValueError("648443924")

    batch = house.file(house.sent())["batch"]
    monkeypatch.setitem(papers.FILES, "report", fails)
    monkeypatch.setattr(sys, "argv", ["papers", "report", "-"])
    asked = {"settings": dataclasses.asdict(house.site.settings), "arguments": [batch, "report.html"]}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked)))
    monkeypatch.setattr(papers, "keep_memory_private", lambda: None)
    assert papers.main() == 1
    assert re.fullmatch(r"ValueError at papers.py:\d+", capfd.readouterr().err)

    def run(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 1, b"", b"Traceback: 648443924")

    monkeypatch.setattr("batchpay.web.papers.subprocess.run", run)
    said = house.page("lee", f"/batches/{batch}/report", 503)
    assert "could not be created" in said
    assert "648443924" not in said


def test_files_that_take_long_leave_the_page_to_others(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight who downloaded at once, two of whom waited for a child that hung, were all that the page answered."""
    report = f"/batches/{house.file(house.sent())['batch']}/report"
    monkeypatch.setattr(papers, "WAIT_S", 0)
    with papers._AT_ONCE, papers._AT_ONCE:
        assert "other files are being created" in house.page("lee", report, 503)

    def hangs(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, papers.DEADLINE_S)

    with monkeypatch.context() as patch:
        patch.setattr("batchpay.web.papers.subprocess.run", hangs)
        for _ in range(3):
            assert "took longer than 10 minutes" in house.page("lee", report, 503)
    assert house.get("lee", report).data


@pytest.fixture
def brought_back(house: House, request: pytest.FixtureRequest) -> tuple[House, str]:
    """A house whose ledger and key were set back to before a file was sent that a person then stopped; its id."""
    house.sent({**ROWS[0], "paymentId": "Z", "invoiceNumber": "INV-Z"})
    file_id, folder, kept = house.ask(), house.site.home.parent, house.site.home.parent / "kept"
    parts = [path for path in folder.iterdir() if path.name == "keys" or path.name.startswith("ledger.db")]
    kept.mkdir()
    for path in parts:
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, kept / path.name)
    scheme, _, database = house.site.settings.ledger.url.rpartition("/")
    server = request.getfixturevalue("postgres_server") if scheme.startswith("postgresql") else None
    house.site.reader.close()
    if server is not None:
        server.run(f"CREATE DATABASE {database}_kept TEMPLATE {database} STRATEGY file_copy")
    house.approve(file_id)
    house.work()
    house.site.reader.close()
    for path in (folder / "keys", *folder.glob("ledger.db*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in kept.iterdir():
        path.rename(folder / path.name)
    if server is not None:
        server.put_back(f"{database}_kept", database)
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'stopped' WHERE id = ?", (file_id,))
    return house, file_id


def test_what_the_ledger_does_not_know_any_more_is_not_called_unsent(brought_back: tuple[House, str]) -> None:
    """A file that went may have paid, also where the ledger that came back knows nothing of it: it stays.

    Its plan is unused in that ledger, and what of it was paid nobody knows there: a run that is taken up again ends.
    """
    house, file_id = brought_back
    batch = house.file(file_id)["batch"]
    page = house.page("daniel", f"/files/{file_id}/run")
    assert f"The ledger does not know batch {batch}" in page
    assert "Nothing was sent" not in page and "Continue" not in page
    assert "not known to the ledger" in house.page("lee", "/")
    house.post("daniel", f"/files/{file_id}/resume", 409, password=True)
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'sending' WHERE id = ?", (file_id,))
        house.site.jobs.want(db, file_id, "submit", "daniel")
    house.work()
    assert house.file(file_id)["state"] == "stopped"
    assert "does not know batch" in house.file(file_id)["told"]
    assert set(house.arrived.values()) == {1}


def test_a_content_that_was_sent_before_the_ledger_was_restored_is_not_asked_for_again(
    brought_back: tuple[House, str],
) -> None:
    """Uploaded once more it was a new file with nothing to compare with, was approved, and paid twice."""
    house, file_id = brought_back
    batch, again = house.file(file_id)["batch"], house.upload(*ROWS)
    page = house.page("maria", f"/files/{again}/check")
    assert f"this file was sent as batch {batch}, which the ledger no longer knows" in page
    house.post("maria", f"/files/{again}/ask", 409)
    other = house.upload({**ROWS[0], "paymentId": "Y", "invoiceNumber": "INV-Y"})
    house.post("maria", f"/files/{other}/ask")
