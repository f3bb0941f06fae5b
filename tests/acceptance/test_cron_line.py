"""The crontab line of the docs, run as cron runs it: by /bin/sh, in an empty environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.command import small_file
from tests.support.oracle import Oracle

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
