"""What `submit --dry-run` shows: all that a submission would do, without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context
from batchpay.cli.options import ROWS_MOST, check_options, decisions_of
from batchpay.cli.paths import Outputs, beside
from batchpay.cli.process import actor
from batchpay.cli.validate import note_if_apart, print_known, print_preview
from batchpay.errors import LedgerNotUsable, WaitingForPerson
from batchpay.settings import Settings
from batchpay.text import printable, totals_json
from batchpay.workflows.requests import file_request
from batchpay.writing.marks import PLAN

if TYPE_CHECKING:
    from batchpay.gateway.preflight import Preflight
    from batchpay.workflows.check import Preview

_UNASKED = (
    "the gateway accounts were not checked: a submission rejects rows whose account the gateway does not know, and "
    "then is not what was approved; --preflight checks them"
)


def dry_run_one(
    context: Context,
    path: str,
    settings: Settings,
    options: dict[str, Any],
    outputs: Outputs,
    preflight: Preflight | None,
    *,
    is_first: bool,
) -> tuple[int, dict[str, Any]]:
    """Show what a submission of one file would do; gives the exit code and the object of --json.

    With a `preflight` the gateway is asked about itself and the file's accounts: rows that it takes no payments for are
    rejected, as a submission rejects them. `is_first` tells whether no other file of the call was before this one.
    """
    from batchpay.workflows import check as flow

    rejects = outputs.claim(options["rejects"], "rejects") if options["rejects"] else None
    plan = str(outputs.claim(options["plan"], PLAN)) if options["plan"] else None
    request = file_request(path, rejects, check_options(options), settings)
    decisions, most = decisions_of(options), min(options["show_requests"], ROWS_MOST)
    results = Path(options["results"] or beside(path, "results", options["out"]))
    preview = flow.dry_run(
        request,
        settings,
        actor(),
        decisions,
        requests_max=most,
        results=results,
        with_plan=plan is not None,
        preflight=preflight,
        insists=True,
    )
    if preview.accounts_unasked and options["preflight"] is None:  # --no-preflight: a submission is not to ask either
        preview.summary.notes.append(_UNASKED)
    if preview.approvals_missing and plan is None:
        people = "another person" if preview.approvals_missing == 1 else f"{preview.approvals_missing} other people"
        preview.summary.notes.append(
            f"a submission would wait for {people} to approve: --plan PLAN writes what they need"
        )
    note_if_apart(preview, is_first=is_first)
    if plan is not None and preview.plan is not None:
        preview.plan.write(plan)
    preview = preview.as_the_ledger_has_it()
    rows = preview.proposal.to_send.total.rows
    seconds = seconds_at(settings, rows)
    extra = {
        "dry_run": True,
        "would_send": rows,
        "release_would_add": totals_json(preview.releasable),
        "seconds_at_rate": seconds,
    }
    if not context.json:
        _print_preview(context, settings, preview, seconds, plan)
    code = output.exit_code_of(_codes(preview))
    answer = {**preview.as_json(), **extra, "waits_for": preview.waits_for, "requests": preview.requests}
    return code, {**answer, "exit_code": code}


def _codes(preview: Preview) -> list[int]:
    """Return the exit code of the check, and that of a submission which the ledger would refuse."""
    codes = [preview.summary.exit_code]
    if preview.waits_for is not None:
        codes.append(WaitingForPerson.exit_code)
    if preview.summary.outdated is not None:
        codes.append(LedgerNotUsable.exit_code)
    return codes


def _print_preview(
    context: Context, settings: Settings, preview: Preview, seconds: float | None, plan: str | None
) -> None:
    click.echo("DRY RUN: nothing is sent, nothing is recorded")
    print_preview(context, preview, sent=preview.known is not None)
    print_known(preview)
    if seconds is not None:
        click.echo(f"at {settings.submit.rate} requests per second, sending takes about {_duration(seconds)}")
    if preview.waits_for is not None:
        click.echo(f"a submission would wait for a person: {printable(preview.waits_for)}")
    if plan is not None:
        click.echo(f"plan: {printable(plan)}, seal {preview.summary.seal}")
    for body in preview.requests:
        click.echo(f"request: {printable(body)}")


def seconds_at(settings: Settings, rows: int) -> float | None:
    """Estimate how long sending takes at the set rate; None where the rate is found on the way."""
    return None if settings.submit.rate == "auto" else round(rows / float(settings.submit.rate), 1)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
