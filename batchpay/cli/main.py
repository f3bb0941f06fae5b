"""The command `batchpay`: finds commands lazily, turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import click

from batchpay.cli.commands import COMMANDS, REMOVED, load_command
from batchpay.cli.context import Context, Group
from batchpay.cli.process import (
    STOPPED,
    STOPPED_AT_PROMPT,
    ignore_signals,
    interrupt_on_signals,
    keep_output,
    open_standard_descriptors,
)
from batchpay.errors import BatchpayError, add_on_missing, place_of
from batchpay.text import printable
from batchpay.version import __version__
from batchpay.writing.process_memory import collect_rarely, keep_freed_memory, keep_memory_private

_OF_WEB = ("flask", "waitress", "werkzeug")
"""What the page and the sandbox need, and no other command."""


class LazyGroup(Group):
    """A group that imports a command's module when the command is called for, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of their use."""
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command as click does, which suggests none for a mistyped one that is not imported."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and give its command."""
        if cmd_name in REMOVED:
            raise click.UsageError(f"'{cmd_name}' was removed in 0.2.0: {REMOVED[cmd_name]}", ctx)
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print what a report of a problem needs: version, date of its commit, Python, polars, SQLite."""
    if wanted:
        import sqlite3
        from importlib.metadata import version

        dated = f" ({date})" if (date := _commit_date()) else ""
        click.echo(
            f"batchpay {__version__}{dated}, Python {platform.python_version()}, polars {version('polars')}, "
            f"SQLite {sqlite3.sqlite_version}"
        )
        context.exit()


def _commit_date() -> str:
    """Return the date that was written when the program was built; in a checkout git's, else nothing."""
    package = Path(__file__).resolve().parents[1]
    with suppress(FileNotFoundError):
        return (package / "commit_date.txt").read_text("utf-8").strip()
    if not (package.parent / ".git").exists():
        return ""
    from subprocess import run

    git = ["git", "-C", str(package.parent), "log", "-1", "--format=%cs"]
    with suppress(FileNotFoundError):
        return run(git, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - a developer's own
    return ""


@click.group(cls=LazyGroup)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version, its date, and what it runs on.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Send a file of bank payments through an ACH gateway: check every row, never pay twice, lose nothing.

    Try it without credentials: batchpay demo
    """
    context.ensure_object(Context)


def main() -> None:
    """Run the command line and exit with CONTRACT's codes.

    The only place where an error becomes a line on standard error and a process ends.
    """
    os.umask(0o077)
    keep_memory_private()
    collect_rarely()
    keep_freed_memory()
    open_standard_descriptors()
    standard_output = keep_output()
    sys.excepthook = _without_traceback
    context = Context()
    try:
        interrupt_on_signals()
        code = _call(context)
    except KeyboardInterrupt:  # between the command and its exit code
        code = _fail(context, STOPPED, 6)
    ignore_signals()
    sys.stdout.flush()
    if standard_output.problem not in (None, os.strerror(errno.EPIPE)):
        click.echo(f"batchpay: standard output can't be written: {standard_output.problem}", err=True)
    sys.exit(code)


def _call(context: Context) -> int:
    """Run a command to its exit code."""
    try:
        code = cli.main(prog_name="batchpay", standalone_mode=False, obj=context)
    except click.exceptions.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # what click makes of a signal outside a prompt
            return _fail(context, STOPPED, 6)
        return _fail(context, STOPPED_AT_PROMPT, 2)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        text = shown.getvalue().expandtabs(2)  # click sets choices in with a tab
        click.echo(printable(text, keep="\n"), err=True, nl=False)
        context.json |= _asks_for_json(sys.argv[1:])
        _tell(context, error.format_message(), error.exit_code)
        return error.exit_code
    except BatchpayError as error:
        return _fail(context, str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if error.name not in _OF_WEB:
            return _fail(context, f"internal error: {place_of(error)}", 1)
        return _fail(context, add_on_missing("web", error.name), 5)
    except Exception as error:  # its text may hold a row, so only its kind and place are told
        return _fail(context, f"internal error: {place_of(error)}", 1)
    return code or 0


def _asks_for_json(words: list[str]) -> bool:
    """Return whether the line has --json: where it can't be parsed, the option itself is not reached."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _without_traceback(kind: type[BaseException], error: BaseException, place: TracebackType | None) -> None:
    """What Python would say of an error that nothing caught, a signal's for one: never its text."""
    click.echo(f"batchpay: ended by {place_of(error)}", err=True)


def _fail(context: Context, message: str, exit_code: int) -> int:
    click.echo(f"batchpay: {printable(' '.join(message.split()))}", err=True)
    _tell(context, message, exit_code)
    return exit_code


def _tell(context: Context, message: str, exit_code: int) -> None:
    """Say with --json too how the call ended, unless its object stands there already."""
    if context.json and not context.json_printed:
        from batchpay.cli.output import print_json  # not for help

        print_json(context, {"error": " ".join(message.split()), "exit_code": exit_code})
