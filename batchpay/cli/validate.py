"""`batchpay validate`: check payment files; offline, nothing is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.each_file import work_through
from batchpay.cli.options import check_options, checking_options
from batchpay.cli.paths import Outputs, expand, outputs_of
from batchpay.payment import State
from batchpay.text import place_of, printable, row_count
from batchpay.workflows.requests import file_request
from batchpay.writing.marks import REPORT

if TYPE_CHECKING:
    from batchpay.validation.verdict import Verdict
    from batchpay.workflows.check import Preview

_SHOWN_MAX = 20
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
    work_through(
        context, paths, lambda path: _validate_one(context, path, options, outputs, is_first=path == paths[0]), codes
    )
    return output.exit_code_of(codes)


def _validate_one(
    context: Context, path: str, options: dict[str, Any], outputs: Outputs, *, is_first: bool
) -> tuple[int, dict[str, Any]]:
    from batchpay.workflows import check as flow

    rejects = outputs.claim(options["rejects"]) if options["rejects"] else None
    report = outputs.claim(options["report"], REPORT) if options["report"] else None
    preview = flow.validate(file_request(path, rejects, check_options(options), context.settings), context.settings)
    note_if_apart(preview, is_first=is_first)
    if report is not None:
        preview.write_page(report)
    if not context.json:
        print_preview(context, preview, sent=False)
        print_known(preview)
    return preview.summary.exit_code, preview.as_json()


def note_if_apart(preview: Preview, *, is_first: bool) -> None:
    """Note on every file of a call but the first that its duplicates among the others were not looked for."""
    if not is_first:
        preview.summary.notes.append(_APART)


def print_preview(context: Context, preview: Preview, *, sent: bool) -> None:
    """Print what a file holds: counts, what is wrong, and the table to sign.

    `sent` tells whether its rows have the states of the ledger; else each is valid or rejected.
    """
    output.print_summary(context, preview.summary, sent=sent)
    print_counts(preview.verdict)
    if context.quiet:
        return
    _print_failures(preview.verdict, preview.line_word)
    if not preview.summary.total.rows:
        return
    for line in preview.unusual:
        output.print_wrapped(line)
    for line in preview.page():
        click.echo(printable(line))


def print_known(preview: Preview) -> None:
    """Print what was done with a content that is a batch already: what is on the table to sign is only the rest."""
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


def _print_failures(verdict: Verdict, line_word: str) -> None:
    """Print the first errors, a line each; the rejects file and --json have all of them."""
    for failure in verdict.failures[:_SHOWN_MAX]:
        place = place_of(line_word, failure.row, failure.line)
        hint = f" (suggestion: {failure.suggestion})" if failure.suggestion else ""
        output.print_wrapped(f"{place}: {failure.column}: {failure.message}{hint}")
    left = sum(verdict.counts.values()) - min(_SHOWN_MAX, len(verdict.failures))
    if left > 0:
        click.echo(f"  and {left:,} more: --rejects PATH writes all of them next to their rows")
