"""`batchpay template`: an empty payment file to fill in."""

from __future__ import annotations

from pathlib import Path

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.paths import outputs_of


@click.command(cls=Command)
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), default=Path("payments-template.xlsx"))
@option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def template(context: Context, path: Path, force: bool) -> None:
    """Write an empty payment file: XLSX with drop-downs, or CSV.

    The example row is not a payment as long as its _note cell says "example".

    Example: batchpay template payments.xlsx
    """
    from batchpay.workflows.template import make_template

    outputs_of(context).guard(path)
    make_template(path, replace=force)
    if context.json:
        output.print_json(context, {"template": str(path)})
    else:
        output.say(context, f"{path} written")
