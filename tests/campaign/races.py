"""Several processes on one file, a holder that is stopped or dies, and answers that get lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from batchpay.gateway.transport import since_boot_s
from tests.campaign.trial import ROWS, Bench, Findings, finish_and_check
from tests.support.command import small_file

_COMMAND = ("submit", "a.csv")
_HELD, _STOPPED = 9, 6


def starts_at_once(made: Bench, processes: int) -> Findings:
    """Start the same command several times at the same moment."""
    home = made.empty_home()
    since = made.oracle.log.stat().st_size
    running = [
        home.start(*_COMMAND, "--results", f"results-{number}.csv", "--rejects", f"rejects-{number}.csv")
        for number in range(processes)
    ]
    codes = [process.wait(timeout=120) for process in running]
    found = finish_and_check(made, home, since, f"{processes} starts at once", _COMMAND)
    found.fired = int(codes.count(_HELD) > 0 or processes > 1)
    if not set(codes) <= {0, 3, _HELD}:
        found.wrong.append(f"{processes} starts at once ended with {sorted(codes)}")
    return found


def stopped_and_replaced(made: Bench, seed: int) -> Findings:
    """SIGSTOP a run, start another, which finds the batch held; SIGCONT, and the first continues.

    The run is paced, so that it rarely stops inside a commit: then the other one waits for the ledger's lock instead.
    """
    home = made.home()
    since = made.oracle.log.stat().st_size
    wanted = random.Random(seed).randrange(1, 6)
    process = home.start("resume", "--rate", "20")
    made.oracle.gets(wanted, process, since)
    process.send_signal(signal.SIGSTOP)
    other = home.run("resume")
    process.send_signal(signal.SIGCONT)
    process.wait(timeout=60)
    found = finish_and_check(made, home, since, "stopped and replaced", ("resume",))
    found.fired = int(other.returncode == _HELD)
    return found


_STOPS_ITSELF = """
import os, signal, sys
from batchpay.cli.main import main
from batchpay.sending import recorder, sender

sender.PERMISSION_S = float(sys.argv.pop(1))
granted = recorder.Recorder.mark_sending

def stop(self, row):
    granted(self, row)
    recorder.Recorder.mark_sending = granted
    os.kill(os.getpid(), signal.SIGSTOP)

recorder.Recorder.mark_sending = stop
main()
"""
_PERMISSION_S = 0.1


def stopped_with_a_permission(made: Bench) -> Findings:
    """SIGSTOP a run when `sending` of its first row is durable, and continue it when its permission has expired.

    Others may have found the row in doubt, and a person may have sent it again: so not a byte of it may leave. It is
    pending again, by its own proof, and the next run sends it.
    """
    home = made.home()
    (home.path / "once.toml").write_text("[submit]\nattempts_max = 1\n", "utf-8")
    since = made.oracle.log.stat().st_size
    process = subprocess.Popen(
        [sys.executable, "-c", _STOPS_ITSELF, str(_PERMISSION_S), "resume", "--config", "once.toml"],
        env=home.environment,
        cwd=home.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    found = Findings(trials=1, fired=int(os.WIFSTOPPED(status)))
    over = since_boot_s() + _PERMISSION_S
    while since_boot_s() < over:
        pass
    process.send_signal(signal.SIGCONT)
    code = process.wait(timeout=60)
    made.oracle.settle()
    arrived = made.oracle.entries(since)
    if code != _STOPPED or arrived:
        found.wrong.append(f"stopped with a permission: {len(arrived)} payments left with it, exit code {code}")
    after = finish_and_check(made, home, since, "stopped with a permission", ("resume",), in_doubt_max=0)
    found.wrong += after.wrong
    return found


def undisturbed(made: Bench) -> Findings:
    """Run with nothing going wrong."""
    home = made.home()
    since = made.oracle.log.stat().st_size
    return finish_and_check(made, home, since, "undisturbed", ("resume",), in_doubt_max=0)


def lost_answers(made: Bench) -> Findings:
    """Run against an oracle that now and then accepts a payment and gives no answer, or no readable answer."""
    home = made.home()
    since = made.oracle.log.stat().st_size
    home.run("resume", "--max-in-doubt", "1000")
    found = finish_and_check(made, home, since, "lost answers", ("resume",), in_doubt_max=ROWS)
    found.fired = found.in_doubt
    return found


def paid_under_another_name(made: Bench) -> Findings:
    """Submit a file, then the same rows under another name, then with one row more: nothing is paid twice."""
    home = made.empty_home()
    since = made.oracle.log.stat().st_size
    home.run(*_COMMAND)
    shutil.copyfile(home.path / "a.csv", home.path / "b.csv")
    home.run("submit", "b.csv")
    small_file(home.path / "c.csv", len(made.oracle.entries(since)) + 1)
    home.run("submit", "c.csv")
    arrived = [entry["reference"] for entry in made.oracle.entries(since)]
    found = Findings(trials=1, fired=1)
    if sorted(set(arrived)) != sorted(arrived):
        found.wrong.append("the same payments were sent again under another name")
    if len(set(arrived)) != len(_rows(home.path / "c.csv")):
        found.wrong.append(f"{len(set(arrived))} payments arrived")
    return found


def _rows(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines()[1:]
