"""After a purge every command does what it can, and says what it can't: nothing is paid again, no file is emptied."""

from __future__ import annotations

import csv
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from batchpay.errors import WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.settings import RetentionSettings
from batchpay.workflows import ledger_care
from batchpay.workflows.health import HealthLimits, health
from batchpay.workflows.ledger_care import Retention
from batchpay.workflows.reconcile import ReconcileRequest, reconcile
from batchpay.workflows.status import batch_page, results_again
from tests.support.output_schemas import require_schema
from tests.workflows.desk import ANN, Desk

BILL = {"invoiceNumber": "A-1", "amount": "10.00"}
BAD = {"invoiceNumber": "A-2", "amount": "500.00"}
LATER = datetime.now(UTC) + timedelta(days=400)
WHY = "retention rule 7"


@pytest.fixture
def paid(desk: Desk) -> Path:
    """A file of May with one row paid and one above the limit; the limit is gone."""
    desk.answer = lambda bill: Outcome(State.ACCEPTED, "success", Answer(200, "1", "Approved", f"TX-{bill}"), 900)
    path = desk.file("may.csv", BILL, BAD)
    desk.limit("100.00")
    desk.submit(path)
    desk.limit("")
    return path


def purge(desk: Desk, days: int | None = 365) -> Retention:
    """Purge as if a year later."""
    return ledger_care.purge(desk.settings, days, WHY, LATER, ANN)


def test_it_is_shown_before_it_is_done(desk: Desk, paid: Path) -> None:
    """The dry run lists the batch and erases nothing; the purge erases it, once; both objects match their schema."""
    shown = ledger_care.look(desk.settings, 365, LATER)
    assert [(Path(one.file).name, one.rows, one.stays) for one in shown.due] == [("may.csv", 1, None)]
    assert desk.events("purged") == []
    done = purge(desk)
    for one in (shown, done):
        require_schema(["ledger", "purge"], one.as_json())
    assert (shown.as_json()["purged"], done.as_json()["purged"]) == (None, [shown.due[0].batch])
    assert (shown.as_json()["dry_run"], done.as_json()["dry_run"]) == (True, False)
    assert (shown.as_json()["pieces_searched"], shown.as_json()["bytes_searched"]) == (0, 0)
    assert done.done is not None
    searched = (done.done.pieces_searched, done.done.bytes_searched)
    assert (done.as_json()["pieces_searched"], done.as_json()["bytes_searched"]) == searched > (0, 0)
    assert desk.events("purged") == [("ann@desk-3", WHY)]
    assert purge(desk).as_json()["batches"] == []


def test_days_come_from_the_option_or_the_setting_and_the_reason_from_a_person(desk: Desk, paid: Path) -> None:
    """A setting names a period and erases nothing: without a reason there is no purge."""
    with pytest.raises(WrongUse, match="specify --older-than"):
        purge(desk, None)
    desk.settings = replace(desk.settings, retention=RetentionSettings(details_days=500))
    assert purge(desk, None).old == []
    desk.settings = replace(desk.settings, retention=RetentionSettings(details_days=300))
    with pytest.raises(WrongUse, match="--reason"):
        ledger_care.purge(desk.settings, None, " ", LATER, ANN)
    assert len(purge(desk, None).due) == 1


def test_a_batch_that_a_run_took_meanwhile_stays_and_is_reported(
    desk: Desk, paid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a good end: whoever must erase by a date reads that something was not erased."""
    monkeypatch.setattr("batchpay.ledger.sqlite.ledger.SqliteLedger.refuse_while_held", lambda *_: None)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        batch = ledger.find(None)
        with ledger.lock(batch.digest):
            done = purge(desk)
    assert (done.exit_code, done.as_json()["held"], done.as_json()["purged"]) == (9, [batch.batch], [])
    assert purge(desk).exit_code == 0


def test_health_reports_when_a_purge_is_due_and_when_it_is_late(desk: Desk, paid: Path) -> None:
    """Due is no alarm; a month later it is. Without the setting nothing is ever due."""

    def found(now: datetime) -> list[tuple[int, str]]:
        looked = health(desk.settings, HealthLimits(), now)
        return [(one.exit_code, one.message.split(":")[0]) for one in looked.findings if one.check == "retention"]

    assert found(LATER) == []
    desk.settings = replace(desk.settings, retention=RetentionSettings(details_days=390))
    due = "1 batch has names and details older than 390 days"
    assert found(LATER - timedelta(days=20)) == [(0, "no batch has names and details older than 390 days")]
    assert found(LATER) == [(0, due)]
    assert found(LATER + timedelta(days=40)) == [(6, due)]
    purge(desk)
    assert found(LATER + timedelta(days=40)) == [(0, "no batch has names and details older than 390 days")]
    desk.settings = replace(desk.settings, retention=RetentionSettings(details_days=94))
    (short,) = [one for one in health(desk.settings, HealthLimits(), LATER).findings if one.check == "retention"]
    assert (short.warns, short.message.split("; ")[-1]) == (True, "payments may come back for 95 days")


def test_the_same_content_is_paid_no_more_than_before(desk: Desk, paid: Path) -> None:
    """The file itself, and its bill in another file at any age: nothing goes to the gateway again."""
    purge(desk)
    again = desk.submit(paid)
    assert (again.exit_code, again.results, desk.arrived) == (3, None, {"A-1": 1})
    assert any("were purged" in note for note in again.notes)
    other = desk.submit(desk.file("june.csv", BILL | {"billingFirstName": "G."}))
    assert (other.exit_code, other.of(State.REJECTED).rows, desk.arrived) == (3, 1, {"A-1": 1})
    assert desk.resume(again.batch).results is None


def test_nothing_of_a_purged_batch_is_released(desk: Desk, paid: Path) -> None:
    """Nor does the summary say that it could be; in a file of its own the row is paid."""
    purge(desk)
    with pytest.raises(WrongUse, match="was purged"):
        desk.submit(paid, release="the limit was raised")
    assert "--release" not in " ".join(desk.submit(paid).notes)
    assert desk.submit(desk.file("own.csv", BAD)).exit_code == 0
    assert desk.arrived == {"A-1": 1, "A-2": 1}


def test_results_made_in_time_are_not_replaced(desk: Desk, paid: Path) -> None:
    """Results and page are refused with the reason: a file without names must not replace one with them."""
    made = desk.folder / "kept.csv"
    assert results_again(None, lambda _: made, desk.settings).results == str(made)
    before = made.read_bytes()
    purge(desk)
    for write in (results_again, batch_page):
        with pytest.raises(WrongUse, match="no longer has names, details and messages of batch"):
            write(None, lambda _: made, desk.settings)
    assert made.read_bytes() == before


def test_an_export_is_matched_only_by_reference(desk: Desk, paid: Path) -> None:
    """The row's reference is still known; a line that has only its invoice number matches no known row."""
    purge(desk)
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        batch = ledger.find(None).batch
    export, out = desk.folder / "export.csv", desk.folder / "out.csv"
    for line, verdicts in (("TX-A-1,,10.00", ["matched"]), (",A-1,10.00", ["missing there", "unknown here"])):
        export.write_text(f"Transaction ID,Invoice Number,Amount\n{line}\n")
        done = reconcile(batch, ReconcileRequest(str(export), output=str(out)), desk.settings, ANN)
        with out.open(newline="") as file:
            assert [one["verdict"] for one in csv.DictReader(file)] == verdicts
        assert any("by the gateway's reference alone" in note for note in done.summary.notes)


def test_copies_that_still_hold_it_are_named(desk: Desk, paid: Path) -> None:
    """The last backup, and copies that a later version left next to the ledger."""
    ledger = Path(desk.settings.ledger.url)
    ledger.with_name("ledger.db.version-2.17").write_bytes(b"")
    with closing(open_ledger(desk.settings.ledger)) as opened:
        opened.note_backup("ann", "ledger-20260101T000000Z.db")
    copies = purge(desk).copies
    assert copies[0].endswith("ledger.db.version-2.17")
    assert copies[1].startswith("backup ledger-20260101T000000Z.db of 2")
