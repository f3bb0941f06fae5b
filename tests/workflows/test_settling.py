"""Rows in doubt are settled by a person who signs and confirms: until then every row stays as it was.

Pending rows are cancelled on a named person's word.
"""

from __future__ import annotations

import contextlib
import shutil
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchpay.cli.reconcile import reconcile as command
from batchpay.errors import BatchHeld, FileRefused, WrongUse
from batchpay.ledger.open import accept, open_ledger
from batchpay.outcome import Outcome
from batchpay.payment import State, Totals
from batchpay.workflows.reconcile import ReconcileRequest, reconcile
from batchpay.workflows.resolve import ProposedDecisions, RowDecision, Signature, cancel, list_in_doubt, settle
from tests.support.ledger_factory import Planned, add_batch
from tests.workflows.desk import ACCEPTED, ANN, IN_DOUBT, PLAIN, Desk
from tests.workflows.test_brought_back import bring_back, keep

ROWS = [{"paymentId": f"P-{number}", "invoiceNumber": f"A-{number}", "amount": "10.00"} for number in (1, 2, 3)]


class Person:
    """Signs, and confirms unless told not to; records what was shown and asked."""

    def __init__(self, name: str = "Kim", reason: str = "the bank says so", *, agrees: bool = True) -> None:
        self.name, self.reason, self.agrees = name, reason, agrees
        self.asked: list[object] = []

    def show(self, found: ProposedDecisions) -> None:
        self.asked.append([decision.row for decision in found.decisions])

    def sign(self) -> Signature:
        self.asked.append("sign")
        return Signature(self.name, self.reason)

    def confirm(self, sent_again: int) -> None:
        self.asked.append(sent_again)
        if not self.agrees:
            raise WrongUse("not confirmed")


@pytest.fixture
def batch(desk: Desk) -> str:
    """A batch whose second and third row are in doubt."""
    answers: dict[str, Outcome] = {"A-1": ACCEPTED}
    desk.answer = lambda reference: answers.get(reference, IN_DOUBT)
    found = str(desk.submit(desk.file("may.csv", *ROWS)).batch)
    desk.answer = lambda reference: ACCEPTED
    return found


def states(desk: Desk, batch: str) -> list[State]:
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        return [row.state for row in ledger.rows(batch, list(State))]


ACCOUNT = PLAIN["achAccountNumber"]


@pytest.mark.parametrize(
    "person", [Person(agrees=False), Person(f"Kim {ACCOUNT}"), Person(reason=f"paid to {ACCOUNT}")]
)
def test_without_agreement_nothing_is_settled(desk: Desk, batch: str, person: Person) -> None:
    """Whoever says no at the end, or writes an account number into name or reason, has changed nothing."""
    with pytest.raises(WrongUse):
        settle(batch, [RowDecision(2, "send again")], person, desk.settings, ANN)
    assert states(desk, batch) == [State.ACCEPTED, State.IN_DOUBT, State.IN_DOUBT]
    desk.resume(batch)
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_what_is_confirmed_is_recorded_with_who_and_why(desk: Desk, batch: str) -> None:
    """Shown, signed, confirmed with the number of rows that will be sent again; then only that row is sent again."""
    person = Person()
    found = settle(batch, [RowDecision(2, "send again")], person, desk.settings, ANN)
    assert person.asked == [[2], "sign", 1]
    assert ([doubt.row for doubt in found.doubts], found.settled is not None) == ([3], True)
    assert states(desk, batch) == [State.ACCEPTED, State.PENDING, State.IN_DOUBT]
    assert desk.events("resolved") == [("Kim (ann@desk-3)", "the bank says so")]
    desk.resume(batch)
    assert desk.arrived == {"A-1": 1, "A-2": 2, "A-3": 1}


def test_what_a_killed_run_left_behind_is_settled_like_any_doubt(desk: Desk) -> None:
    """Its row is `sending`: nobody knows whether the bytes left, so a person may say what became of it."""
    with closing(open_ledger(desk.settings.ledger, create_as="ann")) as ledger:
        batch = add_batch(ledger, [Planned(1, State.SENDING), Planned(2, State.PENDING)])
    found = settle(batch, [RowDecision(1, "accepted", "TX-1")], Person(), desk.settings, ANN)
    assert (found.doubts, states(desk, batch)) == ([], [State.ACCEPTED, State.PENDING])


def test_the_sheet_lists_what_is_in_doubt_and_settles_nothing_while_blank(desk: Desk, batch: str) -> None:
    """A sheet returned unchanged is no decision: nobody is asked to sign."""
    sheet = str(desk.folder / "doubts.csv")
    assert [doubt.row for doubt in list_in_doubt(batch, desk.settings, ANN, sheet=sheet).doubts] == [2, 3]
    person = Person()
    assert [doubt.row for doubt in settle(batch, sheet, person, desk.settings, ANN).doubts] == [2, 3]
    assert person.asked == [[]]


def test_doubts_of_a_test_run_are_not_reported_with_live_payments(desk: Desk, batch: str) -> None:
    """Test and live never mix: a sandbox that lost an answer would end every nightly run with 7."""
    gateway = replace(desk.settings.gateway, environment="live", base_url="http://127.0.0.1:8")
    desk.settings = replace(desk.settings, gateway=gateway)
    other = desk.submit(desk.file("june.csv", ROWS[1]))
    assert (other.exit_code, other.in_doubt_elsewhere) == (0, {})


@pytest.mark.parametrize("by_sheet", [False, True])
def test_one_payment_of_the_gateway_proves_one_row(desk: Desk, batch: str, by_sheet: bool) -> None:
    """Row 3 was settled with the reference of row 2, and so was every line of a sheet: one payment counted as three."""
    settle(batch, [RowDecision(2, "accepted", "TX-2")], Person(), desk.settings, ANN)
    chosen: list[RowDecision] | str = [RowDecision(3, "accepted", "tx-2")]
    if by_sheet:
        chosen = str(desk.folder / "doubts.csv")
        list_in_doubt(batch, desk.settings, ANN, sheet=chosen)
        text = (desk.folder / "doubts.csv").read_text("utf-8").rstrip()
        (desk.folder / "doubts.csv").write_text(text.removesuffix(",,,") + ",accepted,TX-2,seen\n", "utf-8")
    person = Person()
    with pytest.raises(
        FileRefused if by_sheet else WrongUse, match=f"from row 2 of batch {batch}.*nothing was changed"
    ):
        settle(batch, chosen, person, desk.settings, ANN)
    assert person.asked == []
    assert states(desk, batch) == [State.ACCEPTED, State.ACCEPTED, State.IN_DOUBT]


class Reader(Person):
    """Sees each row in doubt next to its line of an export."""

    def show(self, found: Any) -> None:
        self.asked.append((found.row.row, found.decision is not None))


@pytest.mark.parametrize("agrees", [True, False])
def test_an_export_settles_what_a_person_confirms(desk: Desk, batch: str, agrees: bool) -> None:
    """The row whose line says that it was paid; the other one stays, and so do both if the person says no."""
    export = desk.folder / "export.csv"
    today = datetime.now(UTC).date().isoformat()
    export.write_text(f"Transaction ID,Invoice Number,Amount,Date,Status\nTX-2,A-2,10.00,{today},Settled\n")
    request, person = ReconcileRequest(str(export), output=str(desk.folder / "out.csv")), Reader(agrees=agrees)
    with contextlib.nullcontext() if agrees else pytest.raises(WrongUse):
        done = reconcile(batch, request, desk.settings, ANN, person)
        assert [found.row.row for found in done.settled] == [2]
    assert person.asked == [(2, True), "sign", 0]
    assert states(desk, batch)[1:] == [State.ACCEPTED if agrees else State.IN_DOUBT, State.IN_DOUBT]
    settled = [("Kim (ann@desk-3)", "the bank says so; found in export.csv")]
    assert desk.events("resolved") == (settled if agrees else [])


def test_an_export_settles_what_a_killed_run_was_sending(desk: Desk) -> None:
    """The row was `sending`, in no list of doubts, and was shown as one that the export has and nobody can settle."""
    with closing(open_ledger(desk.settings.ledger, create_as="ann")) as ledger:
        killed = add_batch(ledger, [Planned(1, State.SENDING)])
    export = desk.folder / "export.csv"
    today = datetime.now(UTC).date().isoformat()
    export.write_text(f"Transaction ID,Invoice Number,Amount,Date,Status\nTX-1,INV-1,12.50,{today},Settled\n")
    request = ReconcileRequest(str(export), output=str(desk.folder / "out.csv"))
    done = reconcile(killed, request, desk.settings, ANN, Reader())
    assert [found.row.row for found in done.settled] == [1]
    assert states(desk, killed) == [State.ACCEPTED]


@pytest.mark.parametrize(("lines", "settled"), [
    (["TX-2 Declined"], State.IN_DOUBT), (["TX-2 Declined", "TX-2 Declined"], State.IN_DOUBT),
    (["TX-2 Declined", "TX-9 Declined"], State.DECLINED), ([" Declined", " Declined"], State.DECLINED),
    (["TX-2 Declined", "TX-9 Settled"], State.ACCEPTED),
])  # fmt: skip
def test_a_refusal_of_an_earlier_attempt_says_nothing_about_the_last(
    desk: Desk, batch: str, lines: list[str], settled: State
) -> None:
    """Refused, sent again, paid, and the answer lost: the first line settled it as declined, and it was paid again."""
    settle(batch, [RowDecision(2, "send again")], Person(), desk.settings, ANN)
    desk.answer = lambda reference: IN_DOUBT
    desk.resume(batch)
    export, today = desk.folder / "export.csv", datetime.now(UTC).date().isoformat()
    rows = ["{},A-2,10.00,{},{}".format(line.split(" ")[0], today, line.split(" ")[1]) for line in lines]
    export.write_text("\n".join(["Transaction ID,Invoice Number,Amount,Date,Status", *rows]) + "\n")
    reconcile(batch, ReconcileRequest(str(export), output=str(desk.folder / "out.csv")), desk.settings, ANN, Reader())
    assert states(desk, batch)[1] is settled


def test_what_a_restored_ledger_knows_of_a_row_says_nothing_about_its_last_attempt(desk: Desk, batch: str) -> None:
    """Paid after the backup: a refusal of before settled the row as declined, a sheet of before had it sent again."""
    first = desk.folder / "first.csv"
    list_in_doubt(batch, desk.settings, ANN, sheet=str(first))
    settle(batch, [RowDecision(2, "send again")], Person(), desk.settings, ANN)
    keep(desk)
    desk.resume(batch)
    shutil.rmtree(desk.folder / "keys.kept")
    shutil.copytree(desk.folder / "keys", desk.folder / "keys.kept")  # only the ledger is of before
    bring_back(desk)
    accept(desk.settings.ledger, "ann", "the disk failed", rows_in_doubt=True)
    export, today = desk.folder / "export.csv", datetime.now(UTC).date().isoformat()
    header = "Transaction ID,Invoice Number,Amount,Date,Status"
    export.write_text(f"{header}\nTX-2,A-2,10.00,{today},Declined\n")
    reconcile(batch, ReconcileRequest(str(export), output=str(desk.folder / "out.csv")), desk.settings, ANN, Reader())
    with pytest.raises(FileRefused, match="row 2 may have been sent since this sheet was written"):
        decide_by_sheet(desk, batch, first)
    assert states(desk, batch)[1] is State.IN_DOUBT
    for doubt in list_in_doubt(batch, desk.settings, ANN).doubts:
        assert (doubt.sent_from, doubt.sent_until) == (None, None)
        assert "and perhaps again in the time that the restored ledger lost" in doubt.why
    export.write_text(f"{header}\nTX-2,A-2,10.00,{today},Declined\nTX-3,A-2,10.00,{today},Settled\n")
    reconcile(batch, ReconcileRequest(str(export), output=str(desk.folder / "out.csv")), desk.settings, ANN, Reader())
    assert states(desk, batch)[1] is State.ACCEPTED


def decide_by_sheet(desk: Desk, batch: str, sheet: Path) -> None:
    """Hand in a sheet that wants its first row sent again."""
    text = sheet.read_text("utf-8").splitlines()
    decided = sheet.with_name("decided.csv")
    decided.write_text("\n".join([text[0], text[1].removesuffix(",,,") + ",send again,,"]) + "\n", "utf-8")
    settle(batch, str(decided), Person(), desk.settings, ANN)


def test_before_a_restore_is_before_for_rows_in_doubt_as_well(desk: Desk, batch: str) -> None:
    """Sent again and paid after the backup: a refusal of before settled it, a sheet of before had it sent once more.

    A sheet of after the restore decides, and is about one attempt as well.
    """
    keep(desk)
    sheets = [desk.folder / name for name in ("before.csv", "after.csv")]
    list_in_doubt(batch, desk.settings, ANN, sheet=str(sheets[0]))
    decide_by_sheet(desk, batch, sheets[0])
    desk.resume(batch)
    shutil.rmtree(desk.folder / "keys.kept")
    shutil.copytree(desk.folder / "keys", desk.folder / "keys.kept")
    bring_back(desk)
    export, today = desk.folder / "export.csv", datetime.now(UTC).date().isoformat()
    export.write_text(f"Transaction ID,Invoice Number,Amount,Date,Status\nTX-2,A-2,10.00,{today},Declined\n")
    accept(desk.settings.ledger, "ann", "the disk failed", rows_in_doubt=True)
    reconcile(batch, ReconcileRequest(str(export), output=str(desk.folder / "out.csv")), desk.settings, ANN, Reader())
    with pytest.raises(FileRefused, match="row 2 may have been sent since this sheet was written"):
        decide_by_sheet(desk, batch, sheets[0])
    assert states(desk, batch)[1] is State.IN_DOUBT
    (desk.folder / "results.csv").unlink()  # they would keep it from being sent
    list_in_doubt(batch, desk.settings, ANN, sheet=str(sheets[1]))
    decide_by_sheet(desk, batch, sheets[1])
    desk.answer = lambda reference: IN_DOUBT
    desk.resume(batch)
    with pytest.raises(FileRefused, match="row 2 was sent again after this sheet was written"):
        decide_by_sheet(desk, batch, sheets[1])


@pytest.mark.parametrize("waits", [True, False])
def test_a_sheet_of_one_restore_is_not_about_the_next_of_the_same_backup(desk: Desk, waits: bool) -> None:
    """Both ledgers know the same attempts: what the sheet had sent again was paid, and was paid once more by it."""
    desk.answer = lambda reference: IN_DOUBT
    batch = str(desk.submit(desk.file("may.csv", ROWS[0])).batch)
    settings, sheet, backup = desk.settings, desk.folder / "sheet.csv", desk.folder / "backup.db"
    if waits:
        settle(batch, [RowDecision(1, "send again")], Person(), settings, ANN)
    with closing(open_ledger(settings.ledger)) as ledger:
        ledger.backup(backup)
    desk.answer = lambda reference: ACCEPTED
    desk.resume(batch)
    (desk.folder / "results.csv").unlink(missing_ok=True)  # they would keep it from being sent
    shutil.copy(backup, settings.ledger.url)
    accept(settings.ledger, "ann", "the disk failed", rows_in_doubt=True)
    list_in_doubt(batch, settings, ANN, sheet=str(sheet))
    decide_by_sheet(desk, batch, sheet)
    desk.resume(batch)
    paid = desk.arrived.copy()
    (desk.folder / "results.csv").unlink()
    shutil.copy(backup, settings.ledger.url)
    accept(settings.ledger, "ann", "the new disk failed as well", rows_in_doubt=True)
    with pytest.raises(FileRefused, match="row 1 may have been sent since this sheet was written"):
        decide_by_sheet(desk, batch, sheet)
    desk.resume(batch)
    assert desk.arrived == paid


@pytest.mark.parametrize(("days", "shown"), [(5, [(1, False)]), (6, [])])
def test_the_page_searches_lines_as_many_days_as_the_command(desk: Desk, days: int, shown: list[object]) -> None:
    """It uses the default: a line that one shows next to a row by its amount the other shows as well."""
    with closing(open_ledger(desk.settings.ledger, create_as="ann")) as ledger:
        doubtful = add_batch(ledger, [Planned(1, State.IN_DOUBT)])
        (row,) = ledger.rows(doubtful)
    assert row.sent_at is not None
    export, person = desk.folder / "export.csv", Reader()
    export.write_text(f"Amount,Date,Account,Status\n12.50,{row.sent_at.date() + timedelta(days=days)},x6789,Settled\n")
    request = ReconcileRequest(str(export), output=str(desk.folder / "out.csv"))
    reconcile(doubtful, request, desk.settings, ANN, person)
    assert person.asked == shown
    assert states(desk, doubtful) == [State.IN_DOUBT], "what only looks like it proves nothing"
    (asked,) = [option for option in command.params if option.name == "days"]
    assert request.days == asked.default


def test_an_export_with_other_words_is_read_by_its_map(desk: Desk, batch: str) -> None:
    """Without it `Storno` would not mean a payment that was declined, and the row stayed in doubt."""
    export, words = desk.folder / "export.csv", desk.folder / "words.toml"
    today = datetime.now(UTC).date().isoformat()
    export.write_text(f"Vorgang,Invoice Number,Amount,Date,Status\nTX-2,A-2,10.00,{today},Storno\n")
    words.write_text('[columns]\nreference = "Vorgang"\n[status]\ndeclined = ["Storno"]\n')
    request = ReconcileRequest(str(export), str(words), output=str(desk.folder / "out.csv"))
    done = reconcile(batch, request, desk.settings, ANN, Reader())
    assert [found.row.row for found in done.settled] == [2]
    assert states(desk, batch)[1:] == [State.DECLINED, State.IN_DOUBT]


def test_that_machines_are_gone_is_recorded_with_who_and_why(
    desk: Desk, batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On that word rows are sent again that another machine may still be sending: a named person must give it."""
    said: list[tuple[str, ...]] = []
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        monkeypatch.setattr(type(ledger), "say_hosts_gone", lambda _, *words: said.append(words))
    settle(batch, [RowDecision(2, "declined")], Person(), desk.settings, ANN, hosts_are_gone=True)
    assert said == [(batch, f"Kim ({ANN})", "the bank says so")]


def test_rows_that_a_killed_run_was_sending_are_listed(desk: Desk) -> None:
    """Nobody is asked about them otherwise; while a run is really under way they are its own, and that is reported."""
    desk.submit(desk.file("may.csv", ROWS[0]))
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        killed = add_batch(ledger, [Planned(1, State.SENDING)])
        with ledger.lock(ledger.find(killed).digest):
            under_way = list_in_doubt(killed, desk.settings, ANN)
    assert (under_way.doubts, under_way.run_under_way) == ([], True)
    found = list_in_doubt(killed, desk.settings, ANN)
    assert ([doubt.row for doubt in found.doubts], found.run_under_way) == ([1], False)
    settled = settle(killed, [RowDecision(1, "declined")], Person(), desk.settings, ANN)
    assert (settled.doubts, settled.run_under_way) == ([], False)


KIM = Signature("Kim", "billed twice")
FILE = [{"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 2, 3)]


def waiting(desk: Desk) -> str:
    """A batch whose first row is in doubt and stopped the run: two rows wait."""
    desk.answer = lambda reference: IN_DOUBT
    return str(desk.submit(desk.file("may.csv", *FILE)).batch)


def test_cancelled_rows_are_not_sent_until_a_person_releases_them(desk: Desk) -> None:
    """By no call of resume or submit; what is not cancelled goes on."""
    batch = waiting(desk)
    done = cancel(batch, [2], KIM, desk.settings, ANN)
    assert (done.totals, done.summary.of(State.REJECTED)) == (Totals(1, 20_00), Totals(1, 20_00))
    del desk.answer
    assert desk.resume(batch).exit_code == 7
    assert desk.arrived == {"A-1": 1, "A-3": 1}
    again = desk.submit(desk.folder / "may.csv")
    assert (again.of(State.REJECTED).rows, desk.arrived["A-2"]) == (1, 0)
    assert "a person cancelled this row (row.cancelled)" in (desk.folder / "may.rejects.csv").read_text()
    assert any("or a person cancelled (1 row)" in note for note in again.notes)
    assert desk.submit(desk.folder / "may.csv", release="it is owed after all").released == Totals(1, 20_00)
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_a_whole_batch_is_cancelled_but_for_what_may_have_been_paid(desk: Desk) -> None:
    """A row in doubt is no pending one: whether it was paid is not decided here. Done twice, nothing is left."""
    batch = waiting(desk)
    done = cancel(batch, None, KIM, desk.settings, ANN)
    assert (done.totals, done.summary.of(State.IN_DOUBT).rows) == (Totals(2, 50_00), 1)
    for rows, told in ((None, "has no pending rows"), ([1], "row 1 is not pending")):
        with pytest.raises(WrongUse, match=f"{told}.*; nothing was cancelled|{told}; nothing was cancelled"):
            cancel(batch, rows, KIM, desk.settings, ANN)
    del desk.answer
    desk.submit(desk.file("june.csv", FILE[1]), allow_duplicates=True, again="due after all")
    assert desk.arrived == {"A-1": 1, "A-2": 1}


def test_a_cancelled_bill_in_another_file_takes_a_reason(desk: Desk, on_both: None) -> None:
    """Its rejects, corrected and submitted as a file of their own, paid the cancelled rows beside them."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=False))
    batch = waiting(desk)
    cancel(batch, [2], KIM, desk.settings, ANN)
    del desk.answer
    desk.submit(desk.folder / "may.csv", rejects=desk.folder / "back.csv")
    back = desk.folder / "back.csv"
    desk.submit(back)
    assert desk.arrived == {"A-1": 1, "A-3": 1}
    (told,) = [one for one in desk.verdict.failures if one.row == 1]
    assert told.name == "row.duplicate"
    assert told.message.startswith(f"is the same bill as line 3 of batch {batch} of ")
    assert told.message.endswith(
        "which a person cancelled: if it is due after all, submit it with --allow-duplicates --reason TEXT"
    )
    other = {"invoiceNumber": "A-2", "amount": "21.00"}  # what it was cancelled for
    assert desk.submit(desk.file("june.csv", other)).exit_code == 7
    assert desk.submit(desk.file("july.csv", FILE[1]), again="due after all", allow_duplicates=True).exit_code == 7
    assert desk.arrived["A-2"] == 2
    third = desk.dry_run(desk.file("aug.csv", FILE[1], FILE[2])).verdict.failures[0].message
    assert "an invoice number of its own" in third, "the payment counts, not what was cancelled before it"


def test_a_cancelled_payment_under_another_id_is_told_when_it_is_long_ago(desk: Desk, on_both: None) -> None:
    """Wages repeat: a month later it is a warning, which names what was cancelled."""
    rows = [row | {"paymentId": f"P-{row['invoiceNumber']}"} for row in FILE]
    desk.answer = lambda reference: IN_DOUBT
    batch = str(desk.submit(desk.file("may.csv", *rows)).batch)
    cancel(batch, [2], KIM, desk.settings, ANN)
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=False, duplicate_days=0))
    (told,) = desk.dry_run(desk.file("june.csv", rows[1] | {"paymentId": "P-9"})).verdict.warning_failures
    assert (told.name, told.message.partition(", ")[2]) == (
        "row.same_payment",
        "which a person cancelled, make sure that it is due after all",
    )


def test_nothing_is_cancelled_under_a_run_nor_with_an_account_number_for_a_reason(desk: Desk) -> None:
    """A row that is about to be sent must not be called cancelled; the ledger keeps the reason for good."""
    batch = waiting(desk)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        with ledger.lock(ledger.find(batch).digest), pytest.raises(BatchHeld):
            cancel(batch, None, KIM, desk.settings, ANN)
        with pytest.raises(WrongUse, match="the account number of row 2"):
            cancel(batch, None, Signature("Kim", "648443924 was closed"), desk.settings, ANN)
        assert ledger.find(batch).by_state[State.PENDING].rows == 2
