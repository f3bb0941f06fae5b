"""A ledger restored together with its key and witness: only the existing results know what was paid since."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.cli.paths import beside
from batchpay.errors import LedgerBehind, LedgerNotUsable, WaitingForPerson
from batchpay.intake.own_output import first_row
from batchpay.ledger.open import accept, open_ledger
from batchpay.ledger.records import Decision
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.reports.results import told_by
from batchpay.sending.limits import Limits
from batchpay.sending.recorder import Recorder
from batchpay.settings import PolicySettings
from batchpay.workflows.run import RunRequest
from batchpay.workflows.status import results_again
from tests.workflows.desk import ACCEPTED, IN_DOUBT, Desk

ROWS = [{"paymentId": f"P-{row}", "invoiceNumber": f"A-{row}", "amount": "10.00"} for row in range(1, 7)]
KINDS = ["csv", "parquet", "xlsx"]


def snapshot(desk: Desk, kind: str, *, taken: bool = False) -> Path:
    """Pay six rows, the last three of which only the results know; return the results' path."""
    path, results = desk.file("pay.csv", *ROWS), desk.folder / f"pay.results.{kind}"
    if taken:  # yesterday's results have the name, today's get a number
        desk.submit(desk.file("pay.csv", {"paymentId": "P-0", "amount": "10.00"}), run=RunRequest(results))
        desk.file("pay.csv", *ROWS)
    pay_and_set_back(desk, path, results)
    return results


def pay_and_set_back(desk: Desk, path: Path, results: Path) -> None:
    """Pay three of the file's rows, copy the whole machine, pay the others, restore the copy."""
    desk.submit(path, run=RunRequest(results, Limits(rows_max=3)))
    keep(desk)
    desk.submit(path, run=RunRequest(results))
    bring_back(desk)


def keep(desk: Desk) -> None:
    """Copy ledger, key and witness."""
    for name in ("state", "keys"):
        shutil.copytree(desk.folder / name, desk.folder / f"{name}.kept")


def bring_back(desk: Desk) -> None:
    """Set the machine's disk back to the copy: each file is the same one, and has what it had."""
    for name in ("state", "keys"):
        kept = desk.folder / f"{name}.kept"
        for path in [path for path in (desk.folder / name).rglob("*") if path.is_file()]:
            if not (kept / path.relative_to(desk.folder / name)).exists():
                path.unlink()
        shutil.copytree(kept, desk.folder / name, dirs_exist_ok=True)
        shutil.rmtree(kept)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", [State.ACCEPTED, State.DECLINED])
def test_yesterdays_ledger_does_not_pay_again_what_its_results_show(desk: Desk, kind: str, state: State) -> None:
    """A virtual machine was set back: the ledger agrees with its witness, and three paid rows are pending in it."""
    desk.answer = lambda _: Outcome(state, "told", Answer(200, "1", "told"), bytes_sent=900)
    results = snapshot(desk, kind)
    before = results.read_bytes()
    with pytest.raises(LedgerBehind, match=rf"shows 6 {state} rows .* the ledger 3.*ledger accept --rows-in-doubt"):
        desk.submit(desk.folder / "pay.csv", run=RunRequest(results))
    assert results.read_bytes() == before
    assert set(desk.arrived.values()) == {1}


def test_numbered_results_show_it_as_well(desk: Desk) -> None:
    """With a file of the same name every day, only the first day's results have the name without a number."""
    results = snapshot(desk, "csv", taken=True)
    with pytest.raises(LedgerBehind, match=r"results-2\.csv shows 6 accepted rows"):
        desk.submit(desk.folder / "pay.csv", run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_was_sent_and_is_in_doubt_is_known_by_its_results(desk: Desk, kind: str) -> None:
    """After the copy was made one row was sent, and no answer came: the copy has it as never sent."""
    path, results = desk.file("pay.csv", *ROWS), desk.folder / f"pay.results.{kind}"
    desk.submit(path, run=RunRequest(results, Limits(rows_max=3)))
    keep(desk)
    desk.answer = lambda _: Outcome(State.IN_DOUBT, "no answer came", bytes_sent=900)
    desk.submit(path, run=RunRequest(results, Limits(rows_max=1)))
    bring_back(desk)
    with pytest.raises(LedgerBehind, match=r"shows row 4 of batch .* as sent, the ledger no such attempt"):
        desk.submit(path, run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}


def test_a_row_that_was_sent_is_known_where_no_row_was_ever_answered(desk: Desk) -> None:
    """The gateway was down from the first payment on: the results show nothing but doubts."""
    path, results = desk.file("pay.csv", *ROWS), desk.folder / "pay.results.csv"
    desk.answer = lambda _: IN_DOUBT
    desk.submit(path, run=RunRequest(results, Limits(rows_max=1)))
    keep(desk)
    desk.submit(path, run=RunRequest(results, Limits(rows_max=1)))
    bring_back(desk)
    with pytest.raises(LedgerBehind, match=r"shows row 2 of batch .* as sent, the ledger no such attempt"):
        desk.submit(path, run=RunRequest(results))
    assert desk.arrived == {"A-1": 1, "A-2": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_was_being_sent_is_known_by_its_results(desk: Desk, kind: str) -> None:
    """Somebody wrote the results while the run sent, or the ledger's disk was full: they have it as `sending`.

    The copy has it as never sent, and it was paid twice.
    """
    path, results = desk.file("pay.csv", *ROWS), desk.folder / f"pay.results.{kind}"
    batch = str(desk.submit(path, run=RunRequest(results, Limits(rows_max=3))).batch)
    keep(desk)
    seen_while_sent(desk, path, batch, results)
    assert told_by(results, batch).counts == {"accepted": 3, "sending": 1, "pending": 2}
    bring_back(desk)
    with pytest.raises(LedgerBehind, match=r"shows row 4 of batch .* as sent, the ledger no such attempt"):
        desk.submit(path, run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}
    accept(desk.settings.ledger, "ann", "the machine was set back, and nothing later is left", rows_in_doubt=True)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.resolve(batch, [Decision(4, State.ACCEPTED), Decision(5, State.PENDING)], "ann", "the portal")
    summary = desk.submit(path, run=RunRequest(results))
    assert (summary.of(State.ACCEPTED).rows, summary.of(State.IN_DOUBT).rows) == (5, 1)


def seen_while_sent(desk: Desk, path: Path, batch: str, results: Path, answer: Outcome = ACCEPTED) -> None:
    """Send one row, and write the results between the request and its answer."""

    def look(_: str) -> Outcome:
        results_again(batch, lambda _: results, desk.settings)
        return answer

    desk.answer = look
    desk.submit(path, run=RunRequest(None, Limits(rows_max=1)))
    desk.answer = lambda _: ACCEPTED


def test_a_row_that_was_being_sent_when_the_results_were_written_is_no_alarm(desk: Desk) -> None:
    """The gateway refused it with proof, so it is pending again; the ledger knows of the attempt that they tell of."""
    path, results = desk.file("pay.csv", *ROWS[:2]), desk.folder / "pay.results.csv"
    batch = str(desk.submit(path, run=RunRequest(results, Limits(rows_max=1))).batch)
    refused = Outcome(State.PENDING, "HTTP 401", Answer(401), bytes_sent=900, stop="credentials refused")
    seen_while_sent(desk, path, batch, results, refused)
    assert told_by(results, batch).counts == {"accepted": 1, "sending": 1}
    assert desk.submit(path, run=RunRequest(results)).of(State.ACCEPTED).rows == 2


def test_a_row_that_is_sent_again_by_a_person_is_no_alarm(desk: Desk) -> None:
    """Its results have it in doubt, the ledger as pending: of the attempt that they tell of it knows."""
    path, results = desk.file("pay.csv", ROWS[0]), desk.folder / "pay.results.csv"
    desk.answer = lambda _: Outcome(State.IN_DOUBT, "no answer came", bytes_sent=900)
    batch = str(desk.submit(path, run=RunRequest(results)).batch)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.resolve(batch, [Decision(1, State.PENDING)], "ann", "the portal does not know it")
    desk.answer = lambda _: ACCEPTED
    assert desk.submit(path, run=RunRequest(results)).of(State.ACCEPTED).rows == 1


def test_results_that_show_more_are_not_replaced(desk: Desk) -> None:
    """A restored ledger writes its own beside them: nothing else tells what was paid. Once it knows, it replaces."""
    results = snapshot(desk, "csv")
    before, batch = results.read_bytes(), batch_of(results)
    again = results_again(batch, lambda _: results, desk.settings)
    assert again.results == str(results.with_name("pay.results-2.csv"))
    accept(desk.settings.ledger, "ann", "the machine was set back, and nothing later is left", rows_in_doubt=True)
    assert desk.submit(desk.folder / "pay.csv", run=RunRequest(results)).results == again.results
    assert results.read_bytes() == before
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.resolve(batch, [Decision(row, State.ACCEPTED) for row in (4, 5, 6)], "ann", "its results of Friday")
    assert results_again(batch, lambda _: results, desk.settings).results == str(results)


def test_resume_looks_at_the_results_of_submit_and_the_reverse(desk: Desk) -> None:
    """Those of one have the file's name, those of the other the batch's; they lie in one folder, or beside the file."""
    results = snapshot(desk, "csv")
    with pytest.raises(LedgerBehind, match=r"pay\.results\.csv shows 6 accepted rows"):
        desk.resume()
    results.rename(desk.folder / f"{batch_of(results)}.results.csv")
    with pytest.raises(LedgerBehind, match=r"[0-9a-f]{12}\.results\.csv shows 6 accepted rows"):
        desk.submit(desk.folder / "pay.csv", run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}


@pytest.mark.parametrize("name", ["pay.results.csv", "friday.xlsx"])
def test_results_in_another_folder_are_found_by_a_call_that_does_not_name_it(desk: Desk, name: str) -> None:
    """The nightly job writes them to its archive; whoever resumes by hand, after the machine was set back, does not."""
    path, results = desk.file("pay.csv", *ROWS), desk.folder / "archive" / name
    results.parent.mkdir()
    pay_and_set_back(desk, path, results)
    with pytest.raises(LedgerBehind, match=rf"{re.escape(name)} shows 6 accepted rows"):
        desk.resume()
    with pytest.raises(LedgerBehind, match=rf"{re.escape(name)} shows 6 accepted rows"):
        desk.submit(path, run=RunRequest(desk.folder / "pay.results.csv"))
    assert set(desk.arrived.values()) == {1}


@pytest.mark.parametrize("folder", ["archive", "archiv\udcff"])
def test_results_that_only_a_later_call_named_are_found_as_well(desk: Desk, folder: str) -> None:
    """The nightly job's folder was changed while the file was half paid; the copy is from after that."""
    path, archive = desk.file("pay.csv", *ROWS), desk.folder / folder / "friday.csv"
    archive.parent.mkdir()
    desk.submit(path, run=RunRequest(desk.folder / "pay.results.csv", Limits(rows_max=1)))
    pay_and_set_back(desk, path, archive)
    with pytest.raises(LedgerBehind, match=r"/friday\.csv shows 6 accepted rows"):
        desk.resume()
    assert set(desk.arrived.values()) == {1}


def in_the_spreadsheets_own_way(results: Path) -> None:
    """Save a CSV as a spreadsheet does after someone typed a note into it: its separator, its encoding."""
    text = results.read_text().replace(",", ";").replace("Quigley", "Renée")
    results.write_text(text, encoding="cp1252")


def test_results_that_a_spreadsheet_saved_show_it_as_well(desk: Desk) -> None:
    """Someone opened them, sorted them and saved them."""
    results = snapshot(desk, "csv")
    in_the_spreadsheets_own_way(results)
    with pytest.raises(LedgerBehind, match="shows 6 accepted rows"):
        desk.submit(desk.folder / "pay.csv", run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}


def test_resume_does_not_either_and_a_person_continues_from_doubt(desk: Desk) -> None:
    """What the ledger would send is in doubt once a person says that no later ledger is left."""
    snapshot(desk, "csv").rename(desk.folder / "results.csv")
    with pytest.raises(LedgerBehind, match="shows 6 accepted rows"):
        desk.resume()
    accept(desk.settings.ledger, "ann", "the machine was set back, and nothing later is left", rows_in_doubt=True)
    summary = desk.resume()
    assert (summary.of(State.ACCEPTED).rows, summary.of(State.IN_DOUBT).rows) == (3, 3)
    assert set(desk.arrived.values()) == {1}


def test_results_of_an_earlier_run_block_nothing(desk: Desk) -> None:
    """They show no more than the ledger knows: the rest is sent, and the file is written again."""
    path, results = desk.file("pay.csv", *ROWS), desk.folder / "pay.results.csv"
    desk.submit(path, run=RunRequest(results, Limits(rows_max=3)))
    assert told_by(results, batch_of(results)).counts == {"accepted": 3, "pending": 3}
    desk.submit(path, run=RunRequest(results))
    assert told_by(results, batch_of(results)).counts == {"accepted": 6}
    assert told_by(results, "another").counts == {}


def batch_of(results: Path) -> str:
    """Return the batch that a results file names."""
    return str((first_row(results) or {})["batch"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_cut_off_shows_nothing(desk: Desk, kind: str) -> None:
    """Whatever a library raises for it; nor does a missing one, or one without a column of states."""
    path = desk.folder / f"cut.{kind}"
    assert told_by(path, "b").counts == {}
    path.write_bytes(b"batch,nothing\nb,1\n")
    assert told_by(path, "b").counts == {}


@pytest.mark.parametrize("name", ["pay.csv.gz", "pay.may", "PAY.CSV"])
def test_resume_knows_the_results_of_a_file_with_any_name(desk: Desk, name: str) -> None:
    """It looked under another name than submit writes to where the file is packed, or has no ending of ours."""
    content = desk.file("pay.csv", *ROWS).read_bytes()
    path = desk.folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    results = beside(str(path), "results", None)
    pay_and_set_back(desk, path, results)
    with pytest.raises(LedgerBehind, match=r"shows 6 accepted rows"):
        desk.resume()
    assert set(desk.arrived.values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_doubt_that_a_person_settles_does_not_hide_a_payment(desk: Desk, kind: str) -> None:
    """It made as many accepted rows as the results show, of which one was another: that one was paid once more."""
    path, results = desk.file("pay.csv", *ROWS), desk.folder / f"pay.results.{kind}"
    desk.answer = lambda reference: IN_DOUBT if reference == "A-3" else ACCEPTED
    batch = str(desk.submit(path, run=RunRequest(results, Limits(rows_max=3))).batch)
    keep(desk)
    desk.submit(path, run=RunRequest(results, Limits(rows_max=1)))
    bring_back(desk)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.resolve(batch, [Decision(3, State.ACCEPTED)], "ann", "the portal shows it")
    with pytest.raises(LedgerBehind, match=r"shows row 4 of batch .* as answered, the ledger as pending"):
        desk.submit(path, run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}


def test_a_doubt_that_was_settled_since_is_not_hidden_by_another(desk: Desk) -> None:
    """The restored ledger has it in doubt still, and as many rows accepted: by then somebody settled another one."""
    path, results = desk.file("pay.csv", *ROWS[:4]), desk.folder / "pay.results.csv"
    desk.answer = lambda reference: ACCEPTED if reference == "A-1" else IN_DOUBT
    batch = str(desk.submit(path, run=RunRequest(results, Limits(rows_max=3))).batch)
    keep(desk)
    for row in (3, 2):
        with closing(open_ledger(desk.settings.ledger)) as ledger:
            ledger.resolve(batch, [Decision(row, State.ACCEPTED)], "ann", "the portal shows it")
        if row == 3:
            desk.submit(path, run=RunRequest(results, Limits(rows_max=1)))
            assert told_by(results, batch).counts == {"accepted": 2, "in_doubt": 2}
            bring_back(desk)
    with pytest.raises(LedgerBehind, match=r"shows row 3 of batch .* as answered, the ledger as in doubt"):
        desk.submit(path, run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}


def test_results_of_released_rows_are_not_replaced_either(desk: Desk) -> None:
    """The restored ledger has them as rejected, and nothing is pending: it wrote over the only file that told."""
    rows = [*ROWS[:3], *(row | {"amount": "5000.00"} for row in ROWS[3:])]
    path, results = desk.file("pay.csv", *rows), desk.folder / "pay.results.csv"
    desk.limit("1000.00")
    desk.submit(path, run=RunRequest(results))
    keep(desk)
    desk.limit("")
    desk.submit(path, run=RunRequest(results), release="limit raised by the board")
    before = results.read_bytes()
    bring_back(desk)
    desk.limit("1000.00")
    assert desk.submit(path, run=RunRequest(results)).results == str(results.with_name("pay.results-2.csv"))
    assert results.read_bytes() == before
    desk.limit("")
    with pytest.raises(LedgerBehind, match=r"shows 6 accepted rows .* the ledger 3"):
        desk.submit(path, run=RunRequest(results), release="limit raised by the board")
    assert set(desk.arrived.values()) == {1}


def test_a_released_row_that_waits_does_not_hide_a_payment(desk: Desk) -> None:
    """The results show as many rows waiting as the restored ledger has, and no more accepted: each of them others.

    Found by reading: a row that was released after the copy waits there, a doubt was settled since.
    """
    rows = [*ROWS[:3], ROWS[3] | {"amount": "5000.00"}]
    path, results = desk.file("pay.csv", *rows), desk.folder / "pay.results.csv"
    desk.limit("1000.00")
    desk.answer = lambda reference: IN_DOUBT if reference == "A-2" else ACCEPTED
    batch = str(desk.submit(path, run=RunRequest(results, Limits(rows_max=2))).batch)
    keep(desk)
    desk.limit("")
    desk.submit(path, run=RunRequest(results, Limits(rows_max=1)), release="limit raised by the board")
    assert told_by(results, batch).counts == {"accepted": 2, "in_doubt": 1, "pending": 1}
    bring_back(desk)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.resolve(batch, [Decision(2, State.ACCEPTED)], "ann", "the portal shows it")
    with pytest.raises(LedgerBehind, match=r"shows row 3 of batch .* as answered, the ledger as pending"):
        desk.submit(path, run=RunRequest(results))
    assert set(desk.arrived.values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_in_doubt_that_a_person_decided_about_after_the_restore_is_sent(desk: Desk, kind: str) -> None:
    """Its results show an attempt that the ledger will never know: they blocked the row for good."""
    path, results = desk.file("pay.csv", *ROWS[:2]), desk.folder / f"pay.results.{kind}"
    batch = str(desk.submit(path, run=RunRequest(results, Limits(rows_max=1))).batch)
    keep(desk)
    desk.answer = lambda _: IN_DOUBT
    desk.submit(path, run=RunRequest(results))
    bring_back(desk)
    with pytest.raises(LedgerBehind, match=r"shows row 2 of batch .* as sent"):
        desk.submit(path, run=RunRequest(results))
    accept(desk.settings.ledger, "ann", "the machine was set back, and nothing later is left", rows_in_doubt=True)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.resolve(batch, [Decision(2, State.PENDING)], "ann", "the portal does not know it")
    desk.answer = lambda _: ACCEPTED
    assert desk.submit(path, run=RunRequest(results)).of(State.ACCEPTED).rows == 2


REFUSED = Outcome(State.PENDING, "401", Answer(401), bytes_sent=900, stop="the gateway refused the key")


@pytest.fixture
def set_aside(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Submit a file whose first row is refused for a wrong key, at the moment when the ledger's disk is full."""

    def full(recorder: Recorder, row: int, outcome: Outcome) -> None:
        recorder._fail(LedgerNotUsable("the disk is full"))
        recorder._spill([(row, outcome)])

    def submit(rows: int) -> Path:
        path = desk.file(
            "may.csv", *({"invoiceNumber": f"A-{row}", "amount": f"{row}0.00"} for row in range(1, rows + 1))
        )
        desk.answer = lambda reference: REFUSED
        with monkeypatch.context() as patch:
            patch.setattr(Recorder, "record", full)
            assert desk.submit(path).of(State.SENDING).rows == 1
        desk.answer = lambda reference: ACCEPTED
        desk.arrived.clear()
        return path

    return submit


@pytest.mark.parametrize("by_file", [True, False], ids=["submit", "resume"])
def test_it_needs_the_approvals_of_today(desk: Desk, set_aside: Callable[[int], Path], by_file: bool) -> None:
    """With no other row pending, none was asked for; once somebody has approved, it is sent."""
    path = set_aside(1)
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, approvals=1))
    for _ in range(2):
        with pytest.raises(WaitingForPerson, match="needs approval by another person"):
            desk.submit(path) if by_file else desk.resume()
    assert not desk.arrived
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        assert ledger.find(None).by_state[State.PENDING].rows == 1
        assert ledger.check() == []
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False))
    assert desk.resume().exit_code == 0
    assert desk.arrived == {"A-1": 1}


def test_it_is_not_sent_with_a_plan_that_does_not_have_it(desk: Desk, set_aside: Callable[[int], Path]) -> None:
    """The plan shows what was pending when it was prepared: that is sent, or nothing."""
    path = set_aside(3)
    preview = desk.dry_run(path, with_plan=True)
    assert any("the answers to 1 row of batch" in note for note in preview.summary.notes)
    plan = preview.plan
    assert plan is not None
    assert plan.totals("pending").rows == 2
    with pytest.raises(WaitingForPerson, match=r"1 row .* that the plan does not have"):
        desk.submit(path, plan=plan)
    assert not desk.arrived
    preview = desk.dry_run(path, with_plan=True)
    assert not any("set aside" in note for note in preview.summary.notes)
    plan = preview.plan
    assert desk.submit(path, plan=plan).exit_code == 0
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_it_is_held_back_if_it_was_let_through_with_another_file(desk: Desk, set_aside: Callable[[int], Path]) -> None:
    """The bill was paid with that one, and then with this one as well."""
    set_aside(1)
    bills = ({"invoiceNumber": f"A-{number}", "amount": f"{number}0.00"} for number in (1, 9))
    june = desk.file("june.csv", *bills)
    assert desk.submit(june, allow_duplicates=True).exit_code == 0
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        may = ledger.batches()[-1].batch
    assert (desk.resume(may).held_back.rows, desk.arrived) == (1, {"A-1": 1, "A-9": 1})
