"""The results file: one line for every row that passed the rules, read from the ledger, in file order.

polars writes it, and is imported for it: the run before it does without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import State
from batchpay.reports.earlier_results import told_more
from batchpay.writing.columns import Kind, columns
from batchpay.writing.place import first_row
from batchpay.writing.stream import Stream

if TYPE_CHECKING:
    import polars as pl

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


def write_results(ledger: Ledger, batch: BatchSummary, path: Path | Stream) -> Path:
    """Write the results of a batch, in the format that the path's ending says, atomically, mode 0600.

    Return where they are: results of another batch are never replaced; the name gets a number.
    """
    header = _header(batch.columns)

    from batchpay.reports.result_frames import frame_of
    from batchpay.writing.frames import write_frames

    def is_ours(there: Path, _: int) -> bool:
        answered = batch.by_state[State.ACCEPTED].rows + batch.by_state[State.DECLINED].rows
        knows_all = answered == batch.total.rows  # rejected rows may have been released
        return is_results_of(there, batch.batch) and (knows_all or told_more(ledger, batch.batch, there) is None)

    parts = ledger.row_columns(batch.batch)
    if Path(str(path)).suffix.lower() != ".xlsx":
        return write_frames(path, columns(header, KINDS), (frame_of(part, header, batch) for part in parts), is_ours)
    from batchpay.reports.summary_sheet import RowTotals, write_summary_sheet

    totals = RowTotals()

    def counted() -> Iterator[pl.DataFrame]:
        for part in parts:
            totals.add(map(str, part.states), part.directions, part.amounts_cents)
            yield frame_of(part, header, batch)

    def front(workbook: Workbook, rows: int) -> None:
        write_summary_sheet(workbook, ledger, batch, header, rows, totals)

    return write_frames(path, columns(header, KINDS), counted(), is_ours, front)


def is_results_of(path: Path, batch: str) -> bool:
    """Whether a file holds results of this batch, or a header alone."""
    row = first_row(path)
    return row is not None and row.get("batch", "") in (None, batch)


def _header(carried: Sequence[str]) -> list[str]:
    """A file's column that is named like one of ours, such as `state`, becomes `state (file)`."""
    names = list(HEADER)
    for name in carried:
        while name in names:
            name = f"{name} (file)"
        names.append(name)
    return names
