"""Which line of an export is which row of a batch: by reference, by invoice number, by amount, account and date.

The export is held in memory, and of the ledger what its lines may be about: each row is read once. Where two rows or
two lines would fit, none is taken: a person reviews an unmatched row, but not a wrong match. Where several rows and
lines share a number (one invoice, several payments), they are paired by their amounts, and only if there are as many
lines as rows.

The ledger keeps some references masked. No line has such a reference, and the row was paid nevertheless: reported as
missing, somebody would pay it again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, LedgerRow
from batchpay.payment import Direction, State
from batchpay.reconciliation.statement import ExportLine, ReportedStatus, is_masked, key_of, may_be, numbers_in

OTHER_BATCH_DAYS = 31
"""Batches registered more than this many days away from an export's dates are not searched for its lines."""
DAYS_BEFORE = 1
"""A line may be dated this many days before its row was sent: the other side's day begins at another time."""
DAYS_AHEAD = 1
"""A line may be dated this many days after today: the other side's day may have begun already."""
BY_AMOUNT = "amount, account and date"
"""How a line was matched that has no number in common with its row."""
BY_MASK = "part of the reference, amount and date"
"""How a line was matched whose reference fits what is left of its row's."""
_COULD_BE_THERE = (State.ACCEPTED, State.IN_DOUBT, State.SENDING)
_SENT = (*_COULD_BE_THERE, State.DECLINED)
_DOUBTS = (State.IN_DOUBT, State.SENDING)

_OTHER = {Direction.DEBIT: Direction.CREDIT, Direction.CREDIT: Direction.DEBIT}

_AmountKey = tuple[int, str]


@dataclass(frozen=True, slots=True)
class SentRow:
    """What matching needs of a row that a line may be about, of this batch or of another."""

    batch: str
    row: int
    cents: int
    state: State
    direction: str
    last_four: str
    day: date | None
    """The day on which it was sent."""
    since: date | None
    """The same; of a row in doubt whose sending a restored ledger does not know, the day of its registration."""
    reference: str
    """As compared (references.py); a part of it may be masked."""
    invoice: str
    was_settled: bool
    is_near: bool = True
    """Whether its batch is of the export's time."""
    is_purged: bool = False

    def comes_after(self, line: ExportLine) -> bool:
        """Whether a line is too old to be about the row."""
        return line.on is not None and self.since is not None and (line.on - self.since).days < -DAYS_BEFORE


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
    _take_from_texts(ledger, batch, readable)
    masked_in, owners = _note_owners(ledger, batch, readable)
    wanted = _Wanted(readable)
    own = list(filter(wanted.has, _rows_of(ledger, batch)))
    others = list(_rows_of_others(ledger, batch, wanted, own, masked_in | owners.keys(), readable, days))
    # The ledger also knows a bank's references, of rows in doubt that were settled by its export.
    has_references = any(one.row in owners.get(one.batch, ()) and not one.was_settled for one in [*own, *others])
    masked = _MaskedRows(batch.batch, [*own, *others], readable)
    purged = [one for one in others if one.is_purged and one.is_near and one.state in _COULD_BE_THERE]

    def may_be_erased(line: ExportLine) -> bool:
        """Whether a line fits a payment of another batch whose invoice number and account were erased."""
        return any(one.cents == abs(line.cents or 0) and in_window(line, one.day, days) for one in purged)

    elsewhere = {(one.invoice, one.cents) for one in others}

    def proves(kind: str, line: ExportLine, one: SentRow) -> bool:
        """Whether a line with the reference or the invoice number of a row in doubt can only be about that row."""
        if kind == "reference":
            return not line.is_shared and not is_masked(line.reference)
        is_elsewhere = (one.invoice, one.cents) in elsewhere or may_be_erased(line)
        return line.on is not None and not is_elsewhere and not masked.may_be_anothers(line, one.row)

    _by_numbers(own, readable, proves, has_references=has_references)
    rivals = _note_other_batches(others, readable)
    perhaps = masked.match(readable, days, {line.found_by for line in readable})
    for line, one in _by_amount(own, readable, days, has_references=has_references):
        likes = rivals.get(_amount_key(line), ())
        if not any(in_window(line, day, days) for day in likes) and not may_be_erased(line):
            line.row, line.found_by = one.row, BY_AMOUNT
    matching = Matching(lines, perhaps=perhaps, restored_at=ledger.restored_at())
    for line in readable:
        if line.row is not None:
            matching.by_row.setdefault(line.row, []).append(line)
    rows = {one.row: one for one in own if one.row in matching.by_row}
    _note_directions(matching.by_row, rows, readable, days)
    for row, found in matching.by_row.items():
        cents = rows[row].cents
        found.sort(key=lambda line: _rank(line, cents))
    _note_shared_references(matching)
    _note_other_accounts(matching.by_row, rows)
    return matching


def day_of(row: LedgerRow) -> date | None:
    """Return the day on which a row was sent, in UTC."""
    moment = row.sent_at or row.finished_at
    return moment.astimezone(UTC).date() if moment else None


def in_window(line: ExportLine, day: date | None, days: int) -> bool:
    """Whether a line's date fits a row sent on that day; an unknown one may be any day."""
    return line.on is None or day is None or -DAYS_BEFORE <= (line.on - day).days <= days


def _take_from_texts(ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine]) -> None:
    """Take the invoice number of a line from its text, if it has one of the batch there, and that row's amount."""
    texts = [line for line in lines if line.text and not line.invoice]
    cents_of: defaultdict[str, set[int]] = defaultdict(set)
    for row in ledger.rows(batch.batch) if texts else ():
        cents_of[key_of(row.details.get("invoiceNumber"))].add(row.amount_cents)
    for line in texts:
        found = [one for key, one in numbers_in(line.text).items() if abs(line.cents or 0) in cents_of.get(key, ())]
        if len(found) == 1:
            line.invoice, line.is_by_text = found[0], True


def _note_owners(
    ledger: Ledger, batch: BatchSummary, lines: Sequence[ExportLine]
) -> tuple[set[str], dict[str, set[int]]]:
    """Mark lines whose reference the ledger knows from a row: they belong to that row, and never to another.

    Return the batches with rows whose reference is masked, and by batch the rows that have a line.

    Where a gateway gave one reference to several rows, the line is compared with the batch being reconciled, and
    settles none.
    """
    wanted = _index(lines, "reference")
    own: defaultdict[int, list[int]] = defaultdict(list)
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
                own[line.line].append(row)
            else:
                line.other_batch = name
    for line in lines:
        if (rows := own.get(line.line)) and (line.other_batch or len(rows) > 1):
            line.other_batch, line.is_shared = "", True
    return masked_in, owners


class _Wanted:
    """What the lines of an export have in common with the rows that they may be about."""

    def __init__(self, lines: Sequence[ExportLine]) -> None:
        self.references, self.invoices = _index(lines, "reference"), _index(lines, "invoice")
        self.keys = {_amount_key(line) for line in lines if line.last_four}
        self.cents = {abs(line.cents or 0) for line in lines}

    def has(self, one: SentRow) -> bool:
        """Whether some line may be about a row."""
        only_amount = one.is_purged or is_masked(one.reference)
        by_number = one.reference in self.references or one.invoice in self.invoices
        return by_number or (one.cents, one.last_four) in self.keys or (only_amount and one.cents in self.cents)


def _rows_of(
    ledger: Ledger, batch: BatchSummary, cents: Collection[int] | None = None, *, is_near: bool = True
) -> Iterator[SentRow]:
    registered = batch.registered_at.astimezone(UTC).date()
    for row in ledger.rows(batch.batch, cents=cents):
        day = day_of(row)
        yield SentRow(
            batch.batch, row.row, row.amount_cents, row.state, row.direction, row.last_four, day,
            # A restored ledger does not know when a row in doubt was sent: not before its batch was registered.
            since=day or (registered if row.state in _DOUBTS else None),
            reference=key_of(row.answer.gateway_reference), invoice=key_of(row.details.get("invoiceNumber")),
            was_settled=row.was_settled, is_near=is_near, is_purged=batch.purged_at is not None,
        )  # fmt: skip


def _rows_of_others(
    ledger: Ledger, batch: BatchSummary, wanted: _Wanted, own: Sequence[SentRow], named: Collection[str],
    lines: Sequence[ExportLine], days: int,
) -> Iterator[SentRow]:  # fmt: skip
    """Yield the rows of other batches of the environment that lines may be about, at one decryption for each.

    Of batches of another time that are not `named`, only what may be the bill of a row in doubt.
    """
    bills = {one.cents for one in own if one.state in _DOUBTS and one.invoice in wanted.invoices}
    for other in ledger.batches() if lines else ():
        if other.environment is batch.environment and other.batch != batch.batch:
            is_near = _near(other, lines, days)
            cents = bills | wanted.cents if is_near or other.batch in named else bills
            if cents:
                yield from filter(wanted.has, _rows_of(ledger, other, cents, is_near=is_near))


def _near(other: BatchSummary, lines: Sequence[ExportLine], days: int) -> bool:
    dates = [line.on for line in lines if line.on]
    if len(dates) < len(lines):
        return True
    reach = timedelta(days=max(OTHER_BATCH_DAYS, days))
    first, last = other.registered_at.date(), (other.finished_at or other.registered_at).date()
    return min(dates) - reach <= last and first <= max(dates) + reach


def _index(lines: Iterable[ExportLine], kind: str) -> dict[str, list[ExportLine]]:
    index: defaultdict[str, list[ExportLine]] = defaultdict(list)
    for line in lines:
        number = key_of(getattr(line, kind))
        if number:
            index[number].append(line)
    return dict(index)


def _amount_key(line: ExportLine) -> _AmountKey:
    """Return what identifies a payment without a number: the amount, whatever its sign, and the account's last four."""
    return abs(line.cents or 0), line.last_four


def _by_numbers(
    own: Sequence[SentRow],
    lines: Sequence[ExportLine],
    proves: Callable[[str, ExportLine, SentRow], bool],
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
    taken: set[int] = set()
    for kind in ("reference", "invoice"):
        claimed: set[int] = set()
        rows: defaultdict[str, list[SentRow]] = defaultdict(list)
        for one in own:
            rows[getattr(one, kind)].append(one)
        for number, listed in _index(lines, kind).items():
            candidates = rows.get(number, [])
            free = [line for line in listed if line.row is None and not line.other_batch]
            if kind == "invoice":
                free = [line for line in free if not line.is_owned]
                free = [line for line in free if not all(one.comes_after(line) for one in candidates)]
            for line, one in _pair(free, candidates, taken):
                there = key_of(line.reference) if has_references and one.row not in taken else ""
                is_another = there and one.reference and not one.was_settled and not may_be(one.reference, there)
                if kind == "invoice" and (is_another or one.comes_after(line)):
                    continue
                if one.state not in _DOUBTS or proves(kind, line, one):
                    line.row, line.found_by = one.row, kind
                    claimed.add(one.row)
        taken |= claimed


def _pair(
    lines: Sequence[ExportLine], candidates: Sequence[SentRow], taken: set[int]
) -> list[tuple[ExportLine, SentRow]]:
    """Pair the lines and rows of one number. A single row gets all its lines, even several.

    Lines of one reference are one payment, listed several times. Where rows that look the same are in doubt, lines that
    contradict each other, or have no date, belong to none.
    """
    if len(candidates) == 1:
        return [(line, candidates[0]) for line in lines]
    free = [candidate for candidate in candidates if candidate.row not in taken]
    pairs: list[tuple[ExportLine, SentRow]] = []
    for cents in {candidate.cents for candidate in free}:
        alike = [candidate for candidate in free if candidate.cents == cents]
        there = [line for line in lines if abs(line.cents or 0) == cents]
        unclear = len({line.standing for line in there}) > 1 or any(line.on is None for line in there)
        payments: defaultdict[str | int, list[ExportLine]] = defaultdict(list)
        for line in there:
            payments[key_of(line.reference) or line.line].append(line)
        if len(alike) == len(payments) and not (unclear and any(one.state in _DOUBTS for one in alike)):
            pairs += [(line, one) for one, listed in zip(alike, payments.values(), strict=True) for line in listed]
    return pairs


class _MaskedRows:
    """The rows with a masked reference that lines of an export may be about."""

    def __init__(self, batch: str, rows: Iterable[SentRow], lines: Sequence[ExportLine]) -> None:
        self._batch = batch
        self._of: defaultdict[int, list[SentRow]] = defaultdict(list)
        masked = [one for one in rows if is_masked(one.reference) and one.state in _SENT]
        for line in lines if masked else ():
            if line.reference and not line.is_owned:
                self._of[line.line] = [
                    one
                    for one in masked
                    if one.cents == abs(line.cents or 0) and may_be(one.reference, key_of(line.reference))
                ]

    def may_be_anothers(self, line: ExportLine, row: int) -> bool:
        """Whether a line may be about another row than this one of the batch, whose reference is masked."""
        return any(
            (one.batch, one.row) != (self._batch, row)
            and (line.on is None or one.day is None or (line.on - one.day).days >= -DAYS_BEFORE)
            for one in self._of.get(line.line, ())
        )

    def match(self, lines: Sequence[ExportLine], days: int, kinds: Collection[str]) -> set[int]:
        """Match where one line and one row fit each other; return all rows that some line would fit.

        Lines that may belong to such rows are marked, so that no other row gets them. `kinds` are the kinds of number
        by which lines were matched: where invoice numbers are known, a different one is a different payment.
        """
        taken = {line.row for line in lines}
        fitting: defaultdict[int, list[ExportLine]] = defaultdict(list)
        claims: dict[int, list[SentRow]] = {}
        for line in lines:
            claims[line.line] = owners = [
                one
                for one in (self._of.get(line.line, ()) if line.free else ())
                if in_window(line, one.day, days) and not (one.batch == self._batch and one.row in taken)
            ]
            line.is_perhaps = bool(owners)
            for one in owners:
                if one.batch == self._batch:
                    fitting[one.row].append(line)
        for row, found in fitting.items():
            line, owners = found[0], claims[found[0].line]
            other_invoice = "invoice" in kinds and line.invoice and owners[0].invoice not in ("", key_of(line.invoice))
            if len(found) == 1 and len(owners) == 1 and not other_invoice:
                line.row, line.found_by = row, BY_MASK
        return set(fitting)


def _note_other_batches(
    others: Iterable[SentRow], lines: Sequence[ExportLine]
) -> Mapping[_AmountKey, Sequence[date | None]]:
    """Mark lines that another batch accounts for; return the days of its rows that look like a line left over."""
    invoices = _index([line for line in lines if line.free], "invoice")
    rivals: defaultdict[_AmountKey, list[date | None]] = defaultdict(list)
    for one in others:
        if not one.is_near or one.state not in _SENT:
            continue
        found = [line for line in invoices.get(one.invoice, ()) if abs(line.cents or 0) == one.cents]
        for line in found:
            if line.free:
                line.other_batch = one.batch
        if not found and one.state in _COULD_BE_THERE:
            rivals[one.cents, one.last_four].append(one.day)
    return rivals


def _by_amount(
    own: Sequence[SentRow], lines: Sequence[ExportLine], days: int, *, has_references: bool
) -> Iterator[tuple[ExportLine, SentRow]]:
    """Yield rows and lines with no number in common, by amount, last four and date, where exactly one fits one."""
    free: defaultdict[_AmountKey, list[ExportLine]] = defaultdict(list)
    for line in lines:
        if line.free and line.last_four and line.on:
            free[_amount_key(line)].append(line)
    # Where the export has our numbers at all, a line with a different number is a different payment.
    shared = {line.found_by for line in lines} & {"invoice", *(["reference"] if has_references else [])}
    has_signs, taken = _has_both_signs(lines), {line.row for line in lines}
    fitting: list[tuple[ExportLine, SentRow]] = []
    for one in own if free else ():
        if one.row not in taken and one.state in _COULD_BE_THERE:
            fitting += [
                (line, one)
                for line in free.get((one.cents, one.last_four), ())
                if in_window(line, one.day, days)
                and not any(key_of(getattr(line, kind)) and getattr(one, kind) for kind in shared)
                and (not has_signs or ((line.cents or 0) < 0) == (one.direction == Direction.CREDIT))
            ]
    rows, claims = Counter(one.row for _, one in fitting), Counter(line.line for line, _ in fitting)
    return ((line, one) for line, one in fitting if rows[one.row] == claims[line.line] == 1)


def _has_both_signs(lines: Iterable[ExportLine]) -> bool:
    return len({line.cents < 0 for line in lines if line.cents}) == 2


def _note_directions(
    by_row: Mapping[int, Sequence[ExportLine]],
    rows: Mapping[int, SentRow],
    lines: Sequence[ExportLine],
    days: int,
) -> None:
    """Mark lines whose sign or type says the other direction than the row has: the money may have come back.

    Money that came back looks the same as a payment in an export that writes debits with a minus, and a bank's debit is
    the credit that was sent. How the export writes a direction is shown by the accepted rows of that direction, by most
    of them: a row in doubt is not settled by a line that is written differently, or in a way that none of them shows.
    Of a row with lines of both directions, one undoes the other.
    """
    has_signs = _has_both_signs(lines)
    kinds = {line.direction for line in lines if line.direction}

    def by_sign(line: ExportLine) -> Direction | None:
        if not line.cents or (line.cents > 0 and not has_signs and not line.states_direction):
            return None
        return Direction.CREDIT if line.cents < 0 else Direction.DEBIT

    _note_opposite(by_row, rows, days, "the amount's sign", by_sign, has_both=has_signs)
    _note_opposite(by_row, rows, days, "the type", lambda line: line.direction, has_both=len(kinds) == 2)


_Said = tuple[SentRow, ExportLine, Direction]
"""A row, its line, and the direction that the line says."""


def _note_opposite(
    by_row: Mapping[int, Sequence[ExportLine]],
    rows: Mapping[int, SentRow],
    days: int,
    what: str,
    said_by: Callable[[ExportLine], Direction | None],
    *,
    has_both: bool,
) -> None:
    """Mark lines of the other direction by `what` says one in this export, which `has_both` directions or one."""
    alone: list[_Said] = []
    undone: list[list[_Said]] = []
    for row, found in by_row.items():
        said = [(rows[row], line, direction) for line in found if (direction := said_by(line)) is not None]
        if len({direction for *_, direction in said}) == 2:
            undone.append(said)
        elif found[0].found_by != BY_AMOUNT:
            alone += said
    shown = _shown(alone, days, what)
    for said in undone:
        paid = _paid_in(said, shown)
        for _, line, direction in said:
            line.came_back |= direction != paid
    for one, line, direction in alone:
        same, differ = shown[one.direction, direction], shown[one.direction, _OTHER[direction]]
        is_rare, is_opposite = 0 < differ >= same, direction != one.direction
        if one.state is State.ACCEPTED and (is_rare or (same == 1 and has_both and is_opposite)):
            line.opposes = what
        elif one.state in _DOUBTS and has_both and is_opposite:
            line.came_back = True
        elif one.state in _DOUBTS and (is_rare or (is_opposite and not same)):
            line.opposes = what


def _shown(alone: Sequence[_Said], days: int, what: str) -> Counter[tuple[str, Direction]]:
    """Count how the export writes accepted rows of each direction; mark lines that are too late to show it."""
    shown: Counter[tuple[str, Direction]] = Counter()
    for one, line, direction in alone:
        if one.state is State.ACCEPTED and (line.standing is ReportedStatus.ACCEPTED or not line.said):
            if direction != one.direction and one.day and line.on and (line.on - one.day).days > days:
                line.opposes = what  # nothing but its day tells it from a payment
            else:
                shown[one.direction, direction] += 1
    return shown


def _paid_in(said: Sequence[_Said], shown: Mapping[tuple[str, Direction], int]) -> Direction:
    """Return which direction the payment has in the export, of a row that has lines of both: one undoes the other.

    It is the one in which accepted rows are written there, else the one that came first, else the row's own.
    """
    one = said[0][0]
    first, second = (shown.get((one.direction, direction), 0) for direction in Direction)
    if first != second:
        return list(Direction)[first < second]
    days = [(line.on, direction) for _, line, direction in said if line.on]
    earliest = {direction for day, direction in days if day == min(day for day, _ in days)}
    if len(days) == len(said) and len(earliest) == 1:
        return earliest.pop()
    return Direction(one.direction)


def _rank(line: ExportLine, cents: int) -> tuple[bool, bool, bool, int]:
    is_declined = line.came_back or line.standing is ReportedStatus.DECLINED or bool(line.opposes)
    return is_declined, line.is_ahead, abs(line.cents or 0) != cents, line.line


def _note_shared_references(matching: Matching) -> None:
    """Mark lines of several rows that have one reference: one payment, listed twice, proves one row."""
    rows_of: defaultdict[str, set[int | None]] = defaultdict(set)
    matched = [line for found in matching.by_row.values() for line in found if key_of(line.reference)]
    for line in matched:
        rows_of[key_of(line.reference)].add(line.row)
    for line in matched:
        line.is_shared = line.is_shared or len(rows_of[key_of(line.reference)]) > 1


def _note_other_accounts(by_row: Mapping[int, Sequence[ExportLine]], rows: Mapping[int, SentRow]) -> None:
    """Mark lines of rows in doubt with another account than the row's.

    Not where the export has other accounts in every line: they may be our own. A row that is not in doubt shows that.
    """
    has_ours = has_others = False
    differing: list[ExportLine] = []
    for one, line in ((rows[row], line) for row, found in by_row.items() for line in found):
        if not line.last_four or not one.last_four.isdecimal() or line.found_by == BY_AMOUNT:
            continue
        if line.last_four == one.last_four.zfill(len(line.last_four)):
            has_ours = True
        elif one.state in _DOUBTS:
            differing.append(line)
        else:
            has_others = True
    for line in differing:
        line.is_other_account = has_ours or not has_others
