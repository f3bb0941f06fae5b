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


class Duration(click.ParamType[timedelta]):
    """A length of time: 90m, 26h, 8d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read the number and its unit."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch("([0-9]{1,5})([mhd])", str(value).strip(), re.ASCII)
        if not match:
            self.fail("write a length of time like 90m, 26h or 8d", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command(cls=Command, short_help="For monitoring: rows in doubt, stopped batches, overdue runs, disk, backups.")
@option("--inbox", metavar="DIR", help="Check for files waiting in this folder.")
@option("--inbox-age", type=Duration(), default="1h", show_default=True, help="How long a file may wait there.")
@option("--expect-every", type=Duration(), help="How often a call must complete, on banking days, such as 26h.")
@option("--expect-file", type=Duration(), help="How often a file must be registered, such as 26h.")
@option("--banking-days", is_flag=True, help="With --expect-file: count banking days only.")
@option("--return-rates", is_flag=True, help="Fail, not warn, where too many debits came back.")
@option("--backup-every", type=Duration(), help="How often the ledger must be backed up, such as 8d.")
@click.pass_obj
def health(
    context: Context,
    inbox: str | None,
    inbox_age: timedelta,
    expect_every: timedelta | None,
    expect_file: timedelta | None,
    banking_days: bool,
    return_rates: bool,
    backup_every: timedelta | None,
) -> int:
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

    limits = HealthLimits(
        expect_every, expect_file, banking_days, backup_every, Path(inbox) if inbox else None, inbox_age, return_rates
    )
    found = look(context.settings, limits, datetime.now(UTC))
    code = output.exit_code_of([one.exit_code for one in found.findings])
    if context.json:
        output.print_json(context, {**found.as_json(), "exit_code": code})
        return code
    for one in found.findings:
        if one.exit_code or not context.quiet:
            click.echo(printable(f"{one.word:<5}{one.check:<10} {one.message}"))
    return code
