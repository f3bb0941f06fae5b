"""`batchpay health`: one look for monitoring."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.text import printable

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """Read a length of time: 90m, 26h, 8d."""
    match = re.fullmatch("([0-9]{1,5})([mhd])", text.strip(), re.ASCII)
    if not match:
        raise ValueError("write a length of time like 90m, 26h or 8d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command(cls=Command, short_help="For monitoring: rows in doubt, stopped batches, overdue runs, disk, backups.")
@option("--inbox", metavar="DIR", help="Check for files waiting in this folder.")
@option("--inbox-age", type=duration, default="1h", show_default=True, help="How long a file may wait there.")
@option("--expect-every", type=duration, help="How often a call must complete, on banking days, such as 26h.")
@option("--expect-file", type=duration, help="How often a file must be registered, such as 26h.")
@option("--banking-days", is_flag=True, help="With --expect-file: count banking days only.")
@option("--return-rates", is_flag=True, help="Fail, not warn, where too many debits came back.")
@option("--backup-every", type=duration, help="How often the ledger must be backed up, such as 8d.")
@click.pass_obj
def health(context: Context, /, **options: Any) -> int:
    """Report whether anything needs attention; nothing is sent and no account number is read.

    It checks that the ledger opens and is the right one, rows in doubt and their age, batches stopped with rows to
    send, files waiting in the inbox, the last completed call, the last file, debits that came back, free disk space,
    and the last backup. Exit code 0 if all is well, 7 if a row is in doubt, 6 if something waits or is overdue, 5 if
    the ledger, disk or inbox is not usable, as with a restored or copied ledger that nobody has accepted, 8 if new
    files wait for what an accepted one lost.

    Example: batchpay health --inbox /srv/payments/inbox --expect-every 26h --json
    """
    from batchpay.workflows.health import HealthLimits
    from batchpay.workflows.health import health as look

    inbox = Path(options["inbox"]) if options["inbox"] else None
    found = look(context.settings, HealthLimits(**options | {"inbox": inbox}), datetime.now(UTC))
    code = output.exit_code_of([one.exit_code for one in found.findings])
    if context.json:
        output.print_json(context, {**found.as_json(), "exit_code": code})
        return code
    for one in found.findings:
        if one.exit_code or not context.quiet:
            click.echo(printable(f"{one.word:<5}{one.check:<10} {one.message}"))
    return code
