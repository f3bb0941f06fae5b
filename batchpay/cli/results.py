"""`batchpay results`: write a batch's results file again, from the ledger."""

from __future__ import annotations

from contextlib import closing

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.paths import Outputs


@click.command(cls=Command, short_help="Write a batch's results file again, from the ledger.")
@click.argument("batch", required=False)
@option("--results", metavar="PATH", help="Where it goes (CSV, Parquet or XLSX by its ending); BATCH.results.csv.")
@click.pass_obj
def results(context: Context, batch: str | None, results: str | None) -> int:
    """Write the results file of a batch again: the latest one, or the one named. Nothing is sent.

    Example: batchpay results 3f2a91c0d7e1 --results today.xlsx
    """
    from batchpay.ledger.open import open_ledger
    from batchpay.reports.results import write_results
    from batchpay.summary import summary_of_batch

    with closing(open_ledger(context.settings.ledger, read_only=True)) as ledger:
        found = ledger.find(batch)
        path = Outputs([found.file]).claim(results or f"{found.batch}.results.csv")
        write_results(ledger, found, path)
    summary = summary_of_batch(found)
    summary.results = str(path)
    if context.json:
        output.print_json(context, summary.as_json())
    else:
        output.print_summary(context, summary, sent=True)
    return 0
