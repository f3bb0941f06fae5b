"""`batchpay report`: a page about a batch, one file that needs nothing beside it."""

from __future__ import annotations

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.paths import outputs_of
from batchpay.text import printable
from batchpay.writing.marks import REPORT


@click.command(cls=Command, short_help="Write a page about a batch (HTML, self-contained).")
@click.argument("batch", required=False)
@option("--out", metavar="PATH", help="Where the page goes; BATCH.report.html by default.")
@click.pass_obj
def report(context: Context, batch: str | None, out: str | None) -> int:
    """Write a page about a batch: the latest one, or the one named.

    Control totals, outcome, rows over time, reasons, and the rows that need someone, those in doubt first, with what to
    do. One HTML file to look at, to send on or to print; it asks no network for anything and masks account numbers.

    Example: batchpay report 3f2a91c0d7e1 --out today.html
    """
    from batchpay.workflows.report import batch_page

    summary, path = batch_page(
        batch,
        lambda found: outputs_of(context, [found.file]).claim(out or f"{found.batch}.report.html", REPORT),
        context.settings,
    )
    if context.json:
        output.print_json(context, {**summary.as_json(), "report": str(path), "exit_code": 0})
    else:
        click.echo(printable(str(path)))
    return 0
