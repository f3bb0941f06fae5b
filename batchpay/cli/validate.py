"""What is checked and not sent: `batchpay validate`, and what `submit --dry-run` shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.each_file import work_through
from batchpay.cli.options import ROWS_MOST, check_options, checking_options, decisions_of
from batchpay.cli.paths import Outputs, beside, expand, outputs_of
from batchpay.cli.process import actor
from batchpay.errors import FileRefused
from batchpay.payment import State
from batchpay.settings import Settings
from batchpay.text import place_of, printable, row_count, totals_json
from batchpay.workflows.marks import PLAN, REPORT
from batchpay.workflows.requests import file_request
from batchpay.writing.table import table_format

if TYPE_CHECKING:
    from collections.abc import Collection

    from batchpay.gateway.accounts import Preflight
    from batchpay.validation.verdict import Failure, Verdict
    from batchpay.workflows.check import Preview


_SHOWN_MAX = 20
_WARNINGS_SHOWN_MAX = 5
"""Of each kind."""
_TOLD_APART = ("changed_account", "first_payment", "unusual_amount")
"""Warnings of which `Preview.unusual` names the rows, with their sums."""
_APART = (
    "it was not compared with the files before it in this call: a submission registers them first, and rejects what "
    "repeats them"
)


@click.command(cls=Command, short_help="Check payment files; nothing is sent.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@checking_options
@option("--report", metavar="PATH", help="Write a report on the check (HTML, self-contained).")
@click.pass_obj
def validate(context: Context, /, files: tuple[str, ...], **options: Any) -> int:
    """Check payment files and list everything that is wrong with them.

    Nothing is sent and nothing is recorded. With --rejects, rows that failed are written to a file that, once
    corrected, is a payment file again. A sign-off table comes last.

    Example: batchpay validate payments.csv --rejects wrong.csv
    """
    paths = expand(files)
    if (options["rejects"] or options["report"]) and len(paths) > 1:
        raise click.UsageError(
            "--rejects and --report are for a single file; check one file at a time, or leave them out"
        )
    outputs, codes = outputs_of(context, [*paths, options["map_"]]), list[int]()

    def validate_one(path: str) -> tuple[int, dict[str, Any]]:
        preview, answer = check_one(context.settings, path, options, outputs, is_first=path == paths[0])
        if not context.json:
            _print_preview(context, preview, sent=False)
        return answer["exit_code"], answer

    work_through(context, paths, validate_one, codes)
    return output.exit_code_of(codes)


def check_one(
    settings: Settings, path: str, options: dict[str, Any], outputs: Outputs, *, is_first: bool = True
) -> tuple[Preview, dict[str, Any]]:
    """Check one file, and write what was asked for; return what was found, and the object of --json."""
    from batchpay.workflows import check as flow

    rejects = outputs.claim(options["rejects"]) if options["rejects"] else None
    report = outputs.claim(options["report"], REPORT) if options["report"] else None
    preview = flow.validate(file_request(path, rejects, check_options(options), settings), settings)
    if not is_first:
        preview.summary.notes.append(_APART)
    if report is not None:
        preview.write_page(report)
    code = output.exit_code_of([preview.summary.exit_code, *([FileRefused.exit_code] if preview.is_refused else [])])
    return preview, {**preview.as_json(), "exit_code": code}


def _print_preview(context: Context, preview: Preview, *, sent: bool) -> None:
    """Print what a file holds: counts, what is wrong, and the table to sign.

    `sent` tells whether its rows have the states of the ledger; else each is valid or rejected. Of a content that is a
    batch already, the table has only the rest, so what was done with it comes last.
    """
    output.print_summary(context, preview.summary, sent=sent)
    print_counts(preview.verdict)
    if not context.quiet:
        _print_errors(context, preview.verdict, preview.line_word)
        print_warnings(context, preview.verdict, preview.line_word, but=_TOLD_APART)
        if preview.summary.total.rows:
            for line in preview.unusual:
                output.print_wrapped(line)
            for line in preview.page():
                click.echo(printable(line))
    if preview.known is None:
        return
    done = preview.known.by_state
    click.echo(
        f"this content is already batch {preview.known.batch}: {done[State.ACCEPTED].rows:,} accepted, "
        f"{done[State.DECLINED].rows:,} declined, {done[State.IN_DOUBT].rows:,} in doubt; "
        f"{row_count(preview.proposal.to_send.total.rows)} would be sent"
    )


def print_counts(verdict: Verdict) -> None:
    """Print how often each rule failed, the commonest first."""
    for title, counts in (
        ("errors", verdict.counts),
        ("warnings", verdict.warning_counts),
        ("repaired", verdict.repairs),
        ("corrected as suggested", verdict.accepted),
    ):
        if counts:
            click.echo(f"  {title}:")
            for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
                click.echo(f"    {count:>7,}  {name}")


def _print_errors(context: Context, verdict: Verdict, line_word: str) -> None:
    """Print the first errors, a line each; the rejects file and --json have all of them."""
    shown = verdict.failures[: None if context.verbose else _SHOWN_MAX]
    for failure in shown:
        hint = f" (suggestion: {failure.suggestion})" if failure.suggestion else ""
        output.print_wrapped(f"{_place(failure, line_word)}: {failure.column}: {failure.message}{hint}")
    left = sum(verdict.counts.values()) - len(shown)
    if left > 0:
        click.echo(f"  and {left:,} more: --rejects PATH writes all of them next to their rows")


def print_warnings(context: Context, verdict: Verdict, line_word: str, *, but: Collection[str] = ()) -> None:
    """Print the first warnings of each kind, a line each, all that were kept with -v; without the codes in `but`."""
    of_name: dict[str, list[Failure]] = {}
    for failure in verdict.warning_failures:
        if failure.code not in but:
            of_name.setdefault(failure.name, []).append(failure)
    for name, failures in of_name.items():
        shown = failures[: None if context.verbose else _WARNINGS_SHOWN_MAX]
        for failure in shown:
            output.print_wrapped(f"{_place(failure, line_word)}: {failure.column}: warning: {failure.message}")
        if left := verdict.warning_counts[name] - len(shown):
            click.echo(f"  and {left:,} more {name}: -v and --json list them, results have them in column warnings")


def _place(failure: Failure, line_word: str) -> str:
    return place_of(line_word, failure.row, failure.line)


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
    from batchpay.workflows.sent_rows import write_rows

    rejects = outputs.claim(options["rejects"], "rejects") if options["rejects"] else None
    plan = str(outputs.claim(options["plan"], PLAN)) if options["plan"] else None
    table = outputs.claim(options["rows_to"], "rows") if options["rows_to"] else None
    if table is not None:
        table_format(table)  # another extension is refused before the file is read
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
        take_rows=None if table is None else lambda frames, _: write_rows(table, frames),
    )
    if preview.accounts_unasked and options["preflight"] is None:  # --no-preflight: a submission is not to ask either
        preview.summary.notes.append(_UNASKED)
    if preview.approvals_missing and plan is None:
        people = "another person" if preview.approvals_missing == 1 else f"{preview.approvals_missing} other people"
        preview.summary.notes.append(
            f"a submission would wait for {people} to approve: --plan PLAN writes what they need"
        )
    if not is_first:
        preview.summary.notes.append(_APART)
    if plan is not None and preview.plan is not None:
        from batchpay.workflows.approve import write_plan

        write_plan(preview.plan, plan, settings, asks=preview.approvals_missing > 0)
    preview = preview.as_the_ledger_has_it()
    rows = preview.proposal.to_send.total.rows
    # Where the rate is found on the way, nobody knows how long it takes.
    seconds = None if settings.submit.rate == "auto" else round(rows / float(settings.submit.rate), 1)
    if not context.json:
        _print_dry_run(context, settings, preview, seconds, plan)
    code = output.exit_code_of(preview.exit_codes)
    return code, {
        **preview.as_json(),
        "dry_run": True,
        "would_send": rows,
        "release_would_add": totals_json(preview.releasable),
        "seconds_at_rate": seconds,
        "waits_for": preview.waits_for,
        "requests": preview.requests,
        "exit_code": code,
    }


def _print_dry_run(
    context: Context, settings: Settings, preview: Preview, seconds: float | None, plan: str | None
) -> None:
    click.echo("DRY RUN: nothing is sent, nothing is recorded")
    _print_preview(context, preview, sent=preview.known is not None)
    if seconds is not None:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        time = f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
        click.echo(f"at {settings.submit.rate} requests per second, sending takes about {time}")
    if preview.waits_for is not None:
        click.echo(f"a submission would wait for a person: {printable(preview.waits_for)}")
    if plan is not None:
        click.echo(f"plan: {printable(plan)}, seal {preview.summary.seal}")
    for body in preview.requests:
        click.echo(f"request: {printable(body)}")
