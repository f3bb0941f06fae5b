"""One call over several files: what befalls one holds up no other, what would befall each ends the call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context
from batchpay.cli.operations import CallLog, log_event
from batchpay.cli.process import interrupt_on_signals
from batchpay.errors import (
    BatchHeld,
    BatchpayError,
    CheckFailed,
    FileOvertaken,
    FileRefused,
    LedgerNotUsable,
    LossNotSettled,
    NotUsable,
    RunStopped,
    WaitingForPerson,
    WrongUse,
    once_sent,
    place_of,
)
from batchpay.payment import Totals
from batchpay.text import counted, printable
from batchpay.writing.process_memory import in_plain_words

if TYPE_CHECKING:
    from batchpay.sending.limits import StopRequest

_Doubts = Mapping[str, Mapping[str, Totals]]
"""By batch, each by DEBIT and CREDIT."""

_AFTER_SENDING = (6, 7)
"""Exit codes with which a file may end without a summary though something of it was sent."""

_OF_ONE_FILE = (CheckFailed, FileOvertaken, FileRefused, BatchHeld, WrongUse, WaitingForPerson)
"""Errors after which the next file is begun all the same."""

Work = Callable[[str], tuple[int, dict[str, Any]]]
"""What is done with one file -> its exit code, and what --json tells of it."""


def work_through(
    context: Context,
    paths: Sequence[str],
    work: Work,
    codes: list[int],
    *,
    in_doubt: Callable[[], _Doubts] = dict,
    stop: StopRequest | None = None,
    account: CallLog | None = None,
) -> None:
    """Work through the files, and append an exit code of each to `codes`.

    `in_doubt` tells which batches a person must look at, of this call or of earlier ones: while there are any, the call
    ends with 7. One that sends has a `stop`, which tells why no further file may be begun. It ends with 6 if only a
    later file finds settings or ledger not usable: 5 would say that nothing was sent. With --json one object is
    printed: the file's own, or for several the files' own under `files`, beside their sums if they were sent; an
    `account` takes it where the exit code is not known yet, and which files ended without a summary.
    """
    _load_polars(paths)
    reports: list[dict[str, Any]] = []
    reason: str | None = None
    try:
        for number, path in enumerate(paths):
            if stop is not None and reason is None and (reason := stop.reason) is not None:
                codes.append(6)
            if reason is not None:
                files = counted(len(paths) - number, "file")
                click.echo(f"batchpay: {printable(reason)}; not started: {files}", err=True)
                reports += [_ended(left, f"not started: {reason}", 6) for left in paths[number:]]
                break
            log_event("file found", file=path)
            try:
                interrupt_on_signals()
                code, one = work(path)
            except BatchpayError as error:
                told = str(error)
                if stop is not None and isinstance(error, NotUsable) and _may_have_sent(reports):
                    codes.append(RunStopped.exit_code)
                    told = once_sent(error)
                code, one = error.exit_code, _refused(path, told, error.exit_code, error.lines)
                if not isinstance(error, _OF_ONE_FILE) or isinstance(error, LossNotSettled):
                    reason = told
            except KeyboardInterrupt:
                reason = "stopped by a signal"
                code, one = 6, _refused(path, f"{reason}; safe to run again", 6)
            except click.Abort:  # a person said no: that is no fault of the program
                raise
            except Exception as error:  # it is told where the command ends; --json has to agree with that
                codes.append(1)
                reports.append(_ended(path, f"internal error: {place_of(error)}", 1))
                reports += [_ended(left, "not started: internal error", 6) for left in paths[number + 1 :]]
                raise
            codes.append(code)
            reports.append(one)
            if account is not None and "error" in one:
                account.ended[path] = code
        _look_for_doubts(in_doubt, reports, codes)
    finally:
        if context.json and (reports or not paths):
            are_sums = account and reports and stop is not None
            sums = output.grand_total(account.summaries).as_json() if account and are_sums else {}
            whole = {**reports[0]} if len(paths) == 1 else {**sums, "files": reports}
            whole["exit_code"] = output.exit_code_of(codes)
            (account.tell if account is not None else partial(output.print_json, context))(whole)


def _load_polars(paths: Sequence[str]) -> None:
    """Import polars if there is a file to check: its threads start with it; raises NotUsable where there are none."""
    if paths:
        with in_plain_words():
            import polars  # noqa: F401


def _look_for_doubts(in_doubt: Callable[[], _Doubts], reports: Sequence[Any], codes: list[int]) -> None:
    """End with 7 while a row is in doubt anywhere, also where no file came so far as to say so itself."""
    try:
        doubts = in_doubt()
    except LedgerNotUsable as error:
        if _may_have_sent(reports):  # 5 would say that nothing was sent
            codes.append(RunStopped.exit_code)
            click.echo(f"batchpay: {printable(once_sent(error))}", err=True)
        elif LedgerNotUsable.exit_code not in codes:
            codes.append(LedgerNotUsable.exit_code)
            click.echo(f"batchpay: {printable(str(error))}", err=True)
        return
    if doubts:
        codes.append(7)
        if not any("in_doubt_elsewhere" in one for one in reports):  # a summary has said it
            output.print_in_doubt_elsewhere(doubts, err=True)


def _may_have_sent(reports: Sequence[dict[str, Any]]) -> bool:
    return any("error" not in one or one["exit_code"] in _AFTER_SENDING for one in reports)


def _refused(path: str, message: str, exit_code: int, lines: Sequence[str] = ()) -> dict[str, Any]:
    log_event("refused", level=logging.WARNING, file=path, reason=message, exit_code=exit_code)
    click.echo("batchpay: " + "\n".join(map(printable, lines or (message,))), err=True)
    return _ended(path, message, exit_code)


def _ended(path: str, message: str, exit_code: int) -> dict[str, Any]:
    return {"file": path, "error": message, "exit_code": exit_code}
