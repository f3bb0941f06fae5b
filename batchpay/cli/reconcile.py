"""`batchpay reconcile`: match a batch with a gateway's or a bank's export; settle what it proves, if asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, Whole, option
from batchpay.cli.paths import outputs_of
from batchpay.cli.process import actor
from batchpay.cli.resolve import TerminalDecider, check_signature
from batchpay.payment import State, Totals
from batchpay.text import money, printable, row_count, sum_word
from batchpay.workflows.marks import RECONCILIATION

if TYPE_CHECKING:
    from pathlib import Path

    from batchpay.ledger.records import BatchSummary
    from batchpay.reconciliation.verdicts import FoundDoubt
    from batchpay.workflows.reconcile import Reconciled


@click.command(cls=Command, short_help="Match a batch with a gateway's or a bank's export.")
@click.argument("batch")
@option("--against", required=True, metavar="FILE", help="The export (.csv or .xlsx).")
@option("--map", "map_", metavar="FILE", help="A TOML file that names the export's columns and status words.")
@option("--days", type=Whole(0, 366), default=5, show_default=True, metavar="N",
        help="How many days after sending a line may be dated, if only amount and account match.")  # fmt: skip
@option("--out", metavar="PATH", help="List of every row and line (.csv or .xlsx); BATCH.reconciled.csv by default.")
@option("--settle", is_flag=True, help="Settle rows in doubt that are in the export, after showing each.")
@option("--reason", metavar="TEXT", help="With --settle: how you know; it is recorded. No account numbers.")
@option("--name", metavar="NAME", help="With --settle: name of the person deciding; it is recorded.")
@option("--yes", is_flag=True, help="With --settle: do not ask before settling.")
@click.pass_obj
def reconcile(context: Context, /, batch: str, **options: Any) -> int:
    """Compare the rows of a batch with a gateway's or a bank's export.

    Rows and lines are matched by the gateway's reference, by invoice number, or by amount, last four and date if only
    one of each fits. Reports what matched, what is missing from the export, what is unknown to the ledger, and where
    amounts or statuses differ. Rows in doubt are settled only with --settle; one that is missing from the export is
    never settled.

    Example: batchpay reconcile 3f2a91c0d7e1 --against settlements.csv
    """
    from batchpay.workflows.reconcile import ReconcileRequest
    from batchpay.workflows.reconcile import reconcile as workflow

    if options["settle"]:
        check_signature(options)

    def output_path(found: BatchSummary) -> Path:
        wanted = options["out"] or f"{found.batch}.reconciled.csv"
        return outputs_of(context, [options["against"], options["map_"], found.file]).claim(wanted, RECONCILIATION)

    request = ReconcileRequest(options["against"], options["map_"], options["days"], output=output_path)
    decider = _MatchDecider(context, options) if options["settle"] else None
    done = workflow(batch, request, context.settings, actor(), decider)
    _print(context, done)
    return done.result.exit_code


class _MatchDecider(TerminalDecider):
    """See workflows.resolve.Decider."""

    def show(self, doubt: FoundDoubt) -> None:
        """Show a row in doubt beside its line, on standard error."""
        row, line = doubt.row, doubt.line
        state = doubt.decision.state if doubt.decision else None
        color = {State.ACCEPTED: "green", State.DECLINED: "yellow"}.get(state) if state else "red"
        verdict = f"will be {state}" if state else "stays in doubt"
        text = (
            f"{doubt.place}   {row.direction} {money(row.amount_cents)}   {row.details.get('name') or 'no name'}"
            f"   invoice {row.details.get('invoiceNumber') or 'none'}   account ****{row.last_four}"
        )
        reference, day = line.reference or "none", line.date_text or "no date"
        there = f"line {line.line}, by {line.how}, reference {reference}, {day}"
        click.echo(printable(text), err=True)
        click.echo(printable(f"  there: {there}: {doubt.why}"), err=True)
        click.echo(f"  {click.style(verdict, fg=color) if self._context.color else verdict}", err=True)


def _print(context: Context, done: Reconciled) -> None:
    batch, export, result, settled, path = done.summary, done.export, done.result, done.settled, done.path
    if context.json:
        output.print_json(context, done.as_json())
        return
    click.echo(printable(f"{batch.file}   batch {batch.batch}   against {export.name}"))
    known = ", ".join(f"{kind} = {header}" for kind, header in export.columns.items())
    click.echo(printable(f"  read there: {known}"))
    for note in batch.notes:
        output.print_wrapped(note, first="  note: ")
    if done.caution:
        output.print_wrapped(done.caution, first="  warning: ")
    if export.skipped:
        click.echo(f"  lines without a payment, such as totals: {export.skipped:,}")
    amount = sum_word("amount", batch.by_direction)
    header = ["", "rows here", f"{amount} here", "lines there", f"{amount} there"]
    rows = [
        [f"  {verdict}", *_cells(result.here.get(verdict)), *_cells(result.there.get(verdict))]
        for verdict in result.statuses
    ]
    rows.append(["  total", *_cells(result.total_here), *_cells(result.total_there)])
    output.print_table(header, rows, right=frozenset(header[1:]))
    for hint in done.hints:
        output.print_wrapped(hint, first="  why: ")
    if result.pending_there.rows:
        warning = f"  {row_count(result.pending_there.rows)} not sent here, but in the export: a run would pay AGAIN"
        click.echo(click.style(warning, fg="red", bold=True) if context.color else warning)
    if settled:
        click.echo(f"  settled: {len(settled):,}")
    click.echo(printable(f"  every row and line: {path}"))
    if result.in_doubt.rows:
        click.echo(f"  still in doubt: {result.in_doubt.rows:,}; look them up: batchpay resolve {batch.batch}")


def _cells(totals: Totals | None) -> tuple[str, str]:
    if totals is None:
        return "", ""
    sign = "-" if totals.cents < 0 else ""
    return f"{totals.rows:,}", f"{sign}{money(abs(totals.cents))}"
