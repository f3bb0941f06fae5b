"""The results file: one line for every row that passed the rules, read from the ledger, in file order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, RowColumns
from batchpay.payment import format_cents
from batchpay.text import instant
from batchpay.writing.columns import Kind, columns
from batchpay.writing.place import first_row
from batchpay.writing.table import write_table

if TYPE_CHECKING:
    from batchpay.writing.xlsx import Workbook

HEADER = (
    "row", "line", "paymentId", "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "amount",
    "currencyCode", "name", "account", "state", "http_status", "response_code", "message", "gateway_reference",
    "attempts", "sent_at", "finished_at", "batch", "environment",
)  # fmt: skip
"""CONTRACT.md, 'Files'; the file's unknown columns follow."""
KINDS = {
    "row": Kind.INTEGER, "line": Kind.INTEGER, "amount": Kind.AMOUNT, "state": Kind.STATE, "message": Kind.WRAP,
    "http_status": Kind.INTEGER, "attempts": Kind.INTEGER, "sent_at": Kind.INSTANT, "finished_at": Kind.INSTANT,
}  # fmt: skip
"""What a workbook shows as more than text."""
_SHOWN = (
    "paymentId", "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "currencyCode", "name",
    "account",
)  # fmt: skip
"""Columns that stand in a row's details."""


def write_results(ledger: Ledger, batch: BatchSummary, path: Path) -> Path:
    """Write the results of a batch, in the format that the path's ending says, atomically, mode 0600.

    Gives where they are: results of another batch are never replaced, the name gets a number.
    """
    header = _header(batch.columns)

    def is_ours(there: Path, _: int) -> bool:
        return is_results_of(there, batch.batch)

    if path.suffix.lower() != ".xlsx":
        lines = chain.from_iterable(_lines(some, batch) for some in ledger.row_columns(batch.batch))
        return write_table(path, columns(header, KINDS), lines, is_ours)
    from batchpay.reports.summary_sheet import RowTotals, write_summary_sheet

    totals = RowTotals()

    def counted() -> Iterator[tuple[str | None, ...]]:
        for some in ledger.row_columns(batch.batch):
            totals.add(map(str, some.states), some.directions, some.amounts_cents)
            yield from _lines(some, batch)

    def front(workbook: Workbook, rows: int) -> None:
        write_summary_sheet(workbook, ledger, batch, header, rows, totals)

    return write_table(path, columns(header, KINDS), counted(), is_ours, front)


def is_results_of(path: Path, batch: str) -> bool:
    """Whether a file holds results of this batch, or a header alone."""
    row = first_row(path)
    return row is not None and row.get("batch", "") in (None, batch)


def _header(carried: Sequence[str]) -> list[str]:
    """A column of the file that is named like one of ours, `state` for one, is told apart by `state (file)`."""
    names = list(HEADER)
    for name in carried:
        while name in names:
            name = f"{name} (file)"
        names.append(name)
    return names


def _lines(columns: RowColumns, batch: BatchSummary) -> Iterator[tuple[str | None, ...]]:
    details = columns.details
    shown = {name: [one.get(name) for one in details] for name in _SHOWN}
    nothing = [None] * len(batch.columns)
    carried = zip(*(one.get("carried") or nothing for one in details), strict=True)
    return zip(
        map(str, columns.rows),
        map(_number, columns.lines),
        shown["paymentId"],
        shown["invoiceNumber"],
        shown["gatewayId"],
        shown["transactionType"],
        shown["recurringIndicator"],
        map(format_cents, columns.amounts_cents),
        shown["currencyCode"],
        shown["name"],
        shown["account"],
        map(str, columns.states),
        map(_number, columns.http_statuses),
        columns.response_codes,
        [message or reason for message, reason in zip(columns.messages, columns.reasons, strict=True)],
        columns.gateway_references,
        map(str, columns.attempts),
        _instants(columns.sent_at),
        _instants(columns.finished_at),
        repeat(batch.batch, len(details)),
        repeat(str(batch.environment), len(details)),
        *carried,
        strict=True,
    )


def _number(number: int | None) -> str | None:
    return None if number is None else str(number)


def _instants(moments: Sequence[datetime | None]) -> list[str | None]:
    """Rows of one commit share their times: each is written out once."""
    texts = {moment: instant(moment) for moment in set(moments)}
    return [texts[moment] for moment in moments]
