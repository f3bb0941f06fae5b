"""What surrounds an unattended call: inbox and archive, logs, metrics, a ping."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, declared, option
from batchpay.cli.paths import Outputs
from batchpay.errors import BatchpayError, NotUsable
from batchpay.text import printable

if TYPE_CHECKING:
    from batchpay.operations.ping import Ping
    from batchpay.summary import Summary


operation_options = declared(
    option("--log-file", metavar="PATH", help="Append log lines to this file."),
    option("--log-json", is_flag=True, help="Log as JSON lines (to standard error without --log-file)."),
    option("--metrics-file", metavar="PATH", help="Write metrics for Prometheus' textfile collector."),
    option("--ping-url", metavar="URL", help="Tell a monitor: URL/start, then URL/EXITCODE."),
)
"""Give a command the options for unattended runs."""


inbox_options = declared(
    option("--inbox", metavar="DIR", help="Take the complete files of this folder, the oldest first."),
    option("--archive", metavar="DIR", help="Move a file there once nothing of it waits to be sent."),
)
"""Give a command the options for a folder of files that come in."""


@dataclass
class Account:
    """What a call did so far, for the metrics and the log."""

    started_at: datetime
    summaries: list[Summary] = field(default_factory=list)

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


@contextlib.contextmanager
def unattended_run(context: Context, options: dict[str, Any], outputs: Outputs) -> Iterator[tuple[Account, list[int]]]:
    """Open the log and ping the monitor; at the end, however it comes, write metrics and ping the exit code.

    The caller appends exit codes to the list; what it raises counts as well.
    """
    from batchpay.operations.logs import close_log, log, open_log

    metrics = outputs.claim(options["metrics_file"]) if options["metrics_file"] else None

    account, codes = Account(datetime.now(UTC)), list[int]()
    ping = _ping(options["ping_url"])
    wants_log = options["log_file"] or options["log_json"]
    handler = open_log(path=options["log_file"], as_json=options["log_json"]) if wants_log else None
    try:
        if ping is not None and (problem := ping.start()):
            output.say(context, problem)
        log("call began")
        yield account, codes
    except BaseException as error:
        codes.append(_exit_code_of(error))
        raise
    finally:
        if metrics is not None and (problem := _write_metrics(metrics, account, output.exit_code_of(codes))):
            click.echo(f"batchpay: {printable(problem)}", err=True)
            codes.append(6)
        exit_code = output.exit_code_of(codes)
        if problem := _write_last_call(context, options, exit_code):
            click.echo(f"batchpay: {printable(problem)}", err=True)
        log("call ended", exit_code=exit_code)
        if ping is not None and (problem := ping.finish(exit_code)):
            output.say(context, problem)
        if handler is not None:
            close_log(handler)


def _ping(url: str | None) -> Ping | None:
    """Load what can open a socket only where one is wanted: a dry run must not."""
    if not url:
        return None
    from batchpay.operations.ping import Ping

    return Ping(url)


def _exit_code_of(error: BaseException) -> int:
    """What cli/main.py makes of an error that ends the call."""
    if isinstance(error, (BatchpayError, click.ClickException)):
        return error.exit_code
    return 6 if isinstance(error, KeyboardInterrupt) else 2 if isinstance(error, click.Abort) else 1


def _write_metrics(path: Path, account: Account, exit_code: int) -> str | None:
    """Write the metrics; tells what kept them from being written: the payments are made either way."""
    from batchpay.operations.metrics import write_metrics

    try:
        write_metrics(path, account.summaries, exit_code, account.started_at, datetime.now(UTC))
    except NotUsable as error:
        return str(error)
    return None


def _write_last_call(context: Context, options: dict[str, Any], exit_code: int) -> str | None:
    """Leave word beside the ledger that a call ended, for `health`; tells what kept it from being written."""
    from batchpay.workflows.health import record_call

    if options.get("dry_run"):
        return None
    try:
        record_call(context.settings, datetime.now(UTC), exit_code)
    except NotUsable as error:
        return str(error)
    return None


def files_of_inbox(folder: str) -> list[str]:
    """Name the complete files of an inbox, the oldest first."""
    from batchpay.operations.inbox import complete_files

    return [str(path) for path in complete_files(folder, now_s=time.time())]


def archive_finished(path: str, folder: str, summary: Summary) -> None:
    """Move a file whose rows are all settled or wait for a person, and note it; the payments are made either way."""
    from batchpay.operations.archive import archive
    from batchpay.payment import State

    if summary.read is None or summary.of(State.PENDING).rows or summary.of(State.SENDING).rows:
        return
    try:
        archived = archive(path, folder, summary.read)
        left = f"{path} is not archived: what stands there now is not the file that was read"
        summary.notes.append(f"archived as {archived}" if archived else left)
    except NotUsable as error:
        summary.stopped = "; ".join(filter(None, (summary.stopped, str(error))))
