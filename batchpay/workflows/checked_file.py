"""A payment file that was checked: all that was found in it, and what a person should know of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.all_new import AllNew
from batchpay.approval.anomalies import Anomalies, Variance
from batchpay.approval.cash_flow import Schedule
from batchpay.approval.to_send import ToSend
from batchpay.intake.source import Source
from batchpay.payment import State, Totals
from batchpay.schemas.options import RuleOptions
from batchpay.summary import Summary
from batchpay.text import money, place_of, row_count
from batchpay.validation.verdict import Verdict
from batchpay.workflows.earlier_payments import EarlierPayments
from batchpay.workflows.file_request import FileRequest
from batchpay.workflows.gateway_accounts import AccountsAnswer
from batchpay.workflows.rejected_earlier import how_to_release
from batchpay.writing.atomic import FileIdentity, ReadFiles

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary


@dataclass(slots=True)
class FileCheck:
    """A file that was read whole, and all that was found in it."""

    source: Source
    verdict: Verdict
    started_at: datetime
    digest: bytes = b""
    known: BatchSummary | None = None
    """The batch that this content already is."""
    batch: BatchSummary | None = None
    """The batch that a submission continues; None if it registers a new one."""
    nothing_to_send: bool = False
    """Whether the batch has no row that waits, and none is to be released."""
    releasable: Totals = Totals()
    """Rows that an earlier call rejected and that are valid now, as far as was checked: what a release adds."""
    registration_count_seen: int = 0
    """Ledger.registration_count() before the file was read."""
    late_failures: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """Rows that an earlier batch has or whose account the gateway refuses: column, code, message."""
    earlier: EarlierPayments = field(default_factory=EarlierPayments)
    """What the rows have in common with earlier payments."""
    rejected: list[pl.DataFrame] = field(default_factory=list)
    """Why rows were rejected (ChunkResult.rejected), if a ledger is to record it."""
    gateway_ids: set[str] = field(default_factory=set)
    """Gateway accounts named in rows that passed the rules."""
    accounts: AccountsAnswer = AccountsAnswer()
    """What the gateway said of those accounts, if it was asked."""
    first_start: date | None = None
    """The first day on which a recurring payment starts, of the rows that passed the rules."""
    largest_cents: int = 0
    """The largest amount of these rows."""
    variances: list[Variance] = field(default_factory=list)
    """What is unusual by the ledger's history and the options let pass: changed accounts first, new payees last."""
    lines: dict[int, int] = field(default_factory=dict)
    """Where the rows that warnings name are in the file: a CSV's line or a sheet's row, by data row."""
    anomalies: Anomalies = field(default_factory=Anomalies)
    """What is unusual, counted and added up, if it was checked (policy.variance)."""
    rejects: Path | None = None
    """Where rejected rows were written, if there were any."""
    left_rejects: list[str] = field(default_factory=list)
    """Which rejects of the same name were left as they are, in words."""
    control: FileIdentity | None = None
    """The control file that the totals were compared with."""
    released: bool = False
    """Whether a person has released rows that an earlier call rejected: then they pass."""
    all_new: AllNew | None = None
    """The valid rows as something to send, counted as they passed; only if requested."""

    def summary(self, request: FileRequest) -> Summary:
        """Return rows and cents by what would become of them."""
        verdict = self.verdict
        notes = self.notes()
        if self.releasable.rows and not self.released:
            notes.append(self._release_note(request.rules))
        notes += self.left_rejects
        return Summary(
            file=self.source.name,
            total=verdict.total,
            by_state={State.PENDING: verdict.valid, State.REJECTED: verdict.rejected},
            warnings=verdict.warnings,
            rejects=str(self.rejects) if self.rejects else None,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            by_direction=verdict.by_direction,
            apart={State.PENDING: verdict.by_direction},
            notes=notes,
            read=ReadFiles(self.source.identity, self.control) if self.source.identity else None,
            allowed_duplicates=self.earlier.allowed_json(),
            checked_only=True,
        )

    def notes(self) -> list[str]:
        """Return what a person should know of the file and what would be sent of it: a plan is compared with these."""
        notes = [*self.source.notes, *self.source.examples.notes()]
        if self.source.end.total_cents is not None:
            notes.append(self.source.end.note(self.source.line_word))
        if self.source.counting is not None and self.source.counting.note is not None:
            notes.append(self.source.counting.note)
        if unreadable := self.verdict.unreadable_amounts:
            notes.append(f"in {row_count(unreadable)} the amount can't be read: it is not included in any total")
        notes += filter(None, [self.verdict.note_on_cells(), self.verdict.note_on_zeros()])
        if not self.verdict.rows:
            notes.append("the file has a header and no rows: nothing to do")
        return notes + self.earlier.notes(self.verdict.rows)

    def _release_note(self, rules: RuleOptions) -> str:
        """Describe what a release would do; without the gateway's answer on the accounts, sending is not certain."""
        count, is_one = row_count(self.releasable.rows), self.releasable.rows == 1
        found = f"{count}, {money(self.releasable.cents)}, that an earlier submission rejected"
        if self.accounts.asked:
            return f"{found} {'is' if is_one else 'are'} valid now: submit {how_to_release(rules)} sends them"
        passes = "passes" if is_one else "pass"
        return (
            f"{found} {passes} the rules now: submit {how_to_release(rules)} would check them again, accounts as well"
        )

    def place(self, row: int) -> str:
        """Return a row's place as the person finds it: `line 5` of a CSV, `row 5` of a sheet."""
        return place_of(self.source.line_word, row, self.lines.get(row))

    def valid_to_send(self) -> tuple[ToSend, Schedule]:
        """Count the valid rows as all new, and show what they would move, and when; called once."""
        assert self.all_new is not None, "it was asked for (CheckContext.wants_schedule)"
        return self.all_new.finish(self.verdict.passed.arg_true() + 1)
