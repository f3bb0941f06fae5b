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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from batchpay.errors import NotUsable
from batchpay.outcome import Outcome
from batchpay.text import money
from batchpay.web import papers, run_job, spool
from batchpay.web.spool import KEPT_S, place, sweep
from batchpay.workflows.resolve import RowDecision, settle
from batchpay.workflows.status import batch_status
from tests.support.in_process import Caller
from tests.web.house import ROWS, SAME_ORIGIN, WRONG, House, Yes, words_of
from tests.workflows.desk import ACCEPTED, ANN, IN_DOUBT


def export() -> bytes:
    """What the gateway exports of today."""
    today = datetime.now(UTC).date().isoformat()
    lines = ["INV-A,10.00,paid", "INV-B,20.50,paid", "INV-C,30.25,declined"]
    return "\n".join(["invoiceNumber,amount,status,date", *(f"{line},{today}" for line in lines), ""]).encode()


def answered(house: House, doubt: str) -> None:
    def answer(reference: str) -> Outcome:
        return IN_DOUBT if reference == doubt else ACCEPTED

    house.answer = answer


def status_json(house: House, batch: str) -> dict[str, Any]:
    """What `batchpay status BATCH --json` says."""
    return batch_status(batch, house.site.settings).as_json()


def test_every_number_is_the_command_lines(house: House) -> None:
    """Rows and amounts of each state, the total, and what was accepted: as `batchpay status --json` has them."""
    answered(house, "INV-C")
    file_id = house.sent(*ROWS, WRONG, partial="yes")
    found = status_json(house, house.file(file_id)["batch"])
    page = words_of(house.get("maria", f"/files/{file_id}/run"))
    names = {"accepted": "accepted", "in_doubt": "in doubt", "pending": "waiting", "rejected": "left out"}
    for state, name in names.items():
        amount = found["amount"][state]
        assert f"{name} {found[state]:,} {money(int(amount.replace('.', '')))}" in page
    total = money(int(found["amount"]["total"].replace(".", "")))
    assert f"the file {found['rows']} {total}" in page
    assert f"{found['amount']['accepted']} accepted of {found['amount']['valid']}" in page
    history = words_of(house.get("lee", "/history"))
    assert f"{found['valid']} {found['accepted']} {found['amount']['accepted']}" in history


def test_the_check_shows_the_command_lines_numbers(house: House) -> None:
    """The approver's page and the check's say what `validate --json` says of the same file."""
    file_id = house.ask(*ROWS, WRONG, partial="yes")
    facts = house.facts(file_id)
    for path in ("check", "approve"):
        page = words_of(house.get("daniel", f"/files/{file_id}/{path}"))
        for name in ("total", "valid", "rejected"):
            assert facts["amount"][name] in page, (path, name)
        for side in ("DEBIT", "CREDIT"):
            assert f"{facts['to_send'][side]['rows']} {facts['to_send'][side]['amount']}" in page


def test_asking_how_far_it_is_ends_with_the_run(house: House) -> None:
    """While it runs the part is given, at the end htmx is told to ask no more and to show the whole page."""
    file_id = house.ask()
    house.approve(file_id)
    path = f"/files/{file_id}/run/now"
    assert "waiting for its turn" in words_of(house.get("lee", path))
    house.work()
    ended = house.get("lee", path, 286)
    assert ended.headers["HX-Refresh"] == "true"
    assert "Finished" in words_of(ended)


def test_a_child_that_is_gone_is_said(house: House) -> None:
    """Nobody is told that a run goes on whose process is dead: it is restarted."""
    file_id = house.sent()
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'sending' WHERE id = ?", (file_id,))
    assert "ended unexpectedly and is being restarted" in words_of(house.get("lee", f"/files/{file_id}/run/now"))


@contextmanager
def children() -> Iterator[None]:
    """Papers are made by processes, as they are outside of tests: each loads the program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchpay.web.papers.subprocess", subprocess)
        yield


def test_results_are_made_when_they_are_asked_for(house: House) -> None:
    """By a child, in memory: the page's folder holds nothing of them, and the download stands in the history."""
    file_id = house.sent()
    batch = house.file(file_id)["batch"]
    with children():
        given = house.get("maria", f"/batches/{batch}/results?as=csv")
    assert [row["state"] for row in csv.DictReader(io.StringIO(given.get_data(as_text=True)))] == ["accepted"] * 3
    assert "attachment; filename=pay.results.csv" in given.headers["Content-Disposition"]
    assert not list(house.site.home.rglob("*results*"))
    assert f"downloaded the results of {batch}" in words_of(house.get("lee", "/audit"))


def test_an_export_is_compared_and_settles_what_it_proves(house: House) -> None:
    """Compare changes nothing; settling takes the role, a reason and the password, and leaves the ledger's word."""
    answered(house, "INV-C")
    batch = house.file(file_id := house.sent())["batch"]
    path = f"/batches/{batch}/reconcile"
    house.post("lee", path, 403)
    house.post("maria", path, 400, export=(io.BytesIO(b"no"), "export.pdf"))
    with children():
        house.post("maria", path, export=(io.BytesIO(export()), "export.csv"))
    assert not house.events("resolved")
    page = words_of(house.get("sam", path))
    assert "matched 2 30.50 2 30.50" in page
    assert "was refused" in page
    for stored in place(house.site.home, f"batch-{batch}").iterdir():
        assert b"INV-A" not in stored.read_bytes()
    house.post("daniel", f"/batches/{batch}/settle", 403, reason="in the export", password=True)
    seen = re.findall(r'name="seen" value="(\w+)"', house.get("sam", path).get_data(as_text=True))
    form: Any = {"seen": seen, "reason": "in the export"}
    house.post("sam", f"/batches/{batch}/settle", 401, **form, password="wrong")
    meanwhile = io.BytesIO(export().replace(b"declined", b"paid"))
    house.post("maria", path, export=(meanwhile, "other.csv"))
    assert "compared again in the meantime" in words_of(
        house.post("sam", f"/batches/{batch}/settle", 409, **form, password=True)
    )
    assert not house.events("resolved")
    house.post("maria", path, export=(io.BytesIO(export()), "export.csv"))
    with children():
        house.post("sam", f"/batches/{batch}/settle", **form, password=True)
    (event,) = house.events("resolved")
    assert event["who"].startswith("Sam Reyes (sam (web))")
    assert status_json(house, batch)["declined"] == 1
    for changed, is_reconciled in ((None, True), (b"paid", False)):  # a later export that differs takes it back
        if changed:
            house.post("maria", path, export=(io.BytesIO(export().replace(b"declined", changed)), "export.csv"))
        for page in ("run", "check"):
            assert ("Reconciled : done" in words_of(house.get("lee", f"/files/{file_id}/{page}"))) is is_reconciled
    house.now[0] = time.time() + KEPT_S + 60
    sweep(house.store)
    assert not place(house.site.home, f"batch-{batch}").exists(), "an export is removed in time"


def test_what_an_export_settled_is_said_and_what_it_did_not(house: House) -> None:
    """Each row with its outcome, and those in doubt that the export does not have; it said neither."""
    house.answer = lambda reference: ACCEPTED if reference == "INV-A" else IN_DOUBT
    batch = house.file(house.sent())["batch"]
    path, settle_path = f"/batches/{batch}/reconcile", f"/batches/{batch}/settle"
    partly = b"\n".join(line for line in export().split(b"\n") if not line.startswith(b"INV-B"))
    house.post("maria", path, export=(io.BytesIO(partly), "export.csv"))
    page = house.get("sam", path)
    assert "1 payment in doubt is not in the export" in words_of(page)
    assert "Settle 1 payment" in words_of(page)
    seen = re.findall(r'name="seen" value="(\w+)"', page.get_data(as_text=True))
    house.post("sam", settle_path, seen=seen, reason="in the export", password=True)
    said = words_of(house.get("maria", path))
    assert "Sam Reyes settled 1 payment by this export: line 4, Grace Quigley , 30.25: was refused" in said
    assert "1 payment in doubt is not in the export" in said
    trail = words_of(house.get("lee", "/audit"))
    assert "settled line 4 declined by what export.csv proves: in the export" in trail


def test_a_comparison_offers_nothing_that_was_settled_since(house: House) -> None:
    """Two people: one settles by hand what the other's page offers, and "settled what it proves" stood for nothing."""
    answered(house, "INV-C")
    batch = house.file(house.sent())["batch"]
    path = f"/batches/{batch}/reconcile"
    house.post("maria", path, export=(io.BytesIO(export()), "export.csv"))
    page = house.get("sam", path).get_data(as_text=True)
    assert "Compared by Maria Lind on" in page
    seen = re.findall(r'name="seen" value="(\w+)"', page)
    settle(batch, [RowDecision(3, "accepted")], Yes(), house.site.settings, ANN)
    form: Any = {"seen": seen, "reason": "in the export", "password": True}
    answer = words_of(house.post("sam", f"/batches/{batch}/settle", 409, **form))
    assert "or a payment in doubt was settled" in answer and "Settle 1 payment" not in answer
    assert "settled what" not in words_of(house.get("lee", "/audit"))


def test_of_two_exports_at_once_the_list_is_of_the_one_that_is_shown(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sam's export came between Maria's and her result: the page compared with hers, and the list was of his."""
    answered(house, "INV-C")
    batch = house.file(house.sent())["batch"]
    path, keep = f"/batches/{batch}/reconcile", spool.keep

    def between(ledger: Any, home: Any, place: str, name: str, content: Any) -> None:
        if name == "compared":
            monkeypatch.setattr(spool, "keep", keep)
            keep(ledger, home, place, "export", [export().replace(b"declined", b"paid")])
        keep(ledger, home, place, name, content)

    monkeypatch.setattr(spool, "keep", between)
    house.post("maria", path, export=(io.BytesIO(export()), "export.csv"))
    house.get("maria", f"/batches/{batch}/reconciled", 409)
    seen = re.findall(r'name="seen" value="(\w+)"', house.get("sam", path).get_data(as_text=True))
    house.post("sam", f"/batches/{batch}/settle", 409, seen=seen, reason="in the export", password=True)
    house.post("maria", path, export=(io.BytesIO(export()), "export.csv"))
    house.get("maria", f"/batches/{batch}/reconciled")


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


def test_go_on_is_offered_where_the_ledger_has_something_to_send(house: House) -> None:
    """A row that the command line made pending waits in a file that had ended: it is no longer called finished."""
    answered(house, "INV-C")
    file_id = house.sent()
    batch, run = house.file(file_id)["batch"], f"/files/{file_id}/run"
    house.answer = lambda reference: ACCEPTED
    assert "Continue" not in words_of(house.get("daniel", run))
    house.post("daniel", f"/files/{file_id}/resume", 409, password=True)
    settle(batch, [RowDecision(3, "send again")], Yes(), house.site.settings, ANN)
    page = words_of(house.get("daniel", run))
    assert "1 payment, 30.25, waits to be sent" in page
    assert "Continue with 1 payment, 30.25" in page
    assert "Finished" not in page
    assert "1 payment waiting" in words_of(house.get("lee", "/"))
    house.post("daniel", f"/files/{file_id}/resume", password=True)
    house.post("dora", f"/files/{file_id}/resume", 409, password=True)
    house.work()
    assert house.arrived["INV-C"] == 2
    assert "Finished. Every payment was answered." in words_of(house.get("daniel", run))


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
    page = words_of(house.get("tara", f"/files/{file_id}/run"))
    assert "60.75 is above your limit of 60.74" in page and "Your password" not in page
    answer = words_of(house.post("tara", f"/files/{file_id}/resume", 403, password=True))
    assert "60.75 is above your limit of 60.74" in answer
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
    assert "Continue with 1 payment, 30.25" in words_of(house.get("daniel", f"/files/{file_id}/run"))
    settle(batch, [RowDecision(2, "send again")], Yes(), settings, ANN)
    page = words_of(house.post("daniel", f"/files/{file_id}/resume", 409, password=True, **seen))
    assert "Nothing was done" in page and "Continue with 2 payments, 50.75" in page
    house.work()
    assert house.arrived == {"INV-A": 1, "INV-B": 1, "INV-C": 1}
    house.post("daniel", f"/files/{file_id}/resume", password=True)


def test_a_run_that_the_command_line_ended_is_not_called_stopped(house: House, call: Caller) -> None:
    """`batchpay resume` sent what waited: list and page said that it was stopped, and payments not sent."""
    answered(house, "INV-A")  # a doubt before the first clear answer stops the run
    file_id = house.sent()
    batch, run = house.file(file_id)["batch"], f"/files/{file_id}/run"
    assert "Stopped:" in words_of(house.get("maria", run))
    house.answer = lambda reference: ACCEPTED
    settle(batch, [RowDecision(1, "declined")], Yes(), house.site.settings, ANN)
    call("resume", batch, "--json")
    assert house.arrived.total() == 3
    page = words_of(house.get("maria", run))
    assert "Stopped:" not in page and "Finished. Every payment was answered." in page and "Sent : done" in page
    assert "pay.csv finished" in words_of(house.get("maria", "/"))


def test_history_is_taken_away_as_csv(house: House) -> None:
    """Events of ledger and page in one list, by person; no cell is run by a spreadsheet; the chain is checked."""
    house.sent()
    with house.store.write() as db:
        house.store.note(db, "maria", None, "=1+1", "page")
    lines = list(csv.DictReader(io.StringIO(house.get("lee", "/audit.csv").get_data(as_text=True))))
    assert {line["recorded in"] for line in lines} == {"ledger", "page"}
    assert "'=1+1" in {line["what"] for line in lines}
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    found = words_of(house.get("lee", "/audit?who=daniel"))
    assert "Daniel Osei (daniel)" in found
    assert "Maria Lind (maria)" not in found
    assert words_of(house.get("lee", "/audit?who=daniel+osei")).partition("CSV")[2] == found.partition("CSV")[2], (
        "the name by which the page shows a person left out what the ledger says of them"
    )
    house.post("maria", "/audit/check", 403)
    house.post("lee", "/audit/check")
    assert "had the whole ledger checked: nothing was altered" in words_of(house.get("lee", "/audit"))


def test_a_payment_is_found_by_its_id(house: House) -> None:
    """However it is written; one that was never sent is not, and says why a name finds nothing."""
    batch = house.file(house.sent())["batch"]
    assert f"is line 3 of batch {batch}" in words_of(house.get("lee", "/history?payment=%20b"))
    assert "No payment with the paymentId" in words_of(house.get("lee", "/history?payment=Bo+Hart"))


def test_what_a_child_can_not_make_is_said(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child's one sentence is the page's; the person is not left with half a file."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    batch = house.file(house.sent())["batch"]
    with children():
        assert "could not be created" in words_of(house.get("lee", f"/batches/{batch}/report", 503))


def test_each_act_must_come_from_our_own_pages(house: House) -> None:
    """Every form of these pages is refused without Sec-Fetch-Site or Origin, and from another site."""
    file_id = house.ask()
    posts = [f"/files/{file_id}/{act}" for act in ("ask", "withdraw", "decide", "stop", "resume")]
    posts += ["/doubts/b", "/doubts/b/second", "/batches/b/reconcile", "/batches/b/settle", "/audit/check"]
    assert SAME_ORIGIN == {"Sec-Fetch-Site": "same-origin"}
    for path in posts:
        for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
            assert house.as_("daniel").post(path, headers=headers).status_code == 403, path
        assert house.app.test_client().post(path, headers=SAME_ORIGIN).status_code == 401, path


def test_a_fault_of_a_child_tells_no_row(
    house: House, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unexpected error's text and traceback may hold cells: the child says nothing, and the page a sentence."""

    def fails(*_: object) -> None:
        raise ValueError("648443924")

    batch = house.file(house.sent())["batch"]
    monkeypatch.setitem(papers.FILES, "report", fails)
    monkeypatch.setattr(sys, "argv", ["papers", "report", "-"])
    asked = {"settings": dataclasses.asdict(house.site.settings), "arguments": [batch, "report.html"]}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked)))
    monkeypatch.setattr(papers, "keep_memory_private", lambda: None)
    assert papers.main() == 1
    assert capfd.readouterr().err == ""

    def run(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 1, b"", b"Traceback: 648443924")

    monkeypatch.setattr("batchpay.web.papers.subprocess.run", run)
    said = words_of(house.get("lee", f"/batches/{batch}/report", 503))
    assert "could not be created" in said
    assert "648443924" not in said


@pytest.fixture
def brought_back(house: House) -> tuple[House, str]:
    """A house whose ledger and key were set back to before a file was sent that a person then stopped; its id."""
    house.sent({**ROWS[0], "paymentId": "Z", "invoiceNumber": "INV-Z"})
    file_id, folder, kept = house.ask(), house.site.home.parent, house.site.home.parent / "kept"
    parts = [path for path in folder.iterdir() if path.name == "keys" or path.name.startswith("ledger.db")]
    kept.mkdir()
    for path in parts:
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, kept / path.name)
    house.approve(file_id)
    house.work()
    house.site.reader.close()
    for path in folder.glob("ledger.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(folder / "keys")
    for path in kept.iterdir():
        path.rename(folder / path.name)
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'stopped' WHERE id = ?", (file_id,))
    return house, file_id


def test_what_the_ledger_does_not_know_any_more_is_not_called_unsent(brought_back: tuple[House, str]) -> None:
    """A file that went may have paid, also where the ledger that came back knows nothing of it: it stays."""
    house, file_id = brought_back
    batch = house.file(file_id)["batch"]
    page = words_of(house.get("daniel", f"/files/{file_id}/run"))
    assert f"The ledger does not know batch {batch}" in page
    assert "Nothing was sent" not in page and "Continue" not in page
    assert "not known to the ledger" in words_of(house.get("lee", "/"))
    house.post("daniel", f"/files/{file_id}/resume", 409, password=True)


def test_a_content_that_was_sent_before_the_ledger_was_restored_is_not_asked_for_again(
    brought_back: tuple[House, str],
) -> None:
    """Uploaded once more it was a new file with nothing to compare with, was approved, and paid twice."""
    house, file_id = brought_back
    batch, again = house.file(file_id)["batch"], house.upload(*ROWS)
    assert f"this content was batch {batch}, which the ledger does not know any more" in words_of(
        house.get("maria", f"/files/{again}/check")
    )
    house.post("maria", f"/files/{again}/ask", 409)
    other = house.upload({**ROWS[0], "paymentId": "Y", "invoiceNumber": "INV-Y"})
    house.post("maria", f"/files/{other}/ask")


def test_a_run_that_is_taken_up_again_does_not_begin_anew_in_a_ledger_that_came_back(
    brought_back: tuple[House, str],
) -> None:
    """Its plan is unused in that ledger, and what of it was paid nobody knows there."""
    house, file_id = brought_back
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'sending' WHERE id = ?", (file_id,))
        house.site.jobs.want(db, file_id, "submit", "daniel")
    house.work()
    assert house.file(file_id)["state"] == "stopped"
    assert "does not know batch" in house.file(file_id)["told"]
    assert set(house.arrived.values()) == {1}
