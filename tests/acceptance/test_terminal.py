"""What reaches a terminal: no control character of any name, whatever is printed; what stays in memory; how fast."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from batchpay.cli.commands import COMMANDS, load_command
from batchpay.writing import process_memory
from tests.support.command import Home, small_file

WILD = "a\x1b]0;owned\x07\x9b31m\u202eb"
"""A name that sets a terminal's title, its color by the eight-bit control, and reverses the reading direction."""


def steers(text: str) -> set[str]:
    """Return the characters that a terminal acts on; line breaks are ours."""
    return {character for character in text if character != "\n" and unicodedata.category(character) in ("Cc", "Cf")}


@pytest.mark.parametrize("arguments", [
    ("validate", f"{WILD}.csv"), ("validate", f"{WILD}.csv", "--json"), ("validate", f"not-there-{WILD}.csv"),
    ("validate", f"{WILD}.csv", f"--{WILD}"), ("validate", f"{WILD}.csv", "--config", f"bad-{WILD}.toml"),
    ("status", WILD), ("demo", "--out", WILD),
])  # fmt: skip
def test_no_name_controls_the_terminal(home: Home, arguments: tuple[str, ...]) -> None:
    """Names of files, columns, options and batches are printed escaped: in results, errors, usage and JSON."""
    small_file(home.path / f"{WILD}.csv", 3)
    table = (home.path / f"{WILD}.csv").read_text("utf-8").replace("amount", WILD, 1)
    (home.path / f"{WILD}.csv").write_text(table, "utf-8")
    (home.path / f"bad-{WILD}.toml").write_text(f'["{WILD}', "utf-8")
    (home.path / WILD / "full").mkdir(parents=True)
    home.origin = "http://127.0.0.1:9"
    done = home.run(*arguments)
    assert done.stdout + done.stderr
    assert not steers(done.stdout)
    assert not steers(done.stderr)
    if "--json" in arguments:
        assert isinstance(json.loads(done.stdout), dict)


def dumps_core(*command: str, cwd: Path) -> bool:
    """Return whether a command leaves a core when it is killed by SIGSEGV once it says it is ready."""
    limits = resource.getrlimit(resource.RLIMIT_CORE)[1]
    reader, writer = os.pipe()
    child = subprocess.Popen(  # its status comes from the system below: subprocess forgets whether there was a core
        command,
        cwd=cwd,
        stdout=writer,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (limits, limits)),
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        assert output.readline()
        child.send_signal(signal.SIGSEGV)
        _, status = os.waitpid(child.pid, 0)
        child.returncode = -os.WTERMSIG(status)
    assert os.WTERMSIG(status) == signal.SIGSEGV
    return os.WCOREDUMP(status)


def test_a_crash_leaves_process_memory(home: Home) -> None:
    """A core of a crashed run held 300 account numbers and the key; now there is none, whatever the limit was."""
    waits = "print(1, flush=True); import time; time.sleep(30)"
    if not dumps_core(sys.executable, "-c", waits, cwd=home.path):
        pytest.skip("this system leaves no core of any process")
    assert not dumps_core(*home.command("sandbox", "--port", "0"), cwd=home.path)
    assert not list(home.path.glob("core.batchpay*"))


@pytest.mark.parametrize(
    "closing", ["writing.process_memory import keep_memory_private", "intake.xlsx.worker import _limit"]
)
def test_memory_is_closed_to_other_processes(closing: str) -> None:
    """The process can't be dumped or traced, and may leave no core; nor can the one that parses a workbook."""
    code = (
        f"import ctypes, resource; from batchpay.{closing} as close; close();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 (0, 0)\n"


def test_a_system_without_prctl_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """On systems other than Linux the limit must be enough."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: None)
    process_memory.keep_memory_private()


HEAVY = ("polars", "pandera", "requests", "urllib3", "flask", "cryptography", "openpyxl", "sqlite3")


def imports_of(*arguments: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", "-m", "batchpay", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("Usage:") or "batchpay" in found.stdout
    lines = [line for line in found.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines[1:]}


@pytest.mark.parametrize("arguments", [
    ("--help",), ("--version",), *[(name, "--help") for name in COMMANDS],
], ids=lambda arguments: " ".join(arguments))  # fmt: skip
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Help of the program and of every command answers without any heavy library."""
    heavy = set(HEAVY) - ({"sqlite3"} if arguments == ("--version",) else set())
    assert not imports_of(*arguments) & heavy


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_written_once(name: str) -> None:
    """The list of commands describes each as the command describes itself."""
    assert load_command(name).get_short_help_str(200) == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(name: str) -> None:
    """Help of each command ends with an example that can be copied."""
    help_text = load_command(name).help or ""
    assert f"Example: batchpay {name}" in help_text
