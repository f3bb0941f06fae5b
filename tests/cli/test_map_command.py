"""What `batchpay map` asks on a terminal, and prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchpay.cli import output
from batchpay.cli.context import Context
from batchpay.cli.main import cli

FILE = """\
Payee,ABA #,Acct #,Start Date,Amt
Ada Byron,021000021,0012345,03/04/2027,-10.00
Tom Fox,011000015,54321,05/04/2027,12.5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file, where the settings are those of nobody."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "theirs.csv").write_text(FILE)
    return tmp_path


def run(*arguments: str, typed: str = "") -> Result:
    """Call the command in this process."""
    return CliRunner().invoke(cli, ["map", "theirs.csv", *arguments], input=typed, standalone_mode=False, obj=Context())


def test_a_terminal_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are numbers or a value; 0 and a blank leave a question open; the rest is what was asked for."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    asked = run("--write", "theirs.toml", typed="2\n1\n1\n1\n\n\n\n1\n2\n1\n4\n2\n0\n")
    assert asked.exception is None, asked.stderr
    assert "Error" not in asked.stderr
    assert asked.stderr.count(": how is column Start Date written?\n") >= 2, "taken back, and asked again"
    assert asked.stdout.count("as they would be sent:") == 2
    assert "1 of 2 amounts in column Amt are negative" in asked.stderr
    assert "2  03/04/2027 is April 3, 2027" in asked.stderr
    text = (folder / "theirs.toml").read_text()
    assert 'negative = "DEBIT"' in text
    assert 'date = "%d/%m/%Y"' in text
    assert '#   gatewayId = ""' in text
    assert asked.return_value == 8
    assert "open: gatewayId" in asked.stdout
    assert "04/03/2027" in asked.stdout


def test_what_is_no_number_of_the_list_is_asked_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip said that it was not a valid integer range."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    asked = run(typed="x\n9\n-1\n2\n" + "\n" * 20)
    assert asked.exception is None, asked.stderr
    assert asked.stderr.count("Error: type a number from 0 to 3") == 3


def test_without_a_terminal_nothing_is_asked(folder: Path) -> None:
    """The list of what is open takes the questions' place; lines keep to the page, but for the table."""
    said = run()
    assert said.return_value == 8
    assert said.stderr == ""
    assert "open: recurringIndicator: are these recurring payments? (Start Date)" in said.stdout
    assert "nothing was written: --write PATH writes the map" in said.stdout
    assert not list(folder.glob("*.toml"))
    assert "0012345" not in said.stdout
    assert all(len(line) <= 80 for line in said.stdout.partition("as they would")[0].splitlines())


def test_a_paymentid_that_counts_rows_is_noted(folder: Path) -> None:
    """Whoever checks the file reads that its numbers shift when a row is put in."""
    (folder / "lines.csv").write_text("Payee,ABA #,Line\nAda Byron,021000021,1\nTom Fox,011000015,2\n")
    names = ("gatewayId", "transactionType", "recurringIndicator", "amount", "achAccountNumber", "achNameOnCheck")
    fixed = "".join(f'{name} = "1"\n' for name in (*names, "achAccountType", "achDepositType", "achAgreementFlag"))
    (folder / "lines.toml").write_text(
        '[columns]\n"ABA #" = "achRoutingNumber"\n[split]\nPayee = "{billingFirstName} {billingLastName}"\n'
        f'[templates]\npaymentId = "{{Payee}}-{{Line}}"\n[defaults]\nshipping = "billing"\n[fixed]\n{fixed}'
    )
    arguments = ["validate", "lines.csv", "--map", "lines.toml"]
    said = CliRunner().invoke(cli, arguments, standalone_mode=False, obj=Context())
    assert "paymentId is made of Line, which only counts the rows" in " ".join(said.stdout.split())


def test_quiet_says_nothing(folder: Path) -> None:
    """With -q the exit code and the file are all."""
    said = run("-q", "--write", "theirs.toml")
    assert (said.stdout, said.stderr, said.return_value) == ("", "", 8)
    assert (folder / "theirs.toml").exists()


def test_a_map_with_open_questions_sends_nothing(folder: Path) -> None:
    """The header was said to lack columns that no answer had been given for, and nothing led to the questions.

    Others of them, such as which words of a status are payments, were left unanswered, and the file was sent.
    """
    run("--write", "theirs.toml")
    checked = ["validate", "theirs.csv", "--map", "theirs.toml"]
    waits = CliRunner().invoke(cli, checked, standalone_mode=False, obj=Context())
    assert waits.return_value == 8
    assert "the map theirs.toml has open questions, the first: transactionType: 1 of 2" in waits.stderr
    text = (folder / "theirs.toml").read_text()
    (folder / "theirs.toml").write_text(re.sub(r"\nopen = \[.*?\n\]", "", text, flags=re.DOTALL))
    refused = CliRunner().invoke(cli, checked, standalone_mode=False, obj=Context()).stderr
    assert "lacks required columns: gatewayId" in refused
    assert "; the map theirs.toml must name a column or a value for each, and may be unfinished" in refused
