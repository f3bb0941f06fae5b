"""The order of the steps before sending: read, check, look into the ledger, register. Then run.py sends.

Each step is a part of its own and knows of no other. Whatever ends a step early leaves the ledger in a state from which
the same command goes on. Nothing is registered before the whole file was checked, and nothing is sent before the whole
batch is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from batchpay import registration
from batchpay.config import Credentials, Settings
from batchpay.errors import FileRefused, LedgerMissing, LedgerNotUsable, RunStopped, WrongUse
from batchpay.files.control import hold, stated_totals
from batchpay.files.mapping import load_mapping
from batchpay.files.rejects import Rejects, open_rejects
from batchpay.files.source import Source, open_source
from batchpay.gateway.preflight import MESSAGES, Preflight
from batchpay.ledger.contract import (
    BatchSummary,
    Earlier,
    Ledger,
    NewBatch,
    RegisteredMeanwhile,
    RejectedColumns,
)
from batchpay.ledger.sqlite import open_ledger
from batchpay.payment import State, format_cents
from batchpay.reports.summary import Summary, summary_of_batch
from batchpay.run import Progress, RunRequest, run_batch, who
from batchpay.schemas.options import RuleOptions
from batchpay.validation import Verdict, all_rows, check, valid_rows

_REGISTER_TRIES = 3


@dataclass(frozen=True, slots=True)
class FileRequest:
    """One payment file, how it is read, and what it is held against."""

    path: str
    rules: RuleOptions
    rejects: Path | None = None
    format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    map_file: str | None = None
    expect_rows: int | None = None
    expect_cents: int | None = None
    max_errors: int = 1000


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a submission asks for beyond checking."""

    run: RunRequest
    again: bool = False
    reason: str | None = None


@dataclass(slots=True)
class Checked:
    """A file that was read whole: its verdict, its digest, and the rows that an earlier batch holds already."""

    source: Source
    verdict: Verdict
    digest: bytes = b""
    known: BatchSummary | None = None
    seen: int = 0
    held: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """Rows that an earlier batch holds or whose account the gateway refuses: column, code, message."""
    rejected: list[RejectedColumns] = field(default_factory=list)
    gateway_ids: set[str] = field(default_factory=set)
    """Gateway accounts that rows which passed the rules name."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a submission would do."""

    summary: Summary
    verdict: Verdict
    known: BatchSummary | None
    """The batch that this content is already, or None."""
    requests: list[str]


def validate(request: FileRequest) -> tuple[Summary, Verdict]:
    """Check a file; offline and without a ledger. Writes the rejects file if one is asked for."""
    started_at = datetime.now(UTC)
    checked = _check(request, None, 0)
    return _summary_of_check(request, checked, started_at), checked.verdict


def submit(
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    credentials: Credentials,
    progress: Progress,
    *,
    make_ledger: bool,
) -> tuple[Summary, Verdict]:
    """Check a file, register what is right, send what is pending, write results and rejects.

    The same content is the same batch: what an earlier call did is not done again. `make_ledger` lets a missing ledger
    come into being (only for a gateway on loopback).
    """
    started_at = datetime.now(UTC)
    with closing(open_ledger(settings.ledger, create=make_ledger)) as ledger:
        for _ in range(_REGISTER_TRIES):
            checked = _check(request, ledger, settings.policy.duplicate_days, submission.run.preflight)
            with ledger.hold(checked.digest):
                try:
                    batch = _register(ledger, request, submission, settings, checked, progress)
                except RegisteredMeanwhile:
                    continue  # another file came in between: what it holds must be looked up as well
                finished = run_batch(ledger, batch, settings, credentials, submission.run, progress)
                return _summary_of_run(request, submission, checked, finished, started_at), checked.verdict
    raise LedgerNotUsable("other files keep being registered in this ledger; run the command again")


def dry_run(request: FileRequest, settings: Settings, requests_shown: int) -> DryRun:
    """Do all that `submit` does before it registers: nothing is written to the ledger and no socket is opened."""
    started_at = datetime.now(UTC)
    try:
        ledger: Ledger | None = open_ledger(settings.ledger, read_only=True)
    except LedgerMissing:
        ledger = None
    try:
        checked = _check(request, ledger, settings.policy.duplicate_days)
    finally:
        if ledger is not None:
            ledger.close()
    summary = _summary_of_check(request, checked, started_at)
    summary.batch = checked.known.batch if checked.known else None
    if ledger is None:
        summary.notes.append("there is no ledger yet: payments of earlier batches are not known")
    return DryRun(summary, checked.verdict, checked.known, _first_requests(request, settings, checked, requests_shown))


def _check(
    request: FileRequest, ledger: Ledger | None, duplicate_days: int, preflight: Preflight | None = None
) -> Checked:
    """Read the whole file once; hold it against its control totals, the ledger's earlier batches, and the gateway."""
    total = None if request.expect_cents is None else format_cents(request.expect_cents)
    expected = stated_totals(request.path, request.expect_rows, total)
    source = open_source(
        request.path,
        format=request.format,
        encoding=request.encoding,
        sheet=request.sheet,
        mapping=load_mapping(request.map_file) if request.map_file else None,
        totals_stated=expected.stated,
    )
    rejects = open_rejects(request.rejects, source) if request.rejects else None
    digest = ledger.digest_stream("batch") if ledger else None
    checked = Checked(source, Verdict(), seen=ledger.registered() if ledger else 0)

    def watch(rows: pl.DataFrame, passed: pl.Series) -> None:
        checked.gateway_ids.update(rows["gatewayId"].filter(passed).unique().to_list())
        if digest is not None:
            digest.update(registration.canonical_text(rows).encode())

    def late(verdict: Verdict) -> Mapping[int, tuple[str, str, str]]:
        if preflight is not None:
            checked.held |= _refused_by_gateway(checked, request.rules, verdict, preflight)
        if ledger is not None and digest is not None:
            checked.digest = digest.digest()
            checked.known = ledger.find_digest(checked.digest)
            others = checked.seen - (checked.known is not None)
            if others and not request.rules.allow_duplicates:
                checked.held |= _held_by_earlier(ledger, checked, request.rules, verdict, duplicate_days)
        return checked.held

    try:
        checked.verdict = check(
            source,
            request.rules,
            rejects=rejects,
            watch=watch,
            late=late,
            on_rejected=lambda rows: checked.rejected.append(_rejected_columns(rows)),
            max_failures=request.max_errors,
        )
        hold(expected, checked.verdict.total, source.name)
    except BaseException:
        if rejects is not None:
            rejects.abandon()
        raise
    if rejects is not None and ledger is not None and checked.known is not None:
        rejects = _without_payments(ledger, checked, request, rejects, checked.known)
    if rejects is not None:
        rejects.commit()
    return checked


class _OnlyRows:
    """A rejects file that takes some rows only."""

    def __init__(self, rejects: Rejects, rows: pl.Series) -> None:
        self._rejects = rejects
        self._wanted = pl.col("_row").is_in(rows.implode())

    def add(self, frame: pl.DataFrame) -> None:
        self._rejects.add(frame.filter(self._wanted))

    def late(self, frame: pl.DataFrame) -> None:
        self._rejects.late(frame.filter(self._wanted))


def _without_payments(
    ledger: Ledger, checked: Checked, request: FileRequest, rejects: Rejects, known: BatchSummary
) -> Rejects:
    """Write the rejects anew where the ledger holds one of their rows as a payment.

    Rules may have changed since (a start date has passed by now): a row that may have been paid must not come back as
    one to correct and send.
    """
    registered = pl.Series([row.row for row in ledger.rejected(known.batch)], dtype=pl.UInt32)
    failed = (~checked.verdict.passed).arg_true().cast(pl.UInt32) + 1
    if failed.is_in(registered.implode()).all() or request.rejects is None:
        return rejects
    rejects.abandon()
    rejects = open_rejects(request.rejects, checked.source)
    only = _OnlyRows(rejects, registered)
    check(checked.source, request.rules, rejects=only, late=lambda verdict: checked.held)
    return rejects


def _refused_by_gateway(
    checked: Checked, rules: RuleOptions, verdict: Verdict, preflight: Preflight
) -> dict[int, tuple[str, str, str]]:
    """Find rows whose gateway account does not exist or takes no bank payments.

    Where the gateway can't be asked nothing is refused here: the run asks again, and sends nothing without an answer.
    """
    try:
        codes = preflight.refused(sorted(checked.gateway_ids))
    except RunStopped:
        return {}
    refused: dict[int, tuple[str, str, str]] = {}
    for frame in valid_rows(checked.source, rules, verdict) if codes else ():
        wrong = frame.filter(pl.col("gatewayId").is_in(list(codes)))
        for row, gateway_id in wrong.select("_row", "gatewayId").iter_rows():
            refused[row] = ("gatewayId", codes[gateway_id], MESSAGES[codes[gateway_id]])
    return refused


def _held_by_earlier(
    ledger: Ledger, checked: Checked, rules: RuleOptions, verdict: Verdict, days: int
) -> dict[int, tuple[str, str, str]]:
    """Find rows that another batch holds as sent, waiting or in doubt: they are rejected, naming where they stand."""
    held: dict[int, tuple[str, str, str]] = {}
    now = datetime.now(UTC)
    for frame in valid_rows(checked.source, rules, verdict):
        lookup = registration.lookup_columns(ledger, frame)
        for earlier in ledger.earlier(lookup, days=days, now=now, but_digest=checked.digest):
            held[earlier.row] = _duplicate_of(earlier)
    return held


def _duplicate_of(earlier: Earlier) -> tuple[str, str, str]:
    place = f"row {earlier.earlier_row} of batch {earlier.earlier_batch}"
    if earlier.by_payment_id:
        return "paymentId", "duplicate", f"this paymentId was used before in {place}"
    return "row", "duplicate", f"an equal payment stands in {place} (same account, amount, direction and invoice)"


def _register(
    ledger: Ledger,
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    checked: Checked,
    progress: Progress,
) -> BatchSummary:
    """Write the batch, or find it and release what an earlier call rejected and this one lets through."""
    known = ledger.find_digest(checked.digest)
    if known is not None and submission.again:
        known = _paid_again_already(known, submission)
    if known is None:
        return _write_batch(ledger, request, submission, settings, checked)
    released = _release(ledger, known, request, submission, settings, checked)
    if released:
        progress.say(f"{released} rows that were rejected before are released")
    return ledger.find(known.batch)


def _paid_again_already(known: BatchSummary, submission: SubmitRequest) -> BatchSummary | None:
    """Find the batch that the same request to pay again made: one reason pays once more, however often it is run."""
    if known.again_reason == submission.reason:
        return known
    unsettled = [state for state in (State.PENDING, State.SENDING, State.IN_DOUBT) if known.by_state[state].rows]
    if unsettled:
        states = " and ".join(unsettled).replace("_", " ")
        raise WrongUse(f"batch {known.batch} still has rows {states}: settle it before paying it again")
    return None


def _write_batch(
    ledger: Ledger, request: FileRequest, submission: SubmitRequest, settings: Settings, checked: Checked
) -> BatchSummary:
    form = registration.request_form(settings.gateway)
    batch = NewBatch(
        digest=checked.digest,
        file=checked.source.name,
        columns=checked.source.carried,
        rows=checked.verdict.rows,
        options={
            "normalize": request.rules.normalize,
            "as_of": request.rules.as_of.isoformat(),
            "gateway_ids": sorted(checked.gateway_ids),
        },
        origin=settings.gateway.base_url,
        seen=checked.seen,
        again_reason=submission.reason if submission.again else None,
    )
    digest = ledger.digest_stream("batch")
    with ledger.register(batch, who()) as registering:
        for rows in all_rows(checked.source, request.rules):
            digest.update(registration.canonical_text(rows).encode())
            passed = rows.filter(~checked.verdict.rejected_mask(rows["_row"]))
            if passed.height:
                columns = registration.payment_columns(ledger, passed, checked.source.carried, form)
                registering.add_payments(columns)
        if digest.digest() != checked.digest:
            raise FileRefused(f"{checked.source.name} changed while it was being read; nothing was registered")
        for rejected in checked.rejected:
            registering.add_rejected(rejected)
        name = registering.finish()
    return ledger.find(name)


def _release(
    ledger: Ledger,
    known: BatchSummary,
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    checked: Checked,
) -> int:
    """Turn to pending what was rejected under other rules. A duplicate needs --allow-duplicates, not just some time."""
    if not known.by_state[State.REJECTED].rows:
        return 0
    duplicates_too = request.rules.allow_duplicates
    rejected = pl.Series(
        [
            row.row
            for row in ledger.rejected(known.batch)
            if duplicates_too or not any(reason.endswith(".duplicate") for reason in row.reasons)
        ],
        dtype=pl.UInt32,
    )
    form = registration.request_form(settings.gateway)
    payments = []
    for rows in valid_rows(checked.source, request.rules, checked.verdict):
        passed = rows.filter(pl.col("_row").is_in(rejected.implode()))
        if passed.height:
            payments.append(registration.payment_columns(ledger, passed, checked.source.carried, form))
    if not payments:
        return 0
    why = submission.reason or "the file was submitted again under other rules"
    return ledger.release(known.batch, payments, who(), why)


def _rejected_columns(rows: pl.DataFrame) -> RejectedColumns:
    return RejectedColumns(
        rows=rows["_row"].to_list(),
        lines=rows["_line"].to_list(),
        amounts_cents=rows["_cents"].to_list(),
        reasons=rows["_reasons"].to_list(),
    )


def _first_requests(request: FileRequest, settings: Settings, checked: Checked, count: int) -> list[str]:
    """Bodies of the first rows that would be sent, masked."""
    form = registration.request_form(settings.gateway)
    bodies: list[str] = []
    if count:
        for rows in valid_rows(checked.source, request.rules, checked.verdict):
            bodies += registration.show_requests(rows.head(count - len(bodies)), form)
            if len(bodies) >= count:
                break
    return bodies


def _summary_of_check(request: FileRequest, checked: Checked, started_at: datetime) -> Summary:
    verdict = checked.verdict
    return Summary(
        file=checked.source.name,
        total=verdict.total,
        by_state={State.PENDING: verdict.valid, State.REJECTED: verdict.rejected},
        warnings=verdict.warnings,
        rejects=str(request.rejects) if request.rejects and verdict.rejected.rows else None,
        started_at=started_at,
        finished_at=datetime.now(UTC),
        by_direction=verdict.by_direction,
        notes=list(checked.source.notes),
        checked_only=True,
    )


def _summary_of_run(
    request: FileRequest, submission: SubmitRequest, checked: Checked, batch: BatchSummary, started_at: datetime
) -> Summary:
    summary = summary_of_batch(batch, warnings=checked.verdict.warnings)
    summary.file = checked.source.name
    summary.rejects = str(request.rejects) if request.rejects and checked.verdict.rejected.rows else None
    summary.results = str(submission.run.results) if submission.run.results else None
    summary.started_at = started_at
    summary.notes = list(checked.source.notes)
    return summary
