"""`batchpay status`: all batches at a glance, or one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context
from batchpay.payment import State
from batchpay.text import instant, money, sum_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchpay.ledger.hosts import HostRun


@click.command(cls=Command, short_help="Show all batches, or one: states, counts, cents.")
@click.argument("batch", required=False)
@click.pass_obj
def status(context: Context, batch: str | None) -> int:
    """Show all batches, those that need attention first; or one batch with its states, counts and cents.

    Example: batchpay status
    """
    from batchpay.workflows.status import all_batches, batch_status, runs_of_batch

    if batch is not None:
        summary = batch_status(batch, context.settings)
        runs = runs_of_batch(str(summary.batch), context.settings)
        if context.json:
            told = {"runs": [run.as_json() for run in runs]} if runs else {}
            output.print_json(context, summary.as_json() | told)
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
    right = frozenset(header[2:-1])
    if len({summary.environment for summary in summaries}) > 1:
        header.append("environment")
        for row, summary in zip(rows, summaries, strict=True):
            row.append(str(summary.environment))
    output.print_table(header, rows, right=right)
    if summaries and summaries[0].outdated:
        output.print_wrapped(summaries[0].outdated, first="note: ")
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
