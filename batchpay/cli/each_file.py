"""One call over several files: what befalls one holds up no other, what would befall each ends the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context
from batchpay.cli.process import interrupt_on_signals
from batchpay.errors import BatchHeld, BatchpayError, FileRefused, WrongUse
from batchpay.text import printable

Work = Callable[[str], tuple[int, dict[str, Any]]]
"""What is done with one file -> its exit code, and what --json tells of it."""


def work_through(
    context: Context,
    paths: Sequence[str],
    work: Work,
    codes: list[int],
    *,
    stopped: Callable[[], str | None] = lambda: None,
    sum_up: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Work through the files, and append an exit code of each to `codes`.

    `stopped` tells why no further file may be begun. With --json one object is printed: the file's own, or for several
    what `sum_up` gives and the files' own under `files`.
    """
    told: list[dict[str, Any]] = []
    reason: str | None = None
    try:
        for number, path in enumerate(paths):
            if reason is None and (reason := stopped()) is not None:
                codes.append(6)
            if reason is not None:
                click.echo(f"batchpay: {printable(reason)}; not begun: {len(paths) - number} files", err=True)
                told += [_ended(left, f"not begun: {reason}", 6) for left in paths[number:]]
                break
            try:
                interrupt_on_signals()
                code, one = work(path)
            except (FileRefused, BatchHeld, WrongUse) as error:
                code, one = error.exit_code, _refused(path, str(error), error.exit_code)
            except BatchpayError as error:
                reason = str(error)
                code, one = error.exit_code, _refused(path, reason, error.exit_code)
            except KeyboardInterrupt:
                reason = "stopped by a signal"
                code, one = 6, _refused(path, f"{reason}; safe to run again", 6)
            codes.append(code)
            told.append(one)
    finally:
        if context.json and told:
            several = {**sum_up(), "files": told, "exit_code": output.exit_code_of(codes)}
            output.print_json(context, told[0] if len(paths) == 1 else several)


def _refused(path: str, message: str, exit_code: int) -> dict[str, Any]:
    click.echo(f"batchpay: {printable(message)}", err=True)
    return _ended(path, message, exit_code)


def _ended(path: str, message: str, exit_code: int) -> dict[str, Any]:
    return {"file": path, "error": message, "exit_code": exit_code}
