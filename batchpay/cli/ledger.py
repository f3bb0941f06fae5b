"""`batchpay ledger`: make, check or back up the ledger."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from batchpay.cli import output
from batchpay.cli.context import Context, Group, option
from batchpay.cli.process import actor
from batchpay.errors import WrongUse
from batchpay.text import printable


@click.group(cls=Group, short_help="Make, check or back up the ledger.")
def ledger() -> None:
    """Care for the ledger: the only memory of what was paid.

    Example: batchpay ledger check
    """


@ledger.command(short_help="Make a new, empty ledger with its key and witness.")
@click.pass_obj
def init(context: Context) -> int:
    """Make a new, empty ledger, its key if there is none yet, and its witness.

    Keep copies of the key apart from the ledger: without it pending payments can't be read and duplicates not found.

    Example: batchpay ledger init
    """
    from batchpay.ledger.open import create_ledger

    place = create_ledger(context.settings.ledger, str(actor()))
    if context.json:
        output.print_json(context, {"ledger": str(place.ledger), "key": str(place.key), "witness": str(place.witness)})
        return 0
    for label, path in (("ledger", place.ledger), ("key", place.key), ("witness", place.witness)):
        click.echo(f"{label:<8} {printable(str(path))}")
    return 0


@ledger.command(short_help="Look over the whole ledger.")
@option("--accept-witness", is_flag=True, help="Accept a ledger that is older than its witness, or has none.")
@option("--reason", metavar="TEXT", help="Why it is accepted; needed with --accept-witness.")
@click.pass_obj
def check(context: Context, accept_witness: bool, reason: str | None) -> int:
    """Look over the whole ledger: structure, history, totals, payloads, witness. Exit code 5 if anything is wrong.

    --accept-witness is for a ledger brought back from a backup, or moved without its witness. It may not know of
    payments made since: every row that it would send becomes a row in doubt, for a person to look at.

    Example: batchpay ledger check
    """
    from batchpay.ledger.open import accept_ledger, open_ledger

    marked_in_doubt = 0
    if accept_witness:
        if not reason:
            raise WrongUse("--accept-witness needs --reason TEXT: it stays in the ledger's history")
        marked_in_doubt = accept_ledger(context.settings.ledger, str(actor()), reason)
        output.say(context, f"accepted; rows that are in doubt now: {marked_in_doubt}")
    with closing(open_ledger(context.settings.ledger, read_only=True)) as opened:
        problems = opened.check()
    if context.json:
        output.print_json(
            context, {"problems": problems, "doubted": marked_in_doubt, "exit_code": 5 if problems else 0}
        )
    else:
        for problem in problems or ["the ledger is in order"]:
            click.echo(printable(problem))
    return 5 if problems else 0


@ledger.command(short_help="Write a consistent copy of the ledger.")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def backup(context: Context, target: Path) -> int:
    """Write a consistent copy of the ledger to TARGET, a new file of mode 0600, also while payments are being sent.

    The key and the witness are not in it; keep copies of the key apart. A copy is older than the witness as soon as
    anything was sent, so a ledger brought back from it sends nothing until a person has accepted it.

    Example: batchpay ledger backup /mnt/safe/ledger-2026-07-24.db
    """
    from batchpay.ledger.open import open_ledger

    with closing(open_ledger(context.settings.ledger, read_only=True)) as opened:
        opened.backup(target)
    if context.json:
        output.print_json(context, {"backup": str(target)})
    else:
        click.echo(f"backup   {printable(str(target))}")
    return 0
