"""What surrounds an unattended call: inbox and archive, logs, metrics, a ping."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, declared, option
from batchpay.cli.paths import Outputs, outputs_of
from batchpay.cli.process import STOPPED, STOPPED_AT_PROMPT
from batchpay.errors import BatchHeld, BatchpayError, FileRefused, NotUsable, RunStopped, WrongUse, place_of
from batchpay.payment import State, Totals
from batchpay.text import counted, printable, row_count, totals_apart
from batchpay.version import __version__
from batchpay.workflows.marks import LOG, METRICS

if TYPE_CHECKING:
    from batchpay.operations.ping import Ping
    from batchpay.summary import Summary


_EXPECTED = (4, 6, 7, 8, 9)
"""Exit codes of calls that a person or the next call puts right: warnings in the log; 1, 2 and 5 are errors."""

_COMPLETED = (0, 3, 7)
"""Exit codes of files that were worked through; rows in doubt (7) are reported separately, and more urgently."""

_NAMED_MAX = 3
"""So many files of an inbox are named."""

operation_options = declared(
    option("--log-file", metavar="PATH", help="Append log lines to this file."),
    option("--log-json", is_flag=True, help="Log as JSON lines (to standard error without --log-file)."),
    option("--metrics-file", metavar="PATH", help="Write metrics for Prometheus' textfile collector."),
    option("--ping-url", metavar="URL", help="Notify a monitor: URL/start, then URL/EXITCODE."),
)
"""Give a command the options for unattended runs."""


inbox_options = declared(
    option("--inbox", metavar="DIR", help="Submit the complete files in this folder, oldest first."),
    option("--archive", metavar="DIR", help="Move each file here once none of its rows are waiting to be sent."),
)
"""Give a command the options for a folder of files that come in."""


@dataclass
class CallLog:
    """What a call did so far, for the metrics and the log."""

    started_at: datetime
    summaries: list[Summary] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    """Exit codes of files that ended without a summary: refused, or their check failed."""
    returns: list[dict[str, Any]] = field(default_factory=list)
    """What was said of files of returns, which the object of --json has as well."""
    answer: dict[str, Any] | None = None
    """The object of --json, without the exit code, which log and metrics may still change."""

    def tell(self, answer: dict[str, Any]) -> None:
        """Keep the object of --json until the exit code is known."""
        self.answer = answer

    def add(self, summary: Summary) -> None:
        """Count one file in, and log how it ended."""
        from batchpay.operations.logs import log

        self.summaries.append(summary)
        log(
            "file finished",
            batch=summary.batch,
            file=summary.file,
            rows=summary.total.rows,
            stopped=summary.stopped,
            exit_code=summary.exit_code,
        )

    def has_completed(self, codes: Iterable[int]) -> bool:
        """Return whether the call did all its work, by the exit codes of its parts.

        The call's own does not tell: while a row is in doubt it is 7, perhaps for weeks, whatever else happened.
        """
        return all(code in _COMPLETED for code in codes) and not any(one.is_stopped for one in self.summaries)


@contextlib.contextmanager
def unattended_run(context: Context, options: dict[str, Any], outputs: Outputs) -> Iterator[tuple[CallLog, list[int]]]:
    """Open the log and ping the monitor; at the end, however it comes, write metrics and ping the exit code.

    The caller appends exit codes to the list; what it raises counts as well.
    """
    from batchpay.operations.logs import close_log, log, open_log

    account, codes = CallLog(datetime.now(UTC)), list[int]()
    ping = _ping(options["ping_url"])
    metrics = handler = ended_by = reason = None
    try:
        if ping is not None and (problem := ping.start()):
            output.say(context, problem)
        try:
            metrics = outputs.claim(options["metrics_file"], METRICS) if options["metrics_file"] else None
        finally:  # either tells of a call that has no place for the other
            if options["log_file"] or options["log_json"]:
                path = outputs.guard(options["log_file"], LOG) if options["log_file"] else None
                handler = open_log(path=path, as_json=options["log_json"])
            log("call began", version=__version__, path=str(context.settings_path) if context.settings_path else None)
        yield account, codes
    except BaseException as raised:
        error = _with_code(raised)
        codes.append(error.exit_code if isinstance(error, (BatchpayError, click.ClickException)) else 1)
        reason = f"internal error: {place_of(error)}"
        if isinstance(error, (BatchpayError, click.ClickException)):
            ended_by, reason = error, str(error) if isinstance(error, BatchpayError) else error.format_message()
            if not options.get("dry_run"):
                _look_for_doubts(context, codes)
        raise error from raised.__cause__
    finally:
        if metrics is not None and (problem := _write_metrics(context, metrics, account, codes, options)):
            click.echo(f"batchpay: {printable(problem)}", err=True)
            codes.append(6)
        if handler is not None and options["log_file"] and handler.lost:
            problem = f"log file {options['log_file']} can't be written: {handler.problem}"
            lost = f"{counted(handler.lost, 'line')} of this call lost"
            click.echo(f"batchpay: {printable(problem)}; {lost}", err=True)
            codes.append(6)
        exit_code = output.exit_code_of(codes)
        _agree_on(exit_code, context, account, ended_by)
        for problem in filter(None, leave_word(context, options, account, codes)):
            click.echo(f"batchpay: {printable(problem)}", err=True)
        is_expected = all(code in _EXPECTED for code in codes if code not in (0, 3))
        level = logging.INFO if exit_code in (0, 3) else logging.WARNING if is_expected else logging.ERROR
        log("call ended", level=level, reason=reason, exit_code=exit_code)
        if context.quiet:
            _say_why(account)
        if ping is not None and (problem := ping.finish(exit_code)):
            output.say(context, problem)
        if handler is not None:
            close_log(handler)


def _agree_on(
    exit_code: int, context: Context, account: CallLog, ended_by: BatchpayError | click.ClickException | None
) -> None:
    """Print the object of --json, and have the error that ended the call end it, with the code that all others tell."""
    if ended_by is not None:
        ended_by.exit_code = exit_code  # type: ignore[misc]  # of the class, says click
    if account.answer is not None:
        taken = {"returns": account.returns} if account.returns else {}
        output.print_json(context, {**account.answer, **taken, "exit_code": exit_code})


class UnattendedCommand(Command):
    """A command that leaves metrics and log, and asks for doubts, also where its line or settings can't be read."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as any command does; what can't be parsed is a call that ended, with what was understood of it."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except (BatchpayError, click.UsageError):
            context, understood = ctx.ensure_object(Context), self._understood(ctx, given)
            with unattended_run(
                context, understood, outputs_of(context, inputs_of(understood.get("files"), understood))
            ):
                raise

    def _understood(self, ctx: click.Context, args: list[str]) -> dict[str, Any]:
        """Read the options that can be read, without presets: the settings file may be what is wrong."""
        lenient = click.Context(
            self, parent=ctx.parent, resilient_parsing=True, ignore_unknown_options=True, allow_extra_args=True
        )
        click.Command.parse_args(self, lenient, args)
        return lenient.params


def inputs_of(files: Iterable[str] | None, options: dict[str, Any]) -> list[str]:
    """Name what a call reads: its payment files, a map, a plan."""
    return [*(files or ()), *(str(options[name]) for name in ("map_", "from_plan") if options.get(name))]


def log_event(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event of the call (operations/logs.py)."""
    from batchpay.operations.logs import log

    log(event, level=level, **fields)


def _say_why(account: CallLog) -> None:
    """With --quiet, say in a line on standard error what a person must know of: cron mails it.

    What was refused was said where it happened.
    """
    doubts: dict[str, Mapping[str, Totals]] = {}
    for summary in account.summaries:
        if summary.stopped:
            click.echo(f"batchpay: {printable(f'{summary.file}: batch {summary.batch}: {summary.stopped}')}", err=True)
        doubts |= {str(summary.batch): summary.apart.get(State.IN_DOUBT, {})} | summary.in_doubt_elsewhere
    for batch, sides in doubts.items():
        if rows := sum(totals.rows for totals in sides.values()):
            text = f"{row_count(rows)} in doubt, {totals_apart([sides])}"
            click.echo(f"batchpay: batch {batch}: {text}: batchpay resolve {batch}", err=True)


def _ping(url: str | None) -> Ping | None:
    """Load what can open a socket only where one is wanted: a dry run must not."""
    if not url:
        return None
    from batchpay.operations.ping import Ping

    return Ping(url)


def _with_code(error: BaseException) -> BaseException:
    """Return what ended a call by a person's hand as an error with its code: a doubt comes before that as well."""
    if isinstance(error, KeyboardInterrupt):
        return RunStopped(STOPPED)
    return WrongUse(STOPPED_AT_PROMPT) if isinstance(error, click.Abort) else error


def _look_for_doubts(context: Context, codes: list[int]) -> None:
    """End a call with 7 that an error ended while a row is in doubt: a mistyped line does not make doubt go quiet."""
    from batchpay.workflows.status import all_in_doubt

    try:
        doubts = all_in_doubt(context.settings_to_look_with)
    except BatchpayError:  # the ledger: the error itself, or the next call's
        return
    if doubts:
        output.print_in_doubt_elsewhere(doubts, err=True)
        codes.append(7)


def _write_metrics(
    context: Context, path: Path, account: CallLog, codes: list[int], options: dict[str, Any]
) -> str | None:
    """Write the metrics; tells what kept them from being written: the payments are made either way."""
    from batchpay.operations.inbox import files_by_state
    from batchpay.operations.metrics import write_metrics
    from batchpay.workflows.health import ledger_state

    try:
        state = ledger_state(context.settings_to_look_with)
    except BatchpayError:  # what is wrong with the ledger ended the call, or will end the next one
        state = None
    inbox: dict[str, int] = {}
    with contextlib.suppress(NotUsable):  # the call's own error
        inbox = files_by_state(folder, now_s=time.time()) if (folder := options.get("inbox")) else {}
    try:
        write_metrics(
            path,
            account.summaries,
            output.exit_code_of(codes),
            account.started_at,
            datetime.now(UTC),
            state,
            ended=account.ended,
            inbox=inbox,
            completed=account.has_completed(codes),
        )
    except NotUsable as error:
        return str(error)
    return None


def leave_word(context: Context, options: dict[str, Any], account: CallLog, codes: list[int]) -> Iterator[str | None]:
    """Leave word beside the ledger that a call ended, for `health`, and send the notices that have not arrived.

    Tells what kept either from being done.
    """
    if options.get("dry_run"):  # before the import, which loads what can open a socket
        return
    from batchpay.operations.notify import notify
    from batchpay.workflows.health import record_call

    try:
        settings = context.settings
    except NotUsable:  # the call's own error, which is said once
        return
    try:
        completed = account.has_completed(codes)
        record_call(settings, datetime.now(UTC), output.exit_code_of(codes), completed=completed)
    except NotUsable as error:
        yield str(error)
    yield notify(settings, None)


def files_of_inbox(context: Context, folder: str) -> list[str]:
    """Name the complete files of an inbox, the oldest first; what is left there for a later call is said."""
    from batchpay.operations.inbox import complete_files, is_named_as_ours, never_taken, waiting_files

    now_s = time.time()
    complete = complete_files(folder, now_s=now_s)
    never = never_taken(folder)
    left = [path.name for path, _ in waiting_files(folder, now_s=now_s) if path not in complete]
    left = [name for name in left if name not in never]
    ours = [name for name in left if is_named_as_ours(name)]
    left = [name for name in left if name not in ours]
    if left:
        what = "not known to be complete yet (after a minute, or with a control file)"
        output.say(context, f"inbox {folder}: left for a later call: {_first_names(left)}: {what}")
    if ours:
        what = "named like results or rejects of batchpay; to pay a corrected one, rename it or add a control file"
        output.say(context, f"inbox {folder}: skipped: {_first_names(ours)}: {what}")
    if not (complete or left or ours or never):
        output.say(context, f"inbox {folder}: no file")
    return [str(path) for path in complete]


def files_of_returns(folder: str) -> list[str]:
    """Name the complete files of a folder of returns, the oldest first, whatever their kind."""
    from batchpay.operations.inbox import complete_files, is_finished_name

    return [str(path) for path in complete_files(folder, now_s=time.time(), takes=is_finished_name)]


def report_never_taken(folder: str, codes: list[int]) -> None:
    """Name what no call takes out of an inbox, with exit code 3: it may be a payment file under a wrong name."""
    from batchpay.operations.inbox import never_taken
    from batchpay.operations.logs import log

    if names := never_taken(folder):
        reason = (
            "a link, or a name that does not end with .csv, .tsv, .parquet or .xlsx; rename it, or put a copy there"
        )
        log("never taken", level=logging.WARNING, file=", ".join(names), reason=reason)
        click.echo(
            f"batchpay: inbox {printable(folder)}: never taken: {printable(_first_names(names))}: {reason}", err=True
        )
        codes.append(3)


def refuse_unfinished(path: str, folder: str) -> None:
    """Raise FileRefused where a file of an inbox is written anew since the call began: the next one takes it.

    One that is gone was taken by another run: that raises BatchHeld.
    """
    from batchpay.operations.inbox import is_still_complete

    if Path(path).parent != Path(folder):
        return
    if not os.path.lexists(path):
        raise BatchHeld(f"{path} disappeared after the call began: another run has archived it")
    if not is_still_complete(Path(path), now_s=time.time()):
        raise FileRefused(f"{path} was modified after the call began: it is left for a later call")


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
