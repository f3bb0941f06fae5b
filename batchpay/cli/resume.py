"""`batchpay resume`: go on with pending rows of a batch, or of all that have due ones; no file is needed any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, option
from batchpay.cli.each_file import work_through
from batchpay.cli.operations import CallLog, UnattendedCommand, operation_options, unattended_run
from batchpay.cli.options import log_targets, send_options, sending_options
from batchpay.cli.paths import Outputs, make_folder, outputs_of
from batchpay.cli.process import actor
from batchpay.errors import LedgerNotUsable
from batchpay.workflows.requests import run_request, sending_settings
from batchpay.writing.table import table_format

if TYPE_CHECKING:
    from batchpay.gateway.credentials import Credentials
    from batchpay.ledger.records import BatchSummary
    from batchpay.settings import Settings
    from batchpay.workflows.run import RunRequest


@click.command(cls=UnattendedCommand, short_help="Continue a batch's pending rows; the file is no longer needed.")
@click.argument("batch", required=False)
@option("--due", is_flag=True, help="Send the due rows of every batch with rows whose day (payOn) has come.")
@option("--results", metavar="PATH", help="Path of the results file; BATCH.results.csv by default.")
@option("--out", metavar="DIR", help="Folder for the results file.")
@option("--stale", is_flag=True, help="Continue a batch that has had no activity for days (needs --reason).")
@option("--reason", metavar="TEXT", help="Why, for --stale; it is recorded.")
@sending_options
@operation_options
@click.pass_obj
def resume(context: Context, /, batch: str | None, **options: Any) -> int:
    """Continue the pending rows of a batch: the latest one, or the one named; or with --due, of every batch.

    The ledger holds every request as it was validated, so the payment file is no longer needed and may have changed.
    Rows whose day (payOn) has not come stay scheduled: run resume --due, or submit --inbox, each day.

    Example: batchpay resume 3f2a91c0d7e1
    """
    reason = " ".join((options["reason"] or "").split()) or None
    outputs = outputs_of(context)
    refusal = outputs.refusal([(options["results"], "results")])
    with unattended_run(context, options, outputs) as (account, codes):
        if refusal is not None:
            raise refusal
        if options["stale"] != bool(reason):
            raise click.UsageError("--stale and --reason TEXT go together")
        if options["due"] and (batch or options["stale"] or options["results"]):
            raise click.UsageError("--due is for all batches: it goes with neither BATCH nor --stale nor --results")
        settings = sending_settings(context.settings, send_options(options))
        request, credentials = run_request(settings, send_options(options))
        log_targets(context, settings)

        output_path = partial(results_of_batch, options, outputs)

        def go_on(name: str | None) -> tuple[int, dict[str, Any]]:
            return resume_one(context, name, output_path, settings, credentials, options, request, account, reason)

        if options["due"]:
            from batchpay.workflows.run import due_batches
            from batchpay.workflows.status import all_in_doubt

            due = {f"batch {name}": name for name in due_batches(settings)}
            if not due:
                output.say(context, "nothing is due")
            look = partial(all_in_doubt, settings)
            work_through(
                context,
                list(due),
                lambda name: go_on(due[name]),
                codes,
                in_doubt=look,
                stop=request.stop,
                account=account,
            )
        else:
            code, one = go_on(batch)
            codes.append(code)
            if context.json:
                account.tell(one)
    if len(account.summaries) > 1 and not context.json:
        output.print_summary(context, output.grand_total(account.summaries), sent=True)
    return output.exit_code_of(codes)


def results_of_batch(options: dict[str, Any], outputs: Outputs, found: BatchSummary) -> Path:
    """Claim the place of a batch's results."""
    folder = make_folder(options["out"] or ".")
    results = outputs.claim(options["results"] or folder / f"{found.batch}.results.csv", "results")
    table_format(results)
    return results


def batches_of_inbox(settings: Settings) -> dict[str, str]:
    """Name what a call over an inbox sends before its files, which may need none: due rows, and what a machine left."""
    from batchpay.workflows.run import due_batches, left_behind

    try:
        due = due_batches(settings)
    except LedgerNotUsable:  # each file's own submission says it
        due = []
    return {f"batch {name}": name for name in (*due, *left_behind(settings))}


def resume_one(
    context: Context,
    batch: str | None,
    output_path: Callable[[BatchSummary], Path],
    settings: Settings,
    credentials: Credentials,
    options: dict[str, Any],
    request: RunRequest,
    account: CallLog,
    stale_reason: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Go on with one batch, and print it; return its exit code, and what --json tells of it."""
    from batchpay.cli.progress import progress_for
    from batchpay.workflows import run as workflow

    is_named = not (options.get("due") or options.get("inbox"))
    with progress_for(context, settings, ask=not options["yes"]) as progress:
        summary = workflow.resume(
            batch,
            output_path,
            request,
            settings,
            credentials,
            actor(),
            progress,
            stale_reason=stale_reason,
            is_named=is_named,
        )
    account.add(summary)
    if not context.json:
        output.print_summary(context, summary, sent=True)
    return summary.exit_code, summary.as_json()
