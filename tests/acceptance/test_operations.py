"""What surrounds a run for the people who operate it, with the installed command; the crontab line of the docs."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from tests.support.command import SAMPLES, Home, small_file
from tests.support.damaged_parquet import count_below_zero
from tests.support.oracle import Oracle, running_oracle
from tests.support.warm import WARM


@contextmanager
def monitor() -> Iterator[tuple[str, list[str]]]:
    """A monitor that records its requests."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/job", asked
        finally:
            server.shutdown()
            thread.join()


def test_each_of_several_files_is_a_batch(oracle_home: Home, oracle: Oracle) -> None:
    """Files and patterns in one call: a summary per file and one overall; with --json one object with all of them."""
    for name, first in (("a1.csv", 1), ("a2.csv", 100), ("b.csv", 200)):
        small_file(oracle_home.path / name, 3, first=first)
    done = oracle_home.run("submit", "a*.csv", "b.csv")
    assert done.returncode == 0
    assert done.stdout.count("   batch ") == 3
    assert "3 files in all" in done.stdout
    again = oracle_home.run("submit", "a*.csv", "b.csv", "--json", "-q")
    told = json.loads(again.stdout)
    assert (told["accepted"], told["amount"]["accepted"], told["exit_code"]) == (9, "914.25", 0)
    objects = told["files"]
    assert [one["file"] for one in objects] == ["a1.csv", "a2.csv", "b.csv"]
    assert [one["accepted"] for one in objects] == [3, 3, 3]
    assert len({one["batch"] for one in objects}) == 3
    assert again.stderr.count(": 0 sent now; all 3 rows were paid by batch ") == 3
    assert set(oracle.received().values()) == {1}


def test_a_refused_file_does_not_delay_the_others(oracle_home: Home) -> None:
    """One unusable file among several: its line, exit code 4, and the others are paid."""
    (oracle_home.path / "a.csv").write_text("nonsense\n")
    small_file(oracle_home.path / "b.csv", 3)
    done = oracle_home.run("submit", "a.csv", "b.csv", "--json")
    assert done.returncode == 4
    refused, paid = json.loads(done.stdout)["files"]
    assert (refused["file"], refused["exit_code"], paid["accepted"]) == ("a.csv", 4, 3)
    assert "a.csv" in done.stderr


def test_a_damaged_parquet_file_does_not_delay_the_others(oracle_home: Home, oracle: Oracle) -> None:
    """The process was aborted with a core: every night again, and nothing that came after it was ever paid."""
    rows = pl.read_csv(small_file(oracle_home.path / "z.csv", 3), infer_schema=False)
    rows.write_parquet(oracle_home.path / "a.parquet", compression="uncompressed")
    count_below_zero(oracle_home.path / "a.parquet")
    done = oracle_home.run("submit", "a.parquet", "z.csv", "--json")
    assert (done.returncode, done.stderr) == (4, "batchpay: a.parquet: is a broken Parquet file\n")
    assert len(oracle.received()) == 3


def test_a_name_that_is_not_utf_8_is_a_name_like_any_other(oracle_home: Home, oracle: Oracle) -> None:
    """An umlaut uploaded by an old client: an internal error, every night again, and nothing after it was ever paid."""
    names = ("L\udcf6hne.csv", "z.csv")
    for number, name in enumerate(names):
        small_file(oracle_home.path / name, 3, first=10 * number)
    done = oracle_home.run("submit", *names, "--out", "out", "--archive", "done", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [one["file"] for one in json.loads(done.stdout)["files"]] == [r"L\xf6hne.csv", "z.csv"]
    assert len(oracle.received()) == 6
    assert (oracle_home.path / "out" / "L\udcf6hne.results.csv").is_file()
    assert r"L\xf6hne.csv" in oracle_home.run("status").stdout


def test_a_name_too_long_for_results_does_not_delay_the_others(oracle_home: Home, oracle: Oracle) -> None:
    """It was an internal error, every night again, and nothing that came after it in the inbox was ever paid."""
    names = (f"{'a' * 236}.csv", f"{'b' * 251}.csv", "c.csv")
    for number, name in enumerate(names):
        small_file(oracle_home.path / name, 3, first=10 * number)
    done = oracle_home.run("submit", *names, "--out", "out", "--json")
    assert [one["exit_code"] for one in json.loads(done.stdout)["files"]] == [4, 4, 0]
    assert done.stderr.count("its name is too long; rename the payment file") == 2
    assert len(oracle.received()) == 3


def test_a_file_that_is_rewritten_while_another_is_sent_is_left(oracle_home: Home, oracle: Oracle) -> None:
    """Its first lines were paid, it was archived while still being written, and the rest was never seen."""
    inbox = oracle_home.path / "inbox"
    inbox.mkdir()
    for number, name in enumerate(("a.csv", "b.csv", "c.csv")):
        small_file(inbox / name, 40, first=100 * number)
        (inbox / f"{name}.control.toml").write_text("rows = 40\n")
        os.utime(inbox / name, (number + 1, number + 1))
    arguments = ("submit", "--inbox", "inbox", "--archive", "done", "--rate", "10", "-q")
    with oracle_home.start(*arguments, stderr=subprocess.PIPE) as process:
        assert oracle.gets(3, process)
        (inbox / "b.csv.control.toml").unlink()
        small_file(inbox / "b.csv", 3, first=500)
        (inbox / "c.csv").unlink()
        _, said = process.communicate()
    assert process.returncode == 9  # takes precedence over 4
    assert "c.csv disappeared after the call began: another run has archived it" in said
    assert "b.csv was modified after the call began: it is left for a later call" in said
    assert (len(oracle.received()), (inbox / "b.csv").exists()) == (40, True)


def test_rejects_that_a_shell_found_next_to_their_file_are_not_paid(oracle_home: Home, oracle: Oracle) -> None:
    """`submit *.csv` of the second night names the first night's rejects: a raised limit paid them unreleased."""
    small_file(oracle_home.path / "pay.csv", 3)
    settings = oracle_home.path / "batchpay.toml"
    settings.write_text('[limits]\nmax_amount = "2.00"\n')
    settings.chmod(0o600)
    assert oracle_home.run("submit", "pay.csv").returncode == 3
    settings.unlink()
    again = oracle_home.run("submit", "pay.csv", "pay.rejects.csv")
    assert again.returncode == 2
    assert "pay.rejects.csv is named as results or rejects of pay.csv" in again.stderr
    assert len(oracle.entries()) == 1
    assert oracle_home.run("submit", "pay.rejects.csv").returncode == 0  # named alone it is intended
    assert len(oracle.received()) == 3


def test_quiet_and_without_problems_nothing_goes_to_standard_error(oracle_home: Home) -> None:
    """With -q and nothing wrong, standard error stays empty."""
    small_file(oracle_home.path / "a.csv", 3)
    done = oracle_home.run("submit", "a.csv", "-q")
    assert (done.returncode, done.stderr) == (0, "")


def test_verbose_says_where_payments_go(oracle_home: Home) -> None:
    """-v names gateway, pace and ledger on standard error, and leaves standard output as it is."""
    small_file(oracle_home.path / "a.csv", 3)
    told = oracle_home.run("submit", "a.csv", "-v")
    assert f"gateway {oracle_home.origin}, 8 workers" in told.stderr
    assert "ledger.db" in told.stderr
    assert "a.csv: batch " in told.stderr


def test_log_metrics_and_ping_show_how_it_went(oracle_home: Home) -> None:
    """JSON log lines without personal data, a metrics file, and a ping at the start and with the exit code."""
    small_file(oracle_home.path / "a.csv", 3)
    with monitor() as (url, asked):
        done = oracle_home.run(
            *("submit", "a.csv", "-q", "--log-json", "--log-file", "run.log", "--metrics-file", "run.prom"),
            *("--ping-url", url),
        )
    assert done.returncode == 0
    assert asked == ["/job/start", "/job/0"]
    events = [json.loads(line) for line in (oracle_home.path / "run.log").read_text().splitlines()]
    assert [event["event"] for event in events] == [
        "call began", "file found", "checked", "registered", "run started", "pace", "run ended", "results written",
        "file finished", "call ended",
    ]  # fmt: skip
    assert (events[2]["rows"], events[2]["cents"]) == (3, 675)
    metrics = (oracle_home.path / "run.prom").read_text()
    assert re.search(r'^batchpay_rows\{file="a.csv",batch="[0-9a-f]{12}",state="accepted"\} 3$', metrics, re.MULTILINE)
    assert re.search(r"^batchpay_exit_code 0$", metrics, re.MULTILINE)


def test_the_morning_after_a_bad_night(home: Home) -> None:
    """Metrics and ping report a call that could do nothing; with --quiet one line says why, and the log what happened.

    A missing inbox, bad settings and an unusable ledger used to leave yesterday's good metrics in place, and no ping.
    """
    with (
        running_oracle(home.path / "oracle.log", "--silent-every", "2", warm=WARM) as oracle,
        monitor() as (url, asked),
    ):
        home.origin = oracle.origin
        watched = ("-q", "--metrics-file", "run.prom", "--ping-url", url, "--log-json", "--log-file", "run.log")
        small_file(home.path / "a.csv", 2)
        assert home.run("submit", "a.csv", "--workers", "1", *watched).returncode == 7
        assert "batchpay_oldest_doubt_timestamp_seconds" in (home.path / "run.prom").read_text()
        missing = home.run("submit", "--inbox", "no/such/inbox", *watched)
        assert missing.returncode == 7, "5 would hide the row in doubt"
        assert "no/such/inbox" in missing.stderr
        metrics = (home.path / "run.prom").read_text()
        assert "batchpay_exit_code 7\n" in metrics
        assert 'batchpay_ledger_rows{environment="test",state="in_doubt"} 1\n' in metrics
        (home.path / "empty").mkdir()
        quiet = home.run("submit", "--inbox", "empty", *watched)
        assert quiet.returncode == 7
        assert "in doubt" in quiet.stderr
        files = [f"{name}.csv" for name in "bcd"]
        for number, name in enumerate(files):
            small_file(home.path / name, 1, first=10 + number)
        repeated = home.run("submit", *files, "-q", "--rate", "50")
        lines = [line for line in repeated.stderr.splitlines() if "in doubt, " in line]
        assert len(lines) == len(set(lines)) == 2, "once for each file of the call, and a mail that nobody reads"
        assert asked == ["/job/start", "/job/7", "/job/start", "/job/7", "/job/start", "/job/7"]
    events = [json.loads(line) for line in (home.path / "run.log").read_text().splitlines()]
    doubts = [event for event in events if event["event"] == "row in doubt"]
    assert [(event["level"], event["row"]) for event in doubts] == [("warning", 2)]
    assert [event["level"] for event in events if event["event"] == "call ended"] == ["warning", "error", "warning"]


def test_only_complete_files_are_taken_from_an_inbox(oracle_home: Home, oracle: Oracle) -> None:
    """A file with its control file is taken, paid and archived; one still being written is left where it is."""
    inbox = oracle_home.path / "inbox"
    inbox.mkdir()
    small_file(inbox / "ready.csv", 3)
    (inbox / "ready.csv.control.toml").write_text('rows = 3\ntotal = "6.75"\n')
    small_file(inbox / "growing.csv", 3, first=50)
    done = oracle_home.run("submit", "--inbox", "inbox", "--archive", "done", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in inbox.iterdir()] == ["growing.csv"]
    assert "inbox inbox: left for a later call: growing.csv: " in done.stderr, "once it was passed over without a word"
    assert sorted(path.name for path in (oracle_home.path / "done").iterdir()) == [
        "ready.csv",
        "ready.csv.control.toml",
    ]
    assert set(oracle.received()) == {"INV-1", "INV-2", "INV-3"}


def test_what_an_inbox_never_gives_is_told_apart_from_what_grows(oracle_home: Home, oracle: Oracle) -> None:
    """Both were "left for a later call" with exit code 0: a link to the payroll file was never paid, night after night.

    A quiet call says it as well; a subfolder and a file that is being written change no code.
    """
    inbox = oracle_home.path / "inbox"
    (inbox / "archive").mkdir(parents=True)
    small_file(inbox / "pay.csv.part", 1)
    growing = oracle_home.run("submit", "--inbox", "inbox", "-q")
    assert (growing.returncode, growing.stderr) == (0, "")
    small_file(inbox / "payroll.txt", 1)
    (inbox / "link.csv").symlink_to(small_file(oracle_home.path / "pay.csv", 1))
    (inbox / "link.csv.control.toml").write_text("rows = 1\n")
    left = oracle_home.run("submit", "--inbox", "inbox", "-q", "--log-file", "run.log")
    assert (left.returncode, oracle.received().total()) == (3, 0)
    assert left.stderr.startswith("batchpay: inbox inbox: never taken: link.csv, payroll.txt: a link, or a name that ")
    assert 'WARNING never taken file="link.csv, payroll.txt" reason=' in (oracle_home.path / "run.log").read_text()


def test_corrected_rejects_in_an_inbox_are_paid_or_mentioned(oracle_home: Home, oracle: Oracle) -> None:
    """They were skipped as our own, even with a control file: `no file`, exit 0, and nobody was paid."""
    inbox = oracle_home.path / "inbox"
    inbox.mkdir()
    corrected = small_file(inbox / "may.rejects.csv", 1, first=71)
    left = oracle_home.run("submit", "--inbox", "inbox", "--out", "out")
    assert (left.returncode, oracle.received().get("INV-71")) == (0, None)
    assert "inbox inbox: skipped: may.rejects.csv: named like results or rejects of batchpay" in left.stderr
    (inbox / f"{corrected.name}.control.toml").write_text('rows = 1\ntotal = "71.25"\n')
    done = oracle_home.run("submit", "--inbox", "inbox", "--out", "out", "--archive", "done")
    assert (done.returncode, oracle.received()["INV-71"], list(inbox.iterdir())) == (0, 1, [])


def test_a_file_that_waits_is_not_archived(home: Home) -> None:
    """A file with rows that still wait to be sent stays where it is."""
    home.origin = "http://127.0.0.1:9"
    small_file(home.path / "a.csv", 2)
    assert home.run("submit", "a.csv", "--archive", "done").returncode == 6
    assert (home.path / "a.csv").is_file()


def test_control_totals_that_are_not_met_refuse_the_file(oracle_home: Home, oracle: Oracle) -> None:
    """Wrong totals, by option or by control file: exit code 4, no rejects file, nothing sent."""
    small_file(oracle_home.path / "a.csv", 3)
    assert oracle_home.run("submit", "a.csv", "--expect-rows", "4").returncode == 4
    assert oracle_home.run("submit", "a.csv", "--expect-total", "6.74").returncode == 4
    (oracle_home.path / "a.csv.control.toml").write_text("rows = 2\n")
    assert oracle_home.run("submit", "a.csv").returncode == 4
    assert oracle.entries() == []
    (oracle_home.path / "a.csv.control.toml").write_text('rows = 3\ntotal = "6.75"\n')
    assert oracle_home.run("submit", "a.csv", "--expect-rows", "3").returncode == 0


def test_a_plan_lets_through_what_it_approved_and_nothing_else(oracle_home: Home, oracle: Oracle) -> None:
    """--plan records what would be sent; --from-plan refuses a changed file and a changed plan."""
    assert oracle_home.run("ledger", "init").returncode == 0
    file = small_file(oracle_home.path / "a.csv", 3)
    assert oracle_home.run("submit", "a.csv", "--dry-run", "--plan", "plan.json").returncode == 0
    approved = file.read_text()
    small_file(file, 4)
    refused = oracle_home.run("submit", "a.csv", "--from-plan", "plan.json")
    assert refused.returncode == 4
    assert "plan" in refused.stderr
    file.write_text(approved)
    plan = oracle_home.path / "plan.json"
    text = plan.read_text()
    plan.write_text(text.replace('"6.75"', '"9.75"'))
    assert oracle_home.run("submit", "a.csv", "--from-plan", "plan.json").returncode == 4
    assert oracle.entries() == []
    plan.write_text(text)
    assert oracle_home.run("submit", "a.csv", "--from-plan", "plan.json").returncode == 0
    assert len(oracle.entries()) == 3


def test_a_changed_account_draws_a_warning(oracle_home: Home) -> None:
    """A payee that was paid before and now has a different account: a warning in validate and in the dry run."""
    small_file(oracle_home.path / "a.csv", 3)
    oracle_home.json("submit", "a.csv")
    file = small_file(oracle_home.path / "b.csv", 3, first=10)
    file.write_text(file.read_text().replace("770000101", "990000101"))
    for arguments in (("validate", "b.csv"), ("submit", "b.csv", "--dry-run")):
        found = oracle_home.json(*arguments)["variances"]
        assert {one["code"] for one in found} == {"changed_account", "unusual_amount"}
    kept_back = oracle_home.json("submit", "b.csv", "--warnings-as-errors")
    assert (kept_back["accepted"], kept_back["rejected"]) == (0, 3)
    assert "changed_account" in (oracle_home.path / "b.rejects.csv").read_text()
    sent = oracle_home.json("submit", "b.csv", "--release", "--reason", "called them")
    assert (sent["accepted"], sent["warning_counts"]["achAccountNumber.changed_account"]) == (3, 3)


def test_a_changed_account_is_listed_before_all_new_payees(oracle_home: Home) -> None:
    """The one warning that matters comes first, and counts are of all, however few are listed."""
    small_file(oracle_home.path / "a.csv", 1)
    oracle_home.json("submit", "a.csv")
    file = small_file(oracle_home.path / "b.csv", 30, first=100)
    header, *rows = (line.split(",") for line in file.read_text().splitlines())
    at = header.index("achNameOnCheck")
    for number, row in enumerate(rows[:-1]):
        row[at] = f"Payee {number}"
    file.write_text("\n".join(map(",".join, (header, *rows))) + "\n")
    told = oracle_home.json("validate", "b.csv", "--max-errors", "2")
    assert told["variances"][0]["code"] == "changed_account"
    assert told["warning_counts"]["achNameOnCheck.new_payee"] == 29
    assert "changed_account" in oracle_home.run("validate", "b.csv").stdout


def test_a_check_can_be_a_page(oracle_home: Home) -> None:
    """`validate --report` writes one HTML page that loads nothing from the network."""
    (oracle_home.path / "a.csv").write_bytes((SAMPLES / "small.csv").read_bytes())
    assert oracle_home.run("validate", "a.csv", "--report", "page.html").returncode == 3
    page = (oracle_home.path / "page.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert "amount" in page


def test_a_header_without_rows_is_nothing_to_do(oracle_home: Home) -> None:
    """A header alone: a warning, exit code 0, and an empty results file."""
    header = (SAMPLES / "small.csv").read_text("utf-8").splitlines()[0]
    (oracle_home.path / "a.csv").write_text(header + "\n")
    done = oracle_home.run("submit", "a.csv")
    assert done.returncode == 0
    assert "no rows" in done.stdout
    assert len((oracle_home.path / "a.results.csv").read_text().splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes(shell: str) -> None:
    """The command gives each shell its completion script, and completes a command's name."""
    program = Path(sys.executable).with_name("batchpay")
    script = subprocess.run(
        [program, "completion", shell], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert f"_BATCHPAY_COMPLETE={shell}_complete" in script.stdout

    def completed(*words: str) -> str:
        said = {"COMP_WORDS": " ".join(words), "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}
        return subprocess.run(
            [program], env={"_BATCHPAY_COMPLETE": f"{shell}_complete", **said}, capture_output=True, text=True
        ).stdout

    assert "reconcile" in completed("batchpay", "recon")
    # every completion of a file's name used to be empty: whoever had turned it on had to type names out
    assert completed("batchpay", "submit", "pay").startswith("file")
    assert completed("batchpay", "submit", "--inbox", "pay").startswith("dir")
    # bash inserts a value as it stands: `send again` became two words, of which the second was no option's
    words = completed("batchpay", "resolve", "3f2a", "--decision", "send")
    assert ('"send again"' in words) is (shell == "bash")
    assert "send again" in words


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_what_is_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "payments.csv").touch()
    script = 'batchpay completion fish | source; complete -C"batchpay submit pay"'
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["fish", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["payments.csv"], done.stderr


def test_settings_options_and_environment_beat_each_other_in_order(oracle_home: Home) -> None:
    """An option beats the environment, the environment beats the file; an unknown key is refused by name."""
    small_file(oracle_home.path / "a.csv", 2)
    settings = oracle_home.path / "batchpay.toml"
    settings.write_text('[submit]\nrate = "3"\n[validate]\nexpect_rows = 9\n')
    oracle_home.extra = {"BATCHPAY_EXPECT_ROWS": "2"}
    assert oracle_home.run("validate", "a.csv").returncode == 0
    assert oracle_home.run("validate", "a.csv", "--expect-rows", "7").returncode == 4
    oracle_home.extra = {}
    assert oracle_home.run("validate", "a.csv").returncode == 4
    settings.write_text("[submit]\nwrokers = 3\n")
    done = oracle_home.run("submit", "a.csv")
    assert done.returncode == 5
    assert "did you mean workers?" in done.stderr


def test_rows_that_are_in_no_total_are_reported(home: Home) -> None:
    """Rows marked as examples and amounts that can't be read are reported next to the totals that leave them out."""
    file = small_file(home.path / "a.csv", 4)
    header, *rows = file.read_text().splitlines()
    lines = [f"_note,{header}", f"example,{rows[0]}", *(f",{row}" for row in rows[1:])]
    lines[2] = lines[2].replace("2.25", "two")
    file.write_text("\n".join(lines) + "\n")
    told = home.json("validate", "a.csv")
    assert (told["rows"], told["amount"]["total"]) == (3, "7.50")
    assert "rows marked as an example, which are not payments: 1" in told["notes"]
    assert "in 1 row the amount can't be read: it is not included in any total" in told["notes"]


ROOT = Path(__file__).resolve().parents[2]
SCHEDULE_FIELDS = 5


def cron_line(folder: Path) -> str:
    """Return the command of docs/examples/crontab, with its folders and program moved to where they are here."""
    lines = (ROOT / "docs" / "examples" / "crontab").read_text("utf-8").splitlines()
    (line,) = [line for line in lines if "batchpay submit" in line]
    assert "%" not in line, "cron takes a percent sign for the end of the line"
    command = line.split(" ", SCHEDULE_FIELDS)[SCHEDULE_FIELDS]
    moved = {
        "/opt/batchpay/bin/batchpay": str(Path(sys.executable).with_name("batchpay")),
        "/var/lib/batchpay": str(folder / "home"),
        "/var/log/batchpay": str(folder / "log"),
        "/etc/batchpay": str(folder / "etc"),
        "/srv/payments": str(folder / "srv"),
    }
    for there, here in moved.items():
        assert there in command, there
        command = command.replace(there, here)
    return command


def prepare(folder: Path, origin: str) -> Path:
    for name in ("home/metrics", "log", "etc", "srv/inbox", "srv/done", "srv/out"):
        (folder / name).mkdir(parents=True, mode=0o700)
    settings = f'[gateway]\nbase_url = "{origin}"\napi_id = "sandbox"\n[submit]\nrate = "5000"\n'
    (folder / "etc" / "batchpay.toml").write_text(settings)
    key = folder / "etc" / "api-key"
    key.touch(mode=0o600)
    key.write_text("sandbox-key\n")
    return folder / "srv" / "inbox"


def run_as_cron(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["env", "-i", "/bin/sh", "-c", cron_line(folder)],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_cron_line_pays_once_and_is_quiet(tmp_path: Path, oracle: Oracle) -> None:
    """A complete file is paid once and archived, an unfinished one is left; nothing is mailed, even the second time."""
    inbox = prepare(tmp_path, oracle.origin)
    small_file(inbox / "pay.csv", 5)
    (inbox / "pay.csv.control.toml").write_text("rows = 5\n")
    small_file(inbox / "unfinished.csv.part", 3, first=100)
    for _ in range(2):
        done = run_as_cron(tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    oracle.settle()
    assert oracle.received() == {f"INV-{number}": 1 for number in range(1, 6)}
    assert [path.name for path in inbox.iterdir()] == ["unfinished.csv.part"]
    assert sorted(path.name for path in (tmp_path / "srv" / "done").iterdir()) == ["pay.csv", "pay.csv.control.toml"]
    assert (tmp_path / "srv" / "out" / "pay.results.csv").is_file()
    assert "pay.csv" in (tmp_path / "log" / "summary.log").read_text()


def test_the_cron_line_speaks_up_when_nothing_could_be_sent(tmp_path: Path, oracle: Oracle) -> None:
    """A file whose totals are not met stays in the inbox, nothing is sent, and cron has something to mail."""
    inbox = prepare(tmp_path, oracle.origin)
    small_file(inbox / "pay.csv", 5)
    (inbox / "pay.csv.control.toml").write_text("rows = 6\n")
    done = run_as_cron(tmp_path)
    assert "batchpay ended with exit code 4" in done.stdout
    assert done.stderr.count("\n") == 1
    oracle.settle()
    assert not oracle.received()
    assert sorted(path.name for path in inbox.iterdir()) == ["pay.csv", "pay.csv.control.toml"]
