"""How a call ends that an error ended before any file came far."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from batchpay.cli import demo
from batchpay.cli.context import Context
from batchpay.cli.operations import unattended_run
from batchpay.cli.paths import Outputs
from batchpay.errors import (
    BatchpayError,
    CredentialsNotUsable,
    LedgerNotUsable,
    NotUsable,
    SettingsNotUsable,
    WaitingForPerson,
    WrongUse,
)
from batchpay.payment import Totals
from tests.model import clock
from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.sandbox_requests import control

DOUBTS = {"3f2a91c0d7e1": {"CREDIT": Totals(2, 50_000)}}


@pytest.fixture
def ended_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Give what ends a call by an error: its exit code, while `doubts` are what the ledger says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHPAY_LEDGER", str(tmp_path / "ledger.db"))

    def end(error: BaseException, doubts: Any, *, dry_run: bool = False) -> int:
        def all_in_doubt(_: object) -> Any:
            if isinstance(doubts, Exception):
                raise doubts
            return doubts

        monkeypatch.setattr("batchpay.workflows.status.all_in_doubt", all_in_doubt)
        options = {"metrics_file": None, "ping_url": None, "log_file": None, "log_json": False, "dry_run": dry_run}
        with (
            pytest.raises((BatchpayError, click.UsageError)) as ended,
            unattended_run(Context(), options, Outputs(())),
        ):
            raise error
        assert isinstance(ended.value, BatchpayError | click.UsageError)
        return ended.value.exit_code

    return end


@pytest.mark.parametrize("error", [
    NotUsable("no inbox"), CredentialsNotUsable("no key"), WrongUse("no such batch"), WaitingForPerson("sign first"),
    click.UsageError("--again needs --reason TEXT"), KeyboardInterrupt(), click.Abort(),
])  # fmt: skip
def test_a_doubt_ends_the_call_with_7_whatever_else_is_wrong(
    ended_by: Callable[..., int], error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped inbox, a key file gone or a batch that is none ended with 5 and 2 while a payment was in doubt.

    So did a resume that was stopped, or answered no, before it had begun: 6 and 2.
    """
    assert ended_by(error, DOUBTS) == 7
    assert "batchpay resolve 3f2a91c0d7e1 (2 rows, 500.00)" in capsys.readouterr().err


def test_an_error_keeps_its_code_where_nobody_must_look(ended_by: Callable[..., int]) -> None:
    """No doubt, a ledger that can't be asked, or a dry run, which looks at its file alone."""
    assert ended_by(NotUsable("no inbox"), {}) == 5
    assert ended_by(WrongUse("no such batch"), LedgerNotUsable("locked")) == 2
    assert (ended_by(KeyboardInterrupt(), {}), ended_by(click.Abort(), {})) == (6, 2)
    assert ended_by(NotUsable("no inbox"), DOUBTS, dry_run=True) == 5


WRONG_CALLS: dict[str, tuple[tuple[str, ...], int]] = {
    "an option that is none": (("submit", "--inboxx", "inbox"), 2),
    "a value that is none": (("submit", "--inbox", "inbox", "--workers", "many"), 2),
    "no file at all": (("submit",), 2),
    "options that don't go together": (("resume", "--stale"), 2),
    "no folder for the log": (("submit", "--inbox", "inbox", "--log-file", "no/run.log"), 5),
    "settings that can't be read": (("submit", "--inbox", "inbox", "--config", "broken.toml"), 5),
}


@pytest.mark.parametrize("wrong", WRONG_CALLS)
def test_a_line_that_cannot_be_obeyed_leaves_no_good_metrics(call: Caller, wrong: str) -> None:
    """A mistyped option in the crontab left yesterday's metrics standing: every alert was quiet for a hundred hours."""
    words, code = WRONG_CALLS[wrong]
    Path("inbox").mkdir()
    Path("broken.toml").write_text("[gateway")
    assert call.fails(*words, "--metrics-file", "night.prom") == code
    assert f"batchpay_exit_code {code}\n" in Path("night.prom").read_text()


def test_doubt_is_said_whatever_is_mistyped(call: Caller, url: str) -> None:
    """7 also for a wrong line, and for metrics that have no folder: both ended with 2 and 5 beside a row in doubt."""
    Path("inbox").mkdir()
    small_file(Path("a.csv"), 1)
    control(url, "POST", "faults", [{"fault": "silent", "at": 1}])
    assert call("submit", "a.csv")["exit_code"] == 7
    assert call.fails("submit", "--inboxx", "inbox") == 7
    assert call.fails("submit", "--again", "a.csv") == 7
    assert call.fails("submit", "--inbox", "inbox", "--metrics-file", "no/night.prom") == 7
    assert call.fails("resume", "--log-file", "no/run.log") == 7
    assert call.fails("submit", "--dry-runn", "a.csv") == 7
    assert call.fails("submit", "--dry-run", "--again", "a.csv") == 2, "a dry run looks at its file alone"


REFUSED = {
    "no setting": ("bogus = 1\n", 0o600),
    "no value of it": ('[gateway]\ntimeout = "soon"\n', 0o600),
    "no TOML": ("[gateway", 0o600),
    "anybody's": ('[ledger]\nurl = "elsewhere.db"\n', 0o666),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_settings_that_are_refused_hide_no_doubt(call: Caller, url: str, refused: str) -> None:
    """The environment names the ledger, and 5 came back for a mistyped settings file while a payment was in doubt."""
    text, mode = REFUSED[refused]
    small_file(Path("a.csv"), 1)
    control(url, "POST", "faults", [{"fault": "silent", "at": 1}])
    assert call("submit", "a.csv")["exit_code"] == 7
    Path("batchpay.toml").write_text(text)
    Path("batchpay.toml").chmod(mode)
    assert call.fails("submit", "a.csv", "--metrics-file", "night.prom") == 7
    assert "batchpay_ledger_readable 1\n" in Path("night.prom").read_text()
    assert call.fails("submit", "a.csv", "--dry-run") == 5, "a dry run looks at its file alone"
    Path("batchpay.toml").unlink()
    call.settings(BATCHPAY_TIMEOUT="soon")
    assert call.fails("resume") == 7


def test_a_settings_file_is_heeded_where_a_variable_alone_is_wrong(
    call: Caller, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger that the file names is the one to look into; a refused file's is not."""
    Path("batchpay.toml").write_text('[ledger]\nurl = "named/ledger.db"\n')
    monkeypatch.delenv("BATCHPAY_LEDGER")
    small_file(Path("a.csv"), 1)
    control(url, "POST", "faults", [{"fault": "silent", "at": 1}])
    assert call("submit", "a.csv")["exit_code"] == 7
    call.settings(BATCHPAY_TIMEOUT="soon")
    assert call.fails("submit", "a.csv") == 7
    Path("batchpay.toml").chmod(0o666)
    assert call.fails("submit", "a.csv") == 5


def test_yesterdays_file_is_told_also_in_the_quiet(call: Caller) -> None:
    """An export that had failed left yesterday's file in place: exit code 0, and the metrics of 40 paid rows."""
    small_file(Path("a.csv"), 3)
    quiet = ("-q", "--log-file", "run.log", "--metrics-file", "night.prom")
    batch = call("submit", "a.csv", *quiet)["batch"]
    first = Path("night.prom").read_text()
    assert 'batchpay_call_rows{state="accepted"} 3\nbatchpay_call_rows{state="declined"} 0\n' in first
    assert 'batchpay_call_amount_cents{state="accepted"} 675\n' in first
    assert "batchpay_call_refusals 0\n" in first
    on = datetime.now().astimezone()
    told = f"batchpay: a.csv: 0 sent now; all 3 rows were paid by batch {batch} on {on:%m/%d/%Y}; if they must be paid"
    assert told in call.text("submit", "a.csv", *quiet)
    assert call("submit", "a.csv", *quiet)["exit_code"] == 0
    assert f"WARNING nothing sent batch={batch} file=a.csv rows=3 cents=675 call=" in Path("run.log").read_text()
    second = Path("night.prom").read_text()
    assert 'batchpay_call_rows{state="accepted"} 0\n' in second
    assert re.search(r'batchpay_rows\{file="a.csv",batch="\w+",state="accepted"\} 3\n', second)


def test_an_answer_that_came_to_light_too_late_is_told_also_in_the_quiet(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run finds beside the ledger at its start stands in --json and in the log."""
    small_file(Path("a.csv"), 1)
    late = "row 1: an answer to attempt 1 that was kept aside says accepted, and the ledger declined"
    found = SimpleNamespace(told=[late], detail={"answers": {}})
    monkeypatch.setattr("batchpay.ledger.spill.LateAnswers", lambda: found)
    assert call("submit", "a.csv", "-q", "--log-file", "run.log")["notes"] == [late]
    assert "WARNING late answer" in (log := Path("run.log").read_text())
    assert late in log


def test_a_clock_far_ahead_is_told_also_in_the_quiet(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a line on standard error, which -q leaves out, and stood neither in --json nor in the log."""
    small_file(Path("a.csv"), 1)
    assert call("submit", "a.csv")["notes"] == []
    monkeypatch.setattr(clock, "offset_s", 90.5 * 86_400)
    clock.exchange()
    small_file(Path("b.csv"), 1, first=2)
    told = call("submit", "b.csv", "-q", "--log-file", "run.log")
    clock.restore()
    ahead = "the clock was 90 days after the ledger's last event: is the date correct?"
    assert (told["exit_code"], told["notes"]) == (0, [ahead])
    assert f'WARNING clock is ahead reason="{ahead}"' in Path("run.log").read_text()


def test_a_night_without_files_waits_for_a_person_as_health_does(call: Caller, tmp_path: Path) -> None:
    """The ledger was accepted and nobody had said what it lost: an empty inbox ended with 0, and health with 8."""
    (tmp_path / "inbox").mkdir()
    call("ledger", "init")
    call("submit", str(small_file(tmp_path / "a.csv", 2)))
    call("ledger", "accept", "--rows-in-doubt", "--reason", "a whole machine was brought back")
    for _ in range(2):
        assert call("submit", "--inbox", str(tmp_path / "inbox"))["exit_code"] == 8
        assert "batchpay ledger accept --confirm" in call.text("submit", "--inbox", str(tmp_path / "inbox"))
    call("ledger", "accept", "--confirm")
    assert call("submit", "--inbox", str(tmp_path / "inbox"))["exit_code"] == 0


def test_a_submission_from_a_plan_makes_no_ledger(call: Caller, tmp_path: Path) -> None:
    """On loopback a ledger comes into being by the first submission: a broken plan was refused, and left one."""
    plan, file = tmp_path / "plan.json", small_file(tmp_path / "a.csv", 2)
    plan.write_text("{}")
    assert call.exit_code("submit", str(file), "--from-plan", str(plan)) == 5
    assert not (tmp_path / "state" / "ledger.db").exists()


def test_a_demo_without_its_add_on_leaves_no_folder(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox could not start, and the folder for what it would have shown stayed."""

    def missing(*_: object, **__: bool) -> None:
        raise SettingsNotUsable("the add-on sandbox is not installed")

    monkeypatch.setattr(demo, "running_sandbox", missing)
    assert call.fails("demo", "--out", str(tmp_path / "shown")) == 5
    assert not (tmp_path / "shown").exists()


def test_the_demo_prints_one_object(call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json it printed what its commands print for a person, and no object at all."""
    told = call("submit", str(small_file(tmp_path / "a.csv", 1)))
    monkeypatch.setattr(demo, "running_sandbox", lambda *_, **__: nullcontext("http://127.0.0.1:9"))
    monkeypatch.setattr(demo, "_show", lambda *_, **__: told)
    done = call("demo", "--out", str(tmp_path / "shown"))
    assert (done["accepted"], Path(done["report"]).name) == (1, "payments.report.html")


def test_a_doubt_does_not_make_a_failed_call_a_completed_one(call: Caller, url: str, tmp_path: Path) -> None:
    """Its code is 7 whatever else happened: with one open doubt, nights that sent nothing counted as completed."""
    small_file(Path("a.csv"), 1)
    control(url, "POST", "faults", [{"fault": "silent", "at": 1}])
    assert call("submit", "a.csv", "--metrics-file", "night.prom")["exit_code"] == 7
    last = tmp_path / "state" / "ledger.db.last-call"

    def completed() -> tuple[str, str]:
        found = re.search("completed_timestamp_seconds ([0-9.]+)$", Path("night.prom").read_text(), re.MULTILINE)
        assert found is not None
        return json.loads(last.read_text())["completed_at"], found[1]

    before = completed()
    assert before[0] is not None, "the file was worked through; the doubt itself is reported elsewhere"
    small_file(Path("b.csv"), 3, first=2)
    control(url, "POST", "faults", [])
    for words in (("b.csv", "--limit", "1"), ("no-such.csv",), ("b.csv", "--until", "nonsense")):
        assert call.exit_code("submit", *words, "--metrics-file", "night.prom") == 7
        assert completed() == before, words
    assert call.exit_code("submit", "b.csv") == 7
    assert completed()[0] > before[0]
