"""`batchpay reconcile`: match a batch with a gateway's or a bank's export; settle what it proves, if asked to."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.process import actor
from batchpay.cli.resolve import check_signature, confirm, signature
from batchpay.payment import State, Totals
from batchpay.text import money, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchpay.ledger.contract import Ledger
    from batchpay.ledger.records import BatchSummary
    from batchpay.reconciliation.matching import Matching
    from batchpay.reconciliation.statement import Export
    from batchpay.reconciliation.verdicts import FoundDoubt, Reconciliation


@click.command(cls=Command, short_help="Match a batch with a gateway's or a bank's export.")
@click.argument("batch")
@option("--against", required=True, metavar="FILE", help="The export (.csv or .xlsx).")
@option("--map", "map_", metavar="FILE", help="A TOML file that names the export's columns and status words.")
@option("--days", type=click.IntRange(0, 366), default=5, show_default=True, metavar="N",
        help="How long after sending a line may be dated, where only amount and account speak for it.")  # fmt: skip
@option("--out", metavar="PATH", help="Where every row and line goes (.csv or .xlsx); BATCH.reconciled.csv.")
@option("--settle", is_flag=True, help="Settle rows in doubt that the export has, after showing each.")
@option("--reason", metavar="TEXT", help="With --settle: how you know; it is recorded. No account numbers.")
@option("--name", metavar="NAME", help="With --settle: who decides; it is recorded.")
@option("--yes", is_flag=True, help="With --settle: do not ask before settling.")
@click.pass_obj
def reconcile(context: Context, /, batch: str, **options: Any) -> int:
    """Hold the rows of a batch against a gateway's or a bank's export.

    Rows and lines are matched by the gateway's reference, by invoice number, or by amount, last four and date where
    only one of each fits. Tells what matched, what is missing there, what is unknown here, and where amounts or
    statuses differ. Rows in doubt are settled only with --settle; one that the export lacks is never settled.

    Example: batchpay reconcile 3f2a91c0d7e1 --against settlements.csv
    """
    from batchpay.ledger.open import open_ledger
    from batchpay.reconciliation.matching import match
    from batchpay.reconciliation.statement import ExportMap, load_export_map, read_export
    from batchpay.reconciliation.verdicts import reconcile as reconcile_batch
    from batchpay.writing.table import table_format

    if options["settle"]:
        check_signature(options)
    if options["out"]:
        table_format(options["out"])
    mapping = load_export_map(options["map_"]) if options["map_"] else ExportMap()
    export = read_export(options["against"], mapping)
    with closing(open_ledger(context.settings.ledger, read_only=not options["settle"])) as ledger:
        found = ledger.find(batch)
        if options["settle"]:
            with ledger.lock(found.digest):
                settled, matching = _settle(context, ledger, found, export, options)
        else:
            settled, matching = [], match(ledger, found, export.lines, options["days"])
        found = ledger.find(found.batch)
        path = Path(options["out"] or f"{found.batch}.reconciled.csv")
        result = reconcile_batch(ledger, found, export, matching, path)
    _print(context, found, export, result, settled, path)
    return result.exit_code


def _settle(
    context: Context, ledger: Ledger, batch: BatchSummary, export: Export, options: dict[str, Any]
) -> tuple[list[FoundDoubt], Matching]:
    """Show every row in doubt that the export has, ask, and settle those whose line says what became of them."""
    from batchpay.reconciliation.matching import match
    from batchpay.reconciliation.resolution import rows_in_doubt, take_over
    from batchpay.reconciliation.verdicts import found_doubts

    take_over(ledger, ledger.find(batch.batch), str(actor()))
    matching = match(ledger, batch, export.lines, options["days"])
    found = list(found_doubts(ledger, batch.batch, matching))
    for doubt in found:
        _show(context, doubt)
    settled = [doubt for doubt in found if doubt.decision is not None]
    if settled:
        name, reason = signature(options, rows_in_doubt(ledger, batch.batch, context.settings.gateway.timeout))
        confirm(options, sending_again=0)
        decisions = [doubt.decision for doubt in settled if doubt.decision is not None]
        ledger.resolve(batch.batch, decisions, name, f"{reason}; found in {Path(export.name).name}")
    return settled, matching


def _show(context: Context, doubt: FoundDoubt) -> None:
    """Show on standard error a row in doubt beside its line."""
    row, line = doubt.row, doubt.line
    state = doubt.decision.state if doubt.decision else None
    color = {State.ACCEPTED: "green", State.DECLINED: "yellow"}.get(state) if state else "red"
    verdict = f"will be {state}" if state else "stays in doubt"
    text = (
        f"row {row.row}   {row.direction} {money(row.amount_cents)}   {row.details.get('name') or 'no name'}"
        f"   invoice {row.details.get('invoiceNumber') or 'none'}   account ****{row.last_four}"
    )
    there = f"line {line.line}, by {line.found_by}, reference {line.reference or 'none'}, {line.date_text or 'no date'}"
    click.echo(printable(text), err=True)
    click.echo(printable(f"  there: {there}: {doubt.why}"), err=True)
    click.echo(f"  {click.style(verdict, fg=color) if context.color else verdict}", err=True)


def _print(
    context: Context,
    batch: BatchSummary,
    export: Export,
    result: Reconciliation,
    settled: Sequence[FoundDoubt],
    path: Path,
) -> None:
    from batchpay.reconciliation.verdicts import MatchStatus
    from batchpay.summary import summary_of_batch

    if context.json:
        answer = {**summary_of_batch(batch).as_json(), "exit_code": result.exit_code}
        answer["reconciliation"] = {
            "against": export.name,
            "columns": export.columns,
            "skipped_lines": export.skipped,
            **result.as_json(),
            "settled": [doubt.row.row for doubt in settled],
            "written": str(path),
        }
        output.print_json(context, answer)
        return
    click.echo(printable(f"{batch.file}   batch {batch.batch}   against {export.name}"))
    known = ", ".join(f"{kind} = {header}" for kind, header in export.columns.items())
    click.echo(printable(f"  read there: {known}"))
    if export.skipped:
        click.echo(f"  lines that name no payment, such as totals: {export.skipped:,}")
    header = ["", "rows here", "amount here", "lines there", "amount there"]
    rows = [
        [f"  {verdict}", *_cells(result.here.get(verdict)), *_cells(result.there.get(verdict))]
        for verdict in MatchStatus
        if verdict in result.here or verdict in result.there
    ]
    rows.append(["  total", *_cells(result.total_here), *_cells(result.total_there)])
    output.print_table(header, rows, right=frozenset(header[1:]))
    if result.pending_there.rows:
        warning = (
            f"  {result.pending_there.rows:,} rows wait here and stand there: look before the next run pays them AGAIN"
        )
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
