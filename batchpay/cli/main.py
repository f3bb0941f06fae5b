"""The command `batchpay`: finds commands lazily, turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import click

from batchpay import __version__
from batchpay.cli.context import COMMON, Context, Group
from batchpay.errors import BatchpayError

COMMANDS = {
    "validate": ("batchpay.cli.validate", "Check payment files; nothing is sent."),
    "submit": ("batchpay.cli.submit", "Check payment files, send what is right, write results and rejects."),
    "resume": ("batchpay.cli.resume", "Go on with a batch's pending rows; the file is no longer needed."),
    "status": ("batchpay.cli.status", "Show all batches, or one: states, counts, cents."),
    "results": ("batchpay.cli.results", "Write a batch's results file again, from the ledger."),
    "resolve": ("batchpay.cli.resolve", "List rows in doubt, or settle them."),
    "reconcile": ("batchpay.cli.reconcile", "Match a batch with a gateway's or a bank's export."),
    "report": ("batchpay.cli.report", "Write a page about a batch (HTML, self-contained)."),
    "template": ("batchpay.cli.template", "Write an empty payment file: XLSX with drop-downs, or CSV."),
    "rules": ("batchpay.cli.rules", "Print every rule of a payment row."),
    "test-connection": ("batchpay.cli.test_connection", "Ask the gateway whether it knows us."),
    "gateway": ("batchpay.cli.gateway", "List, get, create, update, delete gateway accounts."),
    "ledger": ("batchpay.cli.ledger", "Make, check or back up the ledger."),
    "sandbox": ("batchpay.cli.sandbox", "The whole gateway interface on loopback."),
    "demo": ("batchpay.cli.demo", "Sandbox, sample file, submission: no credentials needed."),
}
"""Module and short help of each command, so that help imports none of them. A test holds the texts together."""


class LazyGroup(Group):
    """A group that imports a command's module when the command is called for, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and give its command."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


def load_command(name: str) -> click.Command:
    """Import one command."""
    module = importlib.import_module(COMMANDS[name][0])
    command: click.Command = getattr(module, name.replace("-", "_"))
    return command


def command_options(tables: dict[str, Any]) -> dict[str, set[str]]:
    """Name the options that may be preset in the tables of commands which the settings file has."""
    options: dict[str, set[str]] = {name: set() for name in COMMANDS}
    for name in COMMANDS:
        if name in tables:
            parameters = load_command(name).params
            options[name] = {str(parameter.name) for parameter in parameters} - set(COMMON)
    options["submit"] |= options["validate"]
    return options


@click.group(cls=LazyGroup)
@click.version_option(__version__, "--version", message="batchpay %(version)s")
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
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    try:
        code = cli.main(prog_name="batchpay", standalone_mode=False)
    except click.exceptions.Abort:
        code = _fail("stopped at the prompt; nothing was done", 2)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BatchpayError as error:
        code = _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone; the ledger has all of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        code = _fail("stopped by a signal; safe to run again", 6)
    except Exception as error:  # its text may hold a row, so only its kind and place are told
        code = _fail(f"a fault of the program: {_place_of(error)}", 1)
    sys.exit(code or 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End as SIGINT does; while rows are being sent, run.py puts a gentler handler in place."""
    raise KeyboardInterrupt


def _fail(message: str, exit_code: int) -> int:
    click.echo(f"batchpay: {' '.join(message.split())}", err=True)
    return exit_code


def _place_of(error: BaseException) -> str:
    """Name an error's class and our own line where it came up, without its text."""
    where = ""
    place = error.__traceback__
    while place is not None:
        file = Path(place.tb_frame.f_code.co_filename)
        if "batchpay" in file.parts or "schemas" in file.parts:
            where = f" at {file.name}:{place.tb_lineno}"
        place = place.tb_next
    return f"{type(error).__name__}{where}"
