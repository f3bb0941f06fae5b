"""`batchpay work`: help with what another machine sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, option
from batchpay.cli.operations import UnattendedCommand, operation_options, unattended_run
from batchpay.cli.paths import outputs_of
from batchpay.cli.process import CommandLine, actor
from batchpay.cli.sending import log_targets, pace_options, send_options
from batchpay.text import row_count
from batchpay.workflows.requests import run_request, sending_settings

if TYPE_CHECKING:
    from batchpay.summary import Summary


@click.command(cls=UnattendedCommand, short_help="Help with a batch that another machine leads.")
@click.argument("batch", required=False)
@option("--forever", is_flag=True, help="Keep waiting for batches to help with, until a signal arrives.")
@pace_options
@operation_options
@click.pass_obj
def work(context: Context, /, batch: str | None, *, forever: bool, **options: Any) -> int:
    """Send what another machine shares of a batch that it leads: the one named, or all that are under way.

    Both machines use the same ledger in a database. What the leading machine has not shared is left to it. If it dies,
    the machines that help finish the batch.

    Example: batchpay work 3f2a91c0d7e1
    """
    from batchpay.cli.progress import progress_for
    from batchpay.workflows import work as workflow

    if batch and forever:
        raise click.UsageError("--forever helps with every batch; name none")
    with unattended_run(context, options, outputs_of(context)) as (account, codes):
        settings = sending_settings(context.settings, send_options(options))
        request, credentials = run_request(settings, send_options(options), CommandLine())
        log_targets(context, settings)
        with progress_for(context, settings, ask=False) as progress:
            if forever:
                for summary in workflow.work_forever(request, settings, credentials, actor(), progress):
                    account.add(summary)
                    _tell(context, summary)
                codes.append(0)
            else:
                for summary in workflow.work(batch, request, settings, credentials, actor(), progress):
                    account.add(summary)
                    codes.append(_exit_code(summary))
    exit_code = output.exit_code_of(codes)
    if context.json:
        documents = [{**summary.as_json(), "exit_code": _exit_code(summary)} for summary in account.summaries]
        output.print_json(context, {"batches": documents, "exit_code": exit_code})
    elif not forever:
        for summary in account.summaries:
            _tell(context, summary)
        if not account.summaries:
            output.say(context, "no batch is under way")
    return exit_code


def _tell(context: Context, summary: Summary) -> None:
    if not context.json:
        output.print_summary(context, summary, sent=True)
    if not summary.stopped and (left := summary.waiting):
        output.say(context, f"not shared with this machine: {row_count(left)}: batchpay resume {summary.batch}")


def _exit_code(summary: Summary) -> int:
    """Give 0 when nothing is left for anybody: what was rejected or declined is told where the batch is led.

    Rows held back are left: where the machine that led has died, only this call tells of them.
    """
    return 0 if summary.exit_code == 3 and not summary.held_back.rows else summary.exit_code
