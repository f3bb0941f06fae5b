"""One check of a payment file: its rules, its control totals, the ledger's earlier batches, the gateway's accounts.

A check, a dry run and a submission all use this, so that a plan says what its submission finds.
Nothing is registered or sent here. Files are read whole before anything found in them is acted on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.anomalies import Anomalies, Variance
from batchpay.approval.cash_flow import AllNew, Schedule, with_cents
from batchpay.approval.proposal import ToSend
from batchpay.errors import BatchpayError, CheckFailed, FileRefused
from batchpay.gateway.origin import environment_of
from batchpay.intake.control_totals import require_whole, stated_totals
from batchpay.intake.source import Source, open_source
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment, State, format_cents
from batchpay.schemas.checks import as_date, cents_of_plain
from batchpay.schemas.columns import CASH_FLOW, PAY_ON
from batchpay.schemas.identity import COMPARED
from batchpay.settings import Settings
from batchpay.summary import Summary
from batchpay.text import currencies_note, left_out_note, money, place_of, row_count
from batchpay.validation.check import RowCheck, valid_rows
from batchpay.validation.compiled_rules import Findings
from batchpay.validation.duplicates import FrameSpool, merged
from batchpay.validation.verdict import ChunkResult, Failure, Verdict
from batchpay.validation.warned import Warned
from batchpay.workflows.account_check import AccountsAnswer, ask_gateway
from batchpay.workflows.days import refuse_two_days, with_days_of
from batchpay.workflows.earlier_payments import (
    EarlierPayments,
    OwnRejects,
    clock_note,
    is_of_no_submission,
    without_payments,
)
from batchpay.workflows.holding import Holding, held_names, rejected_earlier
from batchpay.workflows.payee_check import FirstSeen, PayeeCheck, payee_check, with_names
from batchpay.workflows.policy import policy_in_force, require_zone
from batchpay.workflows.rejected_earlier import RejectedEarlier, Releasable, days_back
from batchpay.workflows.requests import Decisions, FileRequest, refuse_account_number
from batchpay.workflows.returned_accounts import ReturnedAccounts
from batchpay.writing.atomic import FileIdentity, ReadFiles
from batchpay.writing.process_memory import in_plain_words

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    from batchpay.gateway.accounts import Preflight
    from batchpay.intake.maps.mapping import Mapping as ColumnMap
    from batchpay.ledger.records import BatchSummary
    from batchpay.registration.digests import Content
    from batchpay.validation.rejects import Rejects


@dataclass(slots=True)
class FileCheck:
    """A file that was read whole, and all that was found in it."""

    source: Source
    verdict: Verdict
    started_at: datetime
    request: FileRequest
    """How it was read: a known batch is read with its day."""
    digest: bytes = b""
    file_digest: str = ""
    """A keyed digest of the file's bytes, in hex digits; empty without a ledger."""
    known: BatchSummary | None = None
    """The batch that this content already is."""
    batch: BatchSummary | None = None
    """The batch that a submission continues; None if it registers a new one."""
    nothing_to_send: bool = False
    """Whether the batch has no row that waits, and none is to be released."""
    releasable: Releasable = field(default_factory=Releasable)
    registration_count_seen: int = 0
    """Ledger.registration_count() before the file was read."""
    late_failures: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """Rows that an earlier batch has or whose account the gateway refuses: column, code, message."""
    earlier: EarlierPayments = field(default_factory=EarlierPayments)
    """What the rows have in common with earlier payments."""
    held: int = 0
    """Rows that pass the rules and are held for a person."""
    returned: ReturnedAccounts = field(default_factory=lambda: ReturnedAccounts(None, Environment.TEST, None))
    """What banks have said of the accounts."""
    rejected: list[pl.DataFrame] = field(default_factory=list)
    """Why rows were rejected (ChunkResult.rejected), if a ledger is to record it."""
    warned: Warned = field(default_factory=Warned)
    """Warnings of rows that passed, if this is a submission: a ledger keeps them with the rows."""
    first_seen: FirstSeen = field(default_factory=FirstSeen)
    """Since when their payees are known, likewise."""
    not_used: str | None = None
    """What columns of the file say that nothing uses, evidence of money first."""
    gateway_ids: set[str] = field(default_factory=set)
    """Gateway accounts named in rows that passed the rules."""
    accounts: AccountsAnswer = AccountsAnswer()
    """What the gateway said of those accounts, if it was asked."""
    first_start: date | None = None
    """The first day on which a recurring payment starts, of the rows that passed the rules."""
    has_days: bool = False
    """Whether any row has a payOn."""
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
    series: tuple[str, int] | None = None
    """The series of files that it states, and the number."""
    released: bool = False
    """Whether a person has released rows that an earlier call rejected: then they pass."""
    clock: str | None = None
    """What a person should know of the clock by which earlier payments were looked up."""
    all_new: AllNew | None = None
    """The valid rows as something to send, counted as they passed; only if requested."""

    @property
    def no_mistakes(self) -> int:
        """How many rows were rejected though they say nothing wrong: duplicates, held, rejected by an earlier call."""
        late = Counter((column, code) for column, code, _ in self.late_failures.values())
        in_file = self.verdict.counts.get("row.duplicate", 0) - late["row", "duplicate"]
        return in_file + self.held + sum(count for (_, code), count in late.items() if code in _NO_MISTAKES)

    def summary(self) -> Summary:
        """Return rows and cents by what would become of them."""
        verdict = self.verdict
        rules, asked = self.request.rules, self.accounts.asked
        notes = [*self.notes(), *self.releasable.notes(rules, released=self.released, accounts_asked=asked)]
        notes += [*self.left_rejects, *filter(None, [self.clock])]
        return Summary(
            file=self.source.name,
            total=verdict.total,
            by_state={State.PENDING: verdict.valid, State.REJECTED: verdict.rejected},
            warnings=verdict.warnings,
            rejects=str(self.rejects) if self.rejects else None,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            by_direction=verdict.by_direction,
            left_out=dict(self.source.left_out),
            currencies=verdict.currencies,
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
        if self.not_used is not None:
            notes.append(self.not_used)
        if self.source.left_out:
            notes.append(left_out_note(self.source.left_out))
        if several := currencies_note(self.verdict.currencies):
            notes.append(several)
        if self.source.counting is not None and self.source.counting.note is not None:
            notes.append(self.source.counting.note)
        if unreadable := self.verdict.unreadable_amounts:
            notes.append(f"in {row_count(unreadable)} the amount can't be read: it is not included in any total")
        notes += filter(None, [self.verdict.note_on_cells(), self.verdict.note_on_zeros()])
        if not self.verdict.rows:
            notes.append("the file has a header and no rows: nothing to do")
        return notes + self.earlier.notes(self.verdict.rows)

    def place(self, row: int) -> str:
        """Return a row's place as the person finds it: `line 5` of a CSV, `row 5` of a sheet."""
        return place_of(self.source.line_word, row, self.lines.get(row))

    def valid_to_send(self) -> tuple[ToSend, Schedule]:
        """Count the valid rows as all new, and show what they would move, and when; called once."""
        assert self.all_new is not None, "it was asked for (CheckContext.wants_schedule)"
        return self.all_new.finish(self.verdict.passed.arg_true() + 1)


_NO_MISTAKES = ("duplicate", "rejected_before", "returned", "changed_by_bank")
_WARNING_ORDER = ("same_invoice", "same_payment", "changed_account", "first_payment", "unusual_amount", "new_payee")
"""Which warnings from the ledger's history are reported first."""
_PLACES_MAX = 1_000
"""This many warnings about bills are reported with their line or row."""
_COMPARED = (
    "_row",
    "_line",
    *dict.fromkeys((*COMPARED, *CASH_FLOW, "billingInternalId", "achNameOnCheck", "achDepositType")),
)
"""Columns by which rows are compared with the ledger, and that a warning names."""
_COMPARED_AT_ONCE = 60_000
"""Rows compared with the ledger at a time: of an index of millions, each page is read for several of them."""
_TOTAL_CENTS_MAX = 10**18
"""The ledger counts in 64 bits, and so do the sums by day and by gateway."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What a file is compared with beyond its own rules; each may be missing."""

    settings: Settings = Settings()
    """The environment whose earlier payments count, and the policy by which they count."""
    ledger: Ledger | None = None
    preflight: Preflight | None = None
    decisions: Decisions = Decisions()
    wants_schedule: bool = False
    """Whether a person is to see what would move and when: counted in the same reading."""
    sends: bool = True
    """Whether it is a submission or shows one; otherwise it checks the file alone."""
    keeps_warnings: bool = False
    """Whether warnings of rows that passed are wanted row by row, as they are by a submission."""
    submits: bool = False
    """Whether this is a submission: its rejects replace only rows of the same file, a check's all that checks wrote."""

    @property
    def environment(self) -> Environment:
        """The environment whose earlier payments count."""
        return environment_of(self.settings.gateway)

    @property
    def history(self) -> Ledger | None:
        """The ledger that knows earlier payees, if changed accounts are checked (policy.variance)."""
        return self.ledger if self.settings.policy.variance else None


@contextmanager
def one_fault_one_file(name: str) -> Iterator[None]:
    """Raise CheckFailed in place of whatever else ends the check of a file: the files after it are not delayed."""
    try:
        with in_plain_words():
            yield
    except BatchpayError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        raise CheckFailed(name, error) from error


def open_file(request: FileRequest, ledger: Ledger | None = None) -> Source:
    """Open a payment file, which can be checked several times; raises FileRefused, CheckFailed."""
    with one_fault_one_file(request.name or request.path):
        return open_source(
            request.path,
            format=request.format,
            encoding=request.encoding,
            sheet=request.sheet,
            include_hidden=request.include_hidden,
            mapping=_load_map(request.map_file) if request.map_file else request.mapping,
            amounts_in=request.amounts_in,
            name=request.name,
            keys=ledger,
        )


def check_file(source: Source, request: FileRequest, context: CheckContext) -> FileCheck:
    """Read the whole file once and write its rejects; raises FileRefused if it is refused whole, CheckFailed."""
    with one_fault_one_file(request.name or request.path):
        return _check_file(source, request, context)


def _check_file(source: Source, request: FileRequest, context: CheckContext) -> FileCheck:
    refuse_two_days(source, request.rules)
    expected = stated_totals(request.path, request.expect_rows, request.expect_cents)
    reading = _Reading(source, request, context)
    checked = reading.checked
    checked.control, checked.series = expected.read, expected.series

    def fresh_rejects() -> Rejects | None:
        if request.rejects is None and not request.sinks:
            return None
        from batchpay.validation.rejects import (  # also loads what writes workbooks
            open_rejects,
            together,
            with_corrected,
        )

        begun = [sink(source) for sink in request.sinks]
        if request.rejects is not None:
            begun.insert(0, open_rejects(request.rejects, source))
        return together(with_corrected(begun, checked.returned.corrected))

    rejects = fresh_rejects()
    try:
        reading.run(rejects)
        if (anew := with_days_of(checked.batch, request.rules, checked.verdict.counts)) != request.rules:
            if rejects is not None:
                rejects.abandon()
            return _check_file(source, replace(request, rules=anew), context)
        if checked.has_days and context.sends:
            require_zone(context.ledger, context.settings, source.name)
        require_whole(expected, source, checked.verdict.total, checked.verdict.unreadable_amounts)
        refuse_account_number(context.decisions.reason, source, request.rules)
    except BaseException:
        if rejects is not None:
            rejects.abandon()
        raise
    has_rejects = checked.verdict.rejected.rows > 0
    if context.ledger is not None and checked.batch is not None:

        def again(storage: ExitStack) -> Iterator[ChunkResult]:
            check = RowCheck(source, request.rules, storage, line_word=source.line_word, used=source.used)
            yield from check.results()
            yield from check.finish(checked.late_failures)

        rejects, has_rejects = without_payments(
            context.ledger, checked.batch, rejects, fresh_rejects, checked.verdict, again
        )
    if rejects is not None:
        own = OwnRejects(source)
        placed = rejects.commit(own if context.submits else is_of_no_submission)
        checked.rejects = placed if has_rejects else None
        checked.left_rejects = own.notes if checked.batch is not None else []
    return checked


def _load_map(path: str) -> ColumnMap:
    from batchpay.intake.maps.loading import load_mapping  # few files have a map

    return load_mapping(path)


class _Reading:
    """One reading of a file, and the checks of its rows during it and at the end."""

    def __init__(self, source: Source, request: FileRequest, context: CheckContext) -> None:
        self._request = request
        self._context = context
        self._content = _content(source, context.ledger) if context.ledger else None
        self.checked = FileCheck(source, Verdict(failures_max=request.max_errors), datetime.now(UTC), request)
        self.checked.earlier = EarlierPayments(source.line_word, context.settings)
        self.checked.returned = ReturnedAccounts(context.ledger, context.environment, context.decisions.rows)
        if context.ledger is not None:
            self.checked.registration_count_seen = context.ledger.registration_count()
        self._rejected_earlier: RejectedEarlier | None = None
        named = context.decisions.rows if context.decisions.release else None
        self._holds = held_names(policy_in_force(context.ledger, context.settings).hold)
        self._holding = Holding(self._holds, named or ())
        if context.wants_schedule:
            self.checked.all_new = AllNew(request.rules.as_of)

    def run(self, rejects: Rejects | None) -> None:
        """Read the file; afterward `checked` contains all that was found."""
        checked, verdict = self.checked, self.checked.verdict
        with ExitStack() as storage:
            source, rules = checked.source, self._request.rules
            chunks = self._content or source
            check = RowCheck(chunks, rules, storage, line_word=source.line_word, used=source.used)
            rejected, late_rejected = FrameSpool(storage), FrameSpool(storage)
            for result in check.results():
                verdict.add(result)
                if self._request.watch is not None:
                    self._request.watch(verdict.rows)
                self._count(result)
                self._keep_warnings(result.findings, result.passed)
                self._holding.note(result.findings, result.passed)
                if result.may_fail:
                    self._keep(result, rejected)
                    if rejects is not None:
                        rejects.add(result.rejects())
                del result  # frees a chunk while waiting for the next one
            checked.not_used = check.not_used
            verdict.end(check.late)
            self._allow_in_file(check.allowed)
            verdict.end(self._late(verdict, check))
            for result in check.finish(checked.late_failures):
                verdict.add_late(result)
                self._take_out(result)
                self._keep_warnings(Findings(result.findings.rows, result.late), ~result.findings.broken(errors=True))
                self._keep(result, late_rejected)
                if rejects is not None:
                    rejects.late(result.rejects())
            checked.rejected = list(merged(rejected, late_rejected))
        if abs(verdict.total.cents) > _TOTAL_CENTS_MAX:
            most = format_cents(_TOTAL_CENTS_MAX)
            raise FileRefused(f"{checked.source.name}: the amounts add up to more than {most}")

    def _count(self, result: ChunkResult) -> None:
        """Count what the rows that passed name and move."""
        checked = self.checked
        rows = result.findings.rows.select("_row", *CASH_FLOW, _cents=result.cents)
        checked.has_days |= rows[PAY_ON].null_count() < rows.height
        rows = rows.filter(result.passed) if result.may_fail else rows
        checked.gateway_ids.update(rows["gatewayId"].unique().to_list())
        start = as_date(pl.col("recurringStartDate").filter(pl.col("recurringIndicator") == "TRUE"))
        first_start, largest_cents = rows.select(start.min(), pl.col("_cents").max()).row(0)
        checked.first_start = min(filter(None, (checked.first_start, first_start)), default=None)
        checked.largest_cents = max(checked.largest_cents, largest_cents or 0)
        if checked.all_new is not None:
            checked.all_new.add(rows)

    def _take_out(self, result: ChunkResult) -> None:
        """Subtract rows that had passed and now fail because of something elsewhere in the file."""
        if (all_new := self.checked.all_new) is not None:
            rows = result.findings.rows.select(*CASH_FLOW, _cents=result.cents)
            all_new.add(rows.filter(result.fails_now), times=-1)

    def _keep(self, result: ChunkResult, spool: FrameSpool) -> None:
        """Keep why rows were rejected, if a ledger is to record it."""
        if self._context.ledger is not None:
            spool.append(result.rejected())

    def _keep_warnings(self, findings: Findings, passed: pl.Series) -> None:
        """Keep warnings of rows that passed, if a ledger is to record them."""
        if (self._context.submits or self._context.keeps_warnings) and findings.violations:
            self.checked.warned.add_findings(findings, passed)

    def _late(self, verdict: Verdict, check: RowCheck) -> dict[int, tuple[str, str, str]]:
        """Check, after the file was read whole, what only all of it, the gateway and the ledger know."""
        checked, context, ledger, rules = self.checked, self._context, self._context.ledger, self._request.rules
        if context.preflight is not None:
            rows = valid_rows(checked.source, rules, verdict)
            checked.accounts = ask_gateway(checked.gateway_ids, rows, context.preflight)
            checked.late_failures |= checked.accounts.failures
        if ledger is not None and self._content is not None:
            checked.digest = self._content.digest
            (digest,) = ledger.digest("file", [checked.source.file_digest().hex()], 16)
            checked.file_digest = (digest or b"").hex()
            of_file = ledger.find_file(checked.file_digest, context.environment)  # first: a twin may register meanwhile
            find = partial(ledger.find_digest, checked.digest, context.environment)
            checked.known = checked.batch = find()
            if of_file is not None and checked.known is None and not context.decisions.again:
                _refuse_read_otherwise(checked.source.name, of_file)
            checked.released = context.decisions.release
            if context.decisions.again and checked.known is not None:
                checked.batch = find(context.decisions.reason)
            waiting = checked.batch is None or checked.batch.by_state[State.PENDING].rows
            checked.nothing_to_send = not waiting and not checked.released
            if checked.batch is not None and checked.batch.by_state[State.REJECTED].rows:
                self._rejected_earlier = rejected_earlier(ledger, checked.batch, self._holds)
        held = self._holding.failures(check, verdict, self._rejected_earlier)
        checked.late_failures |= held
        checked.held = len(held)
        # Without another batch in this environment every payee would be new.
        others = ledger is not None and ledger.batch_count(context.environment) > (checked.known is not None)
        again = checked.known if context.decisions.again else None
        payees = payee_check(context.history, context.environment, checked.digest, again, others=others)
        if payees is not None:
            seen = checked.first_seen if context.keeps_warnings else None
            payees = replace(payees, first_above_cents=context.settings.first_above_cents, seen=seen)
        checked.anomalies.compared = payees is not None
        if others or payees is not None or self._rejected_earlier is not None or checked.returned.are_any:
            self._compare_with_ledger(ledger if others else None, payees, verdict)
        checked.earlier.take_back(checked.late_failures)
        if checked.released and self._rejected_earlier is not None:
            checked.earlier.take_back_sent(self._rejected_earlier)
        return checked.late_failures

    def _allow_in_file(self, allowed: pl.DataFrame) -> None:
        """Record which bills pass though the file has them twice: `_row`, `_first`, `_place`."""
        checked, rules = self.checked, self._request.rules
        for frame in valid_rows(checked.source, rules, checked.verdict) if allowed.height else ():
            rows = with_cents(frame).select("_row", "_line", "_cents")
            checked.earlier.allow_in_file(allowed.join(rows, on="_row", maintain_order="left"))

    def _compare_with_ledger(self, payments: Ledger | None, payees: PayeeCheck | None, verdict: Verdict) -> None:
        """Read the rows that passed once more, and check each: was it paid before, is its payee unchanged."""
        checked, context, rules = self.checked, self._context, self._request.rules
        found = checked.earlier
        for frame in _together(valid_rows(checked.source, rules, verdict)):
            if (rejected := self._rejected_earlier) is not None:
                found.compare_with_own(rejected, frame, rules, context.environment)
            if payments is not None:
                checked.clock = clock_note(payments, context.settings.policy)
                for rows, days in days_back(frame, context.settings.policy.duplicate_days, rejected):
                    found.compare(payments, rows, rules, context.environment, days=days, exclude_digest=checked.digest)
            checked.late_failures |= found.late_failures | checked.returned.failures(frame)
            if rejected is not None:
                self._hold_rejected(rejected, frame)
            unusual = list[Variance]()
            if payees is not None and self._warns:
                unusual = with_names(checked.anomalies, payees.unusual(frame, checked.late_failures), frame)
            warned = (*checked.anomalies.kept, *unusual[:_PLACES_MAX], *found.warnings[:_PLACES_MAX])
            named = [one.row for one in warned]
            places = frame.filter(pl.col("_row").is_in(named) & pl.col("_line").is_not_null())
            checked.lines |= dict(places.select("_row", "_line").iter_rows())
            self._note_variances(unusual, verdict)
        self._note_variances(found.warnings if self._warns else [], verdict)

    @property
    def _warns(self) -> bool:
        """Return whether anyone needs warnings: not if all was sent, unless a warning would be an error."""
        return self._request.rules.warnings_as_errors or not self.checked.nothing_to_send

    def _hold_rejected(self, rejected: RejectedEarlier, frame: pl.DataFrame) -> None:
        """Keep rows that an earlier call rejected as they are, unless a person has released them."""
        checked = self.checked
        right = rejected.among(frame).filter(~pl.col("_row").is_in(list(checked.late_failures)))
        off = rejected.off_days(right, self._request.rules, self._context.settings.limits.pay_on_days)
        checked.late_failures |= rejected.failures(off["_row"])
        right = right.join(off, on="_row", how="anti", maintain_order="left")
        cents = right.select(cents_of_plain(pl.col("amount"))).to_series()
        held = rejected.held(right["_row"], cents, self._context.decisions.rows, checked.releasable)
        checked.late_failures |= rejected.failures(held if checked.released else right["_row"])

    def _note_variances(self, found: list[Variance], verdict: Verdict) -> None:
        """Count warnings and keep the first; if warnings are errors, each keeps its row back."""
        if self._request.rules.warnings_as_errors:
            # Of several for one row, the first is reported: a changed account.
            self.checked.late_failures |= {one.row: (one.column, one.code, one.message) for one in reversed(found)}
            return
        held, lines = self._holding.of_history(found), self.checked.lines
        self.checked.held += len(held.keys() - self.checked.late_failures.keys())
        self.checked.late_failures |= held
        found = [one for one in found if one.row not in held]
        verdict.add_warnings(
            [Failure(one.row, lines.get(one.row), one.column, one.code, "warning", one.message, None) for one in found]
        )
        if found and (self._context.submits or self._context.keeps_warnings):
            texts = pl.Series([f"{one.column}: {one.code}: {one.message}" for one in found])
            self.checked.warned.add(pl.Series([one.row for one in found]), texts)
        kept = sorted(self.checked.variances + found, key=lambda one: _WARNING_ORDER.index(one.code))
        self.checked.variances = kept[: self._request.max_errors]


def _refuse_read_otherwise(name: str, other: BatchSummary) -> None:
    """Raise FileRefused: an earlier batch read the same bytes as other payments, and these would be paid as well."""
    raise FileRefused(
        f"{name}: batch {other.batch} of {other.registered_at.astimezone():%m/%d/%Y} is of a file with the same bytes, "
        f"read as other payments ({row_count(other.total.rows)}, {money(other.total.cents)}): with another map, sheet, "
        "encoding or other columns. If these are due as well: --again --reason TEXT"
    )


def _together(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Put frames together until they have _COMPARED_AT_ONCE rows: a ledger's index is read fewer times."""
    kept: list[pl.DataFrame] = []
    for frame in frames:
        kept.append(frame.select(_COMPARED))
        if sum(one.height for one in kept) >= _COMPARED_AT_ONCE:
            yield pl.concat(kept)
            kept = []
    if kept:
        yield pl.concat(kept)


def _content(source: Source, ledger: Ledger) -> Content:
    from batchpay.registration.digests import Content  # a check without a ledger needs none

    return Content(source.chunks, ledger)
