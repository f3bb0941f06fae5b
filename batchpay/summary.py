"""The summary that ends every command on a batch: rows and cents by state, which add up or raise.

Read from the ledger (submit, resume, status) or from the check alone (validate, dry run). Plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from batchpay.errors import LedgerDamaged
from batchpay.payment import Environment, RunWork, State, Totals, format_cents
from batchpay.text import (
    currencies_note,
    instant,
    left_out_json,
    left_out_note,
    local_time,
    row_count,
    totals_apart,
    totals_json,
)
from batchpay.writing.atomic import ReadFiles

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary

_AS_IN_LEDGER = (
    "file", "total", "by_state", "batch", "environment", "results", "results_missing", "ledger_failed", "stopped",
    "started_at", "finished_at", "by_direction", "apart", "rate_found", "work", "scheduled", "scheduled_apart",
    "next_pay_on", "by_day", "returned_apart",
)  # fmt: skip
"""What a batch's summary takes over as it is."""
_OVER_DAY = "limits.max_per_"
"""A run that a limit of the day has ended says so with its name, first."""
SENDABLE = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.PENDING, State.SENDING)
"""States of the rows that passed the rules, in the order in which a person wants to see them."""


@dataclass(slots=True)
class Summary:
    """What one command did with one file, or found about one batch."""

    file: str
    total: Totals
    by_state: dict[State, Totals]
    batch: str | None = None
    environment: Environment | None = None
    warnings: int = 0
    results: str | None = None
    rejects: str | None = None
    results_missing: bool = False
    """Whether results were to be written but could not be: `batchpay results` writes them."""
    ledger_failed: bool = False
    """Whether the ledger failed in the middle: the next run on this machine merges the gateway's last answers."""
    stopped: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    by_direction: dict[str, Totals] = field(default_factory=dict)
    apart: dict[State, dict[str, Totals]] = field(default_factory=dict)
    """Rows and cents by DEBIT and CREDIT of each state in which rows are that passed the rules."""
    notes: list[str] = field(default_factory=list)
    outdated: str | None = None
    """The note that the ledger, which was only read, may not know of the latest payments; among `notes` as well."""
    allowed_duplicates: dict[str, Any] = field(default_factory=lambda: {"rows": 0, "amount": "0.00", "list": []})
    """Bills that --allow-duplicates let through: rows, amount, and the first of them with what they repeat."""
    rate_found: float | None = None
    """Requests per second that the gateway accepted, where this call found its limit."""
    currencies: dict[str, Totals] = field(default_factory=dict)
    """The rows that passed the rules, by currency; none where the ledger has no other than US dollars."""
    left_out: dict[str, Totals] = field(default_factory=dict)
    """Rows that a map leaves out of the file, by the word that says they are no payments; in no other total here."""
    seal: str | None = None
    """What maker and checker compare (approval/proposal.py), where a plan or a dry run determines what is sent."""
    scheduled: Totals = Totals()
    """The pending rows whose day (payOn) has not come."""
    scheduled_apart: dict[str, Totals] = field(default_factory=dict)
    """The same by DEBIT and CREDIT."""
    by_day: dict[date, dict[str, Totals]] = field(default_factory=dict)
    """Pending rows with a day of their own, by day, each by DEBIT and CREDIT."""
    next_pay_on: date | None = None
    """The first day on which scheduled rows are due."""
    returned_apart: dict[str, Totals] = field(default_factory=dict)
    """Accepted rows that came back, by DEBIT and CREDIT."""
    held_back: Totals = Totals()
    """Pending rows that fail today's rules: they stay pending and are not sent."""
    released: Totals = Totals()
    """Rows rejected earlier that this call let through."""
    in_doubt_elsewhere: dict[str, dict[str, Totals]] = field(default_factory=dict)
    """Other batches with rows in doubt, by name, each by DEBIT and CREDIT: a person must review them."""
    read: ReadFiles | None = None
    """Which files were read; None for standard input, objects of a store, and where none was."""
    work: RunWork = RunWork()
    """What this call did: the rest is about the file or the batch, whoever did it."""
    paid_before: str | None = None
    """That nothing was left to send, of what was paid by an earlier call; among `notes` as well."""
    checked_only: bool = False
    """Whether nothing was to be sent: then rows that wait are no reason for exit code 6."""

    def __post_init__(self) -> None:
        """Enforce promise 2: the states account for every row and every cent."""
        added = sum((self.of(state) for state in State), Totals())
        if added != self.total:
            raise LedgerDamaged(
                f"{self.file}: the states add up to {row_count(added.rows)} and {format_cents(added.cents)}, "
                f"the file has {row_count(self.total.rows)} and {format_cents(self.total.cents)}"
            )
        if self.standing.rows < 0:
            raise LedgerDamaged(f"{self.file}: more rows came back than were accepted")

    def of(self, state: State) -> Totals:
        """Return the rows and cents in one state."""
        return self.by_state.get(state, Totals())

    def amount_in(self, *states: State) -> str:
        """Return what rows in these states total, for people: debits and credits apart where there are both."""
        amount = totals_apart(self.apart.get(state, {}) for state in states)
        return f"{amount} in several currencies" if len(self.currencies) > 1 else amount

    @property
    def returned(self) -> Totals:
        """Return the accepted rows that came back; those and `standing` are all that were accepted."""
        return sum(self.returned_apart.values(), Totals())

    @property
    def standing(self) -> Totals:
        """Return the accepted rows that did not come back."""
        return self.of(State.ACCEPTED) - self.returned

    @property
    def valid(self) -> Totals:
        """Rows and cents that passed the rules."""
        return sum((self.of(state) for state in SENDABLE), Totals())

    @property
    def due(self) -> Totals:
        """Return the pending rows that a run would send now."""
        return self.of(State.PENDING) - self.held_back - self.scheduled

    @property
    def in_file(self) -> Totals:
        """Rows and cents of the file: rejected, left out and valid."""
        return sum(self.left_out.values(), self.total)

    @property
    def waiting(self) -> int:
        """How many rows are still to be sent."""
        return self.due.rows + self.of(State.SENDING).rows

    @property
    def seconds(self) -> float:
        """How long it took, as far as both ends are known."""
        if self.started_at is None or self.finished_at is None:
            return 0.0
        return (self.finished_at - self.started_at).total_seconds()

    @property
    def is_stopped(self) -> bool:
        """Whether something of it was left undone that a later call does."""
        return bool(self.stopped or (self.waiting and not self.checked_only))

    @property
    def exit_code(self) -> int:
        """CONTRACT's exit code: 5 if only the results are left to write, else the first of 7, 8, 6, 3 that applies."""
        if self.of(State.IN_DOUBT).rows or self.in_doubt_elsewhere:
            return 7
        if self.results_missing and not self.waiting and not self.ledger_failed:
            return 5
        if self.is_stopped:
            return 8 if (self.stopped or "").startswith(_OVER_DAY) else 6
        return 3 if self.of(State.REJECTED).rows + self.of(State.DECLINED).rows + self.held_back.rows else 0

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of CONTRACT.md; the same keys for every command that handles a batch."""
        amounts = {"total": self.in_file, "valid": self.valid} | {str(state): self.of(state) for state in State}
        amounts |= {"returned": self.returned, "standing": self.standing}
        return {
            "batch": self.batch,
            "environment": self.environment,
            "file": self.file,
            "rows": self.in_file.rows,
            "valid": self.valid.rows,
            **{str(state): self.of(state).rows for state in State},
            "returned": self.returned.rows,
            "standing": self.standing.rows,
            "warnings": self.warnings,
            "amount": {name: format_cents(totals.cents) for name, totals in amounts.items()},
            "debit": totals_json(self.by_direction.get("DEBIT", Totals())),
            "credit": totals_json(self.by_direction.get("CREDIT", Totals())),
            "currencies": {code: totals_json(one) for code, one in sorted(self.currencies.items())},
            "left_out": left_out_json(self.left_out),
            "held_back": totals_json(self.held_back),
            "scheduled": totals_json(self.scheduled),
            "next_pay_on": self.next_pay_on and self.next_pay_on.isoformat(),
            "released": totals_json(self.released),
            "in_doubt_elsewhere": [
                {"batch": name, **totals_json(sum(sides.values(), Totals()))}
                for name, sides in self.in_doubt_elsewhere.items()
            ],
            "results": self.results,
            "rejects": self.rejects,
            "stopped": self.stopped,
            "notes": self.notes,
            "allowed_duplicates": self.allowed_duplicates,
            "rate_found": self.rate_found,
            "seal": self.seal,
            "started_at": instant(self.started_at),
            "finished_at": instant(self.finished_at),
            "exit_code": self.exit_code,
        }


def note_if_outdated(why: str | None) -> str | None:
    """Return the note that a ledger may not know of the latest payments, for the reason that it gives."""
    return f"these numbers may be old: {why}" if why else None


def summary_of_batch(batch: BatchSummary) -> Summary:
    """Read a batch's summary from the ledger."""
    outdated = note_if_outdated(batch.outdated)
    purged = batch.purged_at and (
        f"names, details and messages were purged {local_time(batch.purged_at)}: results and reports can no "
        "longer be written, and an export is matched by the gateway's reference alone"
    )
    left_out = batch.left_out
    told, several = left_out_note(left_out) if left_out else None, currencies_note(batch.currencies)
    notes = [
        each
        for each in (outdated, told, several, *batch.late_answers, batch.clock_note, batch.pace_told, purged)
        if each
    ]
    held_back = batch.held_back if batch.held_back.rows <= batch.due.rows else batch.due  # some are now in doubt
    same = {name: getattr(batch, name) for name in _AS_IN_LEDGER}
    summary = Summary(
        **same, left_out=left_out, currencies=batch.currencies, outdated=outdated, notes=notes, held_back=held_back
    )
    summary.warnings = batch.options.get("warnings", 0)
    summary.allowed_duplicates = batch.options.get("allowed_duplicates") or summary.allowed_duplicates
    return summary
