"""Which line of an export is which row of a batch: by reference, by invoice number, by amount, account and date.

The export is held in memory, the ledger is streamed. Where two rows or two lines would do, none is taken: an unmatched
row is looked at by a person, a wrong match is not. A number that rows and lines share (one invoice, several payments)
pairs them by their amounts, and only if there are as many lines as rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, timedelta

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, LedgerRow
from batchpay.payment import Direction, State
from batchpay.reconciliation.statement import ExportLine, ReportedStatus

DAYS_BEFORE = 1
"""A line may be dated so many days before its row was sent: the other side's day begins elsewhere."""
OTHER_BATCH_DAYS = 31
"""Batches registered so many days away from an export's dates are not looked at for its lines."""
_COULD_BE_THERE = (State.ACCEPTED, State.IN_DOUBT, State.SENDING)

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    row: int
    cents: int


@dataclass(slots=True)
class Matching:
    """Lines by row. Within a row the best line comes first: accepted there, and of the same amount."""

    lines: list[ExportLine]
    by_row: dict[int, list[ExportLine]] = field(default_factory=dict)

    def best(self, row: int) -> ExportLine | None:
        """The line that speaks for a row, if any."""
        found = self.by_row.get(row)
        return found[0] if found else None


def match(ledger: Ledger, batch: BatchSummary, lines: list[ExportLine], days: int) -> Matching:
    """Find for every line its row of the batch, or the other batch that it belongs to.

    `days` is how long after sending a line may be dated when only amount and account speak for it.
    """
    readable = [line for line in lines if line.cents is not None]
    _by_numbers(ledger, batch, readable)
    rivals = _of_other_batches(ledger, batch, readable, days)
    _by_amount(ledger, batch, readable, rivals, days)
    matching = Matching(lines)
    for line in readable:
        if line.row is not None:
            matching.by_row.setdefault(line.row, []).append(line)
    several = {row for row, found in matching.by_row.items() if len(found) > 1}
    if several:
        for row in ledger.rows(batch.batch):
            if row.row in several:
                matching.by_row[row.row].sort(key=lambda line: _rank(line, row.amount_cents))
    return matching


def key_of(number: str | None) -> str:
    """A reference or invoice number for comparing: letter case and zeros in front are lost in spreadsheets."""
    return (number or "").strip().casefold().lstrip("0")


def amount_key(cents: int, last_four: str) -> _Key:
    """What speaks for a payment without a number: the amount, whatever its sign, and the account's last four."""
    return abs(cents), last_four


def _rank(line: ExportLine, cents: int) -> tuple[bool, bool, int]:
    return line.standing is ReportedStatus.DECLINED, abs(line.cents or 0) != cents, line.line


def _by_numbers(ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine]) -> None:
    """Match by reference, then by invoice number what no reference claimed."""
    wanted = {"reference": _index(lines, "reference"), "invoice": _index(lines, "invoice")}
    rows: dict[str, defaultdict[str, list[_Candidate]]] = {kind: defaultdict(list) for kind in wanted}
    for row in ledger.rows(batch.batch):
        for kind, number in _numbers(row).items():
            if number in wanted[kind]:
                rows[kind][number].append(_Candidate(row.row, row.amount_cents))
    taken: set[int] = set()
    for kind, found in rows.items():
        claimed: set[int] = set()
        for number, candidates in found.items():
            free = [line for line in wanted[kind][number] if line.row is None]
            for line, row_number in _pair(free, candidates, taken):
                line.row, line.found_by = row_number, kind
                claimed.add(row_number)
        taken |= claimed


def _numbers(row: LedgerRow) -> dict[str, str]:
    numbers = {
        "reference": key_of(row.answer.gateway_reference),
        "invoice": key_of(row.details.get("invoiceNumber")),
    }
    return {kind: number for kind, number in numbers.items() if number}


def _index(lines: Iterable[ExportLine], kind: str) -> dict[str, list[ExportLine]]:
    index: defaultdict[str, list[ExportLine]] = defaultdict(list)
    for line in lines:
        number = key_of(getattr(line, kind))
        if number:
            index[number].append(line)
    return dict(index)


def _pair(
    lines: Sequence[ExportLine], candidates: Sequence[_Candidate], taken: set[int]
) -> list[tuple[ExportLine, int]]:
    """Pair the lines and rows of one number. All lines of a single row are its own, several of them too."""
    if len(candidates) == 1:
        return [(line, candidates[0].row) for line in lines]
    free = [candidate for candidate in candidates if candidate.row not in taken]
    pairs: list[tuple[ExportLine, int]] = []
    for cents in {candidate.cents for candidate in free}:
        alike = [candidate for candidate in free if candidate.cents == cents]
        there = [line for line in lines if abs(line.cents or 0) == cents]
        if len(alike) == len(there):
            pairs += [(line, candidate.row) for line, candidate in zip(there, alike, strict=True)]
    return pairs


def _of_other_batches(
    ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine], days: int
) -> dict[_Key, list[date | None]]:
    """Mark lines that another batch accounts for; gives the days of its rows that look like a line left over."""
    free = [line for line in lines if line.free]
    references, invoices = _index(free, "reference"), _index(free, "invoice")
    keys = {amount_key(line.cents or 0, line.last_four) for line in free if line.last_four}
    rivals: defaultdict[_Key, list[date | None]] = defaultdict(list)
    for other in ledger.batches() if free else []:
        if other.batch == batch.batch or not _near(other, free):
            continue
        for row in ledger.rows(other.batch, [*_COULD_BE_THERE, State.DECLINED]):
            numbers = _numbers(row)
            same_invoice = invoices.get(numbers.get("invoice", ""), [])
            found = [
                *references.get(numbers.get("reference", ""), []),
                *(line for line in same_invoice if abs(line.cents or 0) == row.amount_cents),
            ]
            for line in found:
                if line.free:
                    line.other_batch = other.batch
            key = amount_key(row.amount_cents, row.last_four)
            if not found and key in keys and row.state in _COULD_BE_THERE:
                rivals[key].append(_day_of(row))
    return dict(rivals)


def _near(other: BatchSummary, lines: Sequence[ExportLine]) -> bool:
    dates = [line.on for line in lines if line.on]
    if len(dates) < len(lines):
        return True
    reach = timedelta(days=OTHER_BATCH_DAYS)
    first, last = other.registered_at.date(), (other.finished_at or other.registered_at).date()
    return min(dates) - reach <= last and first <= max(dates) + reach


def _by_amount(
    ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine], rivals: dict[_Key, list[date | None]], days: int
) -> None:
    """Match by amount, last four and date what has no number in common, where one row and one line fit each other."""
    free: defaultdict[_Key, list[ExportLine]] = defaultdict(list)
    for line in lines:
        if line.free and line.last_four and line.on:
            free[amount_key(line.cents or 0, line.last_four)].append(line)
    if not free:
        return
    # Where the export knows our numbers at all, a line with another number is another payment.
    shared = {line.found_by for line in lines if line.found_by}
    signs = len({(line.cents or 0) < 0 for line in lines}) == 2
    taken = {line.row for line in lines}
    fitting: defaultdict[int, list[int]] = defaultdict(list)
    claims: Counter[int] = Counter()
    by_number = {line.line: line for found in free.values() for line in found}
    for row in ledger.rows(batch.batch, _COULD_BE_THERE):
        if row.row in taken:
            continue
        for line in free.get(amount_key(row.amount_cents, row.last_four), []):
            if _fits(line, row, days, shared) and (not signs or _same_direction(line, row)):
                fitting[row.row].append(line.line)
                claims[line.line] += 1
    for row_number, found in fitting.items():
        line = by_number[found[0]]
        rival = any(_in_window(line, day, days) for day in rivals.get(amount_key(line.cents or 0, line.last_four), []))
        if len(found) == 1 and claims[line.line] == 1 and not rival:
            line.row, line.found_by = row_number, "amount, account and date"


def _fits(line: ExportLine, row: LedgerRow, days: int, shared: set[str]) -> bool:
    theirs = {"reference": key_of(line.reference), "invoice": key_of(line.invoice)}
    ours = _numbers(row)
    if any(theirs[kind] and ours.get(kind) for kind in shared):
        return False
    return _in_window(line, _day_of(row), days)


def _same_direction(line: ExportLine, row: LedgerRow) -> bool:
    """Where an export has both signs, what is negative left us: a credit to the payee."""
    return ((line.cents or 0) < 0) == (row.direction == Direction.CREDIT)


def _in_window(line: ExportLine, day: date | None, days: int) -> bool:
    if line.on is None or day is None:
        return True
    return -DAYS_BEFORE <= (line.on - day).days <= days


def _day_of(row: LedgerRow) -> date | None:
    moment = row.sent_at or row.finished_at
    return moment.astimezone(UTC).date() if moment else None
