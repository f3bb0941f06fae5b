"""Match a batch with a gateway's or a bank's export; settle what it proves, if a named person requests it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchpay.errors import FileRefused
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Actor, State
from batchpay.reconciliation import resolution, verdicts
from batchpay.reconciliation.hints import hints
from batchpay.reconciliation.matching import Matching, match
from batchpay.reconciliation.resolution import rows_in_doubt, take_over
from batchpay.reconciliation.statement import Export, ExportMap, load_export_map, read_export
from batchpay.reconciliation.verdicts import FoundDoubt, Reconciliation, found_doubts
from batchpay.reconciliation.verdicts import reconcile as write_reconciliation
from batchpay.reports import results
from batchpay.schemas.columns import COLUMNS, REJECTS_OWN, REQUIRED
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import counted
from batchpay.workflows.resolve import Decider
from batchpay.workflows.status import OutputPath
from batchpay.writing.atomic import Stream
from batchpay.writing.table import table_format


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """What a batch is matched with."""

    against: str | Stream
    """The export, or its path."""
    map_file: str | None = None
    days: int = 5
    """How many days after sending a line may be dated, if only amount and account match."""
    output: str | Stream | OutputPath = field(kw_only=True)
    """Where every row and line goes; it is determined before anything is settled."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A batch compared with an export."""

    summary: Summary
    export: Export
    result: Reconciliation
    found: Sequence[FoundDoubt]
    """Rows that were in doubt and that the export has."""
    settled: Sequence[FoundDoubt]
    path: Path
    hints: Sequence[str]
    """Why rows may be missing there although its numbers or totals agree."""
    caution: str | None
    """Why the export may be a file of one's own; it is also said of every row in doubt that it has."""

    def as_json(self) -> dict[str, Any]:
        """Return the batch's summary and what the comparison found, as CONTRACT.md says."""
        found = {
            "against": self.export.name,
            "columns": self.export.columns,
            "skipped_lines": self.export.skipped,
            "caution": self.caution,
            "hints": list(self.hints),
            **self.result.as_json(),
            "found_doubts": [doubt.as_json() for doubt in self.found],
            "settled": [doubt.row.row for doubt in self.settled],
            "written": str(self.path),
        }
        return {**self.summary.as_json(), "exit_code": self.result.exit_code, "reconciliation": found}


def reconcile(
    reference: str,
    request: ReconcileRequest,
    settings: Settings,
    actor: Actor,
    decider: Decider[FoundDoubt] | None = None,
) -> Reconciled:
    """Match a batch with an export and write every row and line; `decider` settles rows in doubt that it proves."""
    mapping = load_export_map(request.map_file, ExportMap) if request.map_file else ExportMap()
    export = read_export(request.against, mapping)
    if not settings.gateway.reference_is_unique:
        for line in export.lines:
            line.reference = ""
    with closing(open_ledger(settings.ledger, read_only=decider is None)) as ledger:
        found = ledger.find(reference)
        refuse_own_file(export, found)
        caution = caution_about(export, found)
        output = request.output(found) if callable(request.output) else request.output
        table_format(output)
        if decider is not None:
            with ledger.lock(found.digest):
                doubts, matching = _settle(ledger, found, export, request.days, settings, actor, decider, caution)
        else:
            matching = match(ledger, found, export.lines, request.days)
            doubts = list(found_doubts(ledger, found, matching, caution))
        settled = [doubt for doubt in doubts if decider is not None and doubt.decision is not None]
        found = ledger.find(found.batch)
        result = write_reconciliation(ledger, found, export, matching, output)
        said = hints(ledger, found, export, matching, request.against, request.days)
    return Reconciled(summary_of_batch(found), export, result, doubts, settled, Path(str(output)), said, caution)


def _settle(
    ledger: Ledger,
    batch: BatchSummary,
    export: Export,
    days: int,
    settings: Settings,
    actor: Actor,
    decider: Decider[FoundDoubt],
    caution: str | None,
) -> tuple[list[FoundDoubt], Matching]:
    """Show every row in doubt that the export has, ask, and settle those whose outcome it shows; return all of them."""
    take_over(ledger, batch.batch, str(actor), reference_is_unique=settings.gateway.reference_is_unique)
    batch = ledger.find(batch.batch)  # until it was held, a run may have left rows in doubt
    matching = match(ledger, batch, export.lines, days)
    found = list(found_doubts(ledger, batch, matching, caution))
    for doubt in found:
        decider.show(doubt)
    settled = [doubt for doubt in found if doubt.decision is not None]
    if settled:
        signature, doubts = decider.sign(), rows_in_doubt(ledger, batch.batch, settings.gateway.timeout)
        who = signature.recorded(actor, lambda: doubts)
        decider.confirm(0)
        decisions = [doubt.decision for doubt in settled if doubt.decision is not None]
        ledger.resolve(batch.batch, decisions, who, f"{signature.reason}; found in {Path(export.name).name}")
    return found, matching


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
