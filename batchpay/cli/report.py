"""`batchpay report`: a page about a batch, one file that needs nothing beside it."""

from __future__ import annotations

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.paths import outputs_of
from batchpay.text import printable
from batchpay.writing.marks import REPORT


@click.command(cls=Command, short_help="Write a report on a batch (HTML, self-contained).")
@click.argument("batch", required=False)
@option("--out", metavar="PATH", help="Path of the report; BATCH.report.html by default.")
@click.pass_obj
def report(context: Context, batch: str | None, out: str | None) -> int:
    """Write a report on a batch: the latest one, or the one named.

    It has control totals, outcome, rows over time, reasons, and the rows that need attention, those in doubt first,
    with what to do. It is one HTML file to view, forward or print; it loads nothing from the network and masks account
    numbers.

    Example: batchpay report 3f2a91c0d7e1 --out today.html
    """
    from batchpay.workflows.report import batch_page

    summary, path = batch_page(
        batch,
        lambda found: outputs_of(context, [found.file]).claim(out or f"{found.batch}.report.html", REPORT),
        context.settings,
    )
    output.tell(context, {**summary.as_json(), "report": str(path), "exit_code": 0}, printable(str(path)))
    return 0
