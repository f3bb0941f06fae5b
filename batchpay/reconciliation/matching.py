"""Which line of an export is which row of a batch: by reference, by invoice number, by amount, account and date.

The export is held in memory, the ledger is streamed. Where two rows or two lines would fit, none is taken: a person
reviews an unmatched row, but not a wrong match. Where several rows and lines share a number (one invoice, several
payments), they are paired by their amounts, and only if there are as many lines as rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, LedgerRow
from batchpay.payment import Direction, State
from batchpay.reconciliation.export_map import ReportedStatus
from batchpay.reconciliation.masked_rows import MaskedRows
from batchpay.reconciliation.references import are_gateways, is_masked, key_of, may_be
from batchpay.reconciliation.statement import ExportLine
from batchpay.reconciliation.windows import DAYS_AHEAD, DAYS_BEFORE, day_of, in_window

OTHER_BATCH_DAYS = 31
"""Batches registered more than this many days away from an export's dates are not searched for its lines."""
BY_AMOUNT = "amount, account and date"
"""How a line was matched that has no number in common with its row."""
_COULD_BE_THERE = (State.ACCEPTED, State.IN_DOUBT, State.SENDING)

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    row: int
    cents: int
    since: date | None
    """The day on which the row was sent; if it never was, as far as the ledger knows, that of its registration."""
    is_in_doubt: bool
    reference: str
    """The gateway's, if it answered with one."""

    def comes_after(self, line: ExportLine) -> bool:
        """Whether a line is too old to be about the row."""
        return line.on is not None and self.since is not None and (line.on - self.since).days < -DAYS_BEFORE

    def has_another(self, line: ExportLine) -> bool:
        """Whether a line has another reference than the row."""
        there = key_of(line.reference)
        return bool(there and self.reference) and not may_be(self.reference, there)


@dataclass(slots=True)
class Matching:
    """Lines by row. For each row the best line comes first: accepted there, and with the same amount."""

    lines: list[ExportLine]
    by_row: dict[int, list[ExportLine]] = field(default_factory=dict)
    perhaps: set[int] = field(default_factory=set)
    """Rows with a masked reference that several lines fit, or whose line fits several rows."""
    restored_at: datetime | None = None
    """When a restored ledger was last accepted: of a row that it sent before, it may not know the last attempt."""

    def best(self, row: int) -> ExportLine | None:
        """Return the line that decides about a row, if any."""
        found = self.by_row.get(row)
        return found[0] if found else None


def match(
    ledger: Ledger, batch: BatchSummary, lines: list[ExportLine], days: int, today: date | None = None
) -> Matching:
    """Find for every line its row of the batch, or the other batch that it belongs to.

    `days` is how long after sending a line may be dated when only amount and account match; `today` is the day in UTC,
    by default the clock's.
    """
    readable = [line for line in lines if line.cents is not None]
    last_day = (today or datetime.now(UTC).date()) + timedelta(days=DAYS_AHEAD)
    for line in readable:
        line.is_ahead = line.on is not None and line.on > last_day
    masked_in, owners = _note_owners(ledger, batch, readable)
    masked = MaskedRows(ledger, batch, masked_in, readable)
    purged = _PurgedRows(ledger, batch, readable, days)
    has_references = are_gateways(ledger, owners)
    _by_numbers(ledger, batch, readable, purged, masked, has_references=has_references)
    rivals = _of_other_batches(ledger, batch, readable, days)
    perhaps = masked.match(readable, days, {line.found_by for line in readable})
    _by_amount(ledger, batch, readable, rivals, purged, days, has_references=has_references)
    both_signs = len({(line.cents or 0) < 0 for line in readable}) == 2
    matching = Matching(lines, perhaps=perhaps, restored_at=ledger.restored_at())
    for line in readable:
        if line.row is not None:
            matching.by_row.setdefault(line.row, []).append(line)
    several = {row for row, found in matching.by_row.items() if len(found) > 1 or both_signs}
    if several:
        for row in ledger.rows(batch.batch):
            if row.row in several:
                found = matching.by_row[row.row]
                # With lines of both signs one undoes the other; a single one just proves nothing about a row in doubt.
                if len({(line.cents or 0) < 0 for line in found}) == 2 or (both_signs and row.state is State.IN_DOUBT):
                    for line in found:
                        line.came_back = line.came_back or not _same_direction(line, row)
                found.sort(key=lambda line: _rank(line, row.amount_cents))
    _note_shared_references(matching)
    _note_unclear_signs(ledger, batch, matching)
    _note_other_accounts(ledger, batch, matching)
    return matching


def _note_shared_references(matching: Matching) -> None:
    """Mark lines of several rows that have one reference: one payment, listed twice, proves one row."""
    rows_of: defaultdict[str, set[int | None]] = defaultdict(set)
    matched = [line for found in matching.by_row.values() for line in found if key_of(line.reference)]
    for line in matched:
        rows_of[key_of(line.reference)].add(line.row)
    for line in matched:
        line.is_shared = line.is_shared or len(rows_of[key_of(line.reference)]) > 1


def _note_other_accounts(ledger: Ledger, batch: BatchSummary, matching: Matching) -> None:
    """Mark lines of rows in doubt with another account than the row's.

    Not where the export has other accounts in every line: they may be our own. A row that is not in doubt shows that.
    """
    doubts = batch.by_state[State.IN_DOUBT].rows + batch.by_state[State.SENDING].rows
    if not doubts or not any(line.row is not None and line.last_four for line in matching.lines):
        return
    has_ours = has_others = False
    differing: list[ExportLine] = []
    for row in ledger.rows(batch.batch):
        for line in matching.by_row.get(row.row, ()):
            if not line.last_four or not row.last_four.isdecimal() or line.found_by == BY_AMOUNT:
                continue
            if line.last_four == row.last_four.zfill(len(line.last_four)):
                has_ours = True
            elif row.state in (State.IN_DOUBT, State.SENDING):
                differing.append(line)
            else:
                has_others = True
    for line in differing:
        line.is_other_account = has_ours or not has_others


def _note_unclear_signs(ledger: Ledger, batch: BatchSummary, matching: Matching) -> None:
    """Mark lines of rows in doubt whose sign says the other direction, in an export with only one sign.

    Money that came back looks the same as a payment in an export that writes debits with a minus. An accepted row of
    the same direction shows which of the two it is; without one a person decides.
    """
    if not any(line.row is not None and line.states_direction for line in matching.lines):
        return
    shown: set[str] = set()
    unclear: dict[int, str] = {}
    for row in ledger.rows(batch.batch, [State.ACCEPTED, State.IN_DOUBT]):
        for line in matching.by_row.get(row.row, ()):
            if not line.states_direction or _same_direction(line, row) or line.found_by == BY_AMOUNT:
                continue
            if row.state is State.IN_DOUBT:
                unclear[row.row] = row.direction
            elif line.standing is ReportedStatus.ACCEPTED:
                shown.add(row.direction)
    for number, direction in unclear.items():
        for line in matching.by_row[number]:
            line.is_sign_unclear = direction not in shown


def amount_key(cents: int, last_four: str) -> _Key:
    """Return what identifies a payment without a number: the amount, whatever its sign, and the account's last four."""
    return abs(cents), last_four


def _rank(line: ExportLine, cents: int) -> tuple[bool, bool, bool, int]:
    is_declined = line.came_back or line.standing is ReportedStatus.DECLINED
    return is_declined, line.is_ahead, abs(line.cents or 0) != cents, line.line


def _note_owners(
    ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine]
) -> tuple[set[str], dict[str, set[int]]]:
    """Mark lines whose reference the ledger knows from a row: they belong to that row, and never to another.

    Return the batches with rows whose reference is masked, and by batch the rows that have a line.

    Where a gateway gave one reference to rows of two batches, the line is compared with the batch being reconciled.
    """
    wanted = _index(lines, "reference")
    own: set[int] = set()
    masked_in: set[str] = set()
    owners: defaultdict[str, set[int]] = defaultdict(set)
    for name, row, reference in ledger.gateway_references(batch.environment) if wanted else ():
        if is_masked(reference):
            masked_in.add(name)
            continue
        for line in wanted.get(key_of(reference), ()):
            line.is_owned = True
            owners[name].add(row)
            if name == batch.batch:
                own.add(line.line)
            else:
                line.other_batch = name
    for line in lines:
        if line.line in own and line.other_batch:
            line.other_batch, line.is_shared = "", True
    return masked_in, owners


class _PurgedRows:
    """Payments of other batches whose invoice number and account were erased: any line that fits one may be its own."""

    def __init__(self, ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine], days: int) -> None:
        self._days = days
        self._sent: defaultdict[int, list[date | None]] = defaultdict(list)
        wanted = {abs(line.cents or 0) for line in lines if line.free}
        for other in ledger.batches() if wanted else []:
            if other.purged_at and other.batch != batch.batch and other.environment is batch.environment:
                for row in ledger.rows(other.batch, _COULD_BE_THERE) if _near(other, lines, days) else ():
                    if row.amount_cents in wanted:
                        self._sent[row.amount_cents].append(day_of(row))

    def may_own(self, line: ExportLine) -> bool:
        """Whether amount and date of a line fit such a payment."""
        return any(in_window(line, day, self._days) for day in self._sent.get(abs(line.cents or 0), ()))


def _by_numbers(
    ledger: Ledger,
    batch: BatchSummary,
    lines: Sequence[ExportLine],
    purged: _PurgedRows,
    masked: MaskedRows,
    *,
    has_references: bool,
) -> None:
    """Match by reference, then by invoice number what no reference claimed.

    Where an export has the gateway's own references, a row is not found by the line of another reference.

    An invoice number says nothing about a row that was sent after the line: last month's payment of the same bill is
    another one. A row in doubt is proven by it only if the line has a date and no other batch has the same invoice
    number and amount. Nor does a reference of two batches, or a line whose reference may be the masked one of another
    row, prove anything.
    """
    wanted = {"reference": _index(lines, "reference"), "invoice": _index(lines, "invoice")}
    rows: dict[str, defaultdict[str, list[_Candidate]]] = {kind: defaultdict(list) for kind in wanted}
    for row in ledger.rows(batch.batch):
        for kind, number in _numbers(row).items():
            if number in wanted[kind]:
                doubt = row.state in (State.IN_DOUBT, State.SENDING)
                # A restored ledger does not know when a row in doubt was sent: not before its batch was registered.
                since = day_of(row) or (batch.registered_at.astimezone(UTC).date() if doubt else None)
                reference = "" if row.was_settled else key_of(row.answer.gateway_reference)
                rows[kind][number].append(_Candidate(row.row, row.amount_cents, since, doubt, reference))
    doubtful = {(number, one.cents) for number, found in rows["invoice"].items() for one in found if one.is_in_doubt}
    elsewhere = _invoices_of_other_batches(ledger, batch, doubtful)
    taken: set[int] = set()
    for kind, found in rows.items():
        claimed: set[int] = set()
        for number, candidates in found.items():
            free = [line for line in wanted[kind][number] if line.row is None and not line.other_batch]
            if kind == "invoice":
                free = [line for line in free if not line.is_owned]
                free = [line for line in free if not all(one.comes_after(line) for one in candidates)]
            for line, one in _pair(free, candidates, taken):
                is_another = has_references and one.row not in taken and one.has_another(line)
                if kind == "invoice" and (is_another or one.comes_after(line)):
                    continue
                is_elsewhere = (number, one.cents) in elsewhere or purged.may_own(line)
                is_elsewhere = is_elsewhere or masked.may_be_anothers(line, one.row)
                if one.is_in_doubt and not _proves(kind, line, is_elsewhere):
                    continue
                line.row, line.found_by = one.row, kind
                claimed.add(one.row)
        taken |= claimed


def _proves(kind: str, line: ExportLine, is_elsewhere: bool) -> bool:
    """Whether a line with the reference or the invoice number of a row in doubt can only be about that row."""
    if kind == "reference":
        return not line.is_shared and not is_masked(line.reference)
    return line.on is not None and not is_elsewhere


def _invoices_of_other_batches(
    ledger: Ledger, batch: BatchSummary, wanted: set[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Return those invoice numbers, with amounts, that another batch of the environment also has."""
    found: set[tuple[str, int]] = set()
    others = [one for one in ledger.batches() if one.environment is batch.environment and one.batch != batch.batch]
    for other in others if wanted else ():
        for row in ledger.rows(other.batch):
            key = (_numbers(row).get("invoice", ""), row.amount_cents)
            if key in wanted:
                found.add(key)
    return found


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
) -> list[tuple[ExportLine, _Candidate]]:
    """Pair the lines and rows of one number. A single row gets all its lines, even several.

    Lines of one reference are one payment, listed several times. Where rows that look the same are in doubt, lines that
    contradict each other, or have no date, belong to none.
    """
    if len(candidates) == 1:
        return [(line, candidates[0]) for line in lines]
    free = [candidate for candidate in candidates if candidate.row not in taken]
    pairs: list[tuple[ExportLine, _Candidate]] = []
    for cents in {candidate.cents for candidate in free}:
        alike = [candidate for candidate in free if candidate.cents == cents]
        there = [line for line in lines if abs(line.cents or 0) == cents]
        unclear = len({line.standing for line in there}) > 1 or any(line.on is None for line in there)
        payments: defaultdict[str | int, list[ExportLine]] = defaultdict(list)
        for line in there:
            payments[key_of(line.reference) or line.line].append(line)
        if len(alike) == len(payments) and not (unclear and any(candidate.is_in_doubt for candidate in alike)):
            pairs += [(line, one) for one, listed in zip(alike, payments.values(), strict=True) for line in listed]
    return pairs


def _of_other_batches(
    ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine], days: int
) -> dict[_Key, list[date | None]]:
    """Mark lines that another batch accounts for; return the days of its rows that look like a line left over."""
    free = [line for line in lines if line.free]
    invoices = _index(free, "invoice")
    keys = {amount_key(line.cents or 0, line.last_four) for line in free if line.last_four}
    rivals: defaultdict[_Key, list[date | None]] = defaultdict(list)
    for other in ledger.batches() if free else []:
        if other.batch == batch.batch or other.environment is not batch.environment or not _near(other, free, days):
            continue
        for row in ledger.rows(other.batch, [*_COULD_BE_THERE, State.DECLINED]):
            same_invoice = invoices.get(_numbers(row).get("invoice", ""), [])
            found = [line for line in same_invoice if abs(line.cents or 0) == row.amount_cents]
            for line in found:
                if line.free:
                    line.other_batch = other.batch
            key = amount_key(row.amount_cents, row.last_four)
            if not found and key in keys and row.state in _COULD_BE_THERE:
                rivals[key].append(day_of(row))
    return dict(rivals)


def _near(other: BatchSummary, lines: Sequence[ExportLine], days: int) -> bool:
    dates = [line.on for line in lines if line.on]
    if len(dates) < len(lines):
        return True
    reach = timedelta(days=max(OTHER_BATCH_DAYS, days))
    first, last = other.registered_at.date(), (other.finished_at or other.registered_at).date()
    return min(dates) - reach <= last and first <= max(dates) + reach


def _by_amount(
    ledger: Ledger,
    batch: BatchSummary,
    lines: Sequence[ExportLine],
    rivals: dict[_Key, list[date | None]],
    purged: _PurgedRows,
    days: int,
    *,
    has_references: bool,
) -> None:
    """Match rows and lines with no number in common by amount, last four and date, where exactly one fits one."""
    free: defaultdict[_Key, list[ExportLine]] = defaultdict(list)
    for line in lines:
        if line.free and line.last_four and line.on:
            free[amount_key(line.cents or 0, line.last_four)].append(line)
    if not free:
        return
    # Where the export has our numbers at all, a line with a different number is a different payment.
    shared = {line.found_by for line in lines} & {"invoice", *(["reference"] if has_references else [])}
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
        rival = any(in_window(line, day, days) for day in rivals.get(amount_key(line.cents or 0, line.last_four), []))
        if len(found) == 1 and claims[line.line] == 1 and not rival and not purged.may_own(line):
            line.row, line.found_by = row_number, BY_AMOUNT


def _fits(line: ExportLine, row: LedgerRow, days: int, shared: set[str]) -> bool:
    theirs = {"reference": key_of(line.reference), "invoice": key_of(line.invoice)}
    ours = _numbers(row)
    if any(theirs[kind] and ours.get(kind) for kind in shared):
        return False
    return in_window(line, day_of(row), days)


def _same_direction(line: ExportLine, row: LedgerRow) -> bool:
    """Whether the directions agree: where an export has both signs, negative left us, a credit to the payee."""
    return ((line.cents or 0) < 0) == (row.direction == Direction.CREDIT)
