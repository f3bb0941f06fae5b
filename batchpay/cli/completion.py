"""`batchpay completion`: what makes a shell complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from batchpay.cli import output
from batchpay.cli.context import Command, Context

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_obj
def completion(context: Context, shell: str) -> None:
    """Print what makes a shell complete commands, options and files.

    Example: batchpay completion bash >>~/.bashrc
    """
    script = _SHELLS[shell](click.get_current_context().find_root().command, {}, "batchpay", "_BATCHPAY_COMPLETE")
    output.tell(context, {"script": script.source()}, script.source())
