"""An empty payment file, or the next one of the payees of an earlier file: nothing of it is paid again by itself."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.errors import WrongUse
from batchpay.intake.template import write_template
from batchpay.schemas.columns import ACCOUNT, COLUMNS, DATES, DIRECTION, MONEY, PAYMENT_ID, ROUTING

if TYPE_CHECKING:
    from batchpay.settings import Settings
    from batchpay.workflows.requests import FileRequest
    from batchpay.workflows.returned_accounts import ReturnedAccounts

_BLANK = (*MONEY, *DATES, "invoiceNumber", "achCheckNumber")
"""What differs from one payment of a payee to the next."""
_NOT_KEPT = {*_BLANK, PAYMENT_ID}


@dataclass(slots=True)
class NextFile:
    """What became of an earlier file's rows."""

    rows: int = 0
    """Payees and accounts that are in the next file."""
    left_out: int = 0
    """Rows that break a rule, or are no payments."""
    same_account: int = 0
    """Further rows of an account that is in it."""
    marked: int = 0
    """Accounts that a bank has spoken against since."""


def make_template(path: Path, *, replace: bool) -> None:
    """Write an empty payment file, XLSX or CSV by its ending; raises WrongUse, NotUsable."""
    _refuse_existing(path, replace=replace)
    write_template(path)


def make_next(path: Path, request: FileRequest, settings: Settings, *, replace: bool) -> NextFile:
    """Write an empty payment file for the payees of a file; raises FileRefused, WrongUse, NotUsable.

    One row an account, with all that stays the same and paymentIds that nobody has used.
    """
    from batchpay.gateway.origin import environment_of
    from batchpay.ledger.open import ledger_if_any
    from batchpay.workflows.file_check import one_fault_one_file
    from batchpay.workflows.returned_accounts import ReturnedAccounts

    _refuse_existing(path, replace=replace)
    made = NextFile()
    with one_fault_one_file(request.name or request.path), ledger_if_any(settings.ledger) as ledger:
        rows = list(_rows(request, ReturnedAccounts(ledger, environment_of(settings.gateway), None), made))
    if not rows:
        raise WrongUse(f"{request.path}: no row of it is right but for amounts and dates, so there is no payee to keep")
    write_template(path, rows)
    return made


def _refuse_existing(path: Path, *, replace: bool) -> None:
    if os.path.lexists(path) and not replace:
        raise WrongUse(f"{path} already exists; --force replaces it")


def _rows(request: FileRequest, returned: ReturnedAccounts, made: NextFile) -> Iterator[Sequence[str | None]]:
    """Yield a note and every column of each account."""
    from batchpay.validation.check import RowCheck, prepared
    from batchpay.workflows.file_check import open_file

    run, seen = secrets.token_hex(3).upper(), set[tuple[str, ...]]()
    with open_file(request) as source, ExitStack() as storage:
        check = RowCheck(source, request.rules, storage, line_word=source.line_word, used=source.used)
        wrong = {
            row
            for result in check.results()
            for broken in result.findings.violations
            if broken.is_error and broken.column not in _NOT_KEPT
            for row in result.findings.rows["_row"].filter(broken.flag)
        }
        for chunk in source.chunks():
            frame = prepared(chunk, request.rules).rows
            kept = frame.filter(~frame["_row"].is_in(wrong))
            made.left_out += frame.height - kept.height
            failures = returned.failures(kept) if kept.height else {}
            # What the bank said, without what it corrected.
            notes = {row: f"{column}: {told.partition(':')[0]}" for row, (column, _, told) in failures.items()}
            for row in kept.select("_row", *COLUMNS).iter_rows(named=True):
                account = row[ROUTING], row[ACCOUNT], row[DIRECTION]
                if account in seen:
                    made.same_account += 1
                    continue
                seen.add(account)
                made.rows += 1
                made.marked += row["_row"] in notes
                row |= {**dict.fromkeys(_BLANK), PAYMENT_ID: f"{run}-{made.rows:04}"}
                yield notes.get(row["_row"]), *(row[name] for name in COLUMNS)
