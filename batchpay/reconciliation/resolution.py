"""Rows in doubt, for the person who resolves them: what to look for, the sheet to fill in, what a decision will do."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from batchpay.errors import FileRefused, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import Decision, LedgerRow
from batchpay.payment import Direction, State, Totals, format_cents
from batchpay.reconciliation.sheet_reader import LOST_DIGITS, foreign_cents, read_sheet
from batchpay.text import instant, local_time
from batchpay.writing.atomic import FileOrPath, Stream
from batchpay.writing.table import write_table
from batchpay.writing.xlsx import Column, Kind

DECISIONS = {"accepted": State.ACCEPTED, "declined": State.DECLINED, "send again": State.PENDING}
"""What a person can decide about a row in doubt, and the state that follows."""
HEADER = (
    "batch", "row", "line", "invoiceNumber", "amount", "currencyCode", "direction", "name", "account",
    "sent_from_utc", "sent_until_utc", "sent_from_local", "sent_until_local", "why_in_doubt",
    "decision", "gateway_reference", "note",
)  # fmt: skip
"""The sheet's columns; the last three are the person's."""
_KINDS = {
    "row": Kind.INTEGER, "line": Kind.INTEGER, "amount": Kind.AMOUNT, "sent_from_utc": Kind.INSTANT,
    "sent_until_utc": Kind.INSTANT, "why_in_doubt": Kind.WRAP, "decision": Kind.INPUT,
    "gateway_reference": Kind.INPUT, "note": Kind.INPUT,
}  # fmt: skip
_CHOICES = {"decision": tuple(DECISIONS)}
_NEEDED = ("batch", "row", "amount", "decision")
_READ = (*_NEEDED, "sent_from_utc", "gateway_reference", "note")
_NO_REASON = "no answer was recorded"
_UNKNOWN = "unknown"
"""When a row was sent, as far as a restored ledger knows."""
_REFERENCE_CHARACTERS_MAX = 128
_NOTE_CHARACTERS_MAX = 200
_ACCOUNT_DIGITS_LEAST = 6
_ACCOUNT_DIGITS_MOST = 17
_GROUP = re.compile(r"[0-9]+")
_GROUPS = re.compile(r"[0-9]+(?:[\s./_\u2010-\u2015-]{1,2}[0-9]+)*")
"""Digits, with what people and pages write between the groups of a number."""
BATCH_MARK = "batch "
"""Precedes the batch's name in a cell: a name like 12e456789012 alone would be taken for a number."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A row in doubt, and what to look for in the gateway's portal."""

    row: int
    line: int | None
    reference: str | None
    """invoiceNumber as sent."""
    amount_cents: int
    currency: str | None
    direction: str
    name: str | None
    account: str
    """Four stars and the last four characters."""
    sent_from: datetime | None
    sent_until: datetime | None
    """When the attempt ended, or by when its deadline had passed."""
    why: str
    attempts: int
    """How often it was sent: the last time is the one in doubt."""
    restored_at: datetime | None = None
    """Which restored ledger may not know the attempt in doubt: when a person accepted it; None if it is known."""

    @property
    def attempt(self) -> str:
        """Identify the attempt in doubt among all earlier and later ones of the row."""
        return f"{self.attempts} {instant(self.sent_from) or f'restored {instant(self.restored_at)}'}"

    @property
    def money_leaves(self) -> bool:
        """Whether a second payment would be money given away: check such a row first."""
        return self.direction == Direction.CREDIT

    def as_json(self) -> dict[str, object]:
        """Return the row as `--json` shows it."""
        return {
            "row": self.row,
            "line": self.line,
            "invoiceNumber": self.reference,
            "amount": format_cents(self.amount_cents),
            "currencyCode": self.currency,
            "direction": self.direction,
            "name": self.name,
            "account": self.account,
            "sent_from": instant(self.sent_from),
            "sent_until": instant(self.sent_until),
            "why": self.why,
        }


@dataclass(slots=True)
class FilledSheet:
    """What a person decided in a sheet; rows left blank stay in doubt."""

    decisions: list[Decision] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    blank: int = 0


def rows_in_doubt(ledger: Ledger, batch: str, timeout_s: float) -> list[Doubt]:
    """Return a batch's rows in doubt, credits first, then in file order; what a killed run was sending is among them.

    `timeout_s` bounds an attempt whose end was not recorded because its run was killed.
    """
    rows = [*ledger.rows(batch, [State.IN_DOUBT]), *ledger.abandoned(ledger.find(batch))]
    restored_at = ledger.restored_at()
    doubts = [_doubt(row, timeout_s, restored_at) for row in rows]
    return sorted(doubts, key=lambda doubt: (not doubt.money_leaves, doubt.row))


def take_over(ledger: Ledger, batch: str, who: str, *, reference_is_unique: bool) -> None:
    """Put rows that a killed run left in `sending` in doubt; the caller holds the batch."""
    by_state = ledger.find(batch).by_state  # until it was held, a run may have changed it
    if by_state[State.SENDING].rows:
        run = ledger.start(batch, who, reference_is_unique=reference_is_unique)
        run.finish("an earlier run was killed" if by_state[State.PENDING].rows else None)


def effect_of(decisions: Sequence[Decision], doubts: Mapping[int, Doubt]) -> dict[State, Totals]:
    """Add up what decisions will do, by the state that follows."""
    effect: dict[State, Totals] = {}
    for decision in decisions:
        moved = Totals(1, doubts[decision.row].amount_cents)
        effect[decision.state] = effect.get(decision.state, Totals()) + moved
    return effect


def decide(row: int, decision: str, reference: str | None, doubts: Mapping[int, Doubt]) -> Decision:
    """Make the decision on one row; raises WrongUse where the row is not in doubt or the reference is not valid."""
    if row not in doubts:
        raise WrongUse(f"row {row} is not in doubt; nothing was changed")
    problem = _reference_problem(reference, DECISIONS[decision], doubts[row])
    if problem:
        raise WrongUse(problem)
    return Decision(row, DECISIONS[decision], reference or None, doubts[row].attempts)


def refuse_account_numbers(what: str, text: str, rows: Iterable[Doubt | LedgerRow]) -> None:
    """Refuse a text that seems to contain a whole account number, which the ledger must not: raises WrongUse."""
    row = _account_in(text, rows)
    if row is not None:
        raise WrongUse(f"{what} seems to contain the account number of row {row}; write its last four digits only")


def long_numbers(text: str) -> list[str]:
    """Return the digits of each number in a text that is as long as an account number, in whatever groups and forms.

    Another number may stand right before or after it: adjacent groups count together, from each to each.
    """
    found: list[str] = []
    for run in _GROUPS.findall(unicodedata.normalize("NFKC", text)):
        groups = _GROUP.findall(run)
        for first in range(len(groups)):
            number = ""
            for group in groups[first:]:
                number += group
                if len(number) >= _ACCOUNT_DIGITS_LEAST:
                    found.append(number)
                if len(number) >= _ACCOUNT_DIGITS_MOST:
                    break
    return found


def write_sheet(path: FileOrPath, batch: str, doubts: Iterable[Doubt]) -> None:
    """Write rows in doubt as a sheet to fill in, never over an existing file: it may be filled in already."""
    if not isinstance(path, Stream) and os.path.lexists(path):
        raise WrongUse(f"{path} already exists and may be filled in; name another file")
    header = [Column(name, _KINDS.get(name, Kind.TEXT), _CHOICES.get(name, ())) for name in HEADER]
    write_table(path, header, (_sheet_row(batch, doubt) for doubt in doubts))


def read_decisions(path: FileOrPath, batch: str, doubts: Mapping[int, Doubt]) -> FilledSheet:
    """Read a filled sheet; raises FileRefused, naming the line, where it is not about these rows in doubt."""
    lines = read_sheet(path)
    _, header = next(lines, (0, []))
    at = {name.strip().lower(): index for index, name in enumerate(header) if name}
    missing = [name for name in _NEEDED if name not in at]
    if missing:
        raise FileRefused(f"{path} is not a sheet of rows in doubt: it has no column {', '.join(missing)}")
    names = [name.strip().lower() for name in header]
    if twice := [name for name in _READ if names.count(name) > 1]:
        raise FileRefused(f"{path} has several columns {', '.join(twice)}: leave one of them; nothing was changed")
    filled = FilledSheet()
    seen: dict[int, int] = {}
    for line, cells in lines:
        texts = {name: cells[index] if index < len(cells) else "" for name, index in at.items()}
        problem = _read_line(texts, batch, doubts, seen, line, filled)
        if problem:
            raise FileRefused(f"{path}: line {line}: {problem}; nothing was changed")
    return filled


def reason_with_notes(reason: str, notes: Sequence[tuple[int, str]]) -> str:
    """Join the reason with the person's notes on single rows, as the ledger records it."""
    return "; ".join([reason, *(f"row {row}: {note}" for row, note in notes)])


def _doubt(row: LedgerRow, timeout_s: float, restored_at: datetime | None) -> Doubt:
    shown, sent, why = row.details, row.sent_at, row.reason or _NO_REASON
    if sent is not None and row.may_lack_last_attempt(restored_at):
        why = f"{why}; sent {instant(sent)}, and perhaps again in the time that the restored ledger lost"
        sent = None
    until = sent and (row.finished_at or sent + timedelta(seconds=timeout_s))
    return Doubt(
        row=row.row,
        line=row.line,
        reference=shown.get("invoiceNumber"),
        amount_cents=row.amount_cents,
        currency=shown.get("currencyCode"),
        direction=row.direction,
        name=shown.get("name"),
        account=shown.get("account") or "****",
        sent_from=sent,
        sent_until=until,
        why=why,
        attempts=row.attempts,
        restored_at=restored_at if sent is None else None,
    )


def _sheet_row(batch: str, doubt: Doubt) -> list[str | None]:
    cells = doubt.as_json() | {
        "batch": f"{BATCH_MARK}{batch}",
        "sent_from_utc": instant(doubt.sent_from) or _unknown(doubt),
        "sent_until_utc": instant(doubt.sent_until),
        "sent_from_local": doubt.sent_from and local_time(doubt.sent_from),
        "sent_until_local": doubt.sent_until and local_time(doubt.sent_until),
        "why_in_doubt": doubt.why,
    }
    return [None if (cell := cells.get(name)) is None else str(cell) for name in HEADER]


def _unknown(doubt: Doubt) -> str:
    """Name the attempt in doubt by the attempts that a restored ledger knows of, and by which restored ledger it is.

    Another sheet of the row differs, and so does one written before the same backup was restored again.
    """
    return f"{_UNKNOWN} (attempts known: {doubt.attempts}, ledger restored {instant(doubt.restored_at)})"


def _read_line(
    texts: Mapping[str, str],
    batch: str,
    doubts: Mapping[int, Doubt],
    seen: dict[int, int],
    line: int,
    into: FilledSheet,
) -> str | None:
    """Read one line of the sheet; return what is wrong with it, if anything."""
    if texts["batch"].removeprefix(BATCH_MARK) != batch:
        return f"it is not about batch {batch}"
    if not re.fullmatch(r"[0-9]{1,10}(\.0+)?", texts["row"], re.ASCII):
        return "its row number can't be read"
    row = int(texts["row"].partition(".")[0])
    if row in seen:
        return f"row {row} is already in line {seen[row]}"
    seen[row] = line
    word = re.sub(r"[\s_-]+", " ", texts["decision"]).strip().lower()
    if not word:
        into.blank += 1
        return None
    if word not in DECISIONS:
        return f"a decision is one of {', '.join(DECISIONS)}, or blank"
    if row not in doubts:
        return f"row {row} is not in doubt"
    if (late := _attempt_problem(texts.get("sent_from_utc", ""), doubts[row])) is not None:
        return late
    if foreign_cents(texts["amount"]) != doubts[row].amount_cents:
        return f"the amount of row {row} is {format_cents(doubts[row].amount_cents)} in the ledger"
    reference = texts.get("gateway_reference", "")
    problem = _reference_problem(reference, DECISIONS[word], doubts[row])
    if problem:
        return problem
    note = " ".join(texts.get("note", "").split())[:_NOTE_CHARACTERS_MAX]
    if _account_in(note, [doubts[row]]) is not None:
        return "the note seems to contain the account number; write its last four digits only"
    into.decisions.append(Decision(row, DECISIONS[word], reference or None, doubts[row].attempts))
    if note:
        into.notes.append((row, note))
    return None


def _attempt_problem(text: str, doubt: Doubt) -> str | None:
    """Return what is wrong where a sheet's line is, or may be, about an attempt before the one in doubt now."""
    sent = None
    with suppress(ValueError):
        sent = datetime.fromisoformat(text)
    if doubt.sent_from is None:
        if text.lower() == _unknown(doubt).lower():
            return None
        return (
            f"row {doubt.row} may have been sent since this sheet was written (the ledger was restored), or its "
            "sent_from_utc was changed: look it up, and decide in a new sheet"
        )
    if sent is None and not text.lower().startswith(_UNKNOWN):
        if doubt.attempts <= 1:
            return None
        return f"row {doubt.row} was tried more than once, and sent_from_utc does not say which attempt this is about"
    # Clocks are set back, and other machines have others: an attempt with an earlier time is another one as well.
    if sent is not None and abs(doubt.sent_from - sent.replace(tzinfo=sent.tzinfo or UTC)) < timedelta(seconds=1):
        return None
    return f"row {doubt.row} was sent again after this sheet was written, look it up again"


def _account_in(text: str, rows: Iterable[Doubt | LedgerRow]) -> int | None:
    """Return the first row whose last four account digits end a long number of the text."""
    endings = {number[-4:] for number in long_numbers(text)}
    return next((one.row for one in rows if one.account[-4:] in endings), None) if endings else None


def _reference_problem(reference: str | None, state: State, doubt: Doubt) -> str | None:
    if not reference:
        return None
    if state is State.PENDING:
        return "the gateway has a payment that has a gateway_reference: it must not be sent again"
    if reference == LOST_DIGITS:
        return "gateway_reference lost digits in the spreadsheet; make the cell a text and write it again"
    if len(reference) > _REFERENCE_CHARACTERS_MAX or not reference.isprintable():
        return f"gateway_reference is longer than {_REFERENCE_CHARACTERS_MAX} characters or contains control characters"
    if _account_in(reference, [doubt]) is not None:
        return f"gateway_reference seems to contain the account number of row {doubt.row}; leave it out"
    return None
