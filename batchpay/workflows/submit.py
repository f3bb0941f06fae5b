"""The order of the steps: check, register, run. Checking is validation's, sending is sending's.

Whatever ends a step early leaves the ledger in a state from which the same command continues. Nothing is registered
before the whole file was checked, and nothing is sent before the whole batch is registered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.approvals import Policy
from batchpay.approval.plan import Plan, PlanText
from batchpay.errors import BatchpayError, FileOvertaken, FileRefused
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.origin import environment_of, is_rehearsal
from batchpay.intake.streams import ahead
from batchpay.ledger.columns import PaymentColumns
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary, NewBatch, SignOff
from batchpay.operations.logs import log
from batchpay.payment import Actor, State, Totals
from batchpay.registration.digests import payment_columns, rejected_columns
from batchpay.registration.request_body import request_form
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import row_count
from batchpay.validation.check import all_rows, valid_rows
from batchpay.validation.verdict import Verdict
from batchpay.workflows.approve import LetThrough, let_through
from batchpay.workflows.check import batch_to_continue, refuse_release_of_nothing
from batchpay.workflows.checked_file import FileCheck
from batchpay.workflows.decisions import Decisions
from batchpay.workflows.file_check import CheckContext, check_file, one_fault_one_file, open_file
from batchpay.workflows.file_request import FileRequest
from batchpay.workflows.held_back import Fails
from batchpay.workflows.move_gateway import notes_on_gateway
from batchpay.workflows.paid_elsewhere import (
    must_check_elsewhere,
    refuse_moved,
    refuse_other_environment,
    refuse_paid_elsewhere,
)
from batchpay.workflows.proposal import propose
from batchpay.workflows.rejected_earlier import RejectedEarlier
from batchpay.workflows.status import add_in_doubt_elsewhere
from batchpay.workflows.still_due import repeated

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    from batchpay.workflows.run import Progress, RunRequest

_REGISTER_TRIES = 3


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a submission requests beyond checking."""

    run: RunRequest
    decisions: Decisions = field(default_factory=Decisions)
    plan: PlanText | None = None
    """A plan that what is sent is compared with, or None."""


def submit(
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
) -> tuple[Summary, Verdict]:
    """Check a file, register what is valid, send what is pending, write results and rejects.

    The same content is the same batch: what an earlier call did is not done again. A missing ledger is created only for
    a test gateway on loopback.
    """
    from batchpay.workflows.run import run_batch

    create_as = str(actor) if is_rehearsal(settings.gateway) else None
    with closing(open_ledger(settings.ledger, create_as=create_as)) as ledger:
        if not submission.decisions.paid_elsewhere_checked:
            refuse_other_environment(ledger, settings)
        plan = None if submission.plan is None else Plan.parse(submission.plan, ledger)
        for note in notes_on_gateway(ledger, settings):
            progress.say(note)
        source = open_file(request)  # once: standard input can't be read again
        for _ in range(_REGISTER_TRIES):
            counts = plan is not None or Policy.from_settings(settings.policy).asks
            context = CheckContext(
                settings,
                ledger,
                submission.run.preflight,
                submission.decisions,
                wants_schedule=counts,
                submits=True,
            )
            checked = check_file(source, request, context)
            _log_check(checked)
            if plan is None:  # a plan that differs in this is refused with all its differences
                refuse_release_of_nothing(checked, submission.decisions)
            ledger.take_over(checked.digest, str(actor), progress.say)
            try:
                with ledger.lock(checked.digest), checked.source.hold():
                    with one_fault_one_file(checked.source.name):
                        found = _register(ledger, request, submission, settings, checked, plan, actor)
                    if found.is_new:
                        log("registered", batch=found.batch.batch, file=found.batch.file, rows=found.batch.total.rows)
                    if found.released.rows:
                        progress.say(f"rejected before and released now: {row_count(found.released.rows)}")
                    fails = None if found.is_new else _fails_today(checked.verdict)
                    decisions = submission.decisions
                    looked = decisions.reason if decisions.paid_elsewhere_checked and not found.is_new else None
                    run = replace(submission.run, approvals=found.approvals, fails=fails, why=looked)
                    finished = run_batch(ledger, found.batch, settings, credentials, run, actor, progress)
            except RegisteredMeanwhile:
                continue  # payments of this file were added in between: they must be looked up as well
            summary = _summary_of_run(request, checked, finished)
            if not (found.is_new or checked.releasable.rows):
                _note_paid_before(summary, ledger, found.batch, submission.decisions)
            summary.seal = plan.seal if plan else None
            summary.released = found.released
            if found.released.rows:  # the batch itself records what was let through when it was registered
                summary.allowed_duplicates = checked.earlier.allowed_json(submission.decisions.reason)
            add_in_doubt_elsewhere(summary, ledger, finished)
            return summary, checked.verdict
    raise FileOvertaken(
        f"{source.name}: other files with payments of this one are being registered, nothing was sent now; run the "
        "command again"
    )


def _note_paid_before(summary: Summary, ledger: Ledger, batch: BatchSummary, decisions: Decisions) -> None:
    """Report if all of a known batch was paid before: the same wages a month later look as if they were paid again."""
    waiting, paid = (State.PENDING, State.SENDING, State.IN_DOUBT), batch.by_state[State.ACCEPTED]
    if not paid.rows or any(batch.by_state[state].rows for state in waiting):
        return
    rows = f"all {row_count(paid.rows)} were" if paid == batch.total else f"{row_count(paid.rows)} were"
    on = f"{ledger.last_progress_at(batch.batch).astimezone():%m/%d/%Y}"
    summary.paid_before = (
        f"0 sent now; {rows} paid by batch {batch.batch} on {on}; if they must be paid once more: --again with "
        f"{'another reason' if decisions.again else 'a reason'}"
    )
    summary.notes.append(summary.paid_before)
    log("nothing sent", level=logging.WARNING, batch=batch.batch, file=summary.file, rows=paid.rows, cents=paid.cents)


def _log_check(checked: FileCheck) -> None:
    total = checked.verdict.total
    log("checked", file=checked.source.name, rows=total.rows, cents=total.cents, rejected=checked.verdict.rejected.rows)


def _fails_today(verdict: Verdict) -> Fails | None:
    """Return which pending rows of a known batch fail today's rules; None if none does."""
    if verdict.passed.all():
        return None
    return lambda columns: verdict.rejected_mask(pl.Series(columns.rows, dtype=pl.UInt32)).to_list()


@dataclass(frozen=True, slots=True)
class _Registered:
    """The batch that is to be sent."""

    batch: BatchSummary
    approvals: int | None = None
    """How many people approved what this call sends of it, if a plan lets it through."""
    released: Totals = Totals()
    """Rows that this call has released."""
    is_new: bool = False


def _register(
    ledger: Ledger,
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    checked: FileCheck,
    plan: Plan | None,
    actor: Actor,
) -> _Registered:
    """Write the batch, or find it, and release what an earlier call rejected if a person requests it."""
    decisions, policy, allowed = submission.decisions, Policy.from_settings(settings.policy), LetThrough()
    known = batch_to_continue(ledger, checked, settings, decisions)
    if known is not None and ledger.registration_count() != checked.registration_count_seen and repeated(ledger, known):
        raise RegisteredMeanwhile("another file that repeats rows of this batch may have been registered meanwhile")
    if plan is not None or policy.asks:
        proposal, _ = propose(ledger, request, checked, settings, decisions, known)
        try:
            allowed = let_through(ledger, plan, proposal, policy, datetime.now(UTC))
        except FileRefused as error:
            raise _with_accounts(error, checked) from None
    if must_check_elsewhere(known, decisions, releases=decisions.release and checked.releasable.rows > 0):
        refuse_other_environment(ledger, settings)  # its first batch may be new since the file was opened
        refuse_moved(request.path, checked.source.identity)
        refuse_paid_elsewhere(ledger, submission.run.results, environment_of(settings.gateway))
    if allowed.used_for is not None:
        return _Registered(ledger.find(allowed.used_for))
    sign_off = allowed.sign_off
    approvals = len(sign_off.approvals) if sign_off else None
    if known is None:
        batch = _write_batch(ledger, request, submission, settings, checked, sign_off, actor)
        return _Registered(batch, approvals, is_new=True)
    released = Totals()
    if decisions.release and checked.releasable.rows:
        released = _release(ledger, known, request, decisions, settings, checked, sign_off, actor)
    elif sign_off is not None:
        ledger.use_plan(known.batch, str(actor), sign_off)
    return _Registered(ledger.find(known.batch), approvals, released)


def _with_accounts(refusal: FileRefused, checked: FileCheck) -> BatchpayError:
    """Add how the gateway's accounts bear on a plan's refusal: without an answer it is not known what differs."""
    if checked.accounts.problem is not None:
        return checked.accounts.problem
    if count := len(checked.accounts.failures):
        return FileRefused(
            f"{refusal} (the gateway takes no bank payments for the account of {row_count(count)}: a plan that is made "
            "with --preflight leaves them out)"
        )
    return refusal


def _write_batch(
    ledger: Ledger,
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    checked: FileCheck,
    sign_off: SignOff | None,
    actor: Actor,
) -> BatchSummary:
    form, decisions = request_form(settings.gateway), submission.decisions
    allowed = checked.earlier.allowed_json(decisions.reason) if checked.earlier.allowed.rows else None
    batch = NewBatch(
        digest=checked.digest,
        file=checked.source.name,
        columns=checked.source.carried,
        rows=checked.verdict.rows,
        options={
            "normalize": request.rules.normalize,
            **({"accepted_suggestions": accepted} if (accepted := checked.verdict.accepted) else {}),
            "as_of": request.rules.as_of.isoformat(),
            "gateway_ids": sorted(checked.gateway_ids),
            **({"allowed_duplicates": allowed} if allowed else {}),
            **({"sheet": sheet} if (sheet := checked.source.sheet) is not None else {}),
            **({"results": str(results.absolute())} if (results := submission.run.results) is not None else {}),
            **({"unreadable_amounts": count} if (count := checked.verdict.unreadable_amounts) else {}),
            "first_start": checked.first_start and checked.first_start.isoformat(),
            "largest_cents": checked.largest_cents,
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
            for columns in payment_columns(ledger, passed, checked.source.carried, form):
                registering.add_payments(columns)
        for rejected in checked.rejected:
            registering.add_rejected(rejected_columns(rejected))
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
    """Make pending what an earlier call rejected and is valid now: a named person requested it, with a reason."""
    rejected = RejectedEarlier(ledger, known)
    form = request_form(settings.gateway)

    def payments() -> Iterator[PaymentColumns]:
        for rows in valid_rows(checked.source, request.rules, checked.verdict):
            yield from payment_columns(ledger, rejected.among(rows), checked.source.carried, form)

    before = known.by_state[State.REJECTED]
    ledger.release(
        known.batch,
        payments(),
        str(actor),
        decisions.reason or "",
        registration_count_seen=checked.registration_count_seen,
        sign_off=sign_off,
        allowed_duplicates=checked.earlier.allowed_json(decisions.reason) if checked.earlier.allowed.rows else None,
    )
    after = ledger.find(known.batch).by_state[State.REJECTED]
    return before - after


def _summary_of_run(request: FileRequest, checked: FileCheck, batch: BatchSummary) -> Summary:
    summary = summary_of_batch(batch, warnings=checked.verdict.warnings)
    of_check = checked.summary(request)
    summary.file, summary.notes, summary.rejects = of_check.file, [*of_check.notes, *summary.notes], of_check.rejects
    summary.started_at, summary.read = checked.started_at, of_check.read
    return summary
