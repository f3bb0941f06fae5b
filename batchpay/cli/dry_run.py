"""What `submit --dry-run` shows: all that a submission would do, without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context
from batchpay.cli.validate import file_request, print_counts, print_failures, validation_json
from batchpay.config import Settings
from batchpay.errors import FileRefused
from batchpay.payment import State

if TYPE_CHECKING:
    from batchpay.batch import DryRun


def dry_run_one(context: Context, path: str, settings: Settings, options: dict[str, Any]) -> int:
    """Show what a submission of one file would do; gives the exit code."""
    from batchpay import batch

    rejects = Path(options["rejects"]) if options["rejects"] else None
    try:
        found = batch.dry_run(file_request(path, rejects, options, settings), settings, options["show_requests"])
    except FileRefused as error:
        click.echo(f"batchpay: {output.printable(str(error))}", err=True)
        return error.exit_code
    seconds = seconds_at(settings, _rows_to_send(found))
    if context.json:
        extra = {"dry_run": True, "would_send": _rows_to_send(found), "seconds_at_rate": seconds}
        output.print_json({**validation_json(found.summary, found.verdict), **extra, "requests": found.requests})
        return found.summary.exit_code
    click.echo("DRY RUN: nothing is sent, nothing is recorded")
    output.print_summary(context, found.summary, sent=False)
    print_counts(found.verdict)
    print_failures(found.verdict)
    if found.known is not None:
        done = found.known.by_state
        click.echo(
            f"  this content is batch {found.known.batch} already: {done[State.ACCEPTED].rows:,} accepted, "
            f"{done[State.DECLINED].rows:,} declined, {done[State.IN_DOUBT].rows:,} in doubt; "
            f"{_rows_to_send(found):,} rows would be sent"
        )
    if seconds is not None:
        click.echo(f"  at {settings.submit.rate} a second this takes about {_duration(seconds)}")
    for body in found.requests:
        click.echo(f"  request: {output.printable(body)}")
    return found.summary.exit_code


def seconds_at(settings: Settings, rows: int) -> float | None:
    """Estimate how long sending takes at the set rate; None where the rate is found on the way."""
    return None if settings.submit.rate == "auto" else round(rows / float(settings.submit.rate), 1)


def _rows_to_send(found: DryRun) -> int:
    return found.known.by_state[State.PENDING].rows if found.known else found.summary.valid.rows


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
