"""How fast and how light the command answers, with the installed program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from batchpay.cli.commands import COMMANDS, load_command

HEAVY = ("polars", "pandera", "requests", "urllib3", "flask", "cryptography", "openpyxl", "sqlite3")


def imports_of(*arguments: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", "-m", "batchpay", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("Usage:") or "batchpay" in found.stdout
    lines = [line for line in found.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines[1:]}


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), *[(name, "--help") for name in COMMANDS]],
    ids=lambda arguments: " ".join(arguments),
)
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
