"""The five functions of `import batchpay`: each does what its command does, and returns the object of its --json.

They ask nothing, print nothing and touch no signal; log, metrics and inbox are the command's. What a person decides (a
reason, a release, paying once more) can't be said here. What stops a call is an error of errors.py, which has no row.
A test compares the types of options and objects with the commands and with docs/schemas/.
"""
# ruff: noqa: UP013 - types as tables

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

import click

from batchpay.cli.commands import load_command, preset_name
from batchpay.cli.context import Command, Context
from batchpay.cli.operations import CallLog, leave_word, log_event
from batchpay.cli.options import send_options
from batchpay.cli.output import exit_code_of
from batchpay.cli.paths import make_folder, outputs_of
from batchpay.cli.process import actor
from batchpay.cli.progress import QuietProgress
from batchpay.errors import BatchpayError, NotUsable, WrongUse, place_of
from batchpay.workflows.requests import run_request, sending_settings

P = ParamSpec("P")
R = TypeVar("R")
Path = str | os.PathLike[str]
SettingsGiven = Path | Mapping[str, dict[str, Any]] | None
"""The settings file, or its tables; None for the file that the command finds."""

ReadOptions = TypedDict("ReadOptions", {
    "rejects": Path, "as_of": date | str, "normalize": bool, "warnings_as_errors": bool, "allow_open_ended": bool,
    "expect_rows": int, "expect_total": Decimal | str, "encoding": str, "format": Literal["csv", "parquet", "xlsx"],
    "sheet": str, "include_hidden": bool, "map": Path, "amounts_in": Literal["dollars", "cents", "thousands"],
    "max_errors": int,
}, total=False)  # fmt: skip
SendOptions = TypedDict("SendOptions", {
    "results": Path, "out": Path, "rate": float | str, "workers": int, "max_in_doubt": int, "until": str, "limit": int,
    "preflight": bool,
}, total=False)  # fmt: skip


class SubmitOptions(ReadOptions, SendOptions, total=False):
    """Options of `submit`; `from_plan` is a plan that people approved."""

    from_plan: Path
    archive: Path


Totals = TypedDict("Totals", {"rows": int, "amount": str})
Failure = TypedDict("Failure", {
    "row": int, "line": int | None, "column": str, "code": str, "message": str, "suggestion": str | None,
})  # fmt: skip
Batch = TypedDict("Batch", {
    "batch": str | None, "environment": Literal["live", "test"] | None, "file": str, "rows": int, "valid": int,
    "accepted": int, "declined": int, "in_doubt": int, "pending": int, "sending": int, "rejected": int, "returned": int,
    "standing": int, "warnings": int, "amount": dict[str, str], "debit": Totals, "credit": Totals,
    "currencies": dict[str, Totals], "left_out": dict[str, Any], "held_back": Totals, "scheduled": Totals,
    "next_pay_on": str | None, "released": Totals, "in_doubt_elsewhere": list[dict[str, Any]], "results": str | None,
    "rejects": str | None, "stopped": str | None, "rate_found": float | None, "notes": list[str],
    "allowed_duplicates": dict[str, Any], "seal": str | None, "started_at": str | None, "finished_at": str | None,
    "exit_code": int,
})  # fmt: skip
"""What became of a file or a batch."""


class Submission(Batch):
    """What a submission did, with the counts of its check."""

    counts: dict[str, int]
    warning_counts: dict[str, int]
    warning_list: list[Failure]
    accepted_suggestions: dict[str, int]


class Check(Submission):
    """What a check found, and what a submission would send."""

    errors: list[Failure]
    compared: bool
    unreadable_amounts: int
    over_limits: list[str]
    variances: list[dict[str, Any]]
    repairs: dict[str, int]
    to_send: dict[str, Any]
    gateways: list[dict[str, Any]]
    schedule: dict[str, Any]


class BatchStatus(Batch, total=False):
    """A batch, and the machines that worked on it where several share the ledger."""

    runs: list[dict[str, Any]]


Batches = TypedDict("Batches", {"batches": list[Batch]})


def _function(function: Callable[P, R]) -> Callable[P, R]:
    """Let out errors of errors.py alone, without what lies behind them: frames and texts of others may hold a row."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        inspect.signature(function).bind(*arguments, **options)
        error: BatchpayError
        try:
            return copy_context().run(function, *arguments, **options)
        except BatchpayError as raised:
            error = raised
        except click.ClickException as raised:
            error = WrongUse(raised.format_message())
        except Exception as fault:
            error = BatchpayError(f"internal error: {place_of(fault)}")
        raise error.with_traceback(None) from None

    return call


@_function
def check(path: Path, *, settings: SettingsGiven = None, **options: Unpack[ReadOptions]) -> Check:
    """Check a payment file as `batchpay validate` does: offline, nothing is sent and nothing recorded."""
    from batchpay.cli.validate import check_one

    call = _Call("validate", path, settings, options, ReadOptions)
    return cast(Check, check_one(call.settings, call.argument, call.options, call.outputs)[1])


@_function
def submit(path: Path, *, settings: SettingsGiven = None, **options: Unpack[SubmitOptions]) -> Submission:
    """Check a payment file, send every valid row once, write results and rejects, as `batchpay submit` does.

    The same content is the same batch: another call goes on with what is pending and repeats nothing.
    """
    from batchpay.cli.submit import submission_json, submit_one

    call = _Call("submit", path, settings, options, SubmitOptions)
    for folder in filter(None, (call.options["out"], call.options["archive"])):
        make_folder(folder)

    def work(*given: Any) -> tuple[Any, dict[str, Any]]:
        done = submit_one(call.argument, call.options, call.outputs, QuietProgress(call), *given)
        return done[0], submission_json(*done)

    return cast(Submission, call.send(work))


@_function
def resume(batch: str | None = None, *, settings: SettingsGiven = None, **options: Unpack[SendOptions]) -> Batch:
    """Go on with the pending rows of a batch, the latest if none is named, as `batchpay resume` does."""
    from batchpay.cli.resume import results_of_batch
    from batchpay.workflows.run import resume as go_on

    call = _Call("resume", batch, settings, options, SendOptions)
    place = functools.partial(results_of_batch, call.options, call.outputs)

    def work(settings: Any, credentials: Any, run: Any) -> tuple[Any, dict[str, Any]]:
        summary = go_on(batch, place, run, settings, credentials, actor(), QuietProgress(call), is_named=False)
        return summary, summary.as_json()

    return cast(Batch, call.send(work))


@overload
def status(batch: None = None, *, settings: SettingsGiven = None) -> Batches: ...
@overload
def status(batch: str, *, settings: SettingsGiven = None) -> BatchStatus: ...
@_function
def status(batch: str | None = None, *, settings: SettingsGiven = None) -> Batches | BatchStatus:
    """Return all batches, or the one named: states, counts, cents."""
    from batchpay.workflows.status import all_batches, batch_status, runs_of_batch, status_json

    found = _Call("status", batch, settings).settings
    if batch is None:
        return cast(Batches, {"batches": [summary.as_json() for summary in all_batches(found)]})
    summary = batch_status(batch, found)
    return cast(BatchStatus, status_json(summary, runs_of_batch(str(summary.batch), found)))


@_function
def results(batch: str | None = None, path: Path | None = None, *, settings: SettingsGiven = None) -> Batch:
    """Write a batch's results again, the latest one's if none is named, to `path` or BATCH.results.csv."""
    from batchpay.cli.status import write_again

    summary = write_again(_Call("results", batch, settings), batch, None if path is None else os.fspath(path))
    return cast(Batch, {**summary.as_json(), "exit_code": 0})


class _Call(Context):
    """One call: its settings, and its options as a command has them: of the call, else the environment, else a file."""

    def __init__(
        self, command: str, argument: Path | None, settings: SettingsGiven, given: Any = None, known: type = dict
    ) -> None:
        """Read what was given; raises WrongUse for an option that the function does not have."""
        super().__init__()
        words = ["--quiet"]
        if isinstance(settings, Mapping):
            self.tables = dict(settings)
        elif settings is not None:
            words += ["--config", os.fspath(settings)]
        self.argument = "" if argument is None else os.fspath(argument)
        found = cast(Command, load_command(command))
        context = click.Context(found, info_name=command, obj=self)
        Command.parse_args(found, context, [*words, "--", *filter(None, [self.argument])])
        self.options = context.params
        parameters = {preset_name(one.name): one for one in found.params}
        for name, value in (given or {}).items():
            if name not in known.__annotations__:
                raise WrongUse(f"{name} is not an option of this function")
            as_typed = value if isinstance(value, bool) or value is None else str(value)
            self.options[str(parameters[name].name)] = parameters[name].type_cast_value(context, as_typed)
        self.outputs = outputs_of(self, [self.argument, *map(self.options.get, ("map_", "from_plan"))])

    def send(self, work: Callable[..., tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
        """Do what sends; while a row is in doubt, an error has exit code 7. `health` learns how it ended."""
        from batchpay.sending.limits import StopRequest
        from batchpay.workflows.status import all_in_doubt

        if self.options.get("dry_run"):
            raise WrongUse("a dry run is set (submit.dry_run, BATCHPAY_DRY_RUN): batchpay.check sends nothing")
        account, codes, options = CallLog(datetime.now(UTC)), list[int](), send_options(self.options)
        try:
            run, credentials = run_request(self.settings, options, StopRequest(options.until))
            summary, answer = work(sending_settings(self.settings, options), credentials, run)
            account.add(summary)
            codes.append(summary.exit_code)
            return answer
        except BatchpayError as error:
            codes.append(error.exit_code)
            with suppress(NotUsable):
                if doubts := all_in_doubt(self.settings_to_look_with):
                    codes.append(7)
                    error.add_note(f"a person must look: batchpay resolve {', '.join(doubts)}")
            error.exit_code = exit_code_of(codes)
            raise
        finally:
            for problem in filter(None, leave_word(self, {}, account, codes or [1])):
                log_event("note", reason=problem)
