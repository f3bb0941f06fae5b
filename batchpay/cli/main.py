"""The command `batchpay`: finds commands lazily, turns errors into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import click

from batchpay import __version__
from batchpay.cli.commands import COMMANDS, load_command
from batchpay.cli.context import Context, Group
from batchpay.errors import BatchpayError


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
    context = Context()
    try:
        code = cli.main(prog_name="batchpay", standalone_mode=False, obj=context)
    except click.exceptions.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # what click makes of a signal outside a prompt
            code = _fail(context, "stopped by a signal; safe to run again", 6)
        else:
            code = _fail(context, "stopped at the prompt; nothing was done", 2)
    except click.ClickException as error:
        error.show()
        _tell(context, error.format_message(), error.exit_code)
        code = error.exit_code
    except BatchpayError as error:
        code = _fail(context, str(error), error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone; the ledger has all of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:  # its text may hold a row, so only its kind and place are told
        code = _fail(context, f"internal error: {_place_of(error)}", 1)
    sys.exit(code or 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End as SIGINT does; while rows are being sent, cli/process.py puts a gentler handler in place."""
    raise KeyboardInterrupt


def _fail(context: Context, message: str, exit_code: int) -> int:
    click.echo(f"batchpay: {' '.join(message.split())}", err=True)
    _tell(context, message, exit_code)
    return exit_code


def _tell(context: Context, message: str, exit_code: int) -> None:
    """Say with --json too how the call ended, unless its object stands there already."""
    if context.json and not context.json_printed:
        from batchpay.cli.output import print_json  # not for help

        print_json(context, {"error": " ".join(message.split()), "exit_code": exit_code})


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
