"""`batchpay results`: write a batch's results file again, from the ledger."""

from __future__ import annotations

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.paths import outputs_of


@click.command(cls=Command, short_help="Write a batch's results file again, from the ledger.")
@click.argument("batch", required=False)
@option(
    "--results",
    metavar="PATH",
    help="Path of the results file (CSV, Parquet or XLSX by extension); BATCH.results.csv by default.",
)
@click.pass_obj
def results(context: Context, batch: str | None, results: str | None) -> int:
    """Write the results file of a batch again: the latest one, or the one named. Nothing is sent.

    Example: batchpay results 3f2a91c0d7e1 --results today.xlsx
    """
    from batchpay.workflows.report import results_again

    summary = results_again(
        batch,
        lambda found: outputs_of(context, [found.file]).claim(results or f"{found.batch}.results.csv", "results"),
        context.settings,
    )
    if context.json:
        output.print_json(context, {**summary.as_json(), "exit_code": 0})
    else:
        output.print_summary(context, summary, sent=True, looks=True)
    return 0
