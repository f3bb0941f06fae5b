"""`batchpay submit`: check payment files, send what is right, write results and rejects."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from batchpay.cli import output
from batchpay.cli.context import Context, Whole, option
from batchpay.cli.each_file import work_through
from batchpay.cli.operations import (
    CallLog,
    UnattendedCommand,
    files_of_inbox,
    inbox_options,
    inputs_of,
    operation_options,
    refuse_unfinished,
    report_never_taken,
    unattended_run,
)
from batchpay.cli.options import (
    check_options,
    checking_options,
    decisions_of,
    log_targets,
    row_numbers,
    send_options,
    sending_options,
)
from batchpay.cli.paths import Outputs, beside, check_folder, expand, make_folder, outputs_among, outputs_of
from batchpay.cli.process import actor
from batchpay.errors import BatchpayError, WaitingForPerson, WrongUse
from batchpay.settings import Settings
from batchpay.text import place_word, printable
from batchpay.workflows.marks import PLAN
from batchpay.workflows.requests import file_request, preflight_of, run_request, sending_settings
from batchpay.writing.table import table_format

if TYPE_CHECKING:
    from batchpay.gateway.credentials import Credentials
    from batchpay.ledger.records import BatchSummary
    from batchpay.summary import Summary
    from batchpay.validation.verdict import Verdict
    from batchpay.workflows.run import Progress, RunRequest


_NOT_CHECKED: dict[str, Any] = {"counts": {}, "warning_counts": {}, "warning_list": [], "accepted_suggestions": {}}
"""What the JSON of a submission has of the check, where there was none."""
_SECTIONS = {
    "What is read": "inbox returns as_of pay_on normalize accept_suggestions warnings_as_errors allow_open_ended"
    " expect_rows expect_total encoding format sheet include_hidden map amounts_in max_errors",
    "What is decided": "dry_run show_requests rows_to plan from_plan again release rows allow_duplicates"
    " paid_elsewhere_checked gap reason yes",
    "How it is sent": "rate workers max_in_doubt until limit preflight",
    "Where it goes": "results rejects out archive log_file log_json metrics_file ping_url",
}
"""The options of `submit` by what they are for, as its help shows them."""


@click.command(
    cls=UnattendedCommand,
    short_help="Check payment files, send the valid rows, write results and rejects.",
    sections=_SECTIONS,
)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@inbox_options
@option("--returns", metavar="DIR", help="With --inbox: take in the files of returns in this folder first.")
@checking_options
@option("--results", metavar="PATH", help="Path of the results file (CSV, Parquet or XLSX by extension).")
@option("--out", metavar="DIR", help="Folder for results and rejects; next to the input by default.")
@option("--dry-run", is_flag=True, help="Register and send nothing; ask the gateway only with --preflight.")
@option(
    "--show-requests",
    type=Whole(0),
    metavar="N",
    default=0,
    help="With --dry-run: show N request bodies, masked.",
)
@option("--plan", metavar="FILE", help="With --dry-run: write what would be sent to a plan, for approval.")
@option("--rows-to", metavar="PATH", help="With --dry-run: write every row that would be sent, masked, to a table.")
@option("--from-plan", metavar="FILE", help="Refuse anything except what this plan approved.")
@option(
    "--again", is_flag=True, help="Pay the same content, or the same file read otherwise, once more (needs --reason)."
)
@option(
    "--release", is_flag=True, help="Send rows of this batch that were rejected and are valid now (needs --reason)."
)
@option("--rows", metavar="N,N...", help="With --release: send only these rows, also those that wait for a person.")
@option(
    "--paid-elsewhere-checked", is_flag=True, help="Submit even though another ledger or environment may have paid."
)
@option("--gap", is_flag=True, help="Submit though a number of the file's series is missing (needs --reason).")
@option("--reason", metavar="TEXT", help="Why, for each option that needs a reason; it is recorded.")
@sending_options
@operation_options
@click.pass_obj
def submit(context: Context, /, files: tuple[str, ...], **options: Any) -> int:
    """Check payment files, send every valid row once, write results and rejects.

    The same content is the same batch, under any name: running the command again continues what is pending and repeats
    nothing. A row whose answer was lost is in doubt and is never resent automatically: while there is one in the
    environment, the exit code is 7 or worse. A dry run ends with 7 only for rows of its own files.

    Example: batchpay submit payments.csv --out results --rate 20
    """
    paths, problem = _paths(context, files, options)
    outputs = outputs_of(context, inputs_of(paths, options))
    problem = problem or _taken(paths, options, outputs)
    with unattended_run(context, options, outputs) as (account, codes):
        if problem is not None:  # it ends the call inside, so that log, metrics and ping tell of it
            raise problem
        if options["out"]:
            make_folder(options["out"])
        if options["inbox"]:
            report_never_taken(options["inbox"], codes)
        settings = sending_settings(context.settings, send_options(options))
        if options["returns"]:
            from batchpay.cli.returns import take_returns_first

            take_returns_first(context, options, settings, account, codes)
        if options["dry_run"]:
            from batchpay.cli.validate import dry_run_one

            asks = preflight_of(settings) if options["preflight"] else None

            def look(path: str) -> tuple[int, dict[str, Any]]:
                return dry_run_one(context, path, settings, options, outputs, asks, is_first=path == paths[0])

            work_through(context, paths, look, codes, account=account)
        else:
            _submit_all(context, paths, settings, options, outputs, account, codes)
    if len(account.summaries) > 1 and not context.json:
        output.print_summary(context, output.grand_total(account.summaries), sent=True)
    return output.exit_code_of(codes)


def _paths(context: Context, files: tuple[str, ...], options: dict[str, Any]) -> tuple[list[str], Exception | None]:
    """Name the call's payment files, or what kept them from being found."""
    try:
        _check_usage(files, options)
        paths = expand(files) + (files_of_inbox(context, options["inbox"]) if options["inbox"] else [])
    except (BatchpayError, click.UsageError) as error:
        return [], error
    if len(paths) > 1 and any(options[name] for name in ("results", "rejects", "plan", "from_plan", "rows", "rows_to")):
        names = "--results, --rejects, --plan, --from-plan, --rows and --rows-to"
        return paths, click.UsageError(f"{names} are for a single file; for several use --out DIR")
    return paths, None


def _taken(paths: Sequence[str], options: dict[str, Any], outputs: Outputs) -> BatchpayError | None:
    """Tell why a named output can't be where it is wanted, and keep the places of the others, before the log begins."""
    for path in paths:
        for kind in ("rejects", "results"):
            outputs.foresee(options[kind] or beside(path, kind, options["out"]), kind)
    named = (("rejects", "rejects"), ("results", "results"), ("plan", PLAN), ("rows_to", "rows"))
    return outputs.refusal((options[option], kind) for option, kind in named)


def _check_usage(files: tuple[str, ...], options: dict[str, Any]) -> None:
    """Refuse options that don't go together."""
    if not files and not options["inbox"]:
        raise click.UsageError("name a payment file, or a folder with --inbox DIR")
    with_reason = ("again", "release", "allow_duplicates", "paid_elsewhere_checked", "gap")
    decided = [name for name in with_reason if options[name]]
    if decided and not (options["reason"] or "").strip():
        raise click.UsageError(f"--{decided[0].replace('_', '-')} needs --reason TEXT")
    if options["again"] and options["release"]:
        raise click.UsageError("--again pays the whole content once more; --release sends what is left of a batch")
    if options["rows"] is not None:
        if not options["release"]:
            raise click.UsageError("--rows goes with --release: it names the rejected rows that are sent")
        row_numbers(options["rows"])
    if options["plan"] and not options["dry_run"]:
        raise click.UsageError("--plan goes with --dry-run; a submission takes the plan with --from-plan")
    if options["rows_to"] and not options["dry_run"]:
        raise click.UsageError("--rows-to goes with --dry-run; a submission writes its results")
    if options["returns"] and not options["inbox"]:
        raise click.UsageError("--returns goes with --inbox; by day: batchpay returns FILE")
    others = {Path(options[name]).resolve() for name in ("inbox", "archive", "out") if options[name]}
    if options["returns"] and Path(options["returns"]).resolve() in others:
        raise click.UsageError("--returns is a folder of its own: each file in it is taken for one of returns")
    if options["from_plan"] and options["dry_run"]:
        raise click.UsageError("--from-plan is for a submission; a dry run writes a plan with --plan")
    typed = click.get_current_context().get_parameter_source("show_requests") is ParameterSource.COMMANDLINE
    if typed and options["show_requests"] and not options["dry_run"]:  # a preset is for every dry run
        raise click.UsageError("--show-requests goes with --dry-run; without it the payments would be sent")


def _submit_all(
    context: Context,
    paths: Sequence[str],
    settings: Settings,
    options: dict[str, Any],
    outputs: Outputs,
    account: CallLog,
    codes: list[int],
) -> None:
    """Submit one file after the other: what stops the sending of one stops the call, limits hold over all of them."""
    from batchpay.cli.resume import batches_of_inbox, resume_one
    from batchpay.workflows.status import all_in_doubt, waits_for_person

    left = batches_of_inbox(settings) if options["inbox"] else {}
    look = partial(all_in_doubt, settings)
    if not (paths or left):
        if (told := waits_for_person(settings)) is not None:  # a night without files ends as the next one with some
            codes.append(WaitingForPerson.exit_code)
            click.echo(f"batchpay: {printable(told)}", err=True)
        work_through(context, paths, lambda path: (0, {}), codes, in_doubt=look, account=account)
        return
    run, credentials = run_request(settings, send_options(options))
    log_targets(context, settings)
    if options["archive"]:
        check_folder(make_folder(options["archive"]), Path(options["archive"]))
    ours = {} if options["inbox"] else outputs_among(paths)  # an inbox takes those that a control file states

    def work(path: str) -> tuple[int, dict[str, Any]]:
        if path in left:
            found = partial(results_beside, options, outputs)
            code, one = resume_one(context, left[path], found, settings, credentials, options, run, account)
            return code, {**one, **_NOT_CHECKED}
        if path in ours:
            raise WrongUse(
                f"{path} is named as results or rejects of {ours[path]}, which this call names as well: it is "
                "skipped; submit a corrected one by itself"
            )
        return _submit_one(context, path, settings, credentials, options, run, outputs, account)

    work_through(context, [*left, *paths], work, codes, in_doubt=look, stop=run.stop, account=account)


def results_beside(options: dict[str, Any], outputs: Outputs, batch: BatchSummary) -> Path:
    """Name the results of a batch whose file is no longer needed, and may be on another machine: where it would be."""
    place = str(Path(options["inbox"]) / Path(batch.file).name)
    return outputs.claim(beside(place, "results", options["out"]), "results")


def _submit_one(
    context: Context,
    path: str,
    settings: Settings,
    credentials: Credentials,
    options: dict[str, Any],
    run: RunRequest,
    outputs: Outputs,
    account: CallLog,
) -> tuple[int, dict[str, Any]]:
    from batchpay.cli.progress import progress_for
    from batchpay.cli.validate import print_counts, print_warnings

    if options["inbox"]:
        refuse_unfinished(path, options["inbox"])
    with progress_for(context, settings, ask=not options["yes"]) as progress:
        summary, verdict = submit_one(path, options, outputs, progress, settings, credentials, run)
    account.add(summary)
    if summary.paid_before:  # with --quiet as well: whoever sends yesterday's file by mistake gets exit code 0
        click.echo(f"batchpay: {printable(f'{summary.file}: {summary.paid_before}')}", err=True)
    output.detail(context, f"{summary.file}: batch {summary.batch}, {summary.seconds:.1f} s")
    if not context.json:
        output.print_summary(context, summary, sent=True)
        print_counts(verdict)
        if not context.quiet:
            print_warnings(context, verdict, place_word(summary.file))
    return summary.exit_code, submission_json(summary, verdict)


def submit_one(
    path: str,
    options: dict[str, Any],
    outputs: Outputs,
    progress: Progress,
    settings: Settings,
    credentials: Credentials,
    run: RunRequest,
) -> tuple[Summary, Verdict]:
    """Submit one file, and archive it if that is asked for and nothing of it waits."""
    from batchpay.workflows import submit as flow
    from batchpay.workflows.approve import read_plan

    rejects = outputs.claim(options["rejects"] or beside(path, "rejects", options["out"]), "rejects")
    results = outputs.claim(options["results"] or beside(path, "results", options["out"]), "results")
    table_format(results)
    request = file_request(path, rejects, check_options(options), settings)
    submission = flow.SubmitRequest(
        dataclasses.replace(run, results=results),
        decisions=decisions_of(options),
        plan=read_plan(options["from_plan"]) if options["from_plan"] else None,
    )
    summary, verdict = flow.submit(request, submission, settings, credentials, actor(), progress)
    if options["archive"]:
        flow.archive_finished(path, options["archive"], summary)
    return summary, verdict


def submission_json(summary: Summary, verdict: Verdict) -> dict[str, Any]:
    """Return the object of --json: how a submission ended, and the counts of its check."""
    document = {**summary.as_json(), "counts": verdict.counts, "warning_counts": verdict.warning_counts}
    document["warning_list"] = [failure.as_json() for failure in verdict.warning_failures]
    document["accepted_suggestions"] = verdict.accepted
    return document
