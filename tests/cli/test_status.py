"""`batchpay status` as a table; money that comes and money that goes are never one sum."""

from __future__ import annotations

from contextlib import closing
from datetime import date
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from batchpay.cli import output
from batchpay.cli.context import Context
from batchpay.cli.main import cli
from batchpay.cli.output import print_in_doubt_elsewhere, print_table
from batchpay.ledger.facts import FactKind, NewFact
from batchpay.ledger.open import open_ledger
from batchpay.payment import Environment, State, Totals, parse_cents
from batchpay.settings import LedgerSettings
from batchpay.summary import Summary
from batchpay.text import money
from tests.support.command import small_file
from tests.support.in_process import Caller


def test_the_table_names_its_time_zone(call: Caller, tmp_path: Path) -> None:
    """The time of the last run is UTC and the header says so: once it stood there without a zone."""
    small_file(tmp_path / "a.csv", 1)
    finished = call("submit", "a.csv")["finished_at"]
    header, line = CliRunner().invoke(cli, ["status"], standalone_mode=False, obj=Context()).stdout.splitlines()
    assert "last run (UTC)" in header
    assert finished[:16].replace("T", " ") in line


def test_what_stopped_is_continued_by_another_command_than_this_one(call: Caller, tmp_path: Path) -> None:
    """`status BATCH` and `results BATCH` said to run the same command again, which changes nothing."""
    small_file(tmp_path / "a.csv", 3)
    batch = call("submit", "a.csv", "--limit", "1")["batch"]
    for command in ("status", "results"):
        told = " ".join(call.text(command, batch).split())
        assert f"the limit of 1 row was reached; to continue: batchpay resume {batch}" in told
    told = call.text("submit", "a.csv", "--limit", "1")
    assert "; run the same command again to continue" in " ".join(told.split())
    assert max(map(len, told.splitlines())) <= 80
    assert call("resume", batch)["exit_code"] == 0
    assert "batchpay resume" not in call.text("status", batch)


def test_what_came_back_is_told_wherever_a_batch_is(call: Caller, tmp_path: Path) -> None:
    """Accepted, it stays so: beside it stands what of it came back, and what stands."""
    small_file(tmp_path / "a.csv", 3)
    small_file(tmp_path / "b.csv", 1, first=4)
    call("submit", "b.csv")
    batch = call("submit", "a.csv", "--results", "a.xlsx")["batch"]
    assert "came back" not in call.text("status")
    own = LedgerSettings(url=str(tmp_path / "state" / "ledger.db"), key_file=str(tmp_path / "keys" / "ledger.key"))
    with closing(open_ledger(own)) as ledger:
        (row, *_) = ledger.rows(batch)
        fact = NewFact(FactKind.RETURNED, batch, row.row, "R02", date(2026, 11, 27), row.amount_cents, 1)
        ledger.record_facts([fact], Environment.TEST, "r.csv", "ab", "ada", unattended=False)
    told = call("status", batch)
    assert (told["accepted"], told["returned"], told["standing"]) == (3, 1, 2)
    accepted, returned, standing = (parse_cents(told["amount"][word]) for word in ("accepted", "returned", "standing"))
    assert (accepted, returned) == ((returned or 0) + (standing or 0), row.amount_cents)
    assert f"of the accepted rows, came back: 1 row, {money(row.amount_cents)}" in call.text("status", batch)
    header, *lines = call.text("status").splitlines()
    assert (header.split()[-2:], [line.split()[-1] for line in lines]) == (["came", "back"], ["1", "0"])
    page = Path(call("report", batch)["report"]).read_text("utf-8")
    assert f"1 row of those accepted came back, {money(row.amount_cents)}" in page
    call("results", batch, "--results", "again.xlsx")
    assert call("submit", "b.csv", "--metrics-file", "m.prom")["returned"] == 0
    assert f'returned_cents{{environment="test",direction="{row.direction}"}} {row.amount_cents}' in (
        tmp_path / "m.prom"
    ).read_text("utf-8")


def test_rehearsals_are_told_from_payments(call: Caller, tmp_path: Path) -> None:
    """In a ledger of both environments, rows accepted by the test gateway stood there like paid ones."""
    small_file(tmp_path / "a.csv", 1)
    call("submit", "a.csv")
    assert "environment" not in call.text("status")
    small_file(tmp_path / "b.csv", 1, first=2)
    call.settings(BATCHPAY_ENVIRONMENT="live")
    call("submit", "b.csv", "--paid-elsewhere-checked", "--reason", "the gateway is in use now")
    header, live, test = call.text("status").splitlines()
    assert (header.split()[-1], live.split()[-2:], test.split()[-2:]) == (
        "environment", ["b.csv", "live"], ["a.csv", "test"],
    )  # fmt: skip


def test_a_narrow_terminal_has_a_row_in_aligned_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal broke the list of batches wherever it ended: no number stood below its heading."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["batch", "accepted", "file"], [["one", "12", "a name of two dozen chars"]], frozenset({"accepted"}))
    assert capsys.readouterr().out.splitlines() == [
        "batch  accepted",
        "       file",
        "one          12",
        "       a name of two dozen chars",
    ]


def test_an_empty_ledger_says_so(call: Caller) -> None:
    """It was a header with nothing below it."""
    call("ledger", "init")
    assert call.text("status") == "no batch yet\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("BATCHPAY_NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A terminal that knows no colors showed their codes."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Context().color
    monkeypatch.setenv(name, value)
    assert not Context().color


def test_an_earlier_doubt_is_told_in_lines_that_leave_its_command_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The line was longer than a terminal, which cut it in the middle of the batch's name."""
    print_in_doubt_elsewhere({"97f4b41592e7": {"DEBIT": Totals(1, 212281)}})
    command, rest = capsys.readouterr().out.splitlines()
    assert command.startswith("  a person must look: batchpay resolve 97f4b41592e7 (1 row,")
    assert len(command) <= 80 and rest.endswith("earlier call")


DEBITS, CREDITS = Totals(2, 300), Totals(1, 100)


def summary(*sides: tuple[str, Totals]) -> Summary:
    by_direction = dict(sides)
    accepted = sum(by_direction.values(), Totals())
    by_state = {State.ACCEPTED: accepted, State.REJECTED: Totals(1, 1_000)}
    apart = {State.ACCEPTED: by_direction}
    total = accepted + Totals(1, 1_000)
    return Summary("a.csv", total, by_state, batch="3f2a91c0d7e1", by_direction=by_direction, apart=apart)


def test_states_show_debits_and_credits_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """`accepted 993 1,251,016.65` was the sum of what was taken and what was paid: nobody's figure."""
    output.print_summary(Context(), summary(("DEBIT", DEBITS), ("CREDIT", CREDITS)), sent=True)
    assert capsys.readouterr().out.splitlines()[1:5] == [
        "            rows  DEBIT  CREDIT  control total",
        "  accepted     3   3.00    1.00           4.00",
        "  rejected     1                         10.00",
        "  total        4                         14.00",
    ]


@pytest.mark.parametrize("wanted", [True, False])
def test_without_color_no_escape_sequence_is_printed(wanted: bool) -> None:
    """With --no-color each label still ended with a reset, which a terminal that knows none shows as it is."""
    runner, context = CliRunner(), Context(color=wanted)

    @click.command()
    def shown() -> None:
        output.print_summary(context, summary(("CREDIT", CREDITS)), sent=True)

    assert ("\x1b" in runner.invoke(shown, color=True).output) is wanted


def test_one_direction_needs_no_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A file of credits alone has one sum."""
    output.print_summary(Context(), summary(("DEBIT", Totals()), ("CREDIT", CREDITS)), sent=True)
    assert capsys.readouterr().out.splitlines()[1:3] == ["  accepted  1   1.00", "  rejected  1  10.00"]


def test_several_files_keep_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where each file has one direction alone."""
    debits, credits = summary(("DEBIT", DEBITS)), summary(("CREDIT", CREDITS))
    credits.batch = "5b1c"
    several = output.grand_total([debits, credits])
    output.print_summary(Context(), several, sent=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "  accepted     3   3.00    1.00           4.00"
    assert lines[3] == "  rejected     2                         20.00"


def test_a_batch_under_two_names_is_added_up_once() -> None:
    """A copy of a file in the same inbox: twice as much as was paid stood in the last lines."""
    first, copy, other = (summary(("DEBIT", DEBITS)) for _ in range(3))
    first.batch, copy.batch, other.batch = "3f2a", "3f2a", "5b1c"
    several = output.grand_total([first, copy, other])
    assert (several.of(State.ACCEPTED).rows, several.total.cents) == (2 * DEBITS.rows, first.total.cents * 2)
    assert several.file == "3 files in all, the same content counted once"


def test_the_sums_of_several_files_leave_out_nothing() -> None:
    """The object of a call that a limit had stopped said `"stopped": null`, no doubt, and no duplicate let through."""
    first, other = summary(("DEBIT", DEBITS)), summary(("DEBIT", DEBITS))
    first.batch, other.batch, other.stopped = "3f2a", "5b1c", "the limit of 3 rows was reached"
    first.in_doubt_elsewhere = {"5b1c": {"DEBIT": DEBITS}, "9d0e": {"CREDIT": CREDITS}}
    first.allowed_duplicates = {"rows": 1, "amount": "10.00", "list": [{"row": 1, "batch": None, "earlier_row": 2}]}
    other.allowed_duplicates = {"rows": 2, "amount": "1000.25", "list": [], "reason": "both are due"}
    several = output.grand_total([first, other]).as_json()
    assert several["stopped"] == "the limit of 3 rows was reached"
    assert several["in_doubt_elsewhere"] == [{"batch": "9d0e", "rows": 1, "amount": "1.00"}], (
        "the other is of this call"
    )
    assert several["allowed_duplicates"] == {"rows": 3, "amount": "1010.25", "list": []}


def test_a_headline_names_both() -> None:
    """The report page's sentences do the same."""
    assert summary(("DEBIT", DEBITS), ("CREDIT", CREDITS)).amount_in(State.ACCEPTED) == "DEBIT 3.00, CREDIT 1.00"
    assert summary(("CREDIT", CREDITS)).amount_in(State.ACCEPTED) == "1.00"


def test_rows_in_doubt_of_other_batches(capsys: pytest.CaptureFixture[str]) -> None:
    """Both amounts stand there, and one where there is one."""
    output.print_in_doubt_elsewhere({"3f2a": {"DEBIT": DEBITS, "CREDIT": CREDITS}, "5b1c": {"CREDIT": CREDITS}})
    told = " ".join(capsys.readouterr().out.split())
    assert "batchpay resolve 3f2a (3 rows, DEBIT 3.00, CREDIT 1.00), in doubt since" in told
    assert "batchpay resolve 5b1c (1 row, 1.00), in doubt since" in told


@pytest.mark.parametrize(("sides", "word"), [(("DEBIT", "CREDIT"), "control total"), (("CREDIT",), "total")])
def test_the_table_of_batches_names_its_sum(sides: tuple[str, ...], word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column `total` of batches with both directions read as money moved."""
    found = [summary(*((side, CREDITS) for side in sides))]
    monkeypatch.setattr("batchpay.workflows.status.all_batches", lambda _: found)
    context = Context()
    header = CliRunner().invoke(cli, ["status"], standalone_mode=False, obj=context).stdout.splitlines()[0]
    assert f"accepted  {word.rjust(max(len(word), 5))}  file" in header
