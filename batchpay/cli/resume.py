"""`batchpay resume`: go on with a batch's pending rows; the file is no longer needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, option
from batchpay.cli.operations import UnattendedCommand, operation_options, unattended_run
from batchpay.cli.options import log_targets, send_options, sending_options
from batchpay.cli.paths import make_folder, outputs_of
from batchpay.cli.process import actor
from batchpay.workflows.requests import run_request, sending_settings
from batchpay.writing.table import table_format

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary


@click.command(cls=UnattendedCommand, short_help="Continue a batch's pending rows; the file is no longer needed.")
@click.argument("batch", required=False)
@option("--results", metavar="PATH", help="Path of the results file; BATCH.results.csv by default.")
@option("--out", metavar="DIR", help="Folder for the results file.")
@option("--stale", is_flag=True, help="Continue a batch that has had no activity for days (needs --reason).")
@option("--reason", metavar="TEXT", help="Why, for --stale; it is recorded.")
@sending_options
@operation_options
@click.pass_obj
def resume(context: Context, /, batch: str | None, **options: Any) -> int:
    """Continue the pending rows of a batch: the latest one, or the one named.

    The ledger holds every request as it was validated, so the payment file is no longer needed and may have changed.

    Example: batchpay resume 3f2a91c0d7e1
    """
    from batchpay.cli.progress import progress_for
    from batchpay.workflows import run as workflow

    reason = " ".join((options["reason"] or "").split()) or None
    outputs = outputs_of(context)
    refusal = outputs.refusal([(options["results"], "results")])
    with unattended_run(context, options, outputs) as (account, codes):
        if refusal is not None:
            raise refusal
        if options["stale"] != bool(reason):
            raise click.UsageError("--stale and --reason TEXT go together")
        settings = sending_settings(context.settings, send_options(options))
        request, credentials = run_request(settings, send_options(options))
        log_targets(context, settings)

        def output_path(found: BatchSummary) -> Path:
            folder = make_folder(options["out"] or ".")
            results = outputs.claim(options["results"] or folder / f"{found.batch}.results.csv", "results")
            table_format(results)
            return results

        with progress_for(context, settings, ask=not options["yes"]) as progress:
            summary = workflow.resume(
                batch, output_path, request, settings, credentials, actor(), progress, stale_reason=reason
            )
        account.add(summary)
        codes.append(summary.exit_code)
    exit_code = output.exit_code_of(codes)
    if context.json:
        output.print_json(context, {**summary.as_json(), "exit_code": exit_code})
    else:
        output.print_summary(context, summary, sent=True)
    return exit_code
