"""Why payments are missing from an export whose numbers or totals agree: words for a person. They settle nothing.

Another header may have the invoice numbers, days may stand where months were read, the bank may book a whole batch as
one amount. The export is read once more for it, only where rows are missing and lines are left over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, LedgerRow
from batchpay.payment import State
from batchpay.reconciliation.matching import Matching, day_of, in_window
from batchpay.reconciliation.sheet_reader import foreign_date, read_sheet
from batchpay.reconciliation.statement import Export, ExportLine, key_of, numbers_in
from batchpay.text import counted, money, row_count
from batchpay.writing.atomic import FileOrPath

_ROWS_MAX = 100_000
"""So many missing rows are looked for; if more are missing, the first of them show why."""
_PAID = (State.ACCEPTED, State.IN_DOUBT, State.SENDING)


@dataclass(slots=True)
class _Missing:
    """The rows of a batch that the export should have and no line is about."""

    count: int = 0
    cents: dict[str, int] = field(default_factory=lambda: {"DEBIT": 0, "CREDIT": 0})
    numbers: dict[str, dict[str, list[LedgerRow]]] = field(default_factory=lambda: {"invoice": {}, "reference": {}})
    """Rows by invoice number and by reference, as compared."""
    accounts: defaultdict[tuple[int, str], list[LedgerRow]] = field(default_factory=lambda: defaultdict(list))
    """Rows by cents and last four."""

    def add(self, row: LedgerRow) -> None:
        """Add a row."""
        self.count += 1
        self.cents[row.direction] += row.amount_cents
        if self.count <= _ROWS_MAX:
            self.accounts[row.amount_cents, row.last_four].append(row)
            for kind, number in (
                ("invoice", row.details.get("invoiceNumber")),
                ("reference", row.answer.gateway_reference),
            ):
                if key := key_of(number):
                    self.numbers[kind].setdefault(key, []).append(row)


def hints(
    ledger: Ledger, batch: BatchSummary, export: Export, matching: Matching, path: FileOrPath, days: int
) -> list[str]:
    """Return what a person may look at first, a sentence each; none where nothing is missing."""
    left = [line for line in export.lines if line.free]
    missing = _Missing()
    for row in ledger.rows(batch.batch, _PAID) if left else ():
        if row.row not in matching.by_row and row.row not in matching.perhaps:
            missing.add(row)
    if not missing.count:
        return []
    found = [*_other_columns(path, export, missing, left), *_swapped_days(export, missing, left, days)]
    return found or list(_totals(missing, left))


def _other_columns(path: FileOrPath, export: Export, missing: _Missing, left: Sequence[ExportLine]) -> Iterator[str]:
    """Name the columns that have the numbers of missing rows, whole or within a text."""
    wanted = {line.line for line in left}
    seen: defaultdict[tuple[str, int, bool], set[str]] = defaultdict(set)
    with closing(read_sheet(path, export.sheet)) as lines:
        for line, cells in lines:
            for at, cell in enumerate(cells[: len(export.header)]) if line in wanted else ():
                for kind, rows in missing.numbers.items():
                    if (key := key_of(cell)) in rows:
                        seen[kind, at, False].add(key)
                    elif kind == "invoice":
                        seen[kind, at, True].update(key for key in numbers_in(cell) if key in rows)
    for (kind, at, is_text), numbers in sorted(seen.items()):
        header = export.header[at]
        is_chance = len(numbers) < 2 and (missing.count > 1 or len(next(iter(numbers), "")) < len("12345"))
        if is_chance or export.columns.get("text" if is_text else kind) == header:
            continue
        what = "invoice numbers" if kind == "invoice" else "gateway's references"
        where = "within its text" if is_text else "whole"
        yield (
            f"column {header} has the {what} of {len(numbers):,} of the {row_count(missing.count)} missing there,"
            f' {where}: name it in a map (--map), [columns] {"text" if is_text else kind} = "{header}"'
        )


def _swapped_days(export: Export, missing: _Missing, left: Sequence[ExportLine], days: int) -> Iterator[str]:
    """Say that dates fit once the day is read first, where no date of the file shows its order."""
    if export.is_day_first is not None:
        return
    fitting = 0
    for line in left:
        cents, swapped = abs(line.cents or 0), foreign_date(line.date_text, day_first=True)
        rows = [one for one in missing.numbers["invoice"].get(key_of(line.invoice), ()) if one.amount_cents == cents]
        rows = rows or missing.accounts.get((cents, line.last_four), [])
        if swapped is not None and line.on is not None and swapped != line.on:
            sent = [day for row in rows if (day := day_of(row)) is not None and not in_window(line, day, days)]
            fitting += any(-1 <= (swapped - day).days <= days for day in sent)
    if fitting:
        example = next(line.date_text for line in left if line.on)
        yield (
            f"dates such as {example} were read as month/day; as day/month {counted(fitting, 'line')} would fit"
            ' rows missing there: if that is meant, say so in a map (--map), [format] date = "%d/%m/%Y"'
        )


def _totals(missing: _Missing, left: Sequence[ExportLine]) -> Iterator[str]:
    """Say that one line, or all lines that are left over, have the total of the missing rows."""
    debits, credits = missing.cents["DEBIT"], missing.cents["CREDIT"]
    totals = {debits, credits, debits + credits, abs(debits - credits)} - {0}
    sums = [line for line in left if abs(line.cents or 0) in totals]
    if missing.count > 1 and sums:
        line = sums[0]
        on = f" of {line.date_text}" if line.date_text else ""
        yield (
            f"line {line.line}{on}, {money(abs(line.cents or 0))}, is the sum of the {row_count(missing.count)} missing"
            " there: the bank may have booked them as one amount, and does not tell them apart"
        )
    elif abs(sum(line.cents or 0 for line in left)) in totals:
        yield (
            f"the {counted(len(left), 'line')} unknown here and the {row_count(missing.count)} missing there have the"
            " same total: look for what their numbers have in common"
        )
