"""Which files are no export, since they agree with the ledger in any case; and what a person should know of one."""

from __future__ import annotations

from batchpay.errors import FileRefused
from batchpay.ledger.records import BatchSummary
from batchpay.payment import State
from batchpay.reconciliation import resolution, verdicts
from batchpay.reconciliation.statement import Export
from batchpay.reports import results
from batchpay.schemas.columns import COLUMNS, REJECTS_OWN, REQUIRED
from batchpay.text import counted

_NO_ONE_ELSE = {
    "a rejects file": frozenset({"_errors", "_suggestions"}),
    "a reconciliation": frozenset({"found_by", "line_there", "status_there", "amount_there"}),
    "a sheet of rows in doubt": frozenset({"why_in_doubt", "sent_from_utc"}),
}
"""Columns of which a single one shows that batchpay wrote the file."""
_RESULTS = frozenset({"state", "http_status", "response_code", "gateway_reference", "attempts", "environment"})
"""Columns that only results have together."""
_RESULTS_ALONE = frozenset({"http_status", "response_code", "gateway_reference", "sent_at", "finished_at"})
"""Columns that only results have next to one named as in a payment file, where all of them are ours."""
_TELLING = ("status", "reference", "date")
"""Kinds of columns in which an export says what became of a payment."""


def refuse_own_file(export: Export, batch: BatchSummary) -> None:
    """Raise FileRefused for a file that is certainly the payment file, or was certainly written by batchpay."""
    header = {name for name in export.header if name}
    for what, names in _NO_ONE_ELSE.items():
        if header & names:
            raise FileRefused(f"{export.name} is {what} of batchpay, not an export of the gateway or the bank")
    mixed = header & _RESULTS_ALONE and header & set(COLUMNS) - {"amount"} and header <= _ours(batch)
    in_doubt = any(line.status_text.strip().lower() == State.IN_DOUBT for line in export.lines)
    if header >= _RESULTS or mixed or in_doubt or batch.batch in export.batches:
        raise FileRefused(f"{export.name} is a results file of batchpay, not an export of the gateway or the bank")
    says_nothing = header <= _ours(batch) or ("status" not in export.columns and not export.is_mapped)
    if header.issuperset(REQUIRED) and says_nothing:
        raise FileRefused(f"{export.name} is a payment file, not an export")


def caution_about(export: Export, batch: BatchSummary) -> str | None:
    """Return what a person should know before they rely on an export; None where there is nothing to know."""
    return "; ".join(filter(None, (_may_be_own(export, batch), _dates_not_read(export)))) or None


def _dates_not_read(export: Export) -> str | None:
    undated = [line for line in export.lines if line.date_text and line.on is None and line.cents is not None]
    if not undated:
        return None
    first = undated[0]
    return (
        f"the date of {counted(len(undated), 'line')} can't be read, in line {first.line} it is {first.date_text}: a"
        " payment of last month is not told from this one; format the column as a date, or say in a map how dates are"
        " written ([format], date)"
    )


def _may_be_own(export: Export, batch: BatchSummary) -> str | None:
    header, ours = {name for name in export.header if name}, _ours(batch)
    telling = {export.columns[kind] for kind in _TELLING if kind in export.columns}
    if header.issuperset(REQUIRED):
        why = "it has every column of a payment file"
    elif header <= ours or (telling and telling <= ours):
        named = ", ".join(sorted(telling or header))
        why = f"the payment file or a file of batchpay has its columns too ({named})"
    else:
        return None
    return (
        f"this may be a file of your own, not an export, since {why}: make sure that the gateway or the bank wrote it"
    )


def _ours(batch: BatchSummary) -> set[str]:
    """Return every name that the batch's payment file or a file about it can have in its header."""
    written = {*results.HEADER, *resolution.HEADER, *verdicts.HEADER, *REJECTS_OWN}
    return written | {*COLUMNS, *batch.columns} | {f"{name} (file)" for name in batch.columns}
