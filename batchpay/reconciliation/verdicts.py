"""A batch compared with an export: a verdict for every row and every line, totals that add up, a file of all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from batchpay.errors import BatchpayError
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, Decision, LedgerRow
from batchpay.payment import State, Totals, format_cents
from batchpay.reconciliation.matching import BY_AMOUNT, BY_MASK, Matching
from batchpay.reconciliation.statement import Export, ExportLine, ReportedStatus, key_of
from batchpay.summary import SENDABLE
from batchpay.text import instant, place_of, place_word, totals_json
from batchpay.writing.atomic import FileOrPath
from batchpay.writing.table import write_table
from batchpay.writing.xlsx import Kind, columns

HEADER = (
    "verdict", "found_by", "row", "invoiceNumber", "gateway_reference", "name", "account", "direction", "state",
    "amount", "sent_at", "line_there", "invoice_there", "reference_there", "account_there", "status_there",
    "date_there", "amount_there", "difference", "batch",
)  # fmt: skip
_KINDS = {
    "verdict": Kind.STATE, "row": Kind.INTEGER, "state": Kind.STATE, "amount": Kind.AMOUNT, "sent_at": Kind.INSTANT,
    "line_there": Kind.INTEGER, "amount_there": Kind.DIFFERENCE, "difference": Kind.DIFFERENCE,
}  # fmt: skip


class MatchStatus(StrEnum):
    """The result for a row or for a line of the export."""

    MATCHED = "matched"
    AMOUNT_DIFFERS = "amount differs"
    STATUS_DIFFERS = "status differs"
    """Paid on one side and not on the other, or with an unknown status there."""
    MISSING_THERE = "missing there"
    """Accepted here, and not in the export."""
    PERHAPS_THERE = "perhaps there"
    """A row whose reference is masked, or a line that fits one: more than one on the other side would fit."""
    DOUBT_FOUND = "in doubt, found"
    DOUBT_NOT_FOUND = "in doubt, not found"
    NOT_EXPECTED = "not sent or declined"
    """Not in the export, as it should be."""
    AGAIN_THERE = "there again"
    """Another line for a row that already has one: a second payment, or its return."""
    UNKNOWN_HERE = "unknown here"
    OTHER_BATCH = "of another batch"
    UNREADABLE = "unreadable"


DIFFERENCES = (
    MatchStatus.AMOUNT_DIFFERS,
    MatchStatus.STATUS_DIFFERS,
    MatchStatus.MISSING_THERE,
    MatchStatus.PERHAPS_THERE,
    MatchStatus.AGAIN_THERE,
    MatchStatus.UNKNOWN_HERE,
    MatchStatus.UNREADABLE,
)
_DOUBTS = (MatchStatus.DOUBT_FOUND, MatchStatus.DOUBT_NOT_FOUND)
_PAID_OR_NOT = {State.ACCEPTED: ReportedStatus.ACCEPTED, State.DECLINED: ReportedStatus.DECLINED}


@dataclass(frozen=True, slots=True)
class FoundDoubt:
    """A row in doubt that the export has, and what follows from it; no decision where a person must make it."""

    row: LedgerRow
    place: str
    """Where a person finds the row in its file: `line 5`, `row 5`."""
    line: ExportLine
    decision: Decision | None
    why: str

    def as_json(self) -> dict[str, object]:
        """Return the row, its line and what follows; of the account at most the last four characters."""
        row, line = self.row, self.line
        return {
            "row": row.row,
            "attempts": row.attempts,
            "place": self.place,
            "amount": format_cents(row.amount_cents),
            "direction": row.direction,
            "name": row.details.get("name"),
            "account": f"****{row.last_four}",
            "line": line.line,
            "found_by": line.how,
            "reference": line.reference,
            "date": line.date_text,
            "becomes": str(self.decision.state) if self.decision else None,
            "why": self.why,
        }


@dataclass(slots=True)
class Reconciliation:
    """Rows and cents by verdict, on both sides."""

    here: dict[MatchStatus, Totals] = field(default_factory=dict)
    there: dict[MatchStatus, Totals] = field(default_factory=dict)
    """In cents as the export signs them."""
    pending_there: Totals = Totals()
    """Rows that wait to be sent but that the export says are paid: the next run would pay them again."""

    @property
    def statuses(self) -> list[MatchStatus]:
        """The verdicts that occur on either side, in their order."""
        return [status for status in MatchStatus if status in self.here or status in self.there]

    @property
    def total_here(self) -> Totals:
        """All rows that passed the rules."""
        return sum(self.here.values(), Totals())

    @property
    def total_there(self) -> Totals:
        """All lines of the export."""
        return sum(self.there.values(), Totals())

    @property
    def in_doubt(self) -> Totals:
        """Rows that still need a person."""
        return sum((self.here.get(verdict, Totals()) for verdict in _DOUBTS), Totals())

    @property
    def exit_code(self) -> int:
        """7 while a row is in doubt, 3 with differences, 0 where all is matched."""
        if self.in_doubt.rows:
            return 7
        return 3 if any(verdict in side for verdict in DIFFERENCES for side in (self.here, self.there)) else 0

    def as_json(self) -> dict[str, object]:
        """Return counts and amounts of every verdict, and the totals that they add up to."""
        sides = {"here": self.here, "there": self.there}
        return {
            "verdicts": {
                str(verdict): {word: totals_json(side.get(verdict, Totals())) for word, side in sides.items()}
                for verdict in MatchStatus
            },
            "pending_there": totals_json(self.pending_there),
            "here": totals_json(self.total_here),
            "there": totals_json(self.total_there),
        }


def found_doubts(
    ledger: Ledger, batch: BatchSummary, matching: Matching, caution: str | None = None
) -> Iterator[FoundDoubt]:
    """Yield the rows in doubt that the export has, in file order, with the decision that it supports.

    `caution` is what a person should know of the export before they agree (own_files.py).
    """
    for row in ledger.rows(batch.batch, [State.IN_DOUBT]):
        line = matching.best(row.row)
        if line is not None:
            state, why = _conclusion(row, matching)
            decision = Decision(row.row, state, line.reference or None, row.attempts) if state else None
            place = place_of(place_word(batch.file), row.row, row.line)
            yield FoundDoubt(row, place, line, decision, f"{why}; {caution}" if decision and caution else why)


def reconcile(
    ledger: Ledger, batch: BatchSummary, export: Export, matching: Matching, path: FileOrPath
) -> Reconciliation:
    """Write every row and every line with its verdict, and add them up; raises BatchpayError if they don't."""
    result = Reconciliation()
    write_table(path, columns(HEADER, _KINDS), _lines(ledger, batch.batch, export, matching, result))
    valid = sum((batch.by_state[state] for state in SENDABLE), Totals())
    read = Totals(len(export.lines), sum(line.cents or 0 for line in export.lines))
    if result.total_here != valid or result.total_there != read:
        raise BatchpayError("the reconciliation does not account for every row and line; nothing was concluded from it")
    return result


def _lines(
    ledger: Ledger, batch: str, export: Export, matching: Matching, result: Reconciliation
) -> Iterator[list[str | None]]:
    for row in ledger.rows(batch):
        line = matching.best(row.row)
        verdict, difference = _verdict(row, matching)
        _count(result.here, verdict, row.amount_cents)
        if line is not None:
            _count(result.there, verdict, line.cents or 0)
            if row.state is State.PENDING and line.standing is not ReportedStatus.DECLINED:
                result.pending_there += Totals(1, row.amount_cents)
        yield [verdict, line.how if line else None, *_ours(row), *_theirs(line), difference, batch]
        for again in matching.by_row.get(row.row, [])[1:]:
            _count(result.there, MatchStatus.AGAIN_THERE, again.cents or 0)
            ours = _ours(row, is_counted=False)
            told = "the money came back" if again.came_back else "a further line for this row"
            yield [MatchStatus.AGAIN_THERE, again.how, *ours, *_theirs(again), told, batch]
    nobody: list[str | None] = [None] * 9
    for line in export.lines:
        if line.row is None:
            strange = MatchStatus.OTHER_BATCH if line.other_batch else MatchStatus.UNKNOWN_HERE
            verdict = MatchStatus.PERHAPS_THERE if line.is_perhaps else strange
            verdict = MatchStatus.UNREADABLE if line.cents is None else verdict
            _count(result.there, verdict, line.cents or 0)
            yield [verdict, None, *nobody, *_theirs(line), None, line.other_batch or None]


def _verdict(row: LedgerRow, matching: Matching) -> tuple[MatchStatus, str | None]:
    """Return what a row and its lines, the best first, say together; and where they disagree."""
    lines = matching.by_row.get(row.row, [])
    if row.state in (State.IN_DOUBT, State.SENDING):
        return (
            (MatchStatus.DOUBT_FOUND, _conclusion(row, matching)[1]) if lines else (MatchStatus.DOUBT_NOT_FOUND, None)
        )
    if not lines:
        if row.state is not State.ACCEPTED:
            return MatchStatus.NOT_EXPECTED, None
        return (MatchStatus.PERHAPS_THERE if row.row in matching.perhaps else MatchStatus.MISSING_THERE), None
    line = lines[0]
    standing = ReportedStatus.DECLINED if line.came_back else line.standing
    opposite = standing is not ReportedStatus.OTHER and standing is not _PAID_OR_NOT.get(row.state)
    unheard = row.state is not State.ACCEPTED and standing is ReportedStatus.OTHER
    if opposite or unheard:
        return MatchStatus.STATUS_DIFFERS, f"{row.state} here, {line.said or line.standing} there"
    if line.opposes and row.state is State.ACCEPTED:
        return MatchStatus.STATUS_DIFFERS, f"accepted here; {line.opposes} there says the other direction: it came back"
    if line.is_word_unknown:
        return (
            MatchStatus.STATUS_DIFFERS,
            f"{row.state} here, {line.status_text} there: not known (see --map, [status])",
        )
    if row.amount_cents != abs(line.cents or 0):
        return MatchStatus.AMOUNT_DIFFERS, format_cents(abs(line.cents or 0) - row.amount_cents)
    if row.state is State.ACCEPTED and (back := next((one for one in lines[1:] if one.came_back), None)):
        on = f" of {back.date_text}" if back.date_text else ""
        return MatchStatus.STATUS_DIFFERS, f"accepted here; by line {back.line}{on} there it came back"
    return MatchStatus.MATCHED, line.change or None


def _conclusion(row: LedgerRow, matching: Matching) -> tuple[State | None, str]:
    """Return the state that the export proves for a row in doubt, or None where a person decides; and the reason.

    A person decides about a payment that came back or went the other way; also about a line that has no number in
    common with the row, and about one dated in the future. Of a row that was sent several times, fewer refusals may be
    about the earlier times: the last one may have been paid.
    """
    lines = matching.by_row[row.row]
    line = lines[0]
    if (problem := _proves_nothing(line, row)) is not None:
        return None, problem
    if line.came_back and line.standing is ReportedStatus.ACCEPTED:
        return None, "the line has the opposite direction: the money came back"
    if line.standing is ReportedStatus.ACCEPTED and any(other.came_back or other.opposes for other in lines[1:]):
        return None, "paid there, and a further line says that it came back"
    unknown = [other.status_text for other in lines if other.is_word_unknown]
    if line.standing is ReportedStatus.ACCEPTED and unknown:
        return None, f"paid there, and a further line says {unknown[0]}, which is not known (see --map, [status])"
    if line.opposes and line.standing is ReportedStatus.ACCEPTED:
        return None, f"{line.opposes} says the other direction, and no accepted row shows that this export means it so"
    if row.amount_cents != abs(line.cents or 0):
        return None, f"the amounts differ: {format_cents(row.amount_cents)} here, {line.amount_text} there"
    if line.standing is ReportedStatus.ACCEPTED:
        return State.ACCEPTED, f"{line.status_text or 'listed'} there"
    if line.standing is ReportedStatus.DECLINED:
        refusals = {key_of(one.reference) or one.line for one in lines if one.standing is ReportedStatus.DECLINED}
        if len(refusals) < row.attempts + row.may_lack_last_attempt(matching.restored_at):
            return None, f"{line.said} there, but the row was sent several times: this may be about an earlier one"
        return State.DECLINED, f"{line.said} there"
    if line.status_text:
        return None, f"the status there, {line.status_text}, is neither accepted nor declined (see --map, [status])"
    return None, "the export has no status for it (see --map, status.missing)"


def _proves_nothing(line: ExportLine, row: LedgerRow) -> str | None:
    """Return why a line proves nothing about a row in doubt, whatever it says became of the payment."""
    if line.is_ahead:
        return f"the line is dated {line.date_text}, which is still to come"
    if line.found_by == BY_MASK:
        return "only a part of the row's reference is known: it fits, and so do amount and date"
    if line.found_by == BY_AMOUNT:
        return "only amount, account and date match this line"
    if line.is_by_text and line.found_by == "invoice":
        return "the row's invoice number is only part of a text there"
    if line.is_shared:
        return f"a line of another row has reference {line.reference} too: one payment proves one row"
    if line.is_other_account:
        return f"the accounts differ: ****{row.last_four} here, ****{line.last_four} there"
    if line.objection and line.standing is not ReportedStatus.DECLINED:
        return f"{line.said} there"
    return None


def _ours(row: LedgerRow, *, is_counted: bool = True) -> list[str | None]:
    """Return what the ledger has of a row; its amount only once, so that the column adds up to the batch."""
    shown = row.details
    return [
        str(row.row),
        shown.get("invoiceNumber"),
        row.answer.gateway_reference,
        shown.get("name"),
        shown.get("account"),
        row.direction,
        str(row.state),
        format_cents(row.amount_cents) if is_counted else None,
        instant(row.sent_at),
    ]


def _theirs(line: ExportLine | None) -> list[str | None]:
    if line is None:
        return [None] * 7
    return [
        str(line.line),
        line.invoice or None,
        line.reference or None,
        f"****{line.last_four}" if line.last_four else None,
        line.said or None,
        line.on.isoformat() if line.on else line.date_text or None,
        line.amount_text if line.cents is None else format_cents(line.cents),
    ]


def _count(side: dict[MatchStatus, Totals], verdict: MatchStatus, cents: int) -> None:
    side[verdict] = side.get(verdict, Totals()) + Totals(1, cents)
