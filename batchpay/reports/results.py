"""The results file: one line for every row that passed the rules, read from the ledger, in file order."""

from __future__ import annotations

from pathlib import Path

from batchpay.files.tables import write_table
from batchpay.ledger.contract import BatchSummary, Ledger, LedgerRow
from batchpay.payment import format_cents
from batchpay.reports.summary import instant

HEADER = (
    "row", "line", "paymentId", "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "amount",
    "currencyCode", "name", "account", "state", "http_status", "response_code", "message", "gateway_reference",
    "attempts", "sent_at", "finished_at", "batch",
)  # fmt: skip
"""CONTRACT.md, 'Files'; the file's unknown columns follow."""


def write_results(ledger: Ledger, batch: BatchSummary, path: Path) -> None:
    """Write the results of a batch, in the format that the path's ending says, atomically, mode 0600."""
    rows = (_line(row, batch) for row in ledger.rows(batch.batch))
    write_table(path, [*HEADER, *batch.columns], rows)


def _line(row: LedgerRow, batch: BatchSummary) -> list[str | None]:
    shown = row.details
    answer = row.answer
    carried = shown.get("carried") or [None] * len(batch.columns)
    return [
        str(row.row),
        None if row.line is None else str(row.line),
        shown.get("paymentId"),
        shown.get("invoiceNumber"),
        shown.get("gatewayId"),
        shown.get("transactionType"),
        shown.get("recurringIndicator"),
        format_cents(row.amount_cents),
        shown.get("currencyCode"),
        shown.get("name"),
        shown.get("account"),
        str(row.state),
        None if answer.http_status is None else str(answer.http_status),
        answer.response_code,
        answer.message or row.reason,
        answer.gateway_reference,
        str(row.attempts),
        instant(row.sent_at),
        instant(row.finished_at),
        batch.batch,
        *carried,
    ]
