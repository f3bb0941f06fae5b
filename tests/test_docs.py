"""What the pages under docs/ say, held against the program: commands, options, settings, variables, links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from click.testing import CliRunner

from batchpay.approval.anomalies import CODES
from batchpay.approval.cash_flow import MONTHS
from batchpay.cli.commands import COMMANDS, load_command
from batchpay.cli.main import cli
from batchpay.errors import EXIT_CODES
from batchpay.gateway.credentials import API_KEY_FILE_VARIABLE, API_KEY_VARIABLE
from batchpay.gateway.profile import Profile
from batchpay.intake.maps.loading import load_mapping
from batchpay.operations.inbox import CONTROL_SUFFIX
from batchpay.settings import Settings, check_tables, load_settings, settings_of
from tests.support.docs_settings import PAGE, written_page
from tests.support.man_page import manual

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
EXAMPLES = sorted(path for path in (DOCS / "examples").iterdir() if path.is_file())
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
SETTING = re.compile(r"(?:gateway|submit|ledger|policy|limits|retention)\.[a-z_0-9]+(?:\.[a-z_0-9]+)?")
OPTION = re.compile(r"--[a-z][a-z-]+")
SHELL_WORDS = {";", "&&", "||", "|", ">", ">>", "2>", "<", "&", ")", "do", "then"}


def blocks(path: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCED.findall(path.read_text("utf-8")) if language in languages]


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text("utf-8"))


def shell_lines() -> Iterator[tuple[str, str]]:
    """Every line that a person or a machine is to run, with the page it stands on."""
    for path in PAGES:
        for block in blocks(path, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                yield path.name, line.strip()
        for code in INLINE.findall(prose(path)):
            yield path.name, code
    for path in EXAMPLES:
        for line in path.read_text("utf-8").replace("\\\n", " ").splitlines():
            if not line.startswith("#"):
                yield path.name, line.removeprefix("ExecStart=")


def batchpay_calls() -> list[tuple[str, list[str]]]:
    """The arguments of every call of batchpay in the pages and examples."""
    calls = []
    for page, line in shell_lines():
        if "batchpay" not in line:
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        for place, word in enumerate(words):
            before = words[place - 1] if place else ";"
            begins = before in SHELL_WORDS or "=" in before
            if word.endswith("/bin/batchpay") or (word == "batchpay" and begins and words[place + 1 :]):
                rest = words[place + 1 :]
                end = next((at for at, other in enumerate(rest) if other in SHELL_WORDS), len(rest))
                if end:
                    calls.append((page, rest[:end]))
    return calls


def command_of(arguments: list[str]) -> tuple[click.Command, list[str]]:
    """Find the command that a call means, a group's command too."""
    assert arguments[0] in COMMANDS, f"no command {arguments[0]}"
    command, rest = load_command(arguments[0]), arguments[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), rest[0]) if rest else None
        if found is None and command.invoke_without_command and (not rest or rest[0].startswith("-")):
            break
        assert found is not None, f"{command.name} has no command {rest[:1]}"
        command, rest = found, rest[1:]
    return command, rest


def every_command(command: click.Command = cli) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_command(found)


CALLS = batchpay_calls()


def test_the_pages_have_calls() -> None:
    """The calls are found at all: in every page but the tables, in the crontab line and in the unit."""
    pages = {page for page, _ in CALLS}
    assert {"cron.md", "finance.md", "gateway-profile.md", "recovery.md", "crontab", "batchpay.service"} <= pages
    assert {"install-cron.md", "install-systemd.md", "batchpay-health.sh", "batchpay-backup.service"} <= pages
    assert len(CALLS) > 30


@pytest.mark.parametrize(("page", "arguments"), CALLS, ids=[f"{page}: {' '.join(words)}" for page, words in CALLS])
def test_a_call_is_one_that_batchpay_takes(page: str, arguments: list[str]) -> None:
    """Command, options and values of every call are the program's own."""
    command, rest = command_of(arguments)
    context = click.Context(command, info_name=command.name)
    values, left, _ = command.make_parser(context).parse_args(args=list(rest))
    assert not left
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name in values:
            parameter.type_cast_value(context, values[parameter.name])
        if isinstance(parameter, click.Argument) and parameter.required:
            assert values.get(str(parameter.name)), f"{page}: an argument is missing"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_options_in_the_text_exist(path: Path) -> None:
    """An option that a page speaks of is one of some command."""
    known = {
        name
        for command in every_command()
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    named = {option for code in INLINE.findall(prose(path)) for option in OPTION.findall(code)}
    assert named - known == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_settings_in_the_text_exist(path: Path) -> None:
    """A setting that a page speaks of is declared in settings.py."""
    kinds = get_type_hints(Settings)
    known = {f"{part.name}.{item.name}" for part in fields(Settings) for item in settings_of(kinds[part.name])}
    named = {code for code in INLINE.findall(prose(path)) if SETTING.fullmatch(code)}
    assert {".".join(name.split(".")[:2]) for name in named} - known == set()


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: path.name)
def test_variables_exist(path: Path) -> None:
    """Every BATCHPAY_ variable is one that the program reads."""
    kinds = get_type_hints(Settings)
    known = {item.metadata["environment"] for part in fields(Settings) for item in settings_of(kinds[part.name])}
    known |= {API_KEY_FILE_VARIABLE, API_KEY_VARIABLE}
    known |= {
        parameter.envvar
        for command in every_command()
        for parameter in command.params
        if isinstance(parameter.envvar, str)
    }
    named = set(re.findall(r"(?<!_)BATCHPAY_[A-Z_]*[A-Z]", path.read_text("utf-8")))
    assert named - known == set()


def test_settings_blocks_are_accepted() -> None:
    """The TOML that the pages show is read by the program as it stands."""
    import tomllib

    (example,) = blocks(DOCS / "settings.md", "toml")
    tables: dict[str, Any] = tomllib.loads(example)
    laid_over = tables.pop("profile")["test"]
    from batchpay.cli.commands import command_options

    for given in (tables, laid_over):
        check_tables(given, command_options(given))
        load_settings(given, {})
    (profile,) = blocks(DOCS / "gateway-profile.md", "toml")
    tables = tomllib.loads(profile)
    assert Profile.load(load_settings(tables, {}).gateway).accepted == {"APPROVED"}


def test_the_example_of_a_map_is_accepted(tmp_path: Path) -> None:
    """The map in docs/maps.md is read as is: it set the direction in two ways, and was refused."""
    (example,) = blocks(DOCS / "maps.md", "toml")
    path = tmp_path / "map.toml"
    path.write_text(example, "utf-8")
    assert load_mapping(str(path)).fixed["transactionType"] == "CREDIT"


def test_the_settings_page_is_up_to_date() -> None:
    """docs/settings.md holds the tables that settings.py gives: `python -m tests.support.docs_settings` writes them."""
    assert PAGE.read_text("utf-8") == written_page()
    others = {item.name for kind in get_type_hints(Settings).values() for item in fields(kind) if not item.metadata}
    assert others == {"given", "on_page"}, "a line is missing in settings.csv"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """A link to a file of the repository leads to one that is there."""
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_pages_say_what_the_code_does() -> None:
    """Facts that the pages repeat: warnings, horizon, control file, default table of answers."""
    finance, cron = (DOCS / "finance.md").read_text("utf-8"), (DOCS / "cron.md").read_text("utf-8")
    for code, (column, _) in CODES.items():
        assert f"`{column}.{code}`" in finance
    assert MONTHS == 12
    assert "for twelve months" in finance
    assert f"payments.csv{CONTROL_SUFFIX}" in cron
    page = prose(DOCS / "gateway-profile.md")
    profile = Profile.load(load_settings({}, {}).gateway)
    for word in profile.accepted | profile.declined:
        assert f"`{word}`" in page
    for status in profile.http:
        assert status in page


def test_no_page_is_wider_than_an_editor() -> None:
    """Text wraps at 120 characters; only tables and command lines may be longer."""
    for path in PAGES:
        for line in prose(path).splitlines():
            assert len(line) <= 120 or line.startswith("|"), f"{path.name}: {line[:40]}"


def test_the_page_of_rules_is_what_the_schemas_say() -> None:
    """docs/rules.md ends with the table that `batchpay rules --markdown` prints; a command that broke printed none."""
    printed = CliRunner().invoke(cli, ["rules", "--markdown"]).output
    assert printed.startswith("|")
    assert (DOCS / "rules.md").read_text("utf-8").endswith(printed)


def test_the_rooms_that_contributing_names_are_there() -> None:
    """A file or folder that CONTRIBUTING.md sends a reader to exists: a stranger must not search."""
    root = DOCS.parent
    text = (root / "CONTRIBUTING.md").read_text("utf-8")
    named = {
        name
        for name in INLINE.findall(text)
        if re.fullmatch(r"[a-z_]+(/[a-z_]*)*(\.(py|md|yaml))?", name) and "/" in name
    }
    missing = {name for name in named if not (root / "batchpay" / name).exists() and not (root / name).exists()}
    assert named and not missing


def test_the_manual_page_is_made_of_the_help() -> None:
    """Every command and option stands on the manual page, and no roff is broken by what help says."""
    page = manual()
    for name in COMMANDS:
        assert f".SS batchpay {name.replace('-', chr(92) + '-')} " in page
    assert r"\-\-dry\-run" in page
    assert not [line for line in page.splitlines() if line.startswith(("'", "..")) or not line]


def test_every_exit_code_is_explained() -> None:
    """README.md has the table of exit codes as errors.py has it, and docs/cron.md says what to do about each."""
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    assert "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()) in readme
    answers = re.findall(r"^\| ([0-9](?:, [0-9])*) \|", (DOCS / "cron.md").read_text("utf-8"), re.MULTILINE)
    assert {int(code) for codes in answers for code in codes.split(",")} == set(EXIT_CODES)


def test_examples_settle_without_a_terminal() -> None:
    """What settles rows or approves has all that it needs off a terminal; a monitor's address is on no command line."""
    for page, words in CALLS:
        assert "--ping-url" not in words, page
        if (words[0] == "cancel" and "--rows" in words) or (words[0] == "resolve" and "--decision" in words):
            assert {"--name", "--reason", "--yes"} <= set(words), page
