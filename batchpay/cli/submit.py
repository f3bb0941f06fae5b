"""`batchpay submit`: check payment files, send what is right, write results and rejects."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo
from pathlib import Path
from typing import Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.operations import (
    Account,
    archive_finished,
    files_of_inbox,
    inbox_options,
    operation_options,
    surrounded,
)
from batchpay.cli.options import checking_options
from batchpay.cli.paths import beside, expand
from batchpay.config import Credentials, Settings, load_credentials
from batchpay.errors import BatchHeld, FileRefused, SettingsNotUsable
from batchpay.throttle import parse_rate


class Until(click.ParamType[float]):
    """A time of day at which no further row is begun: HH:MM, with a time zone's name or offset behind it if need be."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Give the Unix time that is meant: the next HH:MM within twelve hours, otherwise the one that has passed."""
        if isinstance(value, float):
            return value
        time_text, _, zone_text = str(value).strip().partition(" ")
        try:
            time = datetime.time.fromisoformat(time_text)
            zone = zoneinfo.ZoneInfo(zone_text) if zone_text else time.tzinfo
        except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
            self.fail("a time is written 17:30, '17:30 America/New_York' or 17:30-05:00", param, ctx)
        now = datetime.datetime.now(zone).astimezone(zone)
        moment = now.replace(hour=time.hour, minute=time.minute, second=time.second, microsecond=0)
        candidates = [moment + datetime.timedelta(days=days) for days in (-1, 0, 1)]
        return min(candidates, key=lambda candidate: abs(candidate - now)).timestamp()


class Rate(click.ParamType[str]):
    """Requests a second, or `auto`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the rate, and keep it as text."""
        try:
            parse_rate(str(value))
        except SettingsNotUsable as error:
            self.fail(str(error), param, ctx)
        return str(value)


def sending_options(function: Any) -> Any:
    """Give a command the options that say how a run sends."""
    for declare in reversed(
        (
            option("--rate", type=Rate(), metavar="N", help="Ceiling of requests a second, or auto."),
            option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Requests in flight at once."),
            option("--max-in-doubt", type=click.IntRange(1), metavar="N", help="Stop after so many rows in doubt."),
            option("--until", type=Until(), metavar="HH:MM", help="Begin no row after this time (zone may follow)."),
            option("--limit", type=click.IntRange(1), metavar="N", help="Begin at most N rows."),
            option("--preflight/--no-preflight", default=None, help="Ask the gateway about itself before sending."),
            option("--yes", is_flag=True, help="Do not ask before sending."),
        )
    ):
        function = declare(function)
    return function


@click.command(cls=Command, short_help="Check payment files, send what is right, write results and rejects.")
@click.argument("files", nargs=-1, metavar="[FILE...]")
@inbox_options
@checking_options
@option("--results", metavar="PATH", help="Where the results file goes (CSV, Parquet or XLSX by its ending).")
@option("--out", metavar="DIR", help="Folder for results and rejects; beside the input by default.")
@option("--dry-run", is_flag=True, help="Do everything but register and send.")
@option("--show-requests", type=click.IntRange(0), default=0, help="With --dry-run: show N bodies, masked.")
@option("--plan", metavar="FILE", help="With --dry-run: write down what would be sent, to be approved.")
@option("--from-plan", metavar="FILE", help="Refuse anything but what this plan approved.")
@option("--again", is_flag=True, help="Pay the same content once more (needs --reason).")
@option("--reason", metavar="TEXT", help="Why, for --again and --allow-duplicates; it is recorded.")
@sending_options
@operation_options
@click.pass_obj
def submit(context: Context, /, files: tuple[str, ...], **options: Any) -> int:
    """Check payment files, send every right row once, write results and rejects.

    The same content is the same batch, under any name: running the command again continues what is pending and repeats
    nothing. A row whose answer was lost is in doubt and is never sent again by itself.

    Example: batchpay submit payments.csv --out results --rate 20
    """
    _check_usage(files, options)
    paths = expand(files) + (files_of_inbox(options["inbox"]) if options["inbox"] else [])
    if len(paths) > 1 and (options["results"] or options["rejects"] or options["plan"] or options["from_plan"]):
        raise click.UsageError("--results, --rejects, --plan and --from-plan name one file; for several use --out DIR")
    if options["out"]:
        Path(options["out"]).mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = sending_settings(context.settings, options)
    with surrounded(context, options) as (account, codes):
        if options["dry_run"]:
            from batchpay.cli.dry_run import dry_run_one

            codes.extend(dry_run_one(context, path, settings, options) for path in paths)
        elif paths:
            check_gateway(settings)
            credentials = load_credentials(settings.gateway)
            for path in paths:
                codes.append(_submit_one(context, path, settings, credentials, options, account))
    if len(account.summaries) > 1 and not context.json:
        output.print_grand_total(context, account.summaries)
    return output.exit_code_of(codes)


def _check_usage(files: tuple[str, ...], options: dict[str, Any]) -> None:
    """Refuse options that don't go together."""
    if not files and not options["inbox"]:
        raise click.UsageError("name a payment file, or a folder with --inbox DIR")
    if (options["again"] or options["allow_duplicates"]) and not (options["reason"] or "").strip():
        raise click.UsageError("--again and --allow-duplicates need --reason TEXT")
    if options["plan"] and not options["dry_run"]:
        raise click.UsageError("--plan goes with --dry-run; a submission takes the plan by --from-plan")


def sending_settings(settings: Settings, options: dict[str, Any]) -> Settings:
    """Lay the options of this call over the settings."""
    names = ("rate", "workers", "max_in_doubt")
    chosen = {name: options[name] for name in names if options[name] is not None}
    return dataclasses.replace(settings, submit=dataclasses.replace(settings.submit, **chosen))


def check_gateway(settings: Settings) -> None:
    """Refuse an origin that money must not be sent to, before anything else is done."""
    from batchpay.gateway.origin import check_origin

    check_origin(settings.gateway.base_url)


def run_request(results: Path | None, settings: Settings, credentials: Credentials, options: dict[str, Any]) -> Any:
    """Say how far a run may go, and what it asks the gateway first."""
    from batchpay.gateway.preflight import Preflight
    from batchpay.run import RunRequest
    from batchpay.submission import Limits

    limits = Limits(rows_max=options["limit"], until=options["until"])
    asks = options["preflight"] is not False
    return RunRequest(results, limits, Preflight(settings.gateway, credentials) if asks else None)


def _submit_one(
    context: Context,
    path: str,
    settings: Settings,
    credentials: Credentials,
    options: dict[str, Any],
    account: Account,
) -> int:
    from batchpay import batch
    from batchpay.cli.progress import progress_for
    from batchpay.cli.validate import file_request, print_counts
    from batchpay.gateway.origin import check_origin, is_loopback

    rejects = Path(options["rejects"]) if options["rejects"] else beside(path, "rejects", options["out"])
    results = Path(options["results"]) if options["results"] else beside(path, "results", options["out"])
    request = file_request(path, rejects, options, settings)
    submission = batch.SubmitRequest(
        run_request(results, settings, credentials, options), options["again"], options["reason"], options["from_plan"]
    )
    on_loopback = is_loopback(check_origin(settings.gateway.base_url).host)
    with progress_for(context, settings, ask=not options["yes"]) as progress:
        try:
            summary, verdict = batch.submit(
                request,
                submission,
                settings,
                credentials,
                progress,
                make_ledger=on_loopback,
            )
        except (FileRefused, BatchHeld) as error:
            click.echo(f"batchpay: {output.printable(str(error))}", err=True)
            return error.exit_code
    account.add(summary)
    if options["archive"] and "://" not in path and path != "-":
        moved = archive_finished(path, options["archive"], summary)
        if moved is not None:
            summary.notes.append(f"archived as {moved}")
    if context.json:
        output.print_json({**summary.as_json(), "counts": verdict.counts, "warning_counts": verdict.warning_counts})
    else:
        output.print_summary(context, summary, sent=True)
        print_counts(verdict)
    return summary.exit_code
