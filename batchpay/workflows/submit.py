"""The order of the steps: check, register, run. Checking is validation's, sending is sending's.

Whatever ends a step early leaves the ledger in a state from which the same command goes on. Nothing is registered
before the whole file was checked, and nothing is sent before the whole batch is registered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.anomalies import CODES, Variance
from batchpay.approval.approvals import Policy
from batchpay.approval.cash_flow import Schedule
from batchpay.approval.plan import Plan
from batchpay.approval.proposal import Proposal
from batchpay.approval.sign_off import sign_off_lines
from batchpay.errors import LedgerMissing, LedgerNotUsable, WrongUse
from batchpay.gateway.origin import check_origin, environment_of
from batchpay.intake.prefetch import ahead
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary, NewBatch, PaymentColumns, SignOff
from batchpay.operations.logs import log
from batchpay.payment import Actor, Environment, State, Totals
from batchpay.registration import request_body
from batchpay.settings import Credentials, LedgerSettings, Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.validation.check import all_rows, valid_rows
from batchpay.validation.verdict import Verdict
from batchpay.workflows.decisions import Decisions
from batchpay.workflows.file_check import CheckContext, FileCheck, FileRequest, check_file
from batchpay.workflows.held_back import Fails
from batchpay.workflows.move_gateway import note_on_address
from batchpay.workflows.paid_elsewhere import refuse_paid_elsewhere
from batchpay.workflows.proposal import LetThrough, let_through, propose
from batchpay.workflows.rejected_earlier import RejectedEarlier
from batchpay.workflows.status import in_doubt

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    from batchpay.workflows.run import Progress, RunRequest

_REGISTER_TRIES = 3
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a submission asks for beyond checking."""

    run: RunRequest
    decisions: Decisions = field(default_factory=Decisions)
    plan: str | None = None
    """Path of a plan that what is sent is compared with, or None."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a file holds and what a submission of it would do."""

    summary: Summary
    verdict: Verdict
    proposal: Proposal
    schedule: Schedule
    variances: list[Variance] = field(default_factory=list)
    known: BatchSummary | None = None
    """The batch that a submission would go on with, or None."""
    requests: list[str] = field(default_factory=list)
    releasable: Totals = Totals()
    """Rows that an earlier submission rejected and that are right now: what a release adds."""
    unusual: list[str] = field(default_factory=list)
    """Lines on what the ledger's history finds odd, or that there is nothing; none where nobody wants to look."""

    def page(self) -> list[str]:
        """The page to sign."""
        return sign_off_lines(self.proposal, self.schedule, self.verdict.counts, self.summary.seal)


def validate(request: FileRequest, settings: Settings) -> Preview:
    """Check a file; offline. Writes the rejects file if one is asked for, and nothing to the ledger.

    The ledger, if there is one, is asked for earlier payments, so that a check finds what a submission would.
    """
    environment, days = environment_of(settings.gateway), settings.policy.duplicate_days
    with _ledger_to_read(settings.ledger) as ledger:
        history = ledger if settings.policy.variance else None
        checked = check_file(request, CheckContext(environment, ledger, days, history=history, wants_schedule=True))
        return _preview(None, request, checked, settings, Decisions())


def dry_run(
    request: FileRequest,
    settings: Settings,
    actor: Actor,
    decisions: Decisions,
    *,
    requests_shown: int,
    plan: str | None,
) -> Preview:
    """Do all that `submit` does before it registers: nothing is written to the ledger and no socket is opened."""
    environment = environment_of(settings.gateway)
    with _ledger_to_read(settings.ledger) as ledger:
        history = ledger if settings.policy.variance else None
        around = CheckContext(
            environment,
            ledger,
            settings.policy.duplicate_days,
            history=history,
            wants_schedule=True,
            decisions=decisions,
        )
        checked = check_file(request, around)
        _refuse_release_of_nothing(checked, decisions)
        preview = _preview(ledger, request, checked, settings, decisions)
        preview.summary.notes += note_on_address(ledger, settings)
        if ledger is None:
            preview.summary.notes.append("there is no ledger yet: payments of earlier batches are not known")
        if plan is not None:
            if ledger is None:
                raise LedgerMissing("a plan is bound to a ledger, and there is none yet: batchpay ledger init")
            Plan.make(preview.proposal, ledger, prepared_by=actor, created_at=datetime.now(UTC)).write(plan)
    preview.requests.extend(_first_requests(request, settings, checked, requests_shown))
    return preview


def ask_gateway(settings: Settings, credentials: Credentials, preview: Preview) -> None:
    """Ask the gateway about itself and the accounts of a dry run's file; a dry run alone opens no socket."""
    from batchpay.gateway.preflight import Preflight

    check_origin(settings.gateway.base_url)
    preflight = Preflight(settings.gateway, credentials)
    preflight.check_connection()
    refused = preflight.refused(found.gateway_id for found in preview.schedule.by_gateway())
    preview.summary.notes += [
        f"gatewayId {gateway_id} would be rejected: {code}" for gateway_id, code in refused.items()
    ]


def submit(
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
    *,
    make_ledger: bool,
) -> tuple[Summary, Verdict]:
    """Check a file, register what is right, send what is pending, write results and rejects.

    The same content is the same batch: what an earlier call did is not done again. `make_ledger` lets a missing ledger
    come into being (only for a gateway on loopback).
    """
    from batchpay.workflows.run import run_batch

    environment = environment_of(settings.gateway)
    with closing(open_ledger(settings.ledger, create_as=str(actor) if make_ledger else None)) as ledger:
        plan = None if submission.plan is None else Plan.read(submission.plan, ledger)
        for note in note_on_address(ledger, settings):
            progress.say(note)
        for _ in range(_REGISTER_TRIES):
            history = ledger if settings.policy.variance else None
            counts = plan is not None or settings.policy.approvals > 0
            around = CheckContext(
                environment,
                ledger,
                settings.policy.duplicate_days,
                submission.run.preflight,
                history,
                wants_schedule=counts,
                results=submission.run.results,
                decisions=submission.decisions,
            )
            checked = check_file(request, around)
            _log_check(checked)
            if plan is None:  # a plan that differs in this is refused with all that differs
                _refuse_release_of_nothing(checked, submission.decisions)
            with ledger.lock(checked.digest):
                try:
                    found = _register(ledger, request, submission, settings, checked, plan, actor)
                except RegisteredMeanwhile:
                    continue  # rows were added in between: they must be looked up as well
                if found.is_new:
                    log("registered", batch=found.batch.batch, file=found.batch.file, rows=found.batch.total.rows)
                if found.released.rows:
                    progress.say(f"{found.released.rows:,} rows that were rejected before are released")
                fails = None if found.is_new else _fails_today(checked.verdict)
                run = replace(submission.run, approvals=found.approvals, fails=fails)
                finished = run_batch(ledger, found.batch, settings, credentials, run, actor, progress)
                summary = _summary_of_run(request, submission, checked, finished)
                summary.seal = plan.seal if plan else None
                summary.released = found.released
                summary.in_doubt_elsewhere = in_doubt(ledger, environment, but=finished.batch)
                return summary, checked.verdict
    raise LedgerNotUsable("other files keep being registered in this ledger; run the command again")


def _log_check(checked: FileCheck) -> None:
    total = checked.verdict.total
    log("checked", file=checked.source.name, rows=total.rows, cents=total.cents, rejected=checked.verdict.rejected.rows)


@contextmanager
def _ledger_to_read(settings: LedgerSettings) -> Iterator[Ledger | None]:
    """Open the ledger for reading; None where there is none yet."""
    try:
        ledger = open_ledger(settings, read_only=True)
    except LedgerMissing:
        yield None
        return
    with closing(ledger):
        yield ledger


def _preview(
    ledger: Ledger | None, request: FileRequest, checked: FileCheck, settings: Settings, decisions: Decisions
) -> Preview:
    summary = checked.summary(request)
    batch = (
        None
        if ledger is None
        else _batch_to_go_on_with(ledger, checked.digest, environment_of(settings.gateway), decisions)
    )
    summary.batch = batch.batch if batch else None
    summary.environment = environment_of(settings.gateway)
    proposal, schedule = propose(ledger, request, checked, settings, decisions, batch)
    summary.seal = proposal.seal(ledger) if ledger else None
    summary.held_back, summary.released = proposal.to_send.held_back, proposal.to_send.released
    preview = Preview(summary, checked.verdict, proposal, schedule, checked.variances, batch)
    return replace(preview, releasable=checked.releasable, unusual=_unusual_lines(checked, settings))


def _refuse_release_of_nothing(checked: FileCheck, decisions: Decisions) -> None:
    """Refuse to release rows of a content that nobody has submitted yet: it is another file than the person means."""
    if decisions.release and checked.known is None:
        raise WrongUse(f"{checked.source.name}: this content was not submitted yet, so there is nothing to release")


def _fails_today(verdict: Verdict) -> Fails | None:
    """Tell which pending rows of a known batch fail today's rules; None where none does."""
    if verdict.passed.all():
        return None
    return lambda columns: verdict.rejected_mask(pl.Series(columns.rows, dtype=pl.UInt32)).to_list()


@dataclass(frozen=True, slots=True)
class _Registered:
    """The batch that is to be sent."""

    batch: BatchSummary
    approvals: int
    """How many people approved what this call sends of it."""
    released: Totals = Totals()
    """Rows that this call has released."""
    is_new: bool = False


def _unusual_lines(checked: FileCheck, settings: Settings) -> list[str]:
    """Tell what earlier payments make look odd: bills that were paid under another name first, then payees."""
    others = [found for found in checked.variances if found.code not in CODES]
    lines = [f"row {found.row}: {found.column}: {found.code}: {found.message}" for found in others[:_SHOWN_MAX]]
    if len(others) > _SHOWN_MAX:
        lines.append("and more warnings of that kind: their counts stand above, --json has the first of them")
    return lines + (checked.anomalies.lines() if settings.policy.variance else [])


def _register(
    ledger: Ledger,
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    checked: FileCheck,
    plan: Plan | None,
    actor: Actor,
) -> _Registered:
    """Write the batch, or find it, and release what an earlier call rejected where a person asks for it."""
    decisions, policy, allowed = submission.decisions, Policy.from_settings(settings.policy), LetThrough()
    known = _batch_to_go_on_with(ledger, checked.digest, environment_of(settings.gateway), decisions)
    if plan is not None or policy.approvals:
        proposal, _ = propose(ledger, request, checked, settings, decisions, known)
        allowed = let_through(ledger, plan, proposal, policy, datetime.now(UTC))
    if allowed.used_for is not None:
        return _Registered(ledger.find(allowed.used_for), 0)
    sign_off = allowed.sign_off
    approvals = len(sign_off.approvals) if sign_off else 0
    if known is None:
        if not decisions.paid_elsewhere_checked:
            refuse_paid_elsewhere(ledger, submission.run.results, environment_of(settings.gateway))
        batch = _write_batch(ledger, request, submission, settings, checked, sign_off, actor)
        return _Registered(batch, approvals, is_new=True)
    released = Totals()
    if decisions.release and checked.releasable.rows:
        released = _release(ledger, known, request, decisions, settings, checked, sign_off, actor)
    elif sign_off is not None:
        ledger.use_plan(known.batch, str(actor), sign_off)
    return _Registered(ledger.find(known.batch), approvals, released)


def _batch_to_go_on_with(
    ledger: Ledger, digest: bytes, environment: Environment, decisions: Decisions
) -> BatchSummary | None:
    """Find the batch that a submission would go on with; None where it would register one.

    One reason pays once more, however often it is run.
    """
    known = ledger.find_digest(digest, environment)
    if known is None or not decisions.again:
        return known
    made = ledger.find_digest(digest, environment, decisions.reason)
    if made is not None:
        return made
    unsettled = [state for state in (State.PENDING, State.SENDING, State.IN_DOUBT) if known.by_state[state].rows]
    if unsettled:
        states = " and ".join(unsettled).replace("_", " ")
        raise WrongUse(f"batch {known.batch} still has rows {states}: settle it before paying it again")
    return None


def _write_batch(
    ledger: Ledger,
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    checked: FileCheck,
    sign_off: SignOff | None,
    actor: Actor,
) -> BatchSummary:
    form, decisions = request_body.request_form(settings.gateway), submission.decisions
    allowed = checked.earlier.allowed_json(decisions.reason) if checked.earlier.allowed.rows else None
    batch = NewBatch(
        digest=checked.digest,
        file=checked.source.name,
        columns=checked.source.carried,
        rows=checked.verdict.rows,
        options={
            "normalize": request.rules.normalize,
            "as_of": request.rules.as_of.isoformat(),
            "gateway_ids": sorted(checked.gateway_ids),
            **({"allowed_duplicates": allowed} if allowed else {}),
            "has_recurring": checked.has_recurring,
            **({"paid_elsewhere_checked": decisions.reason} if decisions.paid_elsewhere_checked else {}),
        },
        origin=settings.gateway.base_url,
        environment=environment_of(settings.gateway),
        registration_count_seen=checked.registration_count_seen,
        again_reason=decisions.again_reason,
        sign_off=sign_off,
    )
    with ledger.register(batch, str(actor)) as registering:
        for rows in ahead(all_rows(checked.source, request.rules)):
            passed = rows.filter(~checked.verdict.rejected_mask(rows["_row"]))
            for columns in request_body.payment_columns(ledger, passed, checked.source.carried, form):
                registering.add_payments(columns)
        for rejected in checked.rejected:
            registering.add_rejected(rejected)
        name = registering.finish()
    return ledger.find(name)


def _release(
    ledger: Ledger,
    known: BatchSummary,
    request: FileRequest,
    decisions: Decisions,
    settings: Settings,
    checked: FileCheck,
    sign_off: SignOff | None,
    actor: Actor,
) -> Totals:
    """Turn to pending what an earlier call rejected and is right now: a named person asked for it, with a reason."""
    rejected = RejectedEarlier(ledger, known)
    form = request_body.request_form(settings.gateway)

    def payments() -> Iterator[PaymentColumns]:
        for rows in valid_rows(checked.source, request.rules, checked.verdict):
            yield from request_body.payment_columns(ledger, rejected.among(rows), checked.source.carried, form)

    before = known.by_state[State.REJECTED]
    ledger.release(
        known.batch,
        payments(),
        str(actor),
        decisions.reason or "",
        registration_count_seen=checked.registration_count_seen,
        sign_off=sign_off,
    )
    after = ledger.find(known.batch).by_state[State.REJECTED]
    return Totals(before.rows - after.rows, before.cents - after.cents)


def _first_requests(request: FileRequest, settings: Settings, checked: FileCheck, count: int) -> list[str]:
    """Bodies of the first rows that would be sent, masked."""
    form = request_body.request_form(settings.gateway)
    bodies: list[str] = []
    if count:
        for rows in valid_rows(checked.source, request.rules, checked.verdict):
            bodies += request_body.show_requests(rows.head(count - len(bodies)), form)
            if len(bodies) >= count:
                break
    return bodies


def _summary_of_run(
    request: FileRequest, submission: SubmitRequest, checked: FileCheck, batch: BatchSummary
) -> Summary:
    summary = summary_of_batch(batch, warnings=checked.verdict.warnings)
    of_check = checked.summary(request)
    summary.file, summary.notes, summary.rejects = of_check.file, of_check.notes, of_check.rejects
    summary.started_at, summary.read = checked.started_at, of_check.read
    return summary
