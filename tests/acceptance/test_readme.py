"""README's commands, run by a shell exactly as written; and what README says of the program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from batchpay.cli.commands import COMMANDS
from batchpay.payment import State
from tests.support.command import Home

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
FIVE_MINUTES = README.split("## Five minutes with a file", 1)[1].split("\n## ", 1)[0]


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", FIVE_MINUTES, flags=re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_the_five_minute_tour_works_as_written(sandbox_home: Home) -> None:
    """All commands of the tour run one after the other in one shell, and end as the text says."""
    shutil.copytree(ROOT / "samples", sandbox_home.path / "samples")
    tour = [line.replace("http://127.0.0.1:8780", sandbox_home.origin) for line in commands()]
    assert sum(line.startswith("batchpay ") for line in tour) >= 6
    script = "\n".join(f'{line}\necho "== $?"' for line in tour)
    environment = sandbox_home.environment | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"}
    done = subprocess.run(
        ["sh", "-c", script], cwd=sandbox_home.path, env=environment, capture_output=True, text=True, check=False
    )
    codes = re.findall(r"^== ([0-9]+)$", done.stdout, flags=re.MULTILINE)
    ends = dict(zip(tour, codes, strict=True))
    assert {command: code for command, code in ends.items() if code not in ("0", "3")} == {}, done.stderr
    assert (sandbox_home.path / "wrong.csv").is_file()
    assert (sandbox_home.path / "out" / "small.results.csv").is_file()
    assert "nothing is left to send" in done.stderr


@pytest.mark.parametrize("state", list(State))
def test_readme_names_every_state(state: State) -> None:
    """Each state of a row is in README's table."""
    assert f"| `{state}` |" in README


def test_readme_links_lead_somewhere() -> None:
    """Links into the repository lead to a file."""
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_readme_names_only_commands_that_exist() -> None:
    """Every `batchpay X` in README is a command."""
    assert set(re.findall(r"`batchpay ([a-z-]+)", README)) <= set(COMMANDS)


def test_what_the_demo_says_to_do_next_works_in_its_folder(home: Home) -> None:
    """Its summary says `batchpay resolve BATCH`, and nothing named the demo's ledger to that command.

    The report, which belongs to the demo, was left to whoever typed one more command. What a bank corrected is in
    the rejects file of the next check, and nowhere on the terminal.
    """
    done = home.run("demo")
    command = next(line for line in done.stdout.splitlines() if "a person must look: " in line).partition(": ")[2]
    environment = {name: value for name, value in home.environment.items() if not name.startswith("BATCHPAY_")}
    call = [sys.executable, "-m", *command.split()]
    found = subprocess.run(
        call, cwd=home.path / "demo", env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout.count("look for")) == (7, 2), found.stderr
    assert "cd demo" in done.stdout
    batch = command.rpartition(" ")[2]
    assert batch in (home.path / "demo" / "payments.report.html").read_text("utf-8")
    assert {"achAccountNumber.returned", "achAccountNumber.changed_by_bank"} <= set(done.stdout.split())
    corrected = "770631997781"  # the sandbox makes it from the account of row 631
    assert corrected in (home.path / "demo" / "next.rejects.csv").read_text("utf-8")
    assert corrected not in done.stdout
