"""What became of the batches: `batchpay status`, `results` and `report`."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.options import date_of
from batchpay.cli.paths import outputs_of
from batchpay.payment import State
from batchpay.text import instant, money, printable, sum_word
from batchpay.workflows.marks import REPORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchpay.ledger.records import HostRun
    from batchpay.summary import Summary


@click.command(cls=Command, short_help="Show all batches, or one: states, counts, cents.")
@click.argument("batch", required=False)
@click.pass_obj
def status(context: Context, batch: str | None) -> int:
    """Show all batches, those that need attention first; or one batch with its states, counts and cents.

    Example: batchpay status
    """
    from batchpay.workflows.policy import policy_of
    from batchpay.workflows.status import all_batches, batch_status, rates_told, runs_of_batch, status_json

    if batch is not None:
        summary = batch_status(batch, context.settings)
        runs = runs_of_batch(str(summary.batch), context.settings)
        if context.json:
            output.print_json(context, status_json(summary, runs))
        else:
            output.print_summary(context, summary, sent=True, looks=True)
            if runs:
                _print_runs(runs)
        return summary.exit_code
    summaries = all_batches(context.settings)
    if context.json:
        output.print_json(context, {"batches": [summary.as_json() for summary in summaries]})
        return 0
    if not summaries:
        click.echo("no batch yet")
        return 0
    summaries.sort(key=lambda summary: -summary.of(State.IN_DOUBT).rows)
    states = (State.IN_DOUBT, State.PENDING, State.SENDING, State.DECLINED, State.REJECTED, State.ACCEPTED)
    both = any(sum_word("", summary.by_direction) for summary in summaries)
    total = "control total" if both else "total"
    header = ["batch", "last run (UTC)", *[state.words for state in states], total, "file"]
    rows = [
        [
            str(summary.batch),
            (instant(summary.finished_at or summary.started_at) or "never")[:16].replace("T", " "),
            *[f"{summary.of(state).rows:,}" for state in states],
            money(summary.total.cents),
            summary.file,
        ]
        for summary in summaries
    ]
    right = frozenset([*header[2:-1], "came back"])
    if any(summary.returned.rows for summary in summaries):
        header.append("came back")
        for row, summary in zip(rows, summaries, strict=True):
            row.append(f"{summary.returned.rows:,}")
    if len({summary.environment for summary in summaries}) > 1:
        header.append("environment")
        for row, summary in zip(rows, summaries, strict=True):
            row.append(str(summary.environment))
    output.print_table(header, rows, right=right)
    for told in rates_told(context.settings) if "came back" in header else ():
        output.print_wrapped(told)
    policy = policy_of(context.settings)
    lowering = policy["notes"] if policy["recorded"] else ()  # that there is none is told by whatever sends
    for note in (*lowering, *filter(None, [summaries[0].outdated])):
        output.print_wrapped(note, first="note: ")
    return 0


def _print_runs(runs: Sequence[HostRun]) -> None:
    """Print which machines worked on a batch, and how they stand."""
    click.echo()
    rows = [
        [
            run.host,
            f"{run.rows:,}",
            f"{run.in_doubt:,}",
            (instant(run.seen_at) or "")[:19].replace("T", " "),
            run.standing,
        ]
        for run in runs
    ]
    header = ["machine", "rows", "in doubt", "last heard of (UTC)", "now"]
    output.print_table(header, rows, right=frozenset(header[1:3]))


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
    summary = write_again(context, batch, results)
    if context.json:
        output.print_json(context, {**summary.as_json(), "exit_code": 0})
    else:
        output.print_summary(context, summary, sent=True, looks=True)
    return 0


def write_again(context: Context, batch: str | None, results: str | None) -> Summary:
    """Write the results file of a batch again."""
    from batchpay.workflows.status import results_again

    return results_again(
        batch,
        lambda found: outputs_of(context, [found.file]).claim(results or f"{found.batch}.results.csv", "results"),
        context.settings,
    )


@click.command(cls=Command, short_help="Write a report on a batch (HTML, self-contained).")
@click.argument("batch", required=False)
@option("--out", metavar="PATH", help="Path of the report; BATCH.report.html or monitoring.html by default.")
@option("--monitoring", is_flag=True, help="Instead: what was flagged, decided and returned in all batches.")
@option("--since", type=date_of, metavar="DATE", help="With --monitoring: from this day on (YYYY-MM-DD).")
@click.pass_obj
def report(context: Context, /, batch: str | None, out: str | None, monitoring: bool, since: date | None) -> int:
    """Write a report on a batch: the latest one, or the one named; or the record of monitoring.

    It has control totals, outcome, rows over time, reasons, and the rows that need attention, those in doubt first,
    with what to do. It is one HTML file to view, forward or print; it loads nothing from the network and masks account
    numbers.

    --monitoring --since DATE writes what was flagged in the batches of the environment, who decided about it, how fast
    and with which note, what banks returned, and how the policy changed: the record that a business which originates
    payments has to keep of its monitoring.

    Example: batchpay report 3f2a91c0d7e1 --out today.html
    """
    from batchpay.workflows.status import batch_page, monitoring_record

    if monitoring != (since is not None) or (monitoring and batch):
        raise click.UsageError("--monitoring needs --since DATE, and names no batch")
    if since is not None:
        found = monitoring_record(
            since, lambda: outputs_of(context, []).claim(out or "monitoring.html", REPORT), context.settings
        )
        output.tell(context, {**found, "exit_code": 0}, printable(found["report"]))
        return 0
    summary, path = batch_page(
        batch,
        lambda found: outputs_of(context, [found.file]).claim(out or f"{found.batch}.report.html", REPORT),
        context.settings,
    )
    output.tell(context, {**summary.as_json(), "report": str(path), "exit_code": 0}, printable(str(path)))
    return 0
